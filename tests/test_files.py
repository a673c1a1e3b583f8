"""Files that are written atomically."""

import errno
import fcntl
import itertools
import os
import shutil
import sys
from pathlib import Path

import pytest
from file_faults import Fault

from keras_transformer.errors import UserError
from keras_transformer.files import (
    is_partial,
    partial_folder,
    partial_path,
    recover_folder,
    remove_folder,
    sync,
    whole_file,
    whole_folder,
)


def contents(folder):
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_file_appears_once_the_block_has_ended(tmp_path):
    with whole_file(tmp_path / "config.json") as partial:
        partial.write_text("{}")
        assert not (tmp_path / "config.json").exists()
    assert contents(tmp_path) == {"config.json": "{}"}


@pytest.mark.parametrize("name", ["a" * 255, "é" * 127, "日" * 85])
def test_a_name_may_be_as_long_as_file_systems_allow(tmp_path, name):
    with whole_file(tmp_path / name) as partial:
        partial.write_text("{}")
        assert is_partial(partial)
    assert contents(tmp_path) == {name: "{}"}


def test_file_replaces_the_old_one_only_then(tmp_path):
    (tmp_path / "config.json").write_text("old")
    with whole_file(str(tmp_path / "config.json")) as partial:
        partial.write_text("new")
        assert (tmp_path / "config.json").read_text() == "old"
    assert contents(tmp_path) == {"config.json": "new"}


def test_a_symbolic_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to("data/config.json")
    for text in ("old", "new"):
        with whole_file(tmp_path / "link") as partial:
            partial.write_text(text)
        assert (tmp_path / "link").is_symlink()
        assert contents(tmp_path / "data") == {"config.json": text}


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
    with (
        pytest.raises(UserError, match="exists already: choose a new folder"),
        whole_folder(tmp_path),
    ):
        pass
    assert contents(tmp_path) == {"config.json": "old"}


def test_a_link_that_leads_nowhere_is_refused_and_kept(tmp_path):
    (tmp_path / "export").symlink_to("unmounted")
    with (
        pytest.raises(UserError, match="exists already: choose a new folder"),
        whole_folder(tmp_path / "export"),
    ):
        pass
    assert os.listdir(tmp_path) == ["export"]


def test_folder_that_another_process_makes_meanwhile_is_kept(tmp_path):
    path = tmp_path / "export"
    with (
        pytest.raises(UserError, match="exists already: choose a new folder"),
        whole_folder(path) as partial,
    ):
        (partial / "config.json").write_text("ours")
        path.mkdir()
        (path / "config.json").write_text("theirs")
    assert contents(path) == {"config.json": "theirs"}
    assert list(tmp_path.iterdir()) == [path]


def test_a_url_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(UserError, match=r"^gs://bucket/en-de must be a local folder: found a URL$"),
        whole_folder("gs://bucket/en-de"),
    ):
        pass
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(UserError, match=r"file/export: cannot create the folder: Not a directory"),
        whole_folder(tmp_path / "file" / "export"),
    ):
        pass


def test_what_a_killed_process_left_of_the_same_folder_is_removed(tmp_path):
    for name in (".step.12.partial", ".step.5eed.partial", ".other.12.partial", ".step.12"):
        write_folder(tmp_path / name, "half")
    (tmp_path / ".step.13.partial").write_text("a file")
    write_folder(tmp_path / "step", "new")
    kept = {".other.12.partial", ".step.12"}
    assert set(os.listdir(tmp_path)) == {"step", *kept}
    assert contents(tmp_path / "step") == {"config.json": "new"}


@pytest.mark.parametrize("name", ["step", "[step]*"])
def test_a_folder_that_is_being_written_is_not_taken_for_one_left_behind(tmp_path, name):
    with partial_folder(tmp_path / name) as first, partial_folder(tmp_path / name) as second:
        assert first.is_dir() and second.is_dir() and first != second
    assert os.listdir(tmp_path) == []


def test_a_new_folder_that_another_process_removes_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch
):
    flock, calls = fcntl.flock, []

    def remove_before_the_first(descriptor, operation):
        if not calls:
            [folder] = tmp_path.iterdir()
            folder.rmdir()
        calls.append(operation)
        flock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", remove_before_the_first)
    with partial_folder(tmp_path / "step") as partial:
        assert partial.is_dir()
    assert len(calls) == 2


def test_a_file_system_without_locks_has_whole_folders_too(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / ".step.12.partial").mkdir()  # in use for all we know
    write_folder(tmp_path / "step", "new")
    assert set(os.listdir(tmp_path)) == {"step", ".step.12.partial"}


def test_what_killed_processes_left_is_removed_and_nothing_else(tmp_path):
    for name in ("kept", ".hidden", "half.partial", ".log.jsonl.12.partial"):
        (tmp_path / name).write_text("")
    (tmp_path / ".step.7.partial").mkdir()
    (tmp_path / ".step.7.partial" / "state").write_text("")
    assert {path.name for path in tmp_path.iterdir() if is_partial(path)} == {
        ".log.jsonl.12.partial",
        ".step.7.partial",
    }
    recover_folder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"kept", ".hidden", "half.partial"}


def test_what_is_being_written_is_not_taken_for_left_behind(tmp_path):
    with whole_file(tmp_path / "out.de") as file, whole_folder(tmp_path / "export") as folder:
        for path in (file, folder / "config.json"):
            path.write_text("new")
        recover_folder(tmp_path)
    assert (tmp_path / "out.de").read_text() == "new"
    assert contents(tmp_path / "export") == {"config.json": "new"}


def test_what_a_killed_process_left_of_the_same_file_is_removed(tmp_path):
    partial_path(tmp_path / "out.de").write_text("left behind")
    partial_path(tmp_path / "out.fr").write_text("of another")
    with whole_file(tmp_path / "out.de") as partial:
        partial.write_text("new")
    assert {path.read_text() for path in tmp_path.iterdir()} == {"new", "of another"}


def test_two_processes_with_one_number_do_not_share_a_partial_file(tmp_path):
    with whole_file(tmp_path / "out.de") as first, whole_file(tmp_path / "out.de") as second:
        first.write_text("first")
        second.write_text("second")  # as in two containers with a shared folder
    assert contents(tmp_path) == {"out.de": "first"}


def test_a_file_system_without_locks_is_cleaned_up_too(tmp_path, monkeypatch):
    def refuse(descriptor, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", refuse)
    (tmp_path / ".out.de.12.partial").write_text("half")
    recover_folder(tmp_path)
    assert os.listdir(tmp_path) == []
    with whole_file(tmp_path / "out.de") as partial:
        partial.write_text("new")
    assert contents(tmp_path) == {"out.de": "new"}


def test_no_descriptor_stays_open(tmp_path):
    before = os.listdir("/dev/fd")
    write_folder(tmp_path / "step", "")
    recover_folder(tmp_path)
    assert os.listdir("/dev/fd") == before


def write_folder(path, text, **options):
    with whole_folder(str(path), **options) as partial:
        (partial / "config.json").write_text(text)


def test_a_folder_gives_way_to_a_new_one_when_that_is_wanted(tmp_path):
    write_folder(tmp_path / "step", "old")
    write_folder(tmp_path / "step", "new", replace=True)
    assert contents(tmp_path / "step") == {"config.json": "new"}
    assert os.listdir(tmp_path) == ["step"]


def test_a_replacement_that_was_killed_anywhere_leaves_the_old_folder_or_the_new(tmp_path):
    found = []
    for number in itertools.count(1):
        folder = tmp_path / str(number)
        write_folder(folder / "step", "old")
        with Fault(number) as killed:
            write_folder(folder / "step", "new", replace=True)
        recover_folder(folder)
        assert os.listdir(folder) == ["step"]
        found.append(contents(folder / "step")["config.json"])
        if not killed.happened:
            break
    assert found == sorted(found, reverse=True)
    assert {*found} == {"old", "new"}


@pytest.mark.parametrize("names", [[".step.replaced"], ["step", ".step.replaced"]])
def test_a_replacement_after_one_that_was_killed_succeeds_without_recovery(tmp_path, names):
    for name in names:
        write_folder(tmp_path / name, "old")
    write_folder(tmp_path / "step", "new", replace=True)
    assert os.listdir(tmp_path) == ["step"]
    assert contents(tmp_path / "step") == {"config.json": "new"}


def test_a_folder_that_cannot_be_renamed_leaves_the_old_one(tmp_path, monkeypatch):
    write_folder(tmp_path / "step", "old")
    rename = Path.rename

    def fail_for_the_new(path, target):
        if path.name.endswith(".partial"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", fail_for_the_new)
    with pytest.raises(OSError, match="No space left"):
        write_folder(tmp_path / "step", "new", replace=True)
    assert os.listdir(tmp_path) == ["step"]
    assert contents(tmp_path / "step") == {"config.json": "old"}


def test_a_file_or_folder_that_cannot_be_written_is_named(tmp_path):
    path = tmp_path / "config.json"
    link = tmp_path / "link"
    link.symlink_to(path)
    for given in (path, link):
        with pytest.raises(OSError) as error, whole_file(given):
            raise OSError(errno.ENOSPC, "No space left on device")
        assert error.value.filename == str(given)
    with pytest.raises(OSError) as error, whole_folder(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert error.value.filename == str(path)
    with pytest.raises(FileNotFoundError) as error, whole_file(path):
        (tmp_path / "other").read_text()
    assert error.value.filename == str(tmp_path / "other")


@pytest.mark.parametrize("whole", [whole_file, whole_folder])
def test_the_text_of_a_library_s_own_error_is_kept(whole, tmp_path):
    with pytest.raises(OSError, match=r"^cannot write mode RGBA as JPEG$"), whole(tmp_path / "new"):
        raise OSError("cannot write mode RGBA as JPEG")


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is a folder that cannot be flushed")
def test_a_folder_that_cannot_be_flushed_is_no_error_and_a_file_is():
    sync(Path("/proc"))
    with pytest.raises(OSError, match="Invalid argument"):
        sync(Path("/proc/version"))


# After a power cut, names and files that were flushed to the disk are there, others maybe.


class Disk:
    """Records what `fsync` has flushed to the disk, in the order of the operations."""

    def __init__(self, monkeypatch):
        self.synced = []
        original = os.fsync

        def fsync(descriptor):
            self.synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
            original(descriptor)

        monkeypatch.setattr("os.fsync", fsync)
        for owner, name in ((os, "rename"), (os, "replace"), (shutil, "rmtree")):
            self._follow(monkeypatch, owner, name)

    def _follow(self, monkeypatch, owner, name):
        original = getattr(owner, name)

        def followed(path, *others, **options):
            if os.path.exists(path):
                self.synced.append((name, Path(path).name, *(Path(p).name for p in others)))
            return original(path, *others, **options)

        monkeypatch.setattr(owner, name, followed)


@pytest.mark.skipif(sys.platform != "linux", reason="a descriptor's path is read from /proc")
def test_what_is_renamed_is_on_the_disk_before_and_its_name_after(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    monkeypatch.setattr("secrets.token_hex", lambda size: "5eed")
    with whole_file(tmp_path / "file") as partial:
        partial.write_text("")
    assert disk.synced == [partial, ("replace", partial.name, "file"), tmp_path]
    disk.synced.clear()
    write_folder(tmp_path / "runs" / "step", "")
    inside = tmp_path / "runs" / ".step.5eed.partial"
    assert disk.synced == [
        inside / "config.json",
        inside,
        ("rename", inside.name, "step"),
        tmp_path / "runs",
        tmp_path,  # its new entry is `runs`
    ]
    disk.synced.clear()
    write_folder(tmp_path / "runs" / "step", "", replace=True)
    assert disk.synced == [
        inside / "config.json",
        inside,
        ("rename", "step", ".step.replaced"),
        ("rename", inside.name, "step"),
        tmp_path / "runs",
        ("rmtree", ".step.replaced"),
    ]
    disk.synced.clear()
    remove_folder(tmp_path / "runs" / "step")
    removed = ".step.removed.5eed.partial"
    assert disk.synced == [("rename", "step", removed), tmp_path / "runs", ("rmtree", removed)]


@pytest.mark.skipif(sys.platform != "linux", reason="a descriptor's path is read from /proc")
def test_what_is_in_folders_of_a_folder_is_on_the_disk_before_it_is_renamed(tmp_path, monkeypatch):
    disk = Disk(monkeypatch)
    with whole_folder(tmp_path / "export") as partial:
        (partial / "assets").mkdir()
        (partial / "assets" / "vocabulary").write_text("")
    before = disk.synced[: disk.synced.index(("rename", partial.name, "export"))]
    assert {*before} == {partial, partial / "assets", partial / "assets" / "vocabulary"}
