"""Words of any script: runs of letters, or single characters where no space separates words."""

import functools
import itertools
import unicodedata

from keras_transformer.text.scripts import UNSPACED_SCRIPTS, script_of

_ALONE_SCRIPTS = UNSPACED_SCRIPTS | {"HANGUL"}  # particles follow a noun without a space
_PART_OF_WORD, _ALONE, _SPACE = range(3)

MARKS = "".join(
    character
    for character in map(chr, range(0x300, 0xAC00))
    if unicodedata.category(character).startswith("M")
)
"""Marks of letters, such as the vowel signs of Indian scripts: parts of words that `\\w` lacks."""


def is_part_of_word(character: str) -> bool:
    """Whether a character belongs to a word that spaces or punctuation separate from others.

    Example:
        >>> [is_part_of_word(character) for character in "é7_-車"]
        [True, True, True, False, False]
    """
    return _kind(character) == _PART_OF_WORD


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
    # Marks, such as the vowel signs of Indian scripts, are no letters to Python.
    is_mark = unicodedata.category(character).startswith("M")
    if is_mark or character == "_" or character.isalnum():
        return _ALONE if script_of(character) in _ALONE_SCRIPTS else _PART_OF_WORD
    return _ALONE
