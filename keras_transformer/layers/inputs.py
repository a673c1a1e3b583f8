"""Checks of what layers are made with and called with."""

from typing import Any

import keras

Tensor = Any


def expect_dense(name: str, x: Tensor) -> None:
    """Refuses a ragged tensor of TensorFlow, whose rows a reshape would cut anew."""
    if getattr(x, "ragged_rank", None):  # None in symbols
        raise ValueError(
            f"{name} must have rows of equal length: found ragged shape {tuple(x.shape)}; pad the "
            "data of the model with `to_tensor()`"
        )


def as_floats(x: Tensor, dtype: str) -> Tensor:
    """Casts integers to a dtype of floats, as Keras's layers do; floats stay as they are."""
    if keras.backend.is_float_dtype(keras.backend.standardize_dtype(x.dtype)):
        return x
    return keras.ops.cast(x, dtype)


def expect_sequence(name: str, x: Tensor, width: int, batch: int | None = None) -> None:
    """Refuses an argument that is not a tensor (batch, length, width), as far as is known.

    Args:
        name: the name of the argument, for the error.
        x: the argument.
        width: size of the last axis.
        batch: number of rows of the layer's other input; this one may have 1, for all of them.

    Raises:
        ValueError: it has another shape, or none, or is ragged.
    """
    shape = getattr(x, "shape", None)
    rows = batch if isinstance(batch, int) else "batch"
    expect_dense(name, x)
    if (
        shape is not None
        and len(shape) == 3
        and shape[-1] in (width, None)
        and (rows == "batch" or not isinstance(shape[0], int) or shape[0] in (rows, 1))
    ):
        return
    found = type(x).__name__ if shape is None else f"shape {tuple(shape)}"
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
