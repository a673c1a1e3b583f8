"""Files and folders: only regular files are read; writing is atomic, safe against power cuts."""

import codecs
import contextlib
import errno
import fcntl
import glob
import hashlib
import io
import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from keras_transformer.errors import UserError

LARGEST_WHOLE = 1 << 28  # bytes of a file that is read whole: a vocabulary of 2^24 subwords fits

# By the byte order mark: the longer ones first, since one begins like a shorter one.
_ENCODINGS = {
    codecs.BOM_UTF32_LE: "UTF-32",
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
_REPLACED = ".replaced"
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: str | os.PathLike, largest: int | None = None) -> io.BufferedReader:
    """Opens a regular file for reading in binary.

    To open a pipe waits for another program, and a device such as /dev/zero never ends.

    Args:
        path: the file.
        largest: maximum number of its bytes; default: no limit.

    Raises:
        OSError: the file cannot be opened, is larger, or `strerror` is such as "is a pipe, not a
            regular file".
    """

    def opener(path, flags):
        descriptor = os.open(path, flags | os.O_NONBLOCK)  # so that a pipe is opened at once
        status = os.fstat(descriptor)
        number, reason = 0, ""
        if not stat.S_ISREG(status.st_mode):
            number, reason = errno.EINVAL, f"is {kind_of(status.st_mode)}, not a regular file"
        elif largest is not None and status.st_size > largest:
            number = errno.EFBIG
            reason = f"has {status.st_size:,} bytes, more than the {largest:,} that it may have"
        if reason:
            os.close(descriptor)
            raise OSError(number, reason, os.fspath(path))
        return descriptor

    return open(path, "rb", opener=opener)


def open_lock(path: str | os.PathLike) -> IO[str]:
    """Opens a file to lock, and makes it if it is missing; a pipe that nobody reads is an error."""

    def opener(path, flags):
        return os.open(path, flags | os.O_NONBLOCK, 0o666)

    return open(path, "a", opener=opener)


def kind_of(mode: int) -> str:
    """Names the kind of a file from its mode, such as "a pipe"."""
    return _KINDS.get(stat.S_IFMT(mode), "a file")


def read_whole(path: str | os.PathLike, largest: int = LARGEST_WHOLE) -> bytes:
    """Reads a regular file of at most `largest` bytes; raises `OSError` for any other."""
    with open_regular(path, largest) as file:
        return file.read()


def read_utf_8(path: str | os.PathLike) -> str:
    """Reads the text of a small regular file.

    Raises:
        OSError: the file cannot be read.
        UserError: it is not UTF-8; the message names the file.
    """
    try:
        return read_whole(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: {not_utf_8(error, error.object)}") from error


def marked_encoding(begin: bytes) -> str | None:
    """UTF-16 or UTF-32, if a text begins with its byte order mark, as files of Windows often do."""
    marked = (name for mark, name in _ENCODINGS.items() if begin.startswith(mark))
    return next(marked, None)


def not_utf_8(error: UnicodeDecodeError, begin: bytes) -> str:
    """Says that a text is not UTF-8, and how to convert it if its encoding is known.

    Args:
        error: the error of decoding it.
        begin: its first bytes.
    """
    if encoding := marked_encoding(begin):
        convert = f"convert it, for example by iconv -f {encoding} -t UTF-8"
        return f"not UTF-8 text but {encoding}: {convert}"
    return f"not UTF-8 text: {error.reason}; if you know its encoding, convert it by iconv"


def checksum(path: str | os.PathLike, largest: int | None = None) -> str:
    """The SHA-256 checksum of a file that `open_regular` opens, in hexadecimal."""
    with open_regular(path, largest) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def partial_path(path: Path) -> Path:
    """A new temporary name for `path` until it is complete."""
    return path.with_name(f".{_begin(path)}.{secrets.token_hex(4)}.partial")


def _begin(path):
    return os.fsdecode(os.fsencode(path.name)[:200])  # file systems allow 255 bytes in a name


def _remove_left(path):
    """Removes what killed processes have left of `path`, but not what is being written.

    That is locked, and a lock ends with its process.
    """
    for left in path.parent.glob(f".{glob.escape(_begin(path))}.*.partial"):
        with contextlib.suppress(OSError), _lock(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
            _remove(left)


def _remove(path):
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)  # it may have become whole meanwhile


@contextlib.contextmanager
def partial_folder(path: Path) -> Iterator[Path]:
    """Yields an empty folder beside `path` with a temporary name, and removes it at the end.

    The folder is locked meanwhile. What killed processes have left of `path` is removed.
    """
    _remove_left(path)
    partial = partial_path(path)
    with _locked(partial, lambda: partial.mkdir(parents=True)):
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _locked(partial, make):
    """Makes a partial file or folder, and locks it, which tells it from one left behind."""
    with contextlib.ExitStack() as stack:
        while not partial.exists():  # another process may remove it before the lock
            make()
            with contextlib.suppress(OSError):  # not every file system can lock
                stack.enter_context(_lock(partial, fcntl.LOCK_EX))
        yield


@contextlib.contextmanager
def _lock(path, operation):
    # Network file systems lock only a file that is open for writing; no folder can be.
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        fcntl.flock(descriptor, operation)
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """Yields a path to write to, and renames it to `path` if the block ends without an error.

    If `path` is a symbolic link, the file that it names is written, and the link stays. The file is
    locked until it is whole, so that no other process takes it for one left behind.

    Example:
        >>> with whole_file("config.json") as partial:
        ...     partial.write_text("{}")
        2
    """
    name, path = str(path), Path(os.path.realpath(path))
    partial = partial_path(path)
    try:
        with _naming(name):
            _remove_left(path)
            with _locked(partial, partial.touch):
                yield partial
                sync(partial)
                os.replace(partial, path)
            sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def _naming(name):
    """Adds a name to an error of the system that has none: a failed write names no file."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:  # else its text is a library's, which a name would replace
            error.filename = error.filename or name
        raise


def refuse_existing(paths: Iterable[Path]) -> None:
    """Raises `UserError` if there is something at one of these paths already."""
    for path in paths:
        if path.exists():
            raise UserError(f"{path} exists already: --overwrite replaces it")


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike, replace: bool = False) -> Iterator[Path]:
    """Yields an empty folder to write to, and renames it to `path` if the block ends without error.

    Two folders cannot be swapped atomically, so a folder to replace is first renamed to
    `.name.replaced`. If the process is killed before the new folder has its name,
    `recover_folder` brings the old one back.

    Args:
        path: path of the folder.
        replace: whether to replace an existing folder at `path`, at the end.

    Raises:
        UserError: `path` exists and is not to be replaced, is a URL, or cannot be made.

    Example:
        >>> with whole_folder("export") as partial:
        ...     (partial / "config.json").write_text("{}")
        2
    """
    expect_local(path)
    path = Path(path)
    if not replace:
        _expect_new(path)
    new_parents = [parent for parent in path.parents if not parent.exists()]
    with contextlib.ExitStack() as stack:
        try:
            partial = stack.enter_context(partial_folder(path))
        except OSError as error:
            reason = error.strerror
            raise UserError(f"{path}: cannot create the folder: {reason}") from error
        stack.callback(_end_replacement, path)
        with _naming(str(path)):
            yield partial
            sync_all(partial)
            _end_replacement(path)  # left by a process that was killed
            if not replace:
                _expect_new(path)  # another process may have made it meanwhile
            elif path.exists():
                path.rename(path.with_name(f".{path.name}{_REPLACED}"))
            partial.rename(path)
            for renamed in (path, *new_parents):
                sync(renamed.parent)


def expect_local(path: str | os.PathLike) -> None:
    """Raises `UserError` for a URL such as gs://bucket/en-de, which as a path begins with `gs:`."""
    if "://" in os.fspath(path):
        raise UserError(f"{path} must be a local folder: found a URL")


def _expect_new(path):
    if os.path.lexists(path):
        raise UserError(f"{path} exists already: choose a new folder")


def remove_folder(path: Path) -> None:
    """Removes a folder, so that nobody sees it with only some of its files."""
    partial = partial_path(path.with_name(f"{path.name}.removed"))
    path.rename(partial)
    sync(path.parent)
    shutil.rmtree(partial)


def recover_folder(folder: Path) -> None:
    """Cleans up what killed processes left in `folder`.

    It removes incomplete files and folders, except those that are being written, and brings back a
    folder that was about to be replaced.
    """
    for path in folder.glob(".*.partial"):
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(_lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB))
            except BlockingIOError:
                continue
            except OSError:
                pass  # not every file system can lock
            _remove(path)
    for replaced in folder.glob(f".*{_REPLACED}"):
        _end_replacement(folder / replaced.name.removeprefix(".").removesuffix(_REPLACED))


def _end_replacement(path):
    """Removes the folder that `path` has replaced, or brings it back if nothing is at `path`."""
    replaced = path.with_name(f".{path.name}{_REPLACED}")
    if not replaced.exists():
        return
    if path.exists():
        shutil.rmtree(replaced)
    else:
        replaced.rename(path)


def sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, have reached the disk.

    Folders that are shared with a virtual machine, among others, cannot be waited for: EINVAL.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def sync_all(folder: Path) -> None:
    """Waits until a folder, with all files and folders in it, has reached the disk."""
    for inside in (*folder.rglob("*"), folder):
        sync(inside)


def is_partial(path: Path) -> bool:
    """Whether a path is a `partial_path`, which stays behind if the process is killed."""
    return path.name.startswith(".") and path.name.endswith(".partial")
