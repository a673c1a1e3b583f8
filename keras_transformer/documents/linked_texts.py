"""A text and its translation, whose words are linked: where in one is what stands in the other."""

import bisect
import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from keras_transformer.text.placeholders import Span
from keras_transformer.text.plain_text import plain_text
from keras_transformer.text.scripts import UNSPACED
from keras_transformer.text.vocabulary import UNKNOWN
from keras_transformer.text.words import PUNCTUATION, is_word
from keras_transformer.translation import Alignment

_SIGNS = r"!-/:-@\[-`{-~\u00a1-\u00bf\u2010-\u206f\u3001-\u303f\uff01-\uff0f\uff1a-\uff20"
# A word; elsewhere a single character.
_TOKEN = re.compile(rf"[^\s{UNSPACED}{_SIGNS}{PUNCTUATION}]+|\S")
_MARK = "▁"  # SentencePiece's mark of white space before a subword
_SPACES = _MARK + "\u200c"  # what a vocabulary may read as a space
_BYTE = re.compile("<0x([0-9A-F]{2})>")
_PUNCTUATION_WEIGHT = 0.25  # of a word's: attention to punctuation says little
_FAR = 20  # tokens from a gap within which its neighbours are searched


class Link(NamedTuple):
    """Characters of a text, and those of its translation that come from them."""

    source: Span
    target: Span


def links_of(alignment: Alignment, source: str, target: str) -> Iterator[Link]:
    """The links of an alignment of subwords, between characters of the two texts.

    Example:
        >>> subwords = Alignment(["▁Two", "▁dog", "s"], ["▁Hunde"], [(1, 0)])
        >>> list(links_of(subwords, "Two dogs", "Hunde"))
        [Link(source=(4, 7), target=(0, 5))]
    """
    sources, targets = _spans(alignment.source, source), _spans(alignment.target, target)
    for one, other in alignment.links:
        source_span, target_span = sources[one], targets[other]
        if source_span and target_span:
            yield Link(source_span, target_span)


def word_links(alignment: Alignment, source: str, target: str) -> list[tuple[int, int]]:
    """The links of an alignment, between the words of two texts, which white space separates.

    The vocabulary may see other words than the texts have: in sources, it reads U+00A8 and U+00B4
    as a space with an accent; in translations, U+00A0 is no space to it.

    Example:
        >>> subwords = Alignment(["▁a", "▁", "\u0308", "b", "▁so"], ["▁so"], [(4, 0)])
        >>> word_links(subwords, "a¨b so", "so"), subwords.of_words().links
        ([(1, 0)], [(2, 0)])
    """
    words = alignment.of_words()
    sizes = len(source.split()), len(target.split())
    if alignment.are_words or (len(words.source), len(words.target)) == sizes:
        return words.links
    sources = word_numbers(alignment.source, source)
    targets = word_numbers(alignment.target, target)
    return sorted({(sources[one], targets[other]) for one, other in alignment.links})


def word_numbers(pieces: Sequence[str], text: str) -> list[int]:
    """The number of the word of the text that each subword belongs to; white space separates words.

    Example:
        >>> word_numbers(["▁rid", "ing", "▁", "<0xC3>", "<0xA9>", "."], "riding é.")
        [0, 0, 1, 1, 1, 1]
    """
    starts = [word.start() for word in re.finditer(r"\S+", text)]
    numbers = []
    number, num_marks = 0, 0  # that of the last subword; marks after it
    for piece, span in zip(pieces, _spans(pieces, text), strict=True):
        if span is None and piece.startswith(_MARK):  # it begins the next word
            num_marks += 1
            continue
        if span is not None:  # else a byte, which goes on with a character
            number = bisect.bisect_right(starts, span[0]) - 1
        numbers += [number] * (num_marks + 1)
        num_marks = 0
    return numbers + [number] * num_marks


def _spans(pieces: Sequence[str], text: str) -> list[Span | None]:
    """Where each subword stands in the text; None for one of white space alone.

    The vocabulary may have normalised the text, so both are compared in a normal form. If they
    still differ, the positions are in proportion to the characters of the subwords.
    """
    if found := _exact_spans(pieces, text):
        return found
    characters = [(one, index) for one, index in _marked(text) if one != _MARK]
    return _between(_shared(0, len(characters), map(_length, pieces)), characters)


def _exact_spans(pieces: Sequence[str], text: str) -> list[Span | None] | None:
    """`_spans`, but None if the text has not all that the subwords have."""
    marked = _marked(text)
    bare = [(one, index) for one, index in marked if one not in _SPACES]
    # The second form, if a vocabulary has other spaces: to some, U+200C is one.
    for characters, form in ((marked, _normal), (bare, _bare)):
        ends = _ends(pieces, "".join(one for one, _ in characters), form)
        if ends is not None:
            return _between(ends, characters)
    return None


def unknown_spans(pieces: Sequence[str], text: str) -> list[Span]:
    """The characters of a text that its subwords do not have: unknown ones, and those in bytes.

    Example:
        >>> unknown_spans(["▁On", "d", "<0xC5>", "<0x99>", "ej"], "Ondřej")
        [(3, 4)]
    """
    if all(map(_is_known, pieces)):
        return []
    spans = _exact_spans(pieces, text) or [None] * len(pieces)
    return [
        span for piece, span in zip(pieces, spans, strict=True) if span and not _is_known(piece)
    ]


def _marked(text: str) -> list[tuple[str, int]]:
    """The characters of a text in a normal form, each with its position.

    "Two dogs" is "▁two▁dogs".
    """
    marked: list[tuple[str, int]] = []
    is_new = True  # whether the next one begins a word
    for index, character in enumerate(text):
        for one in _read(character):
            if is_new and one != _MARK:
                marked.append((_MARK, index))
            if one != _MARK:
                marked.append((one, index))
            is_new = one == _MARK
    return marked


@functools.cache
def _read(character):
    """The normal form of a character, as it is read: control characters are a space."""
    return _normal(plain_text(f"a{character}a")[1:-1])


def _between(ends: Iterable[int], marked: Sequence[tuple[str, int]]) -> list[Span | None]:
    """The characters of the text between some ends; None if there is only white space."""
    spans: list[Span | None] = []
    for start, end in itertools.pairwise([0, *ends]):
        inside = [index for one, index in marked[start:end] if one != _MARK]
        spans.append((inside[0], inside[-1] + 1) if inside else None)
    return spans


def _ends(pieces: Sequence[str], text: str, form: Callable[[str], str]) -> list[int] | None:
    """Where each subword ends in a marked text; None if the text has not all that are known.

    Unknown ones and bytes share what lies between the others.

    Args:
        pieces: the subwords.
        text: the text in a form.
        form: gives this form of a subword.

    Example:
        >>> _ends(["▁", "<unk>", "▁dogs"], "▁車車▁dogs", str.lower)
        [1, 3, 8]
    """
    words = text.split(_MARK)[1:]
    if len(words) == len(pieces) and not any(_MARK in piece for piece in pieces):
        return _shared(0, len(text), [len(word) + 1 for word in words])
    ends: list[int] = []
    position, unknown = 0, list[int]()
    for is_known, group in itertools.groupby(pieces, _is_known):
        if not is_known:
            unknown = list(map(_length, group))
            continue
        known = [form(piece) for piece in group]
        start = text.find("".join(known), position + sum(unknown))
        if start < 0 or (start > position and not unknown):
            return None
        ends += _shared(position, start, unknown)
        position, unknown = start + sum(map(len, known)), []
        ends += _shared(start, position, map(len, known))
    return ends + _shared(position, len(text), unknown)


def _shared(start: int, end: int, lengths: Iterable[int]) -> list[int]:
    """The ends of parts of an interval that are in proportion to some lengths."""
    sums = list(itertools.accumulate(lengths))
    return [start + (end - start) * part // (sums[-1] or 1) for part in sums]


def _normal(text):
    return re.sub(r"\s", _MARK, unicodedata.normalize("NFKD", text).casefold())


def _bare(text):
    """The normal form without `_SPACES`."""
    return "".join(one for one in _normal(text) if one not in _SPACES)


def _is_known(piece):
    return piece != UNKNOWN and not _BYTE.fullmatch(piece)


def _length(piece):
    """The number of characters of a subword without white space; a byte that begins one is 1."""
    if byte := _BYTE.fullmatch(piece):
        return int(int(byte[1], 16) & 0xC0 != 0x80)
    return 1 if piece == UNKNOWN else len(_normal(piece).replace(_MARK, ""))


class LinkedTexts:
    """A text and its translation as tokens, with the source of each token of the translation.

    Args:
        source: the text.
        target: its translation.
        links: links between their characters.
        kept: links between placeholders, each of which is one token.

    Attributes:
        tokens: the start and end of each token of the translation.
    """

    def __init__(self, source: str, target: str, links: Iterable[Link], kept: Sequence[Link] = ()):
        self._source, self._target = source, target
        self._source_tokens = _tokens(source, [link.source for link in kept])
        self.tokens = _tokens(target, [link.target for link in kept])
        self._weights = [
            1.0 if target[start].isalnum() or end > start + 1 else _PUNCTUATION_WEIGHT
            for start, end in self.tokens
        ]
        self._starts = [start for start, _ in self.tokens]
        self._source_starts = [start for start, _ in self._source_tokens]
        self._origins = self._origins_of_tokens(links, kept)
        self._targets: list[list[int]] = [[] for _ in self._source_tokens]
        for number, origin in enumerate(self._origins):
            if origin:
                within = _within(self._source_starts, self._source_tokens, origin)
                for index in {*within[:1], *within[-1:]}:  # the ends of a long one are enough
                    self._targets[index].append(number)

    def _origins_of_tokens(self, links, kept):
        """The characters of the source from which each token of the translation comes, or None."""
        origins: list[Span | None] = [None] * len(self.tokens)
        overlaps = [0] * len(self.tokens)
        for source, target in links:
            for number in _within(self._starts, self.tokens, target):
                start, end = self.tokens[number]
                overlap = min(end, target[1]) - max(start, target[0])
                if overlap > overlaps[number]:  # of equal ones the first: it begins the word
                    origins[number], overlaps[number] = source, overlap
        copied = sorted(link.source for link in kept)
        for number, origin in enumerate(origins):
            if origin and (
                # Attention to punctuation often says something else.
                (not self.is_word(number) and is_word(self._source[slice(*origin)]))
                # A placeholder has one copy, which is known.
                or is_within_one(origin, copied)
            ):
                origins[number] = None
        if self.tokens and self._source_tokens and not self.is_word(-1):
            span = self._source_tokens[-1]
            has_word = any(map(str.isalnum, self._source[slice(*span)]))
            origins[-1] = None if has_word else span
        for source, target in kept:
            [number] = _within(self._starts, self.tokens, target)
            origins[number] = source
        return origins

    def is_word(self, number: int) -> bool:
        """Whether a token of the translation is a word or a placeholder, not punctuation."""
        return self._weights[number] == 1.0

    def segment(self, of: Span, free: Sequence[Span]) -> Span | None:
        """The tokens that come from some characters of the source.

        Args:
            of: the characters.
            free: the intervals of tokens to consider, in order.

        Returns:
            The first token and the end of the sequence that has the most tokens from there and the
            fewest from elsewhere; None if no free token comes from there.
        """
        numbers = [
            number
            for index in _within(self._source_starts, self._source_tokens, of)
            for number in self._targets[index]
        ]
        if not numbers or not free:
            return None
        first, last = min(numbers), max(numbers)
        best, best_sum = None, 0.0
        for start, end in free[max(0, bisect.bisect(free, (first, first)) - 1) :]:
            if start > last:
                break
            sum_here, begun = 0.0, max(start, first)
            for number in range(begun, min(end, last + 1)):
                sum_here += self._weights[number] * self._gain(self._origins[number], of)
                if sum_here <= 0:
                    sum_here, begun = 0.0, number + 1
                elif sum_here > best_sum:
                    best, best_sum = (begun, number + 1), sum_here
        if (
            best is None
        ):  # each comes mostly from elsewhere, such as a word of which a letter is bold
            best = next(
                (
                    (number, number + 1)
                    for number in sorted(numbers)
                    for start, end in free
                    if start <= number < end
                ),
                None,
            )
        return best

    def _gain(self, origin, of):
        """From -1, a token from elsewhere, to 1, a token from these characters."""
        if origin is None:
            return -_PUNCTUATION_WEIGHT
        overlap = max(0, min(origin[1], of[1]) - max(origin[0], of[0]))
        return 2 * overlap / (origin[1] - origin[0]) - 1

    def gap(self, offset: int, start: int, end: int) -> int:
        """The position in the translation of a position between two tokens of the source.

        It is before what comes from the next token, or after what comes from the one before, if
        white space does not separate that one alone.

        Args:
            offset: the position in the source, in characters.
            start: the first token before which it may be.
            end: the end of the tokens after which it may be.

        Returns:
            The position in characters.
        """
        after = bisect.bisect_left(self._source_starts, offset)
        # Tokens to try, the nearest ones first, and whether each follows the gap.
        following = [(after + step, True) for step in range(_FAR)]
        before = [(after - 1 - step, False) for step in range(_FAR)]
        source = self._source
        is_next_attached = offset < len(source) and not source[offset].isspace()
        is_last_attached = offset > 0 and not source[offset - 1].isspace()
        if is_last_attached and not is_next_attached:
            following, before = before, following
        for index, follows in itertools.chain(*zip(following, before, strict=True)):
            if not 0 <= index < len(self._targets):
                continue
            numbers = [number for number in self._targets[index] if start <= number < end]
            is_alnum = source[self._source_starts[index]].isalnum()
            alike = [number for number in numbers if self.is_word(number) == is_alnum]
            numbers = alike or numbers
            if numbers:
                return self.tokens[min(numbers)][0] if follows else self.tokens[max(numbers)][1]
        if start == end:  # there is no token
            return self.tokens[start][0] if start < len(self.tokens) else len(self._target)
        return self.tokens[start][0] if after == 0 else self.tokens[end - 1][1]

    def token_at(self, position: int) -> int:
        """The first token that does not begin before a position, in characters."""
        return bisect.bisect_left(self._starts, position)


def _tokens(text: str, kept: Sequence[Span]) -> list[Span]:
    """The tokens of a text in order, each part that is kept as one."""
    tokens, start = [], 0
    for span in [*sorted(kept), (len(text), len(text))]:
        tokens += [match.span() for match in _TOKEN.finditer(text, start, span[0])]
        if span[0] < span[1]:
            tokens.append(span)
        start = span[1]
    return tokens


def is_within_one(span: Span, others: Sequence[Span]) -> bool:
    """Whether a span is a part of one of the others, which are sorted."""
    index = bisect.bisect_right(others, span[0], key=lambda other: other[0]) - 1
    return index >= 0 and span[1] <= others[index][1]


def _within(starts: Sequence[int], tokens: Sequence[Span], span: Span) -> range:
    """The indices of the tokens of which some characters are within a span."""
    first = bisect.bisect_right(starts, span[0])
    if first and tokens[first - 1][1] > span[0]:
        first -= 1
    return range(first, bisect.bisect_left(starts, span[1]))
