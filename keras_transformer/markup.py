"""Texts with markup: their sentences for a translator, and tags around what corresponds to it."""

import bisect
import dataclasses
import functools
import itertools
import math
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from keras_transformer.linked_texts import Link, LinkedTexts, is_within_one
from keras_transformer.options.search import NO_HYPOTHESIS
from keras_transformer.placeholders import (
    KeptTranslation,
    PlaceholderWarning,
    Translator,
    aligned,
    translate_keeping,
)
from keras_transformer.text.html_reader import MarkupProblem, first_problem, read_html
from keras_transformer.text.markdown_reader import read_markdown
from keras_transformer.text.markup_units import MarkupUnits, Node, Unit
from keras_transformer.text.placeholders import Span, placeholder_patterns
from keras_transformer.text.sentence_split import split_sentences
from keras_transformer.text.sentences import as_list
from keras_transformer.translation import Translation

_HALVINGS = 5  # of the values of a document, each of which reads it twice
_NEAR = 3  # tokens that a word may be further away than punctuation, and still count as nearer


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
        kept, places = [*unit.kept], sorted(_places_to_align(unit))
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
        placement = _Placement(self._unit, text, links, kept, edges)
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


def _places_to_align(unit: Unit) -> list[int]:
    """The positions of tags in the text of a unit whose place in a translation is not certain."""
    if not unit.is_nested:
        return [offset for offset, _ in unit.tags]
    places, waiting = [], [*unit.root.children]
    while waiting:
        node = waiting.pop()
        places += [node.start, node.end]
        waiting += node.children
    return places


class _Placement:
    """Places the tags of a unit in its translation.

    Args:
        unit: the unit.
        text: its translation.
        links: links between their characters.
        kept: the parts that were copied.
        edges: the position in the translation of each position where a sentence begins or ends.
    """

    def __init__(
        self,
        unit: Unit,
        text: str,
        links: Sequence[Link],
        kept: Sequence[Link],
        edges: Mapping[int, int],
    ):
        self._unit, self._text, self._edges = unit, text, edges
        self._linked = LinkedTexts(unit.text, text, links, kept)
        self._copies = sorted((link.target, unit.kept[link.source]) for link in kept)

    def markup(self, escape: Callable[[str], str], tags: Mapping[str, tuple[str, str]]) -> str:
        """The translation with its tags.

        Args:
            escape: escapes what is not copied.
            tags: pairs of tags to write for those that begin with a key.
        """
        self._escape, self._tags = escape, tags
        if self._unit.is_nested:
            tokens = 0, len(self._linked.tokens)
            return "".join(self._within(self._unit.root, (0, len(self._text)), tokens))
        pieces, position = [], 0
        for offset, tag in self._unit.tags:
            place = max(position, self._gap(offset, 0, len(self._linked.tokens)))
            pieces += [self._escaped(position, place), tag]
            position = place
        return "".join(pieces) + self._escaped(position, len(self._text))

    def _gap(self, offset, start, end):
        """The position in the translation of a position in the text, in characters."""
        if offset in self._edges:
            return self._edges[offset]
        return self._linked.gap(offset, start, end)

    def _within(self, node: Node, span: Span, tokens: Span) -> Iterator[str]:
        """The markup of what is in a node, which has some characters and tokens."""
        position, after, joined = span[0], "", None
        for place, child, its_tokens in self._places(node, span, tokens):
            before, after_child = self._spaces(child, node, place[0])
            if (place[0], child.start) == (position, joined):
                before = after = ""
            tags = self._tags.get(child.before, (child.before, child.after))
            yield after + self._escaped(position, place[0]) + before + tags[0]
            yield from self._within(child, place, its_tokens)
            yield tags[1]
            position, after = place[1], after_child
            # Where a child stands that has no white space to this one.
            joined = child.end if child.start == child.end and not child.is_spaced else None
        yield after + self._escaped(position, span[1])

    def _spaces(self, child, node, place):
        """White space before and after a child without text that is in the source alone.

        Between a word and its punctuation, it separates the child from the word only.
        """
        is_comment = child.before.startswith("<!")
        if child.start < child.end or node.start == node.end or is_comment:
            return "", ""
        source, text = self._unit.text, self._text
        wanted = (
            source[child.start - 1 : child.start].isspace(),
            child.is_spaced or source[child.start : child.start + 1].isspace(),
        )
        beside = text[place - 1 : place], text[place : place + 1]
        is_attached = all(map(str.strip, beside))
        return [
            " " if is_wanted and one.strip() and (one.isalnum() or not is_attached) else ""
            for is_wanted, one in zip(wanted, beside, strict=True)
        ]

    def _places(self, node, span, tokens):
        """The characters and the tokens of each child of a node, in the order of the translation.

        Children with text have tokens of their own, first those with the least text: of a long one,
        enough is left.
        """
        places: dict[int, tuple[Span, Span]] = {}
        free = [tokens] if tokens[0] < tokens[1] else []
        for number in sorted(
            (number for number, child in enumerate(node.children) if child.start < child.end),
            key=lambda number: node.children[number].end - node.children[number].start,
        ):
            child = node.children[number]
            if (child.start, child.end) == (node.start, node.end):
                places[number], free = (span, tokens), []
            elif segment := self._segment(child, free):
                start, end = segment
                characters = self._linked.tokens[start][0], self._linked.tokens[end - 1][1]
                places[number] = characters, segment
                _take(free, segment)
        taken = sorted(place for place, _ in places.values())
        for number, child in enumerate(node.children):
            if number not in places:  # it has no text, or no word is free
                place = _beside(taken, self._place_of_none(child, node, span, tokens))
                token = self._linked.token_at(place)
                places[number] = (place, place), (token, token)
        order = sorted(places, key=lambda number: (places[number][0], number))
        return [(places[number][0], node.children[number], places[number][1]) for number in order]

    def _place_of_none(self, child, node, span, tokens):
        if child.start == node.start:
            return span[0]
        if child.start == node.end:
            return span[1]
        return min(max(span[0], self._gap(child.start, *tokens)), span[1])

    def _segment(self, child, free):
        """The tokens of a node with text: those that correspond, or else one that is near."""
        if child.start in self._edges and child.end in self._edges:  # whole sentences
            start, end = (self._linked.token_at(self._edges[at]) for at in (child.start, child.end))
            if start < end and is_within_one((start, end), free):
                return start, end
        if found := self._linked.segment((child.start, child.end), free):
            return found
        if not free:
            return None
        token = self._linked.token_at(self._gap(child.start, free[0][0], free[-1][1]))
        after = bisect.bisect(free, (token, math.inf))
        near = {
            min(max(token + step, a), b - 1)
            for a, b in free[max(0, after - 2) : after + 2]
            for step in range(-_NEAR, _NEAR + 1)
        }
        has_words = any(map(str.isalnum, self._unit.text[child.start : child.end]))
        nearest = min(
            sorted(near),
            key=lambda number: (
                abs(number - token) + _NEAR * (has_words and not self._linked.is_word(number))
            ),
        )
        return nearest, nearest + 1

    def _escaped(self, start, end):
        """Some characters of the translation with markup, and with what is copied as it was."""
        pieces = []
        first = bisect.bisect_left(self._copies, start, key=lambda copy: copy[0][0])
        for (copy_start, copy_end), copied in itertools.islice(self._copies, first, None):
            if copy_end > end:
                break
            pieces += [self._escape(self._text[start:copy_start]), copied]
            start = copy_end
        return "".join(pieces) + self._escape(self._text[start:end])


def _take(free: list[Span], taken: Span) -> None:
    """Removes an interval from the one that it is within."""
    index = bisect.bisect(free, (taken[0], math.inf)) - 1
    start, end = free[index]
    rest = (start, taken[0]), (taken[1], end)
    free[index : index + 1] = [one for one in rest if one[0] < one[1]]


def _beside(taken: Sequence[Span], place: int) -> int:
    """The nearest end of the interval that a place is within; else the place."""
    index = bisect.bisect_left(taken, (place, 0)) - 1
    if index < 0 or place >= taken[index][1]:
        return place
    start, end = taken[index]
    return start if place - start < end - place else end
