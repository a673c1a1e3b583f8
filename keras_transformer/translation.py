"""Arguments and results of translators on any engine, without loading a backend."""

from typing import NamedTuple

from keras_transformer.plain_text import plain_text


class Translation(NamedTuple):
    """A translated sentence and its score: log-probability / length penalty.

    If constraints leave no hypothesis, the text is empty and the score is
    `decoding.NO_HYPOTHESIS`, -1e9.
    """

    text: str
    score: float


def one_line(text: str) -> str:
    """Removes line breaks and control characters, which a model can spell in bytes."""
    return " ".join(plain_text(text).split())
