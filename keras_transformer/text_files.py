"""Reads text files of one sentence per line, with one definition of a line."""

import glob
import gzip
import json
import os
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO, cast

from keras_transformer.errors import UserError
from keras_transformer.sentences import utf_8


def read_lines(path: str | os.PathLike) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, without their ends.

    A line ends only at `\n`, or `\r\n`, and is read as plain text (`plain_text`). `str.splitlines`
    and universal newlines also split at other characters, so parallel files would fall out of step.

    Args:
        path: path of the file, which is decompressed if it ends in `.gz`.

    Raises:
        UserError: the file cannot be read, is truncated, or has a line that is not UTF-8.
    """
    number = 0
    try:
        with open_binary(path) as file:
            for line in file:
                number += 1
                yield without_end(line).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: expected UTF-8 text, found {error.reason}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}:{number + 1}: expected a whole gzip file: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: expected a readable file: {error.strerror}") from error


def as_paths(files: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """Returns one path, or several, as a list of strings."""
    return [os.fspath(f) for f in ([files] if isinstance(files, str | os.PathLike) else files)]


def matching_files(files: str | os.PathLike | Sequence[str | os.PathLike]) -> list[str]:
    """Replaces each pattern among paths, such as `shard-*.en`, by its files, sorted by name.

    Raises:
        UserError: a pattern has no files.
    """
    paths = []
    for path in as_paths(files):
        is_pattern = glob.has_magic(path) and not os.path.exists(path)
        found = sorted(glob.glob(path)) if is_pattern else [path]
        if not found:
            raise UserError(f"{path}: expected files of this pattern, found none")
        paths += found
    return paths


def refuse_pipes(paths: Iterable[str | os.PathLike]) -> None:
    """Refuses pipes among files that are read more than once: a second reading finds no lines.

    Raises:
        UserError: one of them is a pipe, such as `<(zcat train.en.gz)`.
    """
    for path in paths:
        if os.path.exists(path) and stat.S_ISFIFO(os.stat(path).st_mode):
            raise UserError(f"{path}: expected a file, which is read more than once, found a pipe")


def parse_json(text: str, where: str | os.PathLike) -> Any:
    """Parses JSON; raises `UserError` that names `where`, and the line, if the text is not JSON."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}:{error.lineno}: not JSON: {error.msg}") from None
    except (ValueError, RecursionError) as error:  # too long a number, too deep a list
        raise UserError(f"{where}: not JSON that can be read: {error}") from None


def standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Returns standard input and output in binary mode.

    Raises:
        UserError: one of them is closed.
    """
    for name, stream in (("input", sys.stdin), ("output", sys.stdout)):
        if stream is None:
            raise UserError(f"expected an open standard {name}, found it closed")
    return sys.stdin.buffer, sys.stdout.buffer


def open_binary(path: str | os.PathLike) -> BinaryIO:
    """Opens a file for reading in binary, decompressed if its name ends in `.gz`."""
    if os.fspath(path).endswith(".gz"):
        return cast(BinaryIO, gzip.open(path))
    return open(path, "rb")


def without_end(line: bytes) -> bytes:
    r"""Strips a binary line of its end, `\n` or `\r\n`, and makes it plain text (`plain_text`)."""
    return utf_8(line.removesuffix(b"\n").rstrip(b"\r"))


def is_utf8(lines: list[bytes]) -> bool:
    """Whether each of the lines is UTF-8 text."""
    try:
        b"\n".join(lines).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
