"""Text as sentences and what stands between them, by the rules of the library sentencex."""

import itertools
import re
from collections.abc import Iterator, Sequence

import sentencex

# What a line may begin with: indentation, and markers of lists, headings and quotations.
_LINE_START = re.compile(r"\s*(?:(?:[-*+>•‣◦▪\u2013\u2014]|#{1,6}|\(?\d{1,3}[.)]|\(?[a-z]\))\s+)*")
# An initial, or a number alone: sentencex splits French `M. Dupont` after `M.`
_UNFINISHED = re.compile(r"(?:^\W*\w|(?<!\w)[^\W\d_])\.\s*$")
_WHITE_SPACE = re.compile(r"\s")


def split_sentences(text: str, language: str | None = None) -> tuple[list[str], list[str]]:
    r"""Splits a text into sentences and the gaps around them, of which there is one more.

    A sentence never goes beyond its line. Gaps hold white space, markers such as the `-` of a
    list, and whatever else has neither letter nor digit, such as a line of dashes.

    Args:
        text: any text, of any number of lines.
        language: code of its language, such as `de` or `pt-br`, which has its own abbreviations.
            None or one that is unknown: as in English.

    Returns:
        Sentences without white space around them, and gaps: gap, sentence, gap, ..., gap. Joined,
        they are the text (`join_sentences`).

    Example:
        >>> split_sentences("- Dr. Smith left. \tHe runs!\n")
        (['Dr. Smith left.', 'He runs!'], ['- ', ' \t', '\n'])
    """
    code = (language or "en").replace("_", "-").split("-")[0]
    sentences, gaps = [], [""]
    for line in text.splitlines(keepends=True):
        start = _LINE_START.match(line).end()  # type: ignore[union-attr]
        gaps[-1] += line[:start]
        for piece in _pieces(line[start:], code):
            if not any(map(str.isalnum, piece)):
                gaps[-1] += piece
                continue
            sentence = piece.strip()
            before, after = piece.split(sentence)
            gaps[-1] += before
            sentences.append(sentence)
            gaps.append(after)
    return sentences, gaps


def join_sentences(sentences: Sequence[str], gaps: Sequence[str]) -> str:
    """Joins sentences, or their translations, with the gaps of `split_sentences`."""
    return gaps[0] + "".join(map("".join, zip(sentences, gaps[1:], strict=True)))


def _pieces(line: str, code: str) -> Iterator[str]:
    """The sentences of a line, with the white space that follows each."""
    # sentencex 1.0 fails at some white space beyond ASCII, and at half a surrogate pair.
    plain = _WHITE_SPACE.sub(" ", line).encode("utf-8", "replace").decode()
    start = 0
    for end in itertools.accumulate(map(len, sentencex.segment(code, plain))):
        if end == len(line) or not _UNFINISHED.search(line[start:end]):
            yield line[start:end]
            start = end
