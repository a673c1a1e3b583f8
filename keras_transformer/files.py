"""Files that appear whole or not at all."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from keras_transformer.errors import UserError


def partial_path(path: Path) -> Path:
    """What `path` is called until it is whole."""
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """A path to write to, renamed to `path` once the block has ended without an error.

    Example:
        >>> with whole_file("config.json") as partial:
        ...     partial.write_text("{}")
    """
    path = Path(path)
    partial = partial_path(path)
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


@contextlib.contextmanager
def whole_folder(path: str | os.PathLike) -> Iterator[Path]:
    """An empty folder to write to, renamed to `path` once the block has ended without an error.

    Raises:
        UserError: something is at `path`, or no folder can be made there.

    Example:
        >>> with whole_folder("export") as partial:
        ...     (partial / "config.json").write_text("{}")
    """
    path = Path(path)
    if os.path.lexists(path):
        raise UserError(f"{path}: expected a new folder, found one that exists")
    partial = partial_path(path)
    try:
        partial.mkdir(parents=True)
    except OSError as error:
        raise UserError(f"{path}: expected a folder that can be made: {error.strerror}") from error
    try:
        yield partial
        partial.rename(path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def is_partial(path: Path) -> bool:
    """Whether this is a `partial_path`, which stays behind if the process is killed."""
    return path.name.startswith(".") and path.name.endswith(".partial")
