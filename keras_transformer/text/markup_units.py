"""Texts with markup as units: runs of text for a translator, with their tags, and the rest."""

import bisect
import collections
import dataclasses
import functools
import html
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from keras_transformer.text.formulas import Part, find_formulas
from keras_transformer.text.placeholders import Span, find_placeholders
from keras_transformer.text.plain_text import INVISIBLE

_UNSEEN = re.compile(f"{INVISIBLE}+")
_SPACE_OR_WORD = re.compile(rf"[ \t\n\r\f]+|(?:(?!{INVISIBLE})[^ \t\n\r\f])+")
_SPACES = ("\t", "\n", "\r", "\f")  # as entities, such as &#10;, they are white space too
_FILE_NAME = re.compile(r"\S+\.[a-zA-Z][a-zA-Z0-9]{1,4}")  # some images have it as their text
_MOST_NESTED = 50  # elements within each other in a unit; more keep the order of their tags


# Puts together a translation, with its text escaped by a function, and the pairs of tags in the
# mapping replaced by others.
Place = Callable[[Callable[[str], str], Mapping[str, tuple[str, str]]], str]
# Writes a translation: from its placing, the source of the unit and the translation without tags.
Write = Callable[[Place, str, str], str]


def write_html(place: Place, source: str, text: str) -> str:
    """A translation in HTML."""
    del source, text
    return place(functools.partial(html.escape, quote=False), {})


@dataclasses.dataclass(eq=False)
class Node:
    """An element of a unit, or what has no text in it, such as an image or a comment.

    Attributes:
        start: the position in the unit's text where it begins.
        end: the position where it ends.
        before: its markup before what is in it.
        after: its markup after that.
        is_spaced: of one without text, whether white space stands before it and directly after it,
            for which the text has one space, before it.
        children: the nodes in it, in order.
    """

    start: int
    end: int
    before: str
    after: str = ""
    is_spaced: bool = False
    children: list["Node"] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(eq=False)
class Unit:
    """A run of text from one block element to the next, with the tags in it.

    Attributes:
        text: its text, in which white space is single spaces.
        source: the same with its markup, as it was read.
        root: the nodes of the unit.
        tags: the position and the markup of all tags, in order.
        is_nested: whether every tag within the text has its counterpart, so that elements may move.
        kept: the markup of each part of the text that is copied.
        lines: the line of the whole text in which each character is, from 1.
        write: writes a translation with its tags.
    """

    text: str
    source: str
    root: Node
    tags: list[tuple[int, str]]
    is_nested: bool
    kept: dict[Span, str]
    lines: list[int]
    write: Write


@dataclasses.dataclass(eq=False)
class Event:
    """A tag or a run of text, or an element that is copied whole.

    Attributes:
        kind: "text", "space", "entity", "open", "close", "copied" or "other".
        name: the name of the element.
        start: the position in the whole text where it begins.
        end: the position where it ends.
        text: what an entity stands for, or what the model reads of an element that is copied.
        is_block: whether it divides the text.
        markup: what is written for it; None: what was read.
        write: writes the unit that begins with it.
        values: texts within it that people read, such as that of `alt`, each as its runs of text.
        offset: the position in the text of its unit.
        partner: the other tag of the element, if there is one in the unit.
        is_spaced: whether white space stands before it, and directly after it.
    """

    kind: str
    name: str
    start: int
    end: int
    text: str = ""
    is_block: bool = False
    markup: str | None = None
    write: Write = write_html
    values: Sequence[Sequence["Event"]] = ()
    offset: int = 0
    partner: "Event | None" = None
    is_spaced: bool = False


class MarkupUnits:
    """The units of a text, and what stands between them, in order.

    Args:
        text: a document or a part of one.
        events: its tags and runs of text, which are the whole of it. Those that are blocks divide
            it into units.
        patterns: patterns of placeholders, which are copied.

    Example:
        >>> from keras_transformer.text.html_reader import read_html
        >>> page = "<p>Two <b>dogs</b>.</p>"
        >>> [before, unit, after] = MarkupUnits(page, read_html(page), [])
        >>> before, unit.text, unit.root.children[0].before, after
        ('<p>', 'Two dogs.', '<b>', '</p>')
    """

    def __init__(self, text: str, events: Sequence[Event], patterns: Sequence[re.Pattern[str]]):
        self._text, self._events, self._patterns = text, events, patterns
        self._line_ends = [match.start() for match in re.finditer("\n", text)]

    def __iter__(self) -> Iterator[Unit | str]:
        for is_block, some in itertools.groupby(self._events, lambda event: event.is_block):
            run = list(some)
            yield (None if is_block else self._unit(run)) or self._source(run)

    def values(self) -> Iterator[tuple[Span, Unit]]:
        """The texts within tags, such as that of `alt`, and where each of them is."""
        for event in self._events:
            for value in event.values:
                unit = self._unit(value)
                if unit and not _FILE_NAME.fullmatch(unit.text):
                    yield (value[0].start, value[-1].end), unit

    def _source(self, events):
        return self._text[events[0].start : events[-1].end]

    def _unit(self, events):
        """The unit of a run without blocks; None if there is nothing to translate."""
        reader, write = _UnitText(self._text), events[0].write
        for event in events:
            reader.add(event)
        text = "".join(reader.characters)
        tags = _with_partners(reader.tags)
        kept, rest = dict(reader.kept), list(text)
        for start, end in kept:
            rest[start:end] = " " * (end - start)
        for start, end in find_placeholders("".join(rest), self._patterns):
            first, last = reader.starts[start], reader.ends[end - 1]
            if found := _absorbed(tags, start, end, first, last):
                kept[start, end] = self._text[slice(*found)]
            else:
                part = text[start:end]
                kept[start, end] = write(lambda escape, _, part=part: escape(part), part, part)
            rest[start:end] = " " * (end - start)
        for start, end in find_formulas("".join(rest), _raised_parts(tags)):
            first, last = reader.starts[start], reader.ends[end - 1]
            if found := _absorbed(tags, start, end, first, last):
                kept[start, end] = self._text[slice(*found)]
                rest[start:end] = " " * (end - start)
        if not any(map(str.isalnum, rest)):
            return None
        tags = [tag for tag in tags if tag.kind != "absorbed"]
        root, is_nested = _tree(self._text, tags, text)
        return Unit(
            # Surrogates stand for bytes that are not UTF-8; what is not translated keeps them.
            re.sub("[\ud800-\udfff]", "\ufffd", text),
            self._source(events),
            root,
            [(tag.offset, _markup(self._text, tag)) for tag in tags],
            is_nested,
            dict(sorted(kept.items())),
            [bisect.bisect_left(self._line_ends, start) + 1 for start in reader.starts],
            write,
        )


def _markup(text, event):
    return text[event.start : event.end] if event.markup is None else event.markup


class _UnitText:
    """Collects the text of a unit, and where each of its characters is in the whole text.

    Attributes:
        characters: the characters of the text.
        starts: for each, the position in the whole text where it begins.
        ends: for each, the position where it ends.
        tags: tags and comments, and the white space at the beginning and at the end.
        kept: the parts of the text that are copied elements, with their markup.
    """

    def __init__(self, text: str):
        self._text = text
        self.characters: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.tags: list[Event] = []
        self.kept: dict[Span, str] = {}
        self._spaces: list[Event] = []  # since the last other character

    def add(self, event: Event) -> None:
        content = self._text[event.start : event.end]
        if event.kind == "entity" and _UNSEEN.fullmatch(event.text):
            return  # a mark of direction, such as &rlm;
        if event.kind == "text":
            for match in _SPACE_OR_WORD.finditer(content):
                start, end = event.start + match.start(), event.start + match.end()
                if match[0][0] in " \t\n\r\f":
                    self._add_space(Event("space", "", start, end))
                else:
                    self._add_text(match[0], range(start, end), range(start + 1, end + 1))
        elif event.kind == "space" or (event.kind == "entity" and event.text in _SPACES):
            self._add_space(event)
        elif event.kind in ("entity", "copied") and event.text:
            start, end = len(self.characters), len(self.characters) + len(event.text)
            whole = [event.start] * len(event.text), [event.end] * len(event.text)
            moved = self._add_text(event.text, *whole)
            if event.kind == "copied":
                self.kept[start + moved, end + moved] = content
        else:
            self._add_tag(event)

    def _add_space(self, event):
        self._add_tag(event)
        self._spaces.append(event)

    def _add_tag(self, event):
        event.offset = len(self.characters)
        self.tags.append(event)

    def _add_text(self, characters, starts, ends):
        """Adds text, after one space for the white space before it; returns how many that are."""
        moved = 0
        if self.characters and self._spaces:
            moved = 1
            self.characters.append(" ")
            self.starts.append(self._spaces[0].start)
            self.ends.append(self._spaces[0].end)
            for space in self._spaces:
                space.kind = "absorbed"
            # Tags after the white space are after the space.
            following = ""
            for tag in reversed(self.tags):
                if tag.start < self._spaces[0].start:
                    break
                tag.offset += 1
                tag.is_spaced = following == "absorbed"
                following = tag.kind
        self._spaces = []
        self.characters += characters
        self.starts += starts
        self.ends += ends
        return moved


def _with_partners(tags: Sequence[Event]) -> list[Event]:
    """The tags without absorbed ones; a start tag and its end tag are partners."""
    tags = [tag for tag in tags if tag.kind != "absorbed"]
    open_: list[Event] = []
    numbers: collections.Counter[str] = collections.Counter()
    for tag in tags:
        if tag.kind == "open":
            open_.append(tag)
            numbers[tag.name] += 1
        elif tag.kind == "close" and numbers[tag.name]:
            while tag.partner is None:
                last = open_.pop()
                numbers[last.name] -= 1
                if last.name == tag.name:
                    tag.partner, last.partner = last, tag
    return tags


def _raised_parts(tags):
    for tag in tags:
        if tag.kind == "open" and tag.name in ("sub", "sup") and tag.partner:
            yield Part(tag.name, tag.offset, tag.partner.offset)


def _absorbed(tags, start, end, first, last) -> Span | None:
    """Makes the tags within a placeholder a part of it.

    Args:
        tags: the tags of the unit.
        start: the position in the text where the placeholder begins.
        end: the position where it ends.
        first: the position in the whole text where it begins, without tags around it.
        last: the position in the whole text where it ends.

    Returns:
        The positions in the whole text where it begins and ends with its tags; None, and the tags
        stay, if a tag within it has its counterpart outside, or none.
    """
    inside = tags[
        bisect.bisect_right(tags, start, key=lambda tag: tag.offset) : bisect.bisect_left(
            tags, end, key=lambda tag: tag.offset
        )
    ]
    if not inside:
        return first, last
    partners = [tag.partner for tag in inside if tag.partner]
    first = min([first, *(tag.start for tag in partners)])
    last = max([last, *(tag.end for tag in partners)])
    index = bisect.bisect_left(tags, first, key=lambda tag: tag.start)
    within = tags[index : bisect.bisect_left(tags, last, key=lambda tag: tag.start)]
    for tag in within:
        other = tag.partner or tag
        if other is tag and tag.kind in ("open", "close"):
            return None
        if not (start <= tag.offset <= end and first <= other.start and other.end <= last):
            return None
    for tag in within:
        tag.kind = "absorbed"
    return first, last


def _tree(source: str, tags: Sequence[Event], text: str) -> tuple[Node, bool]:
    """The nodes of a unit, and whether elements may move without a tag that has no counterpart.

    Args:
        source: the whole text.
        tags: the tags of the unit.
        text: its text without tags.
    """
    root = Node(0, len(text), "")
    path, is_nested = [root], True
    for tag in tags:
        content = _markup(source, tag)
        if tag.kind == "open" and tag.partner:
            is_spaced = tag.partner.is_spaced
            path.append(Node(tag.offset, tag.offset, content, is_spaced=is_spaced))
            path[-2].children.append(path[-1])
            is_nested &= len(path) <= _MOST_NESTED
        elif tag.kind == "close" and tag.partner:
            node = path.pop()
            node.after = content
            if text[node.start : tag.offset].strip():  # white space alone is between elements
                node.end = tag.offset
        else:
            node = Node(tag.offset, tag.offset, content, is_spaced=tag.is_spaced)
            path[-1].children.append(node)
            if tag.kind in ("open", "close"):
                is_nested &= len(path) == 1 and tag.offset in (0, len(text))
    return root, is_nested
