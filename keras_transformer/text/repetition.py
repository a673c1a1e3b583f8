"""Repetition: whether a translation says the same words over and over, and its source does not."""

import re
from collections.abc import Iterator, Sequence

from keras_transformer.text.scripts import UNSPACED
from keras_transformer.text.words import MARKS

_LONGEST = 4  # words of a phrase
_LEAST = 2.5  # times that a phrase is repeated: "a dog and a dog and a dog"
_WORD = re.compile(rf"[{UNSPACED}]|[\w{MARKS}]+")  # a character of a script without spaces
# "haha" and "bananana", but not "Mississippi": two to eight characters, three times.
_WITHIN_WORD = re.compile(rf"((?:[^\W\d_]|[{MARKS}]){{2,8}}?)\1{{2,}}")


def repeated_phrase(translation: str, source: str) -> str | None:
    """Finds the words that a translation repeats one time after another, more than its source.

    Args:
        translation: a translation.
        source: the sentence that it translates.

    Returns:
        The phrase once, or None. A phrase has 1 to 4 words, and occurs at least two and a half
        times in a row, whatever punctuation is between; so a single word occurs three times. Where
        words are not separated by spaces, characters count as words. Characters are also repeated
        within a word.

    Example:
        >>> repeated_phrase("ein Salat Salat Salat", "a salad")
        'salat'
        >>> repeated_phrase("sehr, sehr, sehr gut", "very, very, very good")  # None
    """
    times, phrase = max(_repetitions(translation), default=(0.0, ""))
    most_of_source = max((times for times, _ in _repetitions(source)), default=0.0)
    return phrase if times > most_of_source else None


def _repetitions(text: str) -> Iterator[tuple[float, str]]:
    """Yields how often phrases are repeated in a row, at least `_LEAST` times, and each phrase."""
    text = text.lower()
    words = _WORD.findall(text)
    for length in range(1, _LONGEST + 1):
        for start, end in _runs(words, length):
            times, phrase = (end - start) / length, words[start : start + length]
            if times >= _LEAST and any(map(_has_meaning, phrase)):
                yield times, " ".join(phrase)
    for found in _WITHIN_WORD.finditer(text):
        yield len(found[0]) / len(found[1]), found[1]


def _runs(words: Sequence[str], length: int) -> Iterator[tuple[int, int]]:
    """Yields the ranges in which each word equals the one `length` words before it."""
    start = 0
    for index in range(length, len(words) + 1):
        if index == len(words) or words[index] != words[index - length]:
            if index > start + length:
                yield start, index
            start = index - length + 1


def _has_meaning(word: str) -> bool:
    """Whether a text is a real word: no number, and no single letter, such as the s of %s."""
    is_spelled = all(one.isalpha() or one in MARKS for one in word)
    return is_spelled and (len(word) > 1 or not word.isascii())
