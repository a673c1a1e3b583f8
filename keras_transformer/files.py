"""Files that appear whole or not at all."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[Path]:
    """A path to write to, renamed to `path` once the block has ended without an error.

    Example:
        >>> with whole_file("config.json") as partial:
        ...     partial.write_text("{}")
    """
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def is_partial(path: Path) -> bool:
    """Whether this is what `whole_file` leaves if the process is killed."""
    return path.name.startswith(".") and path.name.endswith(".partial")
