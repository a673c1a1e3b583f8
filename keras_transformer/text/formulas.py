"""Raised and lowered parts of a text: 10<sup>6</sup> is a formula, word<sup>1</sup> has a note."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from keras_transformer.text.placeholders import Span

LONGEST = 40  # characters before a part that are looked at
_WORD_BEFORE = re.compile(r"(?:\d(?:[\d.,]*\d)?|\w+)\Z")
_ORDINAL_BEFORE = re.compile(r"(?<!\w)(?:\d+|[IVXLCDM]+)\.?\Z")  # XIX<sup>e</sup>, 1.<sup>a</sup>
_WORD_AFTER = re.compile(r"\w*")
_MOST_LETTERS = 3  # before a lowered part: log<sub>2</sub>
_CHARGE = re.compile(r"\d*[-+\u2212]")
_UNITS = frozenset(["mm", "cm", "dm", "km", "nm", "µm", "μm", "ft", "yd", "mi", "sq"])
_NOTE = re.compile(
    r"[\[(]?(?:\d{1,3}(?:[-\u2013, ]{1,2}\d{1,3}){0,9}|[a-z]|[*\u2020\u2021\u00a7]{1,3})[\])]?"
)


class Part(NamedTuple):
    """A part of a text that is raised (`sup`) or lowered (`sub`), and where it begins and ends."""

    name: str
    start: int
    end: int


def find_formulas(text: str, parts: Iterable[Part]) -> list[Span]:
    """The words with raised or lowered parts that have the same form in every language.

    Args:
        text: a text without tags.
        parts: its parts, in order.

    Example:
        >>> find_formulas("2 m2 of H2O at 10th", [Part("sup", 3, 4), Part("sub", 9, 10)])
        [(2, 4), (8, 11)]
    """
    spans: list[Span] = []
    for name, start, end in parts:
        if spans and end <= spans[-1][1]:
            continue  # it belongs to the formula before
        word = _word_before(text[max(0, start - LONGEST) : start])
        if is_formula(name, word, text[start:end]):
            first, after = start - len(word), _WORD_AFTER.match(text, end)
            while spans and first < spans[-1][1]:  # NH4 and +
                first = min(first, spans.pop()[0])
            spans.append((first, after.end() if after else end))
    return spans


def is_formula(name: str, word: str, part: str) -> bool:
    """Whether a word and the part after it are a formula: `10` and `6`, not `10` and `th`."""
    letters = sum(map(str.isalpha, word))
    if not word or not part.strip() or part.startswith("["):  # [1] is the mark of a note
        return False
    if name == "sub":
        return letters <= _MOST_LETTERS
    if not letters or word in _UNITS:
        return any(map(str.isdigit, part)) or not part.isalpha()
    if part.isalpha() and len(part) > 1:  # M<sup>me</sup>
        return False
    return len(word) == 1 or (letters <= 2 and bool(_CHARGE.fullmatch(part)))


def is_note(before: str, part: str) -> bool:
    """Whether a raised part is the mark of a note, such as [1], after a text that ends so."""
    if before[-1:].isspace() and part.isdigit():  # a numerator: <sup>1</sup>/<sub>2</sub>
        return False
    if part.isalpha() and _ORDINAL_BEFORE.search(before):
        return False
    return bool(_NOTE.fullmatch(part)) and not is_formula("sup", _word_before(before), part)


def _word_before(text):
    found = _WORD_BEFORE.search(text)
    return found[0] if found else ""
