"""The tags of a text with markup in its translation, around what corresponds to their words."""

import bisect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from keras_transformer.documents.linked_texts import Link, LinkedTexts, is_within_one
from keras_transformer.text.markup_units import Node, Unit
from keras_transformer.text.placeholders import Span
from keras_transformer.text.words import is_word

_NEAR = 3  # tokens that a word may be further away than punctuation, and still count as nearer


def places_to_align(unit: Unit) -> list[int]:
    """The positions of tags in the text of a unit whose place in a translation is not certain."""
    if not unit.is_nested:
        return [offset for offset, _ in unit.tags]
    places, waiting = [], [*unit.root.children]
    while waiting:
        node = waiting.pop()
        places += [node.start, node.end]
        waiting += node.children
    return places


class TagPlacement:
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
        self._copied = {link.source: link.target for link in kept}
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
            " " if is_wanted and one.strip() and (is_word(one) or not is_attached) else ""
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
        if copied := self._copied.get((child.start, child.end)):  # of a placeholder alone
            token = self._linked.token_at(copied[0])
            if is_within_one((token, token + 1), free):
                return token, token + 1
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
