"""Markdown as tags and runs of text.

CommonMark (https://spec.commonmark.org/0.31.2/) by markdown-it-py, with GitHub's tables,
strikethrough, task lists, footnotes, alerts and formulas.
"""

import bisect
import collections
import dataclasses
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, paragraph
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from keras_transformer.text.html_reader import copied_whole, html_events
from keras_transformer.text.markup_units import Event, Place, Write
from keras_transformer.text.placeholders import Span

_LINE_END = re.compile(r"\r\n?|\n")
_LINE_OR_END = re.compile(r"\n|[^\n]+")
# A byte-order mark and front matter.
_HEAD = re.compile(r"\ufeff?(?:(---|\+\+\+)[ \t]*\r?\n(?:.*\n)*?(?:\1|\.\.\.)[ \t]*(?:\r?\n|\Z))?")
# Formulas and links of wikis, which a model reads as a word.
_WORD = re.compile(
    r"\$\$.+?\$\$|\$`[^`\n]{1,200}`\$"
    r"|\$(?:\w|(?=\S)[^$\n]{0,200}[\\^_={}][^$\n]{0,200}(?<!\s))\$(?!\d)"
    r"|\[\[[^\[\]\n]{1,100}\]\]",
    re.DOTALL,
)
# References to footnotes, attributes such as `{#id}`, and emoji, which it does not read.
_UNREAD = re.compile(
    r"\[\^[^\]\s]{1,100}\]:?|\{[#.:][^{}\n]{0,200}\}|(?<!\w):[a-z0-9][a-z0-9_+-]{0,50}:"
)
# Lines that are copied: those that begin alerts, admonitions and containers; tables of contents.
_MARKER_LINE = re.compile(
    r"\[![a-zA-Z]+\][-+]?|(?:!!!|\?\?\?\+?|:::+)(?:\s.*)?|===\+?\s.*|\[TOC\]|\[\[_TOC_\]\]"
)
# Those below which text is indented by four spaces: admonitions, tabs, footnotes.
_INDENTED = re.compile(r"(?:!!!|\?\?\?\+?|===[+!]?)[ \t]+\S|(?P<footnote>\[\^[^\]\s]{1,100}\]:)")
_DEEPEST = 80  # spaces: Python's stack ends somewhere, and so do levels of lists
_DEFINITION = re.compile(r":[ \t]+(?=\S)")  # of the term in the line before
_TASK = re.compile(r"\[[ xX]\]\s+")
_QUOTE_OR_LIST = re.compile(r"(?:[ \t]*(?:>|[-+*](?=[ \t])|[0-9]{1,9}[.)](?=[ \t])))*[ \t]*")
_CELL = re.compile(r"((?:[^|\\]|\\.)*+)(?:\||\Z)", re.DOTALL)
# What would begin another block at the start of a paragraph's line.
_BLOCK_START = re.compile(
    r"(?:\#{1,6}|[-+*])(?=\s|\Z)|>|~~~|```|[-*_]{3,}\s*\Z|:::|!!!|[0-9]{1,9}(?=[.)](?:\s|\Z))"
)
# After the text of an image, unless the text itself is the name of a definition.
_AFTER_TEXT = re.compile(r"\](?:\(|\[[^\]])")
_SPECIAL = re.compile(r"[\\`*_\[\]<>&~|$]")
# What would end the text that it stands in.
_ALWAYS_ESCAPED = {"cell": "|", "image": "[]|`<$"}
# The kinds of events of the parser's tokens, besides those that begin or end an element.
_KINDS = {
    "code_inline": "copied",
    "hardbreak": "other",
    "html_inline": "html",
    "image": "other",
    "softbreak": "space",
    "text_special": "entity",
    "unread": "other",
    "word": "copied",
}
_AS_HTML = {
    "*": ("<em>", "</em>"),
    "_": ("<em>", "</em>"),
    "**": ("<strong>", "</strong>"),
    "__": ("<strong>", "</strong>"),
    "~~": ("<del>", "</del>"),
}


def read_markdown(text: str) -> list[Event]:
    """The tags and runs of text of a document or a part of one, which are the whole of it.

    Code, HTML comments, front matter, definitions of links and the marks of blocks, such as `#` and
    `>`, are copied.
    """
    return list(copied_whole(text, list(_Reader(text).events())))


class _Reader:
    """Reads one text.

    Args:
        text: the text.
    """

    def __init__(self, text: str):
        self._text = text.replace("\0", "\ufffd")  # as the parser does
        self._start = len(_HEAD.match(text)[0])  # type: ignore[index]
        starts = [self._start, *(end.end() for end in _LINE_END.finditer(text, self._start))]
        ends = [*(end.start() for end in _LINE_END.finditer(text, self._start)), len(text)]
        self._lines = [*zip(starts, ends, strict=True)]
        self._env: dict[str, Any] = {}

    def events(self) -> Iterator[Event]:
        """The events, in order."""
        position = 0
        for start, end, events in self._runs():
            if position < start:
                yield Event("other", "", position, start, is_block=True)
            yield from events
            position = end
        if position < len(self._text):
            yield Event("other", "", position, len(self._text), is_block=True)

    def _runs(self):
        """The start, the end and the events of each part that is not the marks of blocks."""
        previous = ""
        columns = 0
        for token in _parser().parse(self._text[self._start :], self._env):
            if token.type == "tr_open":
                spans = self._cells(token.map[0])
                columns = columns or len(spans)
                for span in spans[:columns]:
                    yield from self._paragraph([span], "cell")
            elif token.type == "table_close":
                columns = 0
            elif token.type == "inline" and previous not in ("th_open", "td_open"):
                kind = "paragraph" if previous == "paragraph_open" else "heading"
                for spans in self._paragraphs(self._spans(token)):
                    yield from self._paragraph(spans, kind)
            elif token.type == "html_block":
                lines = _Lines(self._text, self._spans(token))
                events = _placed(html_events(lines.source), 0, lines, "block")
                yield events[0].start, events[-1].end, events
            previous = token.type

    def _spans(self, token) -> list[Span]:
        """Where each line of a paragraph or heading is in the text, without the marks of blocks."""
        spans = []
        number = token.map[0]
        for line in token.content.removesuffix("\n").split("\n"):
            stripped = line.strip()
            # The parser strips white space such as U+00A0, so it may leave out first lines.
            while (start := self._text.rfind(stripped, *self._lines[number])) < 0:
                number += 1
            spans.append((start, self._lines[number][1]))
            number += 1
        last = spans[-1][0]
        spans[-1] = last, last + len(stripped)
        return spans

    def _paragraphs(self, spans) -> Iterator[list[Span]]:
        """Lines in groups, without those that belong to the next block."""
        if match := _TASK.match(self._text, *spans[0]):
            spans[0] = match.end(), spans[0][1]
        group: list[Span] = []
        for start, end in spans:
            is_marker = _MARKER_LINE.fullmatch(self._text[start:end].strip())
            definition = _DEFINITION.match(self._text, start, end)
            if group and (is_marker or definition):
                yield group
                group = []
            if not is_marker:
                group.append((definition.end() if definition else start, end))
        if group:
            yield group

    def _cells(self, number) -> list[Span]:
        """Where the cells of a line of a table are."""
        start, end = self._lines[number]
        start += len(_QUOTE_OR_LIST.match(self._text[start:end])[0])  # type: ignore[index]
        cells = []
        end = start + len(self._text[start:end].rstrip())
        start += self._text.startswith("|", start, end)
        for match in _CELL.finditer(self._text, start, end):
            if match.start() == end:  # after the last `|`
                break
            cell = match[1].strip()
            at = match.start() + match[1].index(cell)
            cells.append((at, at + len(cell)))
        return cells

    def _paragraph(self, spans, kind):
        """The events of the lines of a paragraph, of a heading or of a cell."""
        if events := _inline_events(_Lines(self._text, spans), self._env, kind):
            yield events[0].start, events[-1].end, events


class _Lines:
    """Lines of a paragraph as one text, and the place in the whole text of each position."""

    def __init__(self, text: str, spans: Sequence[Span]):
        self.text, self._spans = text, spans
        pieces = [text[start:end] for start, end in spans]
        self.source = "\n".join(pieces)
        self._starts = [0]
        for piece in pieces[:-1]:
            self._starts.append(self._starts[-1] + len(piece) + 1)

    def place(self, position: int) -> int:
        """The position in the whole text of one in the paragraph."""
        line = bisect.bisect_right(self._starts, position) - 1
        return self._spans[line][0] + position - self._starts[line]

    def part(self, start: int, end: int) -> "_Lines":
        """The lines from one position in the paragraph to another."""
        spans = []
        for line in self.source[start:end].split("\n"):
            first = self.place(start)
            spans.append((first, first + len(line)))
            start += len(line) + 1
        return _Lines(self.text, spans)


def _inline_events(lines: _Lines, env: dict[str, Any], kind: str) -> list[Event]:
    """The events of the lines of a paragraph, of a heading, of a cell or of an image's text."""
    events, write = [], _Writer(env, kind)
    position = 0
    for start, end, event, label in _marks(lines.source, _parsed(lines.source, env)):
        if position < start:
            events.append(Event("text", "", lines.place(position), lines.place(start), write=write))
        first, last = lines.place(start), lines.place(end)
        if event.kind == "html":
            html = _placed(html_events(lines.source[start:end]), start, lines, kind)
            events += [dataclasses.replace(one, write=write) for one in html]
        else:
            event = dataclasses.replace(event, start=first, end=last, write=write)
            if kind == "image" and event.is_block:  # a line break
                event = dataclasses.replace(event, kind="space", is_block=False)
            if label and label[0] < label[1] and kind != "image":
                event.values = [_inline_events(lines.part(*label), env, "image")]
            events.append(event)
        position = end
    if position < len(lines.source):
        start, end = lines.place(position), lines.place(len(lines.source))
        events.append(Event("text", "", start, end, write=write))
    return events


def _marks(source, tokens):
    """Where a paragraph has anything but plain text, and the event of that, without its place.

    With an image, also where its text is, unless that names its definition.
    """
    labels = []
    for token in tokens:
        if token.type == "text" or "span" not in token.meta:
            continue
        (start, end), markup, label = token.meta["span"], None, None
        if token.type == "image" and _AFTER_TEXT.match(source, token.meta["label_end"]):
            label = start + 2, token.meta["label_end"]
        kind = _KINDS.get(token.type, "open" if token.nesting > 0 else "close")
        if token.type == "link_open":
            end = start + 1
            labels.append((end, token.meta["label_end"]))
        elif token.type == "link_close":
            first, start = labels.pop()
            if source[start:end] in ("]", "][]"):  # the text is the name of the definition
                markup = f"][{' '.join(source[first:start].split())}]"
        elif kind == "open":  # the span of `**` is that of the inner mark
            start = end - len(token.markup)
        elif kind == "close":
            end = start + len(token.markup)
        texts = {"entity": token.content, "copied": " ".join(token.content.split())}
        is_block = token.type == "hardbreak"
        event = Event(kind, token.markup, 0, 0, texts.get(kind, ""), is_block, markup)
        yield start, end, event, label


def _placed(events, offset, lines, kind) -> list[Event]:
    """Events of HTML in a block or in a paragraph, where they are in the whole text.

    Text is divided at the ends of lines, after which marks such as `>` may stand.
    """
    found = []
    for event in events:
        start, end = offset + event.start, offset + event.end
        write = functools.partial(_write_in_cell, event.write) if kind == "cell" else event.write
        values = [_placed(value, offset, lines, kind) for value in event.values]
        pieces = [(event.kind, start, end)]
        if event.kind == "text":
            pieces = [
                ("space" if match[0] == "\n" else "text", *match.span())
                for match in _LINE_OR_END.finditer(lines.source, start, end)
            ]
        for name, first, last in pieces:
            place = {"start": lines.place(first), "end": lines.place(last)}
            found.append(dataclasses.replace(event, kind=name, write=write, values=values, **place))
    return found


def _write_in_cell(write: Write, place: Place, source: str, text: str) -> str:
    return write(place, source, text).replace("|", "&#124;")


@dataclasses.dataclass(frozen=True, eq=False)
class _Writer:
    """Writes a translation as Markdown, so that it has the elements of its source and its text.

    Args:
        env: the definitions of links.
        kind: "paragraph", "heading", "cell" or "image" (its text).
    """

    env: dict[str, Any]
    kind: str

    def __call__(self, place: Place, source: str, text: str) -> str:
        elements = self._elements(source)
        expected = elements and (elements[0], "".join(text.split()))
        found = ""
        for escape, tags in ((self._as_it_is, {}), (_escaped, {}), (_escaped, _AS_HTML)):
            found = place(escape, tags)
            if self._elements(found) == expected:
                break
        if self.kind == "paragraph" and (match := _BLOCK_START.match(found)):
            at = match.end() if match[0].isdigit() else 0
            found = f"{found[:at]}\\{found[at:]}"
        return found

    def _as_it_is(self, text):
        for character in _ALWAYS_ESCAPED.get(self.kind, ""):
            text = text.replace(character, f"\\{character}")
        return text

    def _elements(self, markup):
        """How often a paragraph has each element, and its text without white space.

        None for the text of an image that would not be one.
        """
        tokens = _parsed(f"![{markup}](u)" if self.kind == "image" else markup, self.env)
        if self.kind == "image":
            if [token.type for token in tokens] != ["image"]:
                return None
            tokens = tokens[0].children or []
        numbers = collections.Counter(
            (token.type, token.content if token.type == "html_inline" else "")
            for token in tokens
            if token.type not in ("text", "text_special", "softbreak")
        )
        text = "".join(
            token.content
            for token in tokens
            if token.type in ("text", "text_special", "code_inline", "word")
        )
        return numbers, "".join(text.split())


def _parsed(source: str, env: dict[str, Any]) -> list[Token]:
    """The tokens of a paragraph, given the definitions of links."""
    tokens: list[Token] = []
    _parser().inline.parse(source, _parser(), env, tokens)
    return tokens


def _escaped(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


@functools.cache
def _parser() -> MarkdownIt:
    """A parser of blocks, whose `inline.parse` gives tokens that know where they are."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.inline.ruler.before("newline", "copied", _copied)
    blocks = parser.block.ruler
    [reference] = [
        rule
        for name, rule in zip(blocks.get_active_rules(), blocks.getRules(""), strict=True)
        if name == "reference"
    ]
    blocks.at("reference", functools.partial(_reference, reference))
    blocks.before("code", "indented", _indented, {"alt": ["paragraph", "blockquote", "list"]})
    inline = parser.inline.ruler
    for name, rule in zip(inline.get_active_rules(), inline.getRules(""), strict=True):
        inline.at(name, functools.partial(_with_spans, rule))
    return parser.disable(["inline", "text_join", "fragments_join"])


def _reference(rule, state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The definition of a link, but not of a footnote."""
    at = state.bMarks[start] + state.tShift[start]
    return not state.src.startswith("[^", at) and rule(state, start, end, silent)


def _indented(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """An admonition, a tab or a footnote, with the blocks that are indented below it."""
    at = state.bMarks[start] + state.tShift[start]
    match = _INDENTED.match(state.src, at, state.eMarks[start])
    if state.is_code_block(start) or not match or state.blkIndent > _DEEPEST:
        return False
    if silent:
        return True
    body = start + 1
    if match["footnote"]:  # its text begins in its line
        paragraph(state, start, end, False)
        body = state.line
    outer, line_max = state.blkIndent, state.lineMax
    state.blkIndent = state.sCount[start] + 4
    line = body
    while line < end and (state.isEmpty(line) or state.sCount[line] >= state.blkIndent):
        line += 1
    state.lineMax = line
    state.md.block.tokenize(state, body, line)
    state.blkIndent, state.lineMax = outer, line_max
    state.line = line
    return True


def _copied(state: StateInline, silent: bool) -> bool:
    """Copies formulas and links of wikis, and what a model does not read."""
    for kind, pattern in (("word", _WORD), ("unread", _UNREAD)):
        if match := pattern.match(state.src, state.pos, state.posMax):
            if not silent:
                state.push(kind, "", 0).content = match[0]
            state.pos = match.end()
            return True
    return False


def _with_spans(rule, state: StateInline, silent: bool) -> bool:
    """Runs a rule; each token that it adds, except plain text, knows where it is."""
    start, number = state.pos, len(state.tokens)
    if not rule(state, silent):
        return False
    if silent or len(state.tokens) == number:
        return True
    if state.src[start] in "*_~":  # one token for each mark, or for each two
        position = state.pos
        for token in reversed(state.tokens[number:]):
            if position > start:
                token.meta["span"] = position - len(token.content), position
                position -= len(token.content)
        return True
    if state.tokens[-1].markup == "autolink":
        del state.tokens[-3:]
        state.push("word", "", 0).content = state.src[start + 1 : state.pos - 1]
    for token in state.tokens[number:]:
        if token.type in ("image", "link_open") and "span" not in token.meta:
            is_link = token.type == "link_open"
            end = state.md.helpers.parseLinkLabel(state, start + (not is_link), is_link)
            token.meta["label_end"] = end
        if token.type != "text":
            token.meta.setdefault("span", (start, state.pos))
    return True
