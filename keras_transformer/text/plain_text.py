"""Text without what editors, spreadsheets and old systems leave in it, which no reader sees."""

import functools
import itertools
import re

# Classes of characters, written so that Python and RE2, TensorFlow's expressions, read them alike.
SEPARATORS = "[\\x00-\\x1f\\x7f-\\x9f\N{ZERO WIDTH SPACE}\N{LINE SEPARATOR}\N{PARAGRAPH SEPARATOR}]"
"""Characters that separate words: control characters, among them tab, NUL, ESC and DEL."""
INVISIBLE = "[\u061c\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
"""Characters that only say how to draw a text: marks of direction, joiners, byte order marks."""

_SEPARATORS, _INVISIBLE = re.compile(SEPARATORS), re.compile(INVISIBLE)


def plain_text(text: str) -> str:
    r"""Replaces each of `SEPARATORS` by a space, and removes those that are `INVISIBLE`.

    It also removes all white space at the ends. All text is read in this way: lines of files,
    strings from Python and requests to a server (`text.in_graph.plain_text` is the same for
    tensors). Other white space within the text, such as U+00A0, is the vocabulary's to normalise.

    Example:
        >>> plain_text("A man\rrides a\x1b\x7fhorse\N{WORD JOINER}shoe. ")
        'A man rides a  horseshoe.'
    """
    if not text.isprintable():  # few texts; the others take a quarter of the time
        text = without_invisible(_SEPARATORS.sub(" ", text))
    return text.strip()


def without_invisible(text: str) -> str:
    """Removes the characters of a text that are `INVISIBLE`."""
    return _INVISIBLE.sub("", text)


def with_final_sigmas(text: str) -> str:
    """Replaces each capital sigma that ends a word by U+03C2, its form there in lower case.

    A vocabulary lower-cases character by character, so it cannot tell these from others. Its text
    goes through this function first. In the result, all letters have the lower case that
    `str.lower` gives them, which knows the rule (the Unicode Standard, section 3.13, Final_Sigma).

    Example:
        >>> with_final_sigmas("ΘΕΟΣ").lower()
        'θεος'
    """
    return _final_sigma().sub(FINAL_SIGMA, text) if "Σ" in text else text


FINAL_SIGMA = r"\1ς\2"
"""The replacement of a match of `final_sigma_pattern`."""


@functools.cache
def final_sigma_pattern() -> str:
    """The pattern of a capital sigma that ends a word, with what decides that around it.

    A cased letter comes before, and none after. Characters in between that are ignored, such as
    accents and apostrophes, do not count.
    """
    # Without surrogates, which UTF-8 does not have, and without empty planes.
    known = [*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)]
    characters = list(map(chr, known))
    cased = [c for c in characters if f"{c}Σ".lower()[-1] == "ς"]
    ignored = [c for c in characters if f"A{c}Σ".lower()[-1] == "ς"]
    others = {*characters}.difference(cased, ignored)
    before, between = _class(cased), f"{_class({*ignored}.difference(cased))}*"
    after = _class(others, "\U00020000-\U000dffff\U000e0200-\U0010ffff")
    return f"({before}{between})Σ({between}(?:{after}|$))"


@functools.cache
def _final_sigma():
    return re.compile(final_sigma_pattern())


def _class(characters, more=""):
    """The class of some characters, as ranges in the notation of regular expressions."""
    codes = sorted(map(ord, characters))
    ranges = [more]
    for _, run in itertools.groupby(enumerate(codes), lambda pair: pair[1] - pair[0]):
        in_run = [chr(code) for _, code in run]  # codes that follow each other
        ranges.append(f"{re.escape(in_run[0])}-{re.escape(in_run[-1])}")
    return f"[{''.join(ranges)}]"
