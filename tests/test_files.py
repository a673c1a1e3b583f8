"""Files that appear whole or not at all."""

import pytest

from keras_transformer.files import whole_file


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
