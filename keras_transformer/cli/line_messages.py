"""Messages on single lines: those that a translator cuts, or that a person should check."""

import sys
import warnings
from collections.abc import Sequence

from keras_transformer.cli.flags import FLAGS
from keras_transformer.placeholders import PlaceholderWarning
from keras_transformer.text.lost_markup import lost_markup
from keras_transformer.text.repetition import repeated_phrase
from keras_transformer.text.sentences import as_text
from keras_transformer.translation import CutWarning, TermsWarning, first_few


class RepeatedLines:
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

    def __enter__(self) -> "RepeatedLines":
        return self

    def __exit__(self, *error):
        if not self._lines:
            return
        number, phrase = next(iter(self._lines.items()))
        least = FLAGS.no_repeat_ngram or 0
        advice = f"less than --no_repeat_ngram={least}" if least else "--no_repeat_ngram=3"
        if FLAGS.engine == "ctranslate2":
            advice += " and --engine=tensorflow"
        print(
            f"The translation of {len(self._lines):,} line{'s' * (len(self._lines) > 1)} of "
            f"{self._file} ({first_few([*self._lines])}) may repeat a phrase, such as {phrase!r} "
            f"for line {number}: try {advice}",
            file=sys.stderr,
        )

    def count(
        self, numbers: Sequence[int], sentences: Sequence[str | bytes], translations: Sequence[str]
    ) -> None:
        """Counts the lines, given by their numbers in the source, that repeat a phrase."""
        triples = zip(numbers, as_text(sentences), translations, strict=True)
        for number, source, translation in triples:
            if phrase := repeated_phrase(translation, source):
                self._lines[number] = phrase


class LostMarkup:
    """Counts lines whose translation lost marks of HTML or Markdown, and says so at the end.

    Example:
        >>> with LostMarkup() as lost:
        ...     lost.count(range(1, 2), ["A <b>dog</b>."], ["Ein <b>Hund</b>."])
    """

    def __init__(self):
        self._lines: dict[str, dict[int, str]] = {"html": {}, "markdown": {}}

    def __enter__(self) -> "LostMarkup":
        return self

    def __exit__(self, *error):
        for format_, lines in self._lines.items():
            if lines:
                print(
                    f"The translation of {len(lines):,} line{'s' * (len(lines) > 1)} of the input "
                    f"({first_few([*lines])}) lost or changed markup, such as "
                    f"{next(iter(lines.values()))}: try --format={format_} for a document, and "
                    f"with --line_by_line for texts of one line each",
                    file=sys.stderr,
                )

    def count(
        self, numbers: Sequence[int], sentences: Sequence[str | bytes], translations: Sequence[str]
    ) -> None:
        """Counts the lines, given by their numbers in the input, that lost marks."""
        triples = zip(numbers, as_text(sentences), translations, strict=True)
        for number, source, translation in triples:
            if found := lost_markup(source, translation):
                format_, mark = found
                self._lines[format_][number] = mark


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
        self._lines: dict[str, list[int]] = {what: [] for what in files}
        # A line may have several sentences, so these are sets in the order of the lines.
        self._put_in: dict[int, None] = {}  # the lines into which placeholders were put
        self._without_terms: dict[int, None] = {}
        self._limit = 0
        self._filters = warnings.catch_warnings()

    def __enter__(self) -> "CutLines":
        self._filters.__enter__()
        self._show = warnings.showwarning
        for category in (CutWarning, TermsWarning, PlaceholderWarning):
            warnings.simplefilter("always", category)
        warnings.showwarning = self._count
        return self

    def __exit__(self, *error):
        self._filters.__exit__(*error)
        parts = [
            f"{len(lines):,} line{'s' * (len(lines) > 1)} of {self._files[what]} "
            f"({first_few(lines)})"
            for what, lines in self._lines.items()
            if lines
        ]
        if parts:
            text = f"Read only the first {self._limit:,} tokens of {' and of '.join(parts)}"
            print(text, file=sys.stderr)
        if lines := [*self._without_terms]:
            text = (
                f"Translated {len(lines):,} line{'s' * (len(lines) > 1)} of "
                f"{self._files['sentences']} without their terms, which the limits of length or "
                f"other constraints exclude ({first_few(lines)})"
            )
            print(text, file=sys.stderr)
        if lines := [*self._put_in]:
            text = (
                f"Check the placeholders of {len(lines):,} line{'s' * (len(lines) > 1)} of the "
                f"input ({first_few(lines)}): the model did not copy them itself"
            )
            print(text, file=sys.stderr)

    def _count(self, message, *args, **kwargs):
        if isinstance(message, TermsWarning):
            self._without_terms |= dict.fromkeys(map(self.numbers.__getitem__, message.indices))
            return None
        if isinstance(message, PlaceholderWarning):
            self._put_in |= dict.fromkeys(map(self.numbers.__getitem__, message.indices))
            return None
        if not isinstance(message, CutWarning):
            return self._show(message, *args, **kwargs)
        self._limit, lines = message.limit, self._lines[message.what]
        for number in map(self.numbers.__getitem__, message.indices):
            if number > (lines or [0])[-1]:  # else counted already, for another hypothesis
                lines.append(number)
