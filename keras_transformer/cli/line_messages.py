"""Messages on single lines: those that a translator cuts, or that a person should check."""

import abc
import sys
import warnings
from collections.abc import Iterable, Sequence
from typing import Self

from keras_transformer.cli.flags import FLAGS
from keras_transformer.documents.placeholders import PlaceholderWarning
from keras_transformer.text.lost_markup import lost_markup
from keras_transformer.text.repetition import repeated_phrase
from keras_transformer.text.sentences import as_text
from keras_transformer.translation import CutWarning, TermsWarning, first_few

_COUNTED = CutWarning, PlaceholderWarning, TermsWarning


class _CheckedLines(abc.ABC):
    """Finds something in the translations of lines, and prints it at the end of a block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error):
        for text in self._messages():
            print(text, file=sys.stderr)

    def count(
        self, numbers: Sequence[int], sentences: Sequence[str | bytes], translations: Sequence[str]
    ) -> None:
        """Checks the translations of lines, given by their numbers in the source."""
        for one in zip(numbers, as_text(sentences), translations, strict=True):
            self._check(*one)

    @abc.abstractmethod
    def _check(self, number: int, source: str, translation: str) -> None:
        """Checks the translation of one line."""

    @abc.abstractmethod
    def _messages(self) -> Iterable[str]:
        """The lines to print at the end."""


class RepeatedLines(_CheckedLines):
    """Counts lines whose translation repeats a phrase, and prints one line on them at the end.

    Args:
        file: name of the source sentences in that line.

    Example:
        >>> with RepeatedLines("the input") as repeated:
        ...     repeated.count(range(1, 2), ["A dog."], ["Ein Hund."])
    """

    def __init__(self, file: str):
        self._file = file
        self._lines: dict[int, str] = {}

    def _check(self, number, source, translation):
        if phrase := repeated_phrase(translation, source):
            self._lines[number] = phrase

    def _messages(self):
        if not self._lines:
            return
        number, phrase = min(self._lines.items())
        least = FLAGS.no_repeat_ngram or 0
        advice = f"less than --no_repeat_ngram={least}" if least else "--no_repeat_ngram=3"
        if FLAGS.engine == "ctranslate2":
            advice += " and --engine=tensorflow"
        yield (
            f"The translation of {_lines_of(self._lines)} of {self._file} "
            f"({first_few(sorted(self._lines))}) may repeat a phrase, such as {phrase!r} for line "
            f"{number}: try {advice}"
        )


class LostMarkup(_CheckedLines):
    """Counts lines whose translation lost marks of HTML or Markdown, and says so at the end.

    Example:
        >>> with LostMarkup() as lost:
        ...     lost.count(range(1, 2), ["A <b>dog</b>."], ["Ein <b>Hund</b>."])
    """

    def __init__(self):
        self._lines: dict[str, dict[int, str]] = {"html": {}, "markdown": {}}

    def _check(self, number, source, translation):
        if found := lost_markup(source, translation):
            format_, mark = found
            self._lines[format_][number] = mark

    def _messages(self):
        for format_, lines in self._lines.items():
            if lines:
                numbers = sorted(lines)
                yield (
                    f"The translation of {_lines_of(lines)} of the input ({first_few(numbers)}) "
                    f"lost or changed markup, such as {lines[numbers[0]]}: try "
                    f"--format={format_} for a document, and with --line_by_line for texts of one "
                    "line each"
                )


def _lines_of(numbers):
    return f"{len(numbers):,} line{'s' * (len(numbers) > 1)}"


class CutLines:
    """Counts the lines that a translator cuts, or translates without their terms.

    At the end of a block, it prints one line on each of them.

    It does the same for lines whose placeholders the model did not copy.

    Args:
        **files: name of the file, or files, of each argument of the translator.

    Attributes:
        numbers: line number of each sentence that the translator gets next.

    Example:
        >>> with CutLines(sentences="the input") as cut_lines:
        ...     cut_lines.numbers = range(1025, 2049)
    """

    def __init__(self, **files: str):
        self.numbers: Sequence[int] = ()
        self._files = files
        # Sets, since a line may have several sentences or hypotheses.
        self._lines: dict[str, set[int]] = {what: set() for what in files}
        self._put_in: set[int] = set()  # the lines into which placeholders were put
        self._without_terms: set[int] = set()
        self._limit = 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> "CutLines":
        self._filters.__enter__()
        self._show = warnings.showwarning
        for category in _COUNTED:
            warnings.simplefilter("always", category)
        warnings.showwarning = self._count
        return self

    def __exit__(self, *error):
        self._filters.__exit__(*error)
        parts = [
            f"{_lines_of(lines)} of {self._files[what]} ({first_few(sorted(lines))})"
            for what, lines in self._lines.items()
            if lines
        ]
        if parts:
            text = f"Read only the first {self._limit:,} tokens of {' and of '.join(parts)}"
            print(text, file=sys.stderr)
        if lines := sorted(self._without_terms):
            text = (
                f"Translated {_lines_of(lines)} of {self._files['sentences']} without their terms, "
                f"which the limits of length or other constraints exclude ({first_few(lines)})"
            )
            print(text, file=sys.stderr)
        if lines := sorted(self._put_in):
            text = (
                f"Check the placeholders of {_lines_of(lines)} of the input ({first_few(lines)}): "
                "the model did not copy them itself"
            )
            print(text, file=sys.stderr)

    def _count(self, message, *args, **kwargs):
        if not isinstance(message, _COUNTED):
            return self._show(message, *args, **kwargs)
        if isinstance(message, TermsWarning):
            found = self._without_terms
        elif isinstance(message, PlaceholderWarning):
            found = self._put_in
        else:
            self._limit, found = message.limit, self._lines[message.what]
        found.update(map(self.numbers.__getitem__, message.indices))
        return None
