"""Reads text files of one sentence per line, with one definition of a line."""

import glob
import gzip
import io
import os
import select
import stat
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, cast

from keras_transformer.errors import UserError
from keras_transformer.files import kind_of, not_utf_8
from keras_transformer.text.plain_text import plain_text

LONGEST_LINE = 1 << 24  # bytes: beyond about this, a file is no text of sentences
_BUFFER_BYTES = 1 << 16
# A list of lines ends after such a pause, and at the latest so long after its first line.
_PAUSE_SECONDS, _WAIT_SECONDS = 0.1, 0.5


def read_lines(path: str | os.PathLike, exact: bool = False) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 text file, without their ends.

    A line ends only at `\n`, or `\r\n`, and is read as plain text (`plain_text`). `str.splitlines`
    and universal newlines also split at other characters, so parallel files would fall out of step.

    Args:
        path: path of the file, which is decompressed if it ends in `.gz`.
        exact: whether lines keep their control characters, such as tabs.

    Raises:
        UserError: the file cannot be read, is truncated, or has a line that is not UTF-8 or is
            longer than `LONGEST_LINE`.
    """
    number = 0
    try:
        with open_binary(path) as file:
            for line in file:
                number += 1
                text = line.rstrip(b"\r\n") if exact else without_end(line)
                yield text.decode("utf-8")
    except UnicodeDecodeError as error:
        begin = line if number == 1 else b""
        raise UserError(f"{path}:{number}: {not_utf_8(error, begin)}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}:{number + 1}: damaged gzip file: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot read the file: {error.strerror}") from error


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
            raise UserError(f"{path}: no file matches this pattern")
        paths += found
    return paths


def refuse_pipes(paths: Iterable[str | os.PathLike]) -> None:
    """Refuses pipes and devices among files that are read more than once.

    A second reading of a pipe finds no lines, and some devices never end.

    Raises:
        UserError: one of them is a pipe, such as `<(zcat train.en.gz)`, or a device.
    """
    for path in paths:
        if os.path.exists(path):
            mode = os.stat(path).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # to open a folder fails
                kind = kind_of(mode)
                raise UserError(
                    f"{path} is read more than once, so it must be a file: found {kind}"
                )


def standard_input() -> BinaryIO:
    """Returns standard input in binary mode.

    Reading raises `UserError` in a line that is much longer than `LONGEST_LINE`, as of /dev/zero.

    Raises:
        UserError: it is closed.
    """
    if sys.stdin is None:
        raise UserError("standard input is closed, but this command needs it")
    lines = io.BufferedReader(_WithLines(sys.stdin.buffer, "standard input"), _BUFFER_BYTES)
    return cast(BinaryIO, lines)


def standard_output() -> BinaryIO:
    """Returns standard output in binary mode.

    Raises:
        UserError: it is closed.
    """
    if sys.stdout is None:
        raise UserError("standard output is closed, but this command needs it")
    return sys.stdout.buffer


def open_binary(path: str | os.PathLike) -> BinaryIO:
    """Opens a text file for reading in binary, decompressed if its name ends in `.gz`.

    Reading raises `UserError` in a line that is much longer than `LONGEST_LINE`, as of /dev/zero.
    """
    file = (gzip.open if os.fspath(path).endswith(".gz") else open)(path, "rb")
    return cast(BinaryIO, io.BufferedReader(_WithLines(file, path), _BUFFER_BYTES))


def blocks(file: BinaryIO, most: int) -> Iterator[list[bytes]]:
    r"""Yields the lines of a stream in lists, so that a person who types is answered.

    A list ends when it has `most` lines, when no line comes for a tenth of a second, or half a
    second after its first line. A file that is read faster gives lists of `most` lines.

    Args:
        file: a stream, as from `open_binary` or `standard_input`.
        most: the maximum number of lines in a list.

    Returns:
        An iterator over lists of binary lines with their ends, `\n`; the last may lack it.
    """
    lines: list[bytes] = []
    rest, end = b"", 0.0
    while True:
        seconds = end - time.monotonic()
        if lines and (seconds <= 0 or not _comes(file, min(seconds, _PAUSE_SECONDS))):
            yield lines
            lines = []
        block = file.read1(_BUFFER_BYTES)  # type: ignore[attr-defined]
        if not block:
            break
        if not lines:
            end = time.monotonic() + _WAIT_SECONDS
        *ended, rest = (rest + block).split(b"\n")
        lines += [line + b"\n" for line in ended]
        while len(lines) >= most:
            yield lines[:most]
            lines, end = lines[most:], time.monotonic() + _WAIT_SECONDS
    lines += [rest] if rest else []
    if lines:
        yield lines


def _comes(file, seconds):
    """Whether something can be read from a stream within so many seconds."""
    try:
        number = file.fileno()
    except OSError:  # it is in memory
        return True
    return bool(select.select([number], [], [], seconds)[0])


class _WithLines(io.RawIOBase):
    """A file, with an error in a line that is too long."""

    def __init__(self, file, path):
        self._file, self._path = file, path
        self._lines, self._length = 0, 0  # ended lines; bytes of the line that has not ended

    def readable(self):
        return True

    def fileno(self):
        return self._file.fileno()

    def readinto(self, buffer):
        block = self._file.read1(len(buffer))
        buffer[: len(block)] = block
        if ends := block.count(b"\n"):
            self._lines, self._length = self._lines + ends, -1 - block.rfind(b"\n")
        self._length += len(block)
        if self._length > LONGEST_LINE:
            raise UserError(
                f"{self._path}:{self._lines + 1}: this line is longer than {LONGEST_LINE:,} bytes"
            )
        return len(block)

    def close(self):
        self._file.close()
        super().close()


def without_end(line: bytes) -> bytes:
    r"""Strips a binary line of its end, `\n` or `\r\n`, and makes it plain text (`plain_text`).

    Bytes that are not UTF-8 stay.
    """
    text = line.removesuffix(b"\n").rstrip(b"\r").decode("utf-8", "surrogateescape")
    return plain_text(text).encode("utf-8", "surrogateescape")


def is_utf8(lines: list[bytes]) -> bool:
    """Whether each of the lines is UTF-8 text."""
    try:
        b"\n".join(lines).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
