"""Files that appear whole or not at all."""

import pytest

from keras_transformer.errors import UserError
from keras_transformer.files import whole_file, whole_folder


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_file_appears_once_the_block_has_ended(tmp_path):
    with whole_file(tmp_path / "config.json") as partial:
        partial.write_text("{}")
        assert not (tmp_path / "config.json").exists()
    assert contents(tmp_path) == {"config.json": "{}"}


def test_file_replaces_the_old_one_only_then(tmp_path):
    (tmp_path / "config.json").write_text("old")
    with whole_file(str(tmp_path / "config.json")) as partial:
        partial.write_text("new")
        assert (tmp_path / "config.json").read_text() == "old"
    assert contents(tmp_path) == {"config.json": "new"}


@pytest.mark.parametrize("before", [{}, {"config.json": "old"}])
def test_failure_leaves_what_was_there_and_nothing_else(tmp_path, before):
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(KeyboardInterrupt), whole_file(tmp_path / "config.json") as partial:
        partial.write_text("half")
        raise KeyboardInterrupt
    assert contents(tmp_path) == before


def test_folder_appears_once_the_block_has_ended(tmp_path):
    with whole_folder(tmp_path / "runs" / "export") as partial:
        (partial / "config.json").write_text("{}")
        assert not (tmp_path / "runs" / "export").exists()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["export"]
    assert contents(tmp_path / "runs" / "export") == {"config.json": "{}"}


def test_failure_leaves_no_folder(tmp_path):
    with pytest.raises(KeyboardInterrupt), whole_folder(tmp_path / "export") as partial:
        (partial / "config.json").write_text("{}")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_folder_that_exists_is_refused_and_kept(tmp_path):
    (tmp_path / "config.json").write_text("old")
    with pytest.raises(UserError, match="expected a new folder"), whole_folder(tmp_path):
        pass
    assert contents(tmp_path) == {"config.json": "old"}


def test_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"file/export: expected .*: Not a directory"),
        whole_folder(tmp_path / "file" / "export"),
    ):
        pass
