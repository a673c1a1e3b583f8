"""HTML as units: runs of text that a translator gets, with the tags in them, and all the rest."""

import bisect
import collections
import dataclasses
import html
import itertools
import re
from collections.abc import Iterator, Sequence

from keras_transformer.text.placeholders import Span, find_placeholders


def _names(text):
    return frozenset(text.split())


# Elements that begin on a line of their own, and buttons: no sentence goes beyond them.
_BLOCKS = _names(
    "address article aside audio blockquote body br button caption center col colgroup dd details "
    "dialog dir div dl dt fieldset figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head "
    "header hgroup hr html iframe legend li link main menu meta nav noscript object ol optgroup "
    "option p pre script search section select style summary table tbody td template textarea "
    "tfoot th thead title tr ul video"
)
_VOID = _names("area base br col embed frame hr img input link meta param source track wbr")
# Elements that are copied with what is in them. Of the second kind, a model reads nothing.
_COPIED = _names("code kbd pre samp script style textarea tt var")
_COPIED_UNREAD = _names("math svg")
# Elements whose end tag may be left out.
_OPTIONAL_END = _names(
    "body caption colgroup dd dt head html li optgroup option p rb rp rt rtc tbody td tfoot th "
    "thead tr"
)
# The tags that end an element whose end tag is left out, besides the end of what it is in.
_ENDED_BY = {
    name: _names(tags)
    for names, tags in (
        ("li", "li"),
        ("dd dt", "dd dt"),
        ("rb rp rt rtc", "rb rp rt rtc"),
        ("option", "hr optgroup option"),
        ("optgroup", "hr optgroup"),
        ("td th", "tbody td tfoot th thead tr"),
        ("tr", "tbody tfoot thead tr"),
        ("tbody tfoot thead", "tbody tfoot thead"),
        ("caption colgroup", "colgroup tbody tfoot thead tr"),
        ("head", "body"),
        (
            "p",
            "address article aside blockquote center details dialog dir div dl fieldset figcaption "
            "figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr main menu nav ol p pre search "
            "section table ul",
        ),
    )
    for name in names.split()
}
_MOST_NESTED = 50  # elements within each other in a unit; more keep the order of their tags

# The tokens of HTML. Python's html.parser gives no ends of tags, fails at `<![x[`, and takes
# quadratic time for some broken texts. Here no repetition can be read in two ways.
_TOKEN = re.compile(
    r"""
      (?P<other> <!--(?:-?>|.*?(?:--!?>|\Z)) | <!\[CDATA\[.*?(?:\]\]>|\Z)
               | <\?(?:php|=).*?(?:\?>|\Z) | <[!?][^>]*+(?:>|\Z) )
    | (?P<tag> <(?P<slash>/?)(?P<name>[a-zA-Z][^\s/><"']*+)
               (?: (?:[^<>"']*+(?:"[^"]*+"|'[^']*+')){0,200}[^<>"']*+ >
                 | [^<>]*+ > ) )                     # a quote that is not closed: title=it's
    | (?P<entity> &(?:\#[0-9]+|\#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);?)
    | .[^<&]*
    """,
    re.VERBOSE | re.DOTALL,
)
_RAW_CONTENT = _names("script style textarea")  # `<` begins no tag there
_UNQUOTED_END = re.compile(r"""=\s*[^\s"'>]*/>\Z""")  # a slash that belongs to the value
_ATTRIBUTE = re.compile(r"""([^\s=/>"']+)\s*(?:=\s*("[^"]*"|'[^']*'|[^\s>"']+))?""")
_SPACE_OR_WORD = re.compile(r"[ \t\n\r\f]+|[^ \t\n\r\f]+")


@dataclasses.dataclass(eq=False)
class Node:
    """An element of a unit, or what has no text in it, such as an image or a comment.

    Attributes:
        start: the position in the unit's text where it begins.
        end: the position where it ends.
        before: its HTML before what is in it.
        after: its HTML after that.
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
        root: the nodes of the unit.
        tags: the position and the HTML of all tags, in order.
        is_nested: whether every tag within the text has its counterpart, so that elements may move.
        kept: the HTML of each part of the text that is copied.
        lines: the line of the HTML text in which each character is, from 1.
    """

    text: str
    root: Node
    tags: list[tuple[int, str]]
    is_nested: bool
    kept: dict[Span, str]
    lines: list[int]


@dataclasses.dataclass(frozen=True)
class HtmlProblem:
    """A tag without its counterpart.

    Attributes:
        line: the line of the tag, from 1.
        tag: the tag, such as `<b>` or `</b>`.
        count: the number of such tags in the whole text.
    """

    line: int
    tag: str
    count: int


@dataclasses.dataclass(eq=False)
class _Event:
    """A tag or a run of text, or an element that is copied whole.

    Attributes:
        kind: "text", "entity", "open", "close", "copied" or "other".
        name: the name of the element.
        start: the position in the HTML where it begins.
        end: the position where it ends.
        offset: the position in the text of its unit.
        partner: the other tag of the element, if there is one in the unit.
        text: what the model reads of an element that is copied.
        is_block: whether it divides the text.
        is_spaced: whether white space stands before it, and directly after it.
    """

    kind: str
    name: str
    start: int
    end: int
    offset: int = 0
    partner: "_Event | None" = None
    text: str = ""
    is_block: bool = False
    is_spaced: bool = False


class HtmlUnits:
    """The units of an HTML text, and what stands between them, in order.

    Block elements divide the text. `<script>`, `<pre>`, `<code>` and the like, and elements with
    `translate="no"`, are copied: a block stands between units, others are a part of their unit.

    Args:
        text: a document or a part of one.
        patterns: patterns of placeholders, which are copied.

    Attributes:
        parts: units, and the HTML between them as strings.
        problem: the first tag without its counterpart; None if there is none.

    Example:
        >>> [before, unit, after] = HtmlUnits("<p>Two <b>dogs</b>.</p>", []).parts
        >>> before, unit.text, unit.root.children[0].before, after
        ('<p>', 'Two dogs.', '<b>', '</p>')
    """

    def __init__(self, text: str, patterns: Sequence[re.Pattern[str]]):
        self._text, self._patterns = text, patterns
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        events = list(_copied_whole(text, list(_events(text))))
        self.problem = _first_problem(text, events)
        self.parts = list(self._parts(events))

    def _parts(self, events) -> Iterator[Unit | str]:
        for is_block, some in itertools.groupby(events, lambda event: event.is_block):
            run = list(some)
            html_of_run = self._text[run[0].start : run[-1].end]
            yield (None if is_block else self._unit(run)) or html_of_run

    def _unit(self, events):
        """The unit of a run without blocks; None if there is nothing to translate."""
        reader = _UnitText(self._text)
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
                kept[start, end] = html.escape(text[start:end], quote=False)
            rest[start:end] = " " * (end - start)
        if not any(map(str.isalnum, rest)):
            return None
        tags = [tag for tag in tags if tag.kind != "absorbed"]
        root, is_nested = _tree(self._text, tags, text)
        flat = [(tag.offset, self._text[tag.start : tag.end]) for tag in tags]
        lines = [bisect.bisect_left(self._line_ends, start) + 1 for start in reader.starts]
        # Surrogates stand for bytes that are not UTF-8; what is not translated keeps them.
        text = re.sub("[\ud800-\udfff]", "\ufffd", text)
        return Unit(text, root, flat, is_nested, dict(sorted(kept.items())), lines)


def _events(text: str) -> Iterator[_Event]:
    """The tokens of a text, which are the whole of it."""
    position = 0
    while match := _TOKEN.match(text, position):
        start, position = match.span()
        name = (match["name"] or "").lower()
        if not match["tag"]:
            kind = "other" if match["other"] else "entity" if match["entity"] else "text"
        elif name in _VOID or _is_empty_element(match["tag"]):
            kind = "other"
        else:
            kind = "close" if match["slash"] else "open"
        yield _Event(kind, name, start, position, is_block=name in _BLOCKS)
        if kind == "open" and name in _RAW_CONTENT:
            end_tag = re.compile(f"</{name}(?![a-z0-9-])|\\Z", re.IGNORECASE)
            start, position = position, end_tag.search(text, position).start()  # type: ignore
            if start < position:
                yield _Event("text", name, start, position, is_block=True)


def _is_empty_element(tag):
    return tag.endswith("/>") and not _UNQUOTED_END.search(tag)


def _is_copied(text, event):
    """Whether an element is copied, by its name or its attributes."""
    tag = text[event.start : event.end]
    if event.name in _COPIED or event.name in _COPIED_UNREAD:
        return True
    if "translate" not in tag.lower():  # most tags
        return False
    for name, value in _ATTRIBUTE.findall(tag):
        value = value.strip("\"'").lower()
        if name.lower() == "translate" and value == "no":
            return True
        if name.lower() == "class" and "notranslate" in value.split():
            return True
    return False


def _copied_whole(text: str, events: Sequence[_Event]) -> Iterator[_Event]:
    """The events, with one for each element that is copied."""
    ends, waiting = {}, collections.defaultdict(list)
    for index, event in enumerate(events):
        if event.kind == "open":
            waiting[event.name].append(index)
        elif event.kind == "close" and waiting[event.name]:
            ends[waiting[event.name].pop()] = index
    starts = {end: start for start, end in ends.items()}
    index = 0
    while index < len(events):
        event = events[index]
        has_end = index in ends or event.name in _OPTIONAL_END
        if event.kind == "open" and has_end and _is_copied(text, event):
            last = ends[index] if index in ends else _last_within(events, index, ends, starts)
            inside = events[index + 1 : last + 1]
            is_read = event.name not in _COPIED_UNREAD
            yield _Event(
                "copied",
                event.name,
                event.start,
                events[last].end,
                text=_plain(text, inside) if is_read else "",
                is_block=event.is_block or (is_read and any(one.is_block for one in inside)),
            )
            index = last
        else:
            yield event
        index += 1


def _last_within(events, index, ends, starts):
    """The index of the last event of an element whose end tag is left out.

    Args:
        events: all events.
        index: the index of its start tag.
        ends: the index of the end tag of each start tag.
        starts: the same the other way round.
    """
    tags = _ENDED_BY.get(events[index].name, ())
    at = index + 1
    while at < len(events):
        event = events[at]
        if event.kind == "close" and starts.get(at, at) < index:
            break  # of an element that it is in
        if event.kind != "close" and event.name in tags:
            break
        at = ends.get(at, at) + 1
    return at - 1


def _plain(text, events):
    """The text of some events, with single spaces."""
    words = "".join(
        html.unescape(text[event.start : event.end])
        for event in events
        if event.kind in ("text", "entity")
    )
    return " ".join(words.split())


def _first_problem(text: str, events: Sequence[_Event]) -> HtmlProblem | None:
    """The first tag without its counterpart, unless HTML allows to leave that out."""
    open_: list[_Event] = []
    found: list[_Event] = []
    numbers: collections.Counter[str] = collections.Counter()
    for event in events:
        if event.kind == "open":
            open_.append(event)
            numbers[event.name] += 1
        elif event.kind == "close" and not numbers[event.name]:
            found.append(event)
        elif event.kind == "close":
            while True:
                last = open_.pop()
                numbers[last.name] -= 1
                if last.name == event.name:
                    break
                found.append(last)
    found = [
        event
        for event in [*found, *open_]
        if event.kind == "close" or event.name not in _OPTIONAL_END
    ]
    if not found:
        return None
    first = min(found, key=lambda event: event.start)
    tag = f"</{first.name}>" if first.kind == "close" else f"<{first.name}>"
    return HtmlProblem(text.count("\n", 0, first.start) + 1, tag, len(found))


class _UnitText:
    """Collects the text of a unit, and where each of its characters is in the HTML.

    Attributes:
        characters: the characters of the text.
        starts: for each, the position in the HTML where it begins.
        ends: for each, the position where it ends.
        tags: tags and comments, and the white space at the beginning and at the end.
        kept: the parts of the text that are copied elements, with their HTML.
    """

    def __init__(self, text: str):
        self._text = text
        self.characters: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.tags: list[_Event] = []
        self.kept: dict[Span, str] = {}
        self._spaces: list[_Event] = []  # since the last other character

    def add(self, event: _Event) -> None:
        content = self._text[event.start : event.end]
        if event.kind == "text":
            for match in _SPACE_OR_WORD.finditer(content):
                start, end = event.start + match.start(), event.start + match.end()
                if match[0][0] in " \t\n\r\f":
                    self._add_tag(_Event("space", "", start, end))
                    self._spaces.append(self.tags[-1])
                else:
                    self._add_text(match[0], range(start, end), range(start + 1, end + 1))
        elif event.kind == "entity" and (characters := html.unescape(content)):
            whole = [event.start] * len(characters), [event.end] * len(characters)
            self._add_text(characters, *whole)
        elif event.kind == "copied" and event.text:
            start, end = len(self.characters), len(self.characters) + len(event.text)
            whole = [event.start] * len(event.text), [event.end] * len(event.text)
            moved = self._add_text(event.text, *whole)
            self.kept[start + moved, end + moved] = content
        else:
            self._add_tag(event)

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


def _with_partners(tags: Sequence[_Event]) -> list[_Event]:
    """The tags without absorbed ones; a start tag and its end tag are partners."""
    tags = [tag for tag in tags if tag.kind != "absorbed"]
    open_: list[_Event] = []
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


def _absorbed(tags, start, end, first, last) -> Span | None:
    """Makes the tags within a placeholder a part of it.

    Args:
        tags: the tags of the unit.
        start: the position in the text where the placeholder begins.
        end: the position where it ends.
        first: the position in the HTML where it begins, without tags around it.
        last: the position in the HTML where it ends.

    Returns:
        The positions in the HTML where it begins and ends with its tags; None, and the tags stay,
        if a tag within it has its counterpart outside, or none.
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


def _tree(html_: str, tags: Sequence[_Event], text: str) -> tuple[Node, bool]:
    """The nodes of a unit, and whether elements may move without a tag that has no counterpart.

    Args:
        html_: the whole HTML.
        tags: the tags of the unit.
        text: its text.
    """
    root = Node(0, len(text), "")
    path, is_nested = [root], True
    for tag in tags:
        content = html_[tag.start : tag.end]
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
