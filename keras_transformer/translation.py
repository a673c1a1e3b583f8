"""Arguments and results of translators on any engine, without loading a backend."""

from typing import NamedTuple


class Translation(NamedTuple):
    """A translated sentence and its score: log-probability / length penalty.

    If constraints leave no hypothesis, the text is empty and the score is
    `decoding.NO_HYPOTHESIS`, -1e9.
    """

    text: str
    score: float


def one_line(text: str) -> str:
    """Makes one line of text of what a model said, possibly in bytes.

    It removes line breaks, and a character at the end of which the limit of length cut some bytes.
    """
    return " ".join(text.rstrip("\N{REPLACEMENT CHARACTER}").split())
