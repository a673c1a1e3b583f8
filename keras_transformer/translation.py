"""Arguments and results of translators on any engine, without loading a backend."""

import numbers
from typing import NamedTuple

from keras_transformer.errors import UserError


class Translation(NamedTuple):
    """A translated sentence and its score: log-probability / length penalty.

    If constraints leave no hypothesis, the text is empty and the score is
    `decoding.NO_HYPOTHESIS`, -1e9.
    """

    text: str
    score: float


def expect_at_least(least: int, name: str, value: int) -> None:
    """Raises `UserError` unless an argument is an integer and at least `least`."""
    if not isinstance(value, numbers.Integral) or value < least:
        raise UserError(f"{name} must be an integer of at least {least}: found {value!r}")


def one_line(text: str) -> str:
    """Removes line breaks, which a model can spell in bytes."""
    return " ".join(text.split())
