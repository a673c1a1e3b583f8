"""The lines that a command reads and writes: standard input and output, or a file each."""

import contextlib
import gzip
import sys
import zlib
from collections.abc import Iterator, Sequence
from typing import BinaryIO

from absl import flags

from keras_transformer.cli.flags import FLAGS
from keras_transformer.cli.outputs import check_outputs, writing
from keras_transformer.errors import UserError, expect_named
from keras_transformer.files import marked_encoding
from keras_transformer.options.records import LARGEST
from keras_transformer.text.text_files import (
    blocks,
    is_utf8,
    open_binary,
    standard_input,
    standard_output,
    without_end,
)
from keras_transformer.translation import first_few


def define_flags(input_help: str = "", output_help: str = "") -> None:
    """Defines the flags of `lines_and_output`.

    Args:
        input_help: what else the help of `--input` says.
        output_help: what else the help of `--output` says.
    """
    flags.DEFINE_string(
        "input",
        None,
        f"file to read instead of standard input, decompressed if its name ends in .gz{input_help}",
    )
    flags.DEFINE_string(
        "output",
        None,
        "file to write instead of standard output, compressed if its name ends in .gz; it appears "
        f"when it is complete{output_help}",
    )
    flags.DEFINE_integer(
        "lines_at_once",
        1024,
        "most lines to read together; fewer if no more come for a moment",
        lower_bound=1,
        upper_bound=LARGEST,
    )


@contextlib.contextmanager
def lines_and_output(
    inputs: Sequence[str] = (), exact: bool = False
) -> Iterator[tuple[Iterator[list[bytes]], BinaryIO]]:
    """Opens the input and the output that the flags name.

    Args:
        inputs: other files that the command reads, which the output may not replace.
        exact: whether lines keep their control characters, such as tabs.

    Yields:
        The lines of the input, as plain text unless `exact`, in lists of at most
        `--lines_at_once`; and the output.

    Raises:
        UserError: a file cannot be read or written.
    """
    unreadable = _Unreadable()
    with _opened("Type a line and press Enter. Ctrl-D ends the input.", inputs) as (read, write):
        yield _lines(read, exact, unreadable), write
    unreadable.say()


@contextlib.contextmanager
def document_and_output(
    inputs: Sequence[str] = (),
) -> Iterator[tuple[Iterator[list[bytes]], BinaryIO]]:
    """Opens the input and the output that the flags name, and reads the input as a whole.

    Args:
        inputs: other files that the command reads, which the output may not replace.

    Yields:
        The content of the input, as the only text of the only list; and the output.

    Raises:
        UserError: a file cannot be read or written.
    """
    with _opened("Type a text. Ctrl-D at the start of a line ends it.", inputs) as (read, write):
        with _naming(FLAGS.input or "standard input"):
            content = read.read()
        yield iter([[content]]), write
    unreadable = _Unreadable()
    unreadable.count(content.split(b"\n"))
    unreadable.say()


@contextlib.contextmanager
def _opened(hint, inputs=()):
    """Opens the input and the output; at a terminal, prints how to use it."""
    with contextlib.ExitStack() as stack:
        if FLAGS.input is None:
            read = standard_input()
            if sys.stdin.isatty():
                print(hint, file=sys.stderr)
        else:
            expect_named("input", FLAGS.input)
            with _naming(FLAGS.input):
                read = stack.enter_context(open_binary(FLAGS.input))
        if FLAGS.output is None:
            write = standard_output()
        else:
            check_outputs([*inputs, *([FLAGS.input] if FLAGS.input else [])], ["output"])
            write = stack.enter_context(writing({"output": FLAGS.output}))["output"]
        yield read, write


def _lines(read, exact, unreadable):
    with _naming(FLAGS.input or "standard input"):
        for lines in blocks(read, FLAGS.lines_at_once):
            unreadable.count(lines)
            yield [line.rstrip(b"\r\n") if exact else without_end(line) for line in lines]


class _Unreadable:
    """The lines of the input that are not UTF-8."""

    def __init__(self):
        self._numbers, self._num_lines = [], 0
        self._encoding = "LATIN1"  # the likely one

    def count(self, lines):
        if not self._num_lines:
            self._encoding = marked_encoding(lines[0]) or self._encoding
        if not is_utf8(lines):
            numbered = enumerate(lines, self._num_lines + 1)
            self._numbers += [number for number, line in numbered if not is_utf8([line])]
        self._num_lines += len(lines)

    def say(self):
        if self._numbers:
            lines, are = ("line", "is") if len(self._numbers) == 1 else ("lines", "are")
            print(
                f"{len(self._numbers):,} {lines} of the input ({first_few(self._numbers)}) {are} "
                "not UTF-8 text, so some letters are lost: convert the input, for example by "
                f"iconv -f {self._encoding} -t UTF-8",
                file=sys.stderr,
            )


@contextlib.contextmanager
def _naming(path):
    """Says in one line which input cannot be read."""
    try:
        yield
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path}: damaged gzip file: {error}") from error
    except OSError as error:
        raise UserError(f"{path}: cannot read the file: {error.strerror}") from error
