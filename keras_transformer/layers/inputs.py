"""Checks of what layers are made with and called with."""

from typing import Any

import keras

Tensor = Any


def expect_sequence(name: str, x: Tensor, width: int, batch: int | None = None) -> None:
    """Refuses an argument that is not a tensor (batch, length, width), as far as is known.

    Args:
        name: the name of the argument, for the error.
        x: the argument.
        width: size of the last axis.
        batch: number of rows of the layer's other input; this one may have 1, for all of them.

    Raises:
        ValueError: it has another shape, or none.
    """
    shape = getattr(x, "shape", None)
    rows = batch if isinstance(batch, int) else "batch"
    ragged = getattr(x, "ragged_rank", None)  # of TensorFlow: None in symbols
    if (
        shape is not None
        and not ragged
        and len(shape) == 3
        and shape[-1] in (width, None)
        and (rows == "batch" or not isinstance(shape[0], int) or shape[0] in (rows, 1))
    ):
        return
    found = type(x).__name__ if shape is None else f"shape {tuple(shape)}"
    if ragged:
        found = f"ragged {found}: pad the data of the model with `to_tensor()`"
    raise ValueError(f"{name} must be a tensor ({rows}, length, {width}): found {found}")


class WithoutKerasArguments(keras.layers.Layer):
    """Names our arguments where those of Keras's attention are given.

    It is a class of its own, so that a layer that inherits it keeps the signature of `__init__`.
    """

    def __new__(cls, *args, **kwargs):
        if wrong := {"key_dim", "value_dim"} & set(kwargs):
            raise TypeError(
                f"{cls.__name__} has no {' and '.join(sorted(wrong))}, which Keras's layer has: "
                "give d_model and num_heads, and the width of one head as d_k and d_v"
            )
        return super().__new__(cls, *args, **kwargs)
