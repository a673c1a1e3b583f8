"""The exception for mistakes of users, whose message is written for them."""

import numbers
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import tensorflow as tf


class UserError(ValueError):
    """A mistake in the user's input: a flag, a field, a file, a shape.

    The message is one line that says what is wrong, where, and what to do about it. Commands print
    only this line, without a traceback, and exit with a non-zero status.
    """


class Unsupported(UserError):
    """An engine, an exporter or a search lacks what was asked of it.

    Args:
        by: what lacks it, such as "CTranslate2".
        what: what it lacks, such as "sample=True".
        advice: what to do about it, such as "leave it out".
    """

    def __init__(self, by: str, what: str, advice: str):
        self.by, self.what, self.advice = by, what, advice
        super().__init__(f"{by} does not support {what}: {advice}")

    def __reduce__(self):  # to be sent to another process, as by a pool of them
        return type(self), (self.by, self.what, self.advice)


def not_installed(library: str, extra: str, error: ImportError) -> UserError:
    """The error of a library that comes with an extra of this package, which is on no registry."""
    install = f"pip install '.[{extra}]' in a checkout of keras-transformer"
    return UserError(f"{library} cannot be imported ({error}): {install}")


def reason_of(error: "OSError | tf.errors.OpError") -> str:
    """The reason in a file error of Python or TensorFlow, such as "No space left on device"."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    # "{{function_node ...}} events.out.tfevents.1; No space left on device", and more lines.
    return error.message.partition("\n")[0].rpartition("; ")[2]


def is_integer(value: object) -> bool:
    """Whether a value is an integer, of Python or NumPy; booleans do not count."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def expect_at_least(least: int, name: str, value: int) -> None:
    """Raises `UserError` unless an argument is an integer and at least `least`."""
    if not is_integer(value) or value < least:
        raise UserError(f"{name} must be an integer of at least {least}: found {value!r}")


def expect_rate(name: str, value: float) -> None:
    """Raises `UserError` unless an argument is a number from 0 to below 1."""
    if not isinstance(value, numbers.Real) or not 0 <= value < 1:
        raise UserError(f"{name} must be a number in [0, 1): found {value!r}")


def expect_tensorflow(name: str) -> None:
    """Raises `UserError` if Keras computes with another backend than TensorFlow."""
    import keras  # here, because commands import this file before they choose a backend

    found = keras.backend.backend()
    if found != "tensorflow":
        raise UserError(
            f"{name} runs only on TensorFlow, not on {found}: set KERAS_BACKEND=tensorflow"
        )


def expect_named(flag: str, value: object) -> None:
    """Raises `UserError` if a flag that names a file or folder is missing or empty."""
    if not value:
        raise UserError(f"--{flag} is missing or empty: give it a value")
