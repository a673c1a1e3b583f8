"""The arguments and results of translators of any engine; no backend is loaded."""

import numbers
from typing import NamedTuple

from keras_transformer.errors import UserError


class Translation(NamedTuple):
    """A translated sentence, and its score: log-probability / length penalty.

    A sentence without a hypothesis, as constraints may leave it, becomes an empty one of score
    `decoding.NO_HYPOTHESIS`, -1e9.
    """

    text: str
    score: float


def expect_at_least(least: int, name: str, value: int) -> None:
    """Raises `UserError` unless an argument is an integer of at least `least`."""
    if not isinstance(value, numbers.Integral) or value < least:
        raise UserError(f"{name} must be an integer of at least {least}: found {value!r}")


def utf_8(sentence: str | bytes) -> bytes:
    """The sentence in UTF-8; a lone surrogate becomes a question mark."""
    return sentence.encode("utf-8", "replace") if isinstance(sentence, str) else sentence


def one_line(text: str) -> str:
    """The text without line breaks, which a model can spell in bytes."""
    return " ".join(text.split())
