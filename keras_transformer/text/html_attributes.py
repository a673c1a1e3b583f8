"""Attributes of HTML: those that people read, such as `alt` and `title`, and `translate="no"`."""

import functools
import html
import html.entities
import re
from collections.abc import Iterator

from keras_transformer.text.markup_units import Event, Place

ENTITY = r"&(?:\#[0-9]+|\#[xX][0-9a-fA-F]+|[a-zA-Z][a-zA-Z0-9]*);?"
_ENTITY_OR_TEXT = re.compile(rf"(?P<entity>{ENTITY})|.[^&]*", re.DOTALL)
_ATTRIBUTE = re.compile(r"""([^\s=/>"']+)\s*(?:=\s*("[^"]*"|'[^']*'|[^\s>"'][^\s>]*))?""")

# Attributes that people read, in every element and in some.
_READ = {
    "alt",
    "aria-description",
    "aria-label",
    "aria-placeholder",
    "placeholder",
    "title",
}
_READ_IN = {
    "abbr": {"th"},
    "content": {"meta"},
    "label": {"optgroup", "option", "track"},
    "summary": {"table"},
    "value": {"input"},
}
_READ_INPUTS = {"button", "reset", "submit"}  # by `type`
_READ_META = {  # by `name` or `property`
    "description",
    "og:description",
    "og:image:alt",
    "og:title",
    "title",
    "twitter:description",
    "twitter:image:alt",
    "twitter:title",
}
_MAY_BE_READ = re.compile(rf"(?:{'|'.join([*_READ, *_READ_IN])})\s*=", re.IGNORECASE)


def character_of(entity: str) -> str:
    """The characters that an entity stands for."""
    try:
        return html.unescape(entity)
    except ValueError:  # Python reads no number of thousands of digits
        return "\N{REPLACEMENT CHARACTER}"


def is_untranslated(tag: str) -> bool:
    """Whether a start tag says that its element is not to be translated."""
    if "translate" not in tag.lower():  # most tags
        return False
    values = _lower_values(tag)
    return values.get("translate") == "no" or "notranslate" in values.get("class", "").split()


def attribute_values(tag: str, name: str, offset: int) -> Iterator[list[Event]]:
    """The runs of text of each attribute that people read.

    Args:
        tag: a start tag.
        name: its name, in lower case.
        offset: the position of the tag in the whole text.
    """
    if not _MAY_BE_READ.search(tag) or is_untranslated(tag):
        return
    values, seen = _lower_values(tag), set()
    for match in _ATTRIBUTE.finditer(tag):
        key = match[1].lower()
        is_read = key not in seen and (key in _READ or name in _READ_IN.get(key, ()))
        seen.add(key)  # the first of two with one name counts
        if key == "content":
            is_read &= not _READ_META.isdisjoint((values.get("name"), values.get("property")))
        elif key == "value":
            is_read &= values.get("type") in _READ_INPUTS
        if is_read and match[2]:
            is_quoted = match[2][0] in "\"'"
            start, end = match.start(2) + is_quoted, match.end(2) - is_quoted
            if start < end:
                yield _value_events(tag, start, end, offset)


def _lower_values(tag):
    """The value of each attribute of a start tag, without quotation marks, in lower case."""
    found: dict[str, str] = {}
    for name, value in _ATTRIBUTE.findall(tag):
        found.setdefault(name.lower(), value.strip("\"'").lower())
    return found


def _value_events(tag, start, end, offset):
    write = functools.partial(_write_value, tag[start - 1])
    events = []
    for match in _ENTITY_OR_TEXT.finditer(tag, start, end):
        place = offset + match.start(), offset + match.end()
        if match["entity"] and _is_entity(match["entity"], tag[match.end()]):
            events.append(Event("entity", "", *place, character_of(match["entity"]), write=write))
        else:
            events.append(Event("text", "", *place, write=write))
    return events


def _is_entity(text, following):
    """Whether a text such as `&copy` is an entity in an attribute, where `?a&copy=b` has none."""
    name = text[1:]
    if name.startswith("#"):
        return True
    return name in html.entities.html5 and (name.endswith(";") or following != "=")


def _write_value(before: str, place: Place, source: str, text: str) -> str:
    """A translation as the value of an attribute, which stands after a quotation mark or `=`."""
    del source, text

    def escape(part):
        if before not in "\"'":
            return re.sub(r"[\s\"'`=<>&]", lambda match: f"&#{ord(match[0])};", part)
        return html.escape(part, quote=False).replace(before, html.escape(before))

    return place(escape, {}) or ('""' if before not in "\"'" else "")
