"""Checks of parts that are handed to a layer, and of the sizes that it needs without them."""

import weakref
from typing import Any

import keras

from keras_transformer.errors import expect_at_least

_GIVEN: weakref.WeakSet = weakref.WeakSet()  # parts that a layer has


def given_part(name: str, part: Any, kind: Any = keras.layers.Layer) -> Any:
    """Checks a part that is handed in, and returns it.

    Raises:
        TypeError: the part is not of this kind.
        ValueError: another layer has it already, so Keras could not load a saved model.
    """
    if not isinstance(part, kind) or isinstance(part, keras.layers.MultiHeadAttention):
        raise TypeError(
            f"{name} must be a layer of keras_transformer, or one that takes x, attention_mask and "
            f"mask: found {part!r}"
        )
    if part in _GIVEN:
        raise ValueError(f"{name} is {part.name}, a part of another layer: make a new one for each")
    _GIVEN.add(part)
    return part


def expect_size(name: str, size: int | None, part: str, is_given: bool) -> int | None:
    """Checks a size that is needed unless a part is given, and returns it.

    Raises:
        ValueError: there is neither, or the size is no integer of at least 1.
    """
    if size is None and not is_given:
        raise ValueError(f"{name} is missing: give it, or {part}")
    if size is not None:
        expect_at_least(1, name, size)
    return size
