"""HTML as tags and runs of text."""

import collections
import dataclasses
import re
from collections.abc import Iterator, Sequence

from keras_transformer.text.formulas import LONGEST, is_note
from keras_transformer.text.html_attributes import (
    ENTITY,
    attribute_values,
    character_of,
    is_untranslated,
)
from keras_transformer.text.markup_units import Event


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

# The tokens of HTML. Python's html.parser gives no ends of tags, fails at `<![x[`, and takes
# quadratic time for some broken texts. Here no repetition can be read in two ways.
_TOKEN = re.compile(
    rf"""
      (?P<other> <!--(?:-?>|.*?(?:--!?>|\Z)) | <!\[CDATA\[.*?(?:\]\]>|\Z)
               | <\?(?:php|=).*?(?:\?>|\Z) | <[!?][^>]*+(?:>|\Z) )
    | (?P<tag> <(?P<slash>/?)(?P<name>[a-zA-Z][^\s/><"']*+)
               (?: (?:[^<>"']*+(?:"[^"]*+"|'[^']*+')){{0,200}}[^<>"']*+ >
                 | [^<>]*+ > ) )                     # a quote that is not closed: title=it's
    | (?P<entity> {ENTITY})
    | .[^<&]*
    """,
    re.VERBOSE | re.DOTALL,
)
_RAW_CONTENT = _names("script style textarea")  # `<` begins no tag there
_UNQUOTED_END = re.compile(r"""=\s*+[^\s"'>=]*+(?<=/)>\Z""")  # a slash that belongs to the value


@dataclasses.dataclass(frozen=True)
class MarkupProblem:
    """A tag without its counterpart.

    Attributes:
        line: the line of the tag, from 1.
        tag: the tag, such as `<b>` or `</b>`.
        count: the number of such tags in the whole text.
    """

    line: int
    tag: str
    count: int


def read_html(text: str) -> list[Event]:
    """The tags and runs of text of a document or a part of one, which are the whole of it.

    `<script>`, `<pre>`, `<code>` and the like, and elements with `translate="no"`, are copied: a
    block stands between units, others are a part of their unit.
    """
    return list(copied_whole(text, list(html_events(text))))


def html_events(text: str) -> Iterator[Event]:
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
        character = character_of(match["entity"] or "")
        values = [] if match["slash"] else [*attribute_values(match["tag"] or "", name, start)]
        is_block = name in _BLOCKS
        yield Event(kind, name, start, position, character, is_block=is_block, values=values)
        if kind == "open" and name in _RAW_CONTENT:
            end_tag = re.compile(f"</{name}(?![a-z0-9-])|\\Z", re.IGNORECASE)
            start, position = position, end_tag.search(text, position).start()  # type: ignore
            if start < position:
                yield Event("text", name, start, position, is_block=True)


def _is_empty_element(tag):
    return tag.endswith("/>") and not _UNQUOTED_END.search(tag)


def _is_mark(text, events, index, last):
    """Whether an element is the mark of a note after a word or a sentence, such as [1] or *."""
    if events[index].name != "sup":
        return False
    before = ""  # <i>x</i><sup>2</sup>: the text, without tags
    for event in reversed(events[max(0, index - LONGEST) : index]):
        if event.is_block or len(before) >= LONGEST:
            break
        content = text[max(event.start, event.end - LONGEST) : event.end]
        before = {"text": content, "entity": event.text, "space": " "}.get(event.kind, "") + before
    return is_note(before, _plain(text, events[index + 1 : last]))


def _is_copied(text, event):
    """Whether an element is copied, by its name or its attributes."""
    return (
        event.name in _COPIED
        or event.name in _COPIED_UNREAD
        or is_untranslated(text[event.start : event.end])
    )


def copied_whole(text: str, events: Sequence[Event]) -> Iterator[Event]:
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
        is_mark = index in ends and _is_mark(text, events, index, ends[index])
        if event.kind == "open" and has_end and (is_mark or _is_copied(text, event)):
            last = ends[index] if index in ends else _last_within(events, index, ends, starts)
            inside = events[index + 1 : last + 1]
            is_read = not is_mark and event.name not in _COPIED_UNREAD
            yield Event(
                "copied",
                event.name,
                event.start,
                events[last].end,
                _plain(text, inside) if is_read else "",
                is_block=event.is_block or (is_read and any(one.is_block for one in inside)),
                write=event.write,
                values=event.values,
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
    words = {
        "text": lambda event: text[event.start : event.end],
        "entity": lambda event: event.text,
        "space": lambda _: " ",
    }
    found = "".join(words[event.kind](event) for event in events if event.kind in words)
    return " ".join(found.split())


def first_problem(text: str, events: Sequence[Event]) -> MarkupProblem | None:
    """The first tag without its counterpart, unless HTML allows to leave that out."""
    open_: list[Event] = []
    found: list[Event] = []
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
    return MarkupProblem(text.count("\n", 0, first.start) + 1, tag, len(found))
