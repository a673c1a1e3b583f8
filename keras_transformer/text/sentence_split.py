"""Text as sentences and what stands between them, by the rules of the library sentencex."""

import itertools
import re
from collections.abc import Iterator, Sequence

import sentencex

from keras_transformer.text.language_code import short_code
from keras_transformer.text.plain_text import INVISIBLE
from keras_transformer.text.words import MARKS, is_part_of_word

_UNSEEN = rf"(?:\s|{INVISIBLE})*"
# What a line may begin with: indentation, and markers of lists, headings and quotations.
_MARKER = r"[-*+>•‣◦▪\u2013\u2014]|#{1,6}|\(?\d{1,3}[.)]|\(?[a-z]\)"
_LINE_START = re.compile(rf"{_UNSEEN}(?:(?:{_MARKER})\s{_UNSEEN})*")
# Columns are separated by a tab or by three spaces: each is translated by itself.
_COLUMN = re.compile(r".+?(?:\t| {3,}|\Z)", re.DOTALL)
# sentencex splits French `M. Dupont` after `M.`: an initial, or a number that begins a piece.
_INITIAL = re.compile(rf"(?<![\w{MARKS}])[^\W\d_]\.\s*$")
# With its vowel sign, an initial is like the last word of a sentence; these languages end it with
# a danda.
_INITIAL_WITH_MARKS = re.compile(rf"(?<![\w{MARKS}])[^\W\d_][{MARKS}]*\.\s*$")
_WITH_DANDA = frozenset(("as", "bho", "bn", "hi", "mai", "ne", "or", "pa", "sa"))
_NUMBER = re.compile(r"\W*\w\.\s*")
_WHITE_SPACE = re.compile(r"\s")
_INVISIBLE = re.compile(INVISIBLE)
# sentencex's time is quadratic in the length of what it splits, at most this many characters.
_AT_ONCE = 2000


def split_sentences(text: str, language: str | None = None) -> tuple[list[str], list[str]]:
    r"""Splits a text into sentences and the gaps around them, of which there is one more.

    A sentence never goes beyond its line, nor beyond a tab or three spaces. Gaps hold white space,
    markers such as the `-` of a list, and whatever else has neither letter nor digit, such as a
    line of dashes.

    Args:
        text: any text, of any number of lines.
        language: code of its language, such as `de`, `pt-br` or `deu_Latn`, which has its own
            abbreviations. None or one that is unknown: as in English.

    Returns:
        Sentences without white space and invisible characters around them, and gaps: gap, sentence,
        gap, ..., gap. Joined, they are the text (`join_sentences`).

    Example:
        >>> split_sentences("- Dr. Smith left. \tHe runs!\n")
        (['Dr. Smith left.', 'He runs!'], ['- ', ' \t', '\n'])
    """
    code = short_code(language or "en")
    sentences, gaps = [], []
    gap: list[str] = []  # the parts of the current one
    for line in text.splitlines(keepends=True):
        start = _LINE_START.match(line).end()  # type: ignore[union-attr]
        gap.append(line[:start])
        columns = _COLUMN.findall(line, start)
        for piece in itertools.chain.from_iterable(_pieces(column, code) for column in columns):
            if not any(map(str.isalnum, piece)):
                gap.append(piece)
                continue
            seen = _INVISIBLE.sub(" ", piece)
            begin, end = len(seen) - len(seen.lstrip()), len(seen.rstrip())
            gaps.append("".join([*gap, piece[:begin]]))
            sentences.append(piece[begin:end])
            gap = [piece[end:]]
    return sentences, [*gaps, "".join(gap)]


def join_sentences(sentences: Sequence[str], gaps: Sequence[str]) -> str:
    """Joins sentences, or their translations, with the gaps of `split_sentences`."""
    return gaps[0] + "".join(map("".join, zip(sentences, gaps[1:], strict=True)))


def _pieces(line: str, code: str) -> Iterator[str]:
    """The sentences of a line, with the white space around each."""
    initial = _INITIAL_WITH_MARKS if code in _WITH_DANDA else _INITIAL
    start = begin = 0  # of the sentence, and of its last part
    for end in itertools.accumulate(_lengths(line, code)):
        if end == len(line) or not (
            _is_within_word(line, end)
            or initial.search(line, begin, end)
            or (begin == start and _NUMBER.fullmatch(line, begin, end))
        ):
            yield line[start:end]
            start = end
        begin = end


def _lengths(line: str, code: str) -> Iterator[int]:
    """The length of each part that sentencex splits a line into."""
    # sentencex 1.0 fails at some white space beyond ASCII, and at half a surrogate pair.
    plain = _WHITE_SPACE.sub(" ", line).encode("utf-8", "replace").decode()
    start = 0
    while start < len(plain):
        end = start + _AT_ONCE
        if end < len(plain):
            end = plain.rfind(" ", start + _AT_ONCE // 2, end) + 1 or end
        lengths = list(map(len, sentencex.segment(code, plain[start:end])))
        if end < len(plain) and lengths[-1] < _AT_ONCE // 2:
            lengths.pop()  # its sentence goes on
        yield from lengths
        start += sum(lengths)


def _is_within_word(line: str, end: int) -> bool:
    """Whether no space is where one would be after a sentence, such as in `x.org/?B=c`.

    Scripts without spaces, and whose full stops are not of ASCII, need none.
    """
    before, after = line[end - 1], line[end]
    return (
        before.isascii()
        and (after.isascii() or is_part_of_word(after))
        and not (before.isspace() or after.isspace())
    )
