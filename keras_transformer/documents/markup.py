"""Texts with markup: their sentences for a translator, and tags around what corresponds to it."""

import bisect
import dataclasses
import functools
import itertools
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from keras_transformer.documents.linked_texts import Link, is_within_one
from keras_transformer.documents.placeholders import (
    KeptTranslation,
    PlaceholderWarning,
    Translator,
    aligned,
    translate_keeping,
)
from keras_transformer.documents.tag_placement import TagPlacement, places_to_align
from keras_transformer.options.search import NO_HYPOTHESIS
from keras_transformer.text.html_reader import MarkupProblem, first_problem, read_html
from keras_transformer.text.markdown_reader import read_markdown
from keras_transformer.text.markup_units import MarkupUnits, Unit
from keras_transformer.text.placeholders import Span, placeholder_patterns
from keras_transformer.text.sentence_split import split_sentences
from keras_transformer.text.sentences import as_list
from keras_transformer.translation import Translation

_HALVINGS = 5  # of the values of a document, each of which reads it twice


@dataclasses.dataclass(frozen=True, eq=False)
class MarkedSentence:
    """A sentence of a text with markup.

    Attributes:
        text: the sentence, without tags.
        kept: the parts that are copied, such as placeholders.
        has_tags: whether tags within it need an alignment.
        line: the line of the whole text where it begins, from 1.
    """

    text: str
    kept: tuple[Span, ...]
    has_tags: bool = False
    line: int = 1


class LinkedTranslation(NamedTuple):
    """A translation, with the links to its sentence.

    Attributes:
        kept: the translation, and the parts that were copied.
        links: links of subwords; none if the sentence has no tags.
    """

    kept: KeptTranslation
    links: list[Link]


class MarkupWarning(UserWarning):
    """A text has a tag of HTML without its counterpart.

    Attributes:
        index: the index of the text, from 0.
        problem: the tag and its line.
    """

    def __init__(self, index: int, problem: MarkupProblem):
        self.index, self.problem = index, problem
        super().__init__(f"text at index {index}, {described(problem)}")

    def __reduce__(self):
        return type(self), (self.index, self.problem)


def described(problem: MarkupProblem) -> str:
    """Describes a tag without its counterpart, in one line for a person."""
    what = "closes nothing" if problem.tag.startswith("</") else "is not closed"
    others = f" (and {problem.count - 1:,} more)" if problem.count > 1 else ""
    return (
        f"line {problem.line:,}: {problem.tag} {what}{others}; the translation has the same tags, "
        "but they may stand around other words"
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Document:
    """A text with markup as sentences.

    Attributes:
        text: the text.
        problem: the first tag without its counterpart, or None.
        number_of_values: the number of texts within tags, such as that of `alt`.
        values: those to translate, and where they are.
        parts: units, and what stands between them.
    """

    text: str
    problem: MarkupProblem | None
    number_of_values: int
    values: "list[tuple[Span, _SplitUnit]]"
    parts: "list[_SplitUnit | str]"

    def is_like(self, other: "_Document") -> bool:
        """Whether another document has the same sentences, and as many values."""
        texts, others = ([part.text for part in _sentences(one.parts)] for one in (self, other))
        return texts == others and self.number_of_values == other.number_of_values

    @property
    def sentences(self) -> list[MarkedSentence]:
        """The sentences of the values, then those of the units."""
        return _sentences([*(unit for _, unit in self.values), *self.parts])


class MarkupTexts:
    """The sentences of texts with markup, and the way back from their translations.

    Args:
        texts: documents or parts of them, as strings or UTF-8 bytes.
        language: code of their language, as for `split_sentences`.
        split: whether to split paragraphs into sentences.
        patterns: patterns of placeholders.
        format: "html" or "markdown".

    Attributes:
        sentences: the sentences of all texts, in order.
        rows: for each sentence, the index of its text.
        problems: for each text, the first tag without its counterpart, or None.
    """

    def __init__(
        self,
        texts: Iterable[str | bytes],
        language: str | None = None,
        split: bool = True,
        patterns: Sequence[re.Pattern[str]] = (),
        format: str = "html",
    ):
        self._read = {"html": read_html, "markdown": read_markdown}[format]
        self._language, self._split, self._patterns = language, split, patterns
        self._documents = [
            self._document(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
            for text in as_list(texts)
        ]
        self.problems = [document.problem for document in self._documents]
        self.sentences = [one for document in self._documents for one in document.sentences]
        self.rows = [
            row for row, document in enumerate(self._documents) for _ in document.sentences
        ]

    def _document(self, text):
        events = self._read(text)
        units = MarkupUnits(text, events, self._patterns)
        split = functools.partial(_SplitUnit, language=self._language, split=self._split)
        return _Document(
            text,
            first_problem(text, events),
            sum(len(event.values) for event in events),
            [(span, split(unit)) for span, unit in units.values()],
            [split(part) if isinstance(part, Unit) else part for part in units],
        )

    def join(self, translations: Sequence[Sequence[LinkedTranslation]]) -> list[list[Translation]]:
        """The texts with the translations of their sentences.

        Args:
            translations: of each sentence, the best first.

        Returns:
            For each text, as many different translations as its sentences have at most: with the
            best of all sentences, with the second, and so on. Scores are sums.
        """
        rest = iter(translations)
        return [
            self._joined(document, [*itertools.islice(rest, len(document.sentences))])
            for document in self._documents
        ]

    def _joined(self, document, found):
        joined: dict[str, float] = {}
        for rank in range(max(map(len, found), default=1)):
            chosen = [one[min(rank, len(one) - 1)] for one in found]
            score = sum(one.kept.score for one in chosen)
            joined.setdefault(self._text(document, chosen), max(score, NO_HYPOTHESIS))
        return [Translation(*one) for one in joined.items()]

    def _text(self, document, chosen):
        """A document with one translation of each sentence."""
        rest = iter(chosen)
        values = [(span, unit.join(rest)) for span, unit in document.values]
        # The tags of the text with these values are those to place around the translation.
        parts = self._with_values(document, values).parts
        return "".join(part if isinstance(part, str) else part.join(rest) for part in parts)

    def _with_values(self, document, values, halvings=_HALVINGS):
        """A document with other values, but without some around each that breaks its markup."""
        if not values:
            return document
        pieces, position = [], 0
        for (start, end), value in values:
            pieces += [document.text[position:start], value]
            position = end
        changed = self._document("".join(pieces) + document.text[position:])
        if changed.is_like(document):
            return changed
        if len(values) == 1 or not halvings:
            return document
        half = len(values) // 2
        # From the end, as positions after a changed value would be others.
        document = self._with_values(document, values[half:], halvings - 1)
        return self._with_values(document, values[:half], halvings - 1)


def translate_marked(
    translator: Translator,
    sentences: Sequence[MarkedSentence],
    patterns: Sequence[re.Pattern[str]],
) -> list[list[LinkedTranslation]]:
    """Translates the sentences of `MarkupTexts`, and aligns those that have tags.

    Args:
        translator: translates and aligns.
        sentences: the sentences.
        patterns: patterns of placeholders.

    Returns:
        Up to `n_best` translations of each sentence, the best first.
    """
    texts = [sentence.text for sentence in sentences]
    found = translate_keeping(
        translator, texts, [sentence.kept for sentence in sentences], patterns
    )
    links = iter(
        aligned(
            translator,
            [
                (sentence.text, one.text)
                for sentence, some in zip(sentences, found, strict=True)
                for one in some
                if sentence.has_tags
            ],
        )
    )
    return [
        [LinkedTranslation(one, next(links) if sentence.has_tags else []) for one in some]
        for sentence, some in zip(sentences, found, strict=True)
    ]


def uncertain(found: Sequence[Sequence[LinkedTranslation]]) -> list[int]:
    """The indices of the sentences of `translate_marked` into which placeholders were put."""
    return [row for row, best in enumerate(found) if not best[0].kept.is_certain]


def translate_html(
    translator: Translator,
    texts: Iterable[str | bytes],
    language: str | None = None,
    split: bool = True,
    keep: Sequence[str] = (),
) -> list[list[Translation]]:
    """Translates HTML texts: tags stand around the words that correspond, by the alignment.

    Attributes that people read, such as `alt` and `title`, are translated. All other attributes,
    tags, comments and white space between blocks stay as they are, and so do placeholders,
    `<script>`, `<style>`, `<pre>`, `<code>` and elements with `translate="no"`.

    Args:
        translator: a `Translator` or `CTranslate2Translator`.
        texts: documents or parts of them.
        language: code of their language, such as `de`, whose rules split them; None: English.
        split: whether to split paragraphs into sentences.
        keep: regular expressions of further text to copy.

    Returns:
        Up to `n_best` translations of each text, the best first. A score is the sum of those of the
        sentences.

    Raises:
        UserError: one of `keep` is no regular expression, or matches an empty text.

    Example:
        >>> [[german]] = kt.translate_html(translator, ["<p>Two <b>dogs</b> &amp; a horse.</p>"])
        >>> german.text  # such as "<p>Zwei <b>Hunde</b> &amp; ein Pferd.</p>"
        '<p>...<b>...</b>...</p>'
    """
    return _translate(translator, texts, language, split, keep, "html")


def translate_markdown(
    translator: Translator,
    texts: Iterable[str | bytes],
    language: str | None = None,
    split: bool = True,
    keep: Sequence[str] = (),
) -> list[list[Translation]]:
    """Translates Markdown texts: emphasis and links are around the words that correspond.

    Code, destinations of links and images, the marks of blocks and blank lines stay as they are,
    and so do placeholders. The lines of a paragraph become one.

    Args:
        translator: a `Translator` or `CTranslate2Translator`.
        texts: documents or parts of them.
        language: code of their language, such as `de`, whose rules split them; None: English.
        split: whether to split paragraphs into sentences.
        keep: regular expressions of further text to copy.

    Returns:
        Up to `n_best` translations of each text, the best first. A score is the sum of those of the
        sentences.

    Raises:
        UserError: one of `keep` is no regular expression, or matches an empty text.

    Example:
        >>> [[german]] = kt.translate_markdown(translator, ["# Two *dogs* and a horse"])
        >>> german.text  # such as "# Zwei *Hunde* und ein Pferd"
        '# ...*...*...'
    """
    return _translate(translator, texts, language, split, keep, "markdown")


def _translate(translator, texts, language, split, keep, format_):
    patterns = placeholder_patterns(keep)
    read = MarkupTexts(texts, language, split, patterns, format_)
    for index, problem in enumerate(read.problems):
        if problem:
            warnings.warn(MarkupWarning(index, problem), stacklevel=3)
    found = translate_marked(translator, read.sentences, patterns)
    if rows := uncertain(found):
        texts_of_rows = list(dict.fromkeys(read.rows[row] for row in rows))
        warnings.warn(PlaceholderWarning(texts_of_rows), stacklevel=3)
    return read.join(found)


class _SplitUnit:
    """A unit as sentences, and the way back.

    Args:
        unit: the unit.
        language: code of its language.
        split: whether to split it; it stays whole if a part that is copied is beyond a sentence.

    Attributes:
        sentences: the sentences.
    """

    def __init__(self, unit: Unit, language: str | None, split: bool):
        self._unit = unit
        spans = _sentence_spans(unit.text, language) if split else []
        kept, places = [*unit.kept], sorted(places_to_align(unit))
        if not spans or not all(is_within_one(span, spans) for span in kept):
            text = unit.text.strip()
            start = unit.text.index(text)
            spans = [(start, start + len(text))]
        self._spans = spans
        self.sentences = [
            MarkedSentence(
                unit.text[start:end],
                tuple((a - start, b - start) for a, b in _between(kept, (start,), (end,))),
                bool(_between(places, start + 1, end)),
                unit.lines[start],
            )
            for start, end in spans
        ]

    def join(self, translations: Iterator[LinkedTranslation]) -> str:
        """The unit with its markup and the next translations, one for each of its sentences."""
        text, end = "", 0
        links: list[Link] = []
        kept: list[Link] = []
        edges: dict[int, int] = {}
        for sentence, (start, next_end) in zip(self.sentences, self._spans, strict=True):
            one = next(translations)
            text += self._unit.text[end:start]
            # Without tags in it, a sentence is not aligned: it comes from its source as a whole.
            whole = [Link((0, next_end - start), (0, len(one.kept.text)))]
            links += _moved(one.links if sentence.has_tags else whole, start, len(text))
            kept += _moved(one.kept.kept, start, len(text))
            edges |= {start: len(text), next_end: len(text) + len(one.kept.text)}
            text += one.kept.text
            end = next_end
        text += self._unit.text[end:]
        edges |= {0: 0, len(self._unit.text): len(text)}
        placement = TagPlacement(self._unit, text, links, kept, edges)
        return self._unit.write(placement.markup, self._unit.source, text)


def _sentences(parts):
    return [one for part in parts if isinstance(part, _SplitUnit) for one in part.sentences]


def _sentence_spans(text, language):
    sentences, gaps = split_sentences(text, language)
    spans, position = [], 0
    for gap, sentence in zip(gaps, sentences, strict=False):
        position += len(gap)
        spans.append((position, position + len(sentence)))
        position += len(sentence)
    return spans


def _between(values, start, end):
    """The values of a sorted list from `start` on and below `end`."""
    return values[bisect.bisect_left(values, start) : bisect.bisect_left(values, end)]


def _moved(links, source, target):
    return [Link((a + source, b + source), (c + target, d + target)) for (a, b), (c, d) in links]
