"""Words of any script: runs of letters, or single characters where no space separates words."""

import functools
import itertools
import re
import unicodedata

from keras_transformer.text.scripts import UNSPACED_SCRIPTS, script_of

_ALONE_SCRIPTS = UNSPACED_SCRIPTS | {"HANGUL"}  # particles follow a noun without a space
_PART_OF_WORD, _ALONE, _SPACE = range(3)

_JOINERS = "\u200c\u200d"  # they join letters within a word, or keep their forms apart
# All but ideographs, Korean syllables and what has only forms of other characters.
_CHARACTERS = [
    (chr(code), unicodedata.category(chr(code)))
    for code in itertools.chain(range(0x3400), range(0xA490, 0xAC00))
]

MARKS = _JOINERS + "".join(one for one, category in _CHARACTERS if category.startswith("M"))
"""Marks of letters, such as the vowel signs of Indian scripts: parts of words that `\\w` lacks."""

PUNCTUATION = "".join(re.escape(one) for one, category in _CHARACTERS if category.startswith("P"))
"""The punctuation of all scripts, for a class of a regular expression."""


def is_part_of_word(character: str) -> bool:
    """Whether a character belongs to a word that spaces or punctuation separate from others.

    Example:
        >>> [is_part_of_word(character) for character in "é7_-車"]
        [True, True, True, False, False]
    """
    return _kind(character) == _PART_OF_WORD


def is_word(text: str) -> bool:
    """Whether a text is letters and digits of any script, with their marks.

    Example:
        >>> [is_word(text) for text in ("é7", "हिन्दी", "a,")]
        [True, True, False]
    """
    return bool(text) and all(one.isalnum() or _is_mark(one) for one in text)


def split_words(text: str) -> list[str]:
    """Splits text into words and single other characters, without white space.

    Example:
        >>> split_words("The U.S. (well-known)  車だ")
        ['The', 'U', '.', 'S', '.', '(', 'well', '-', 'known', ')', '車', 'だ']
    """
    words: list[str] = []
    for kind, run in itertools.groupby(text, _kind):
        if kind == _PART_OF_WORD:
            words.append("".join(run))
        elif kind == _ALONE:
            words += run
    return words


@functools.cache
def _kind(character):
    if character.isspace():
        return _SPACE
    if character == "_" or character.isalnum() or _is_mark(character):
        return _ALONE if script_of(character) in _ALONE_SCRIPTS else _PART_OF_WORD
    return _ALONE


def _is_mark(character):
    """Whether a character is a part of words, although it is no letter to Python."""
    return character in _JOINERS or unicodedata.category(character).startswith("M")
