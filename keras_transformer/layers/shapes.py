"""Reshapes of few operations, for TensorFlow without XLA.

In a step of a small decoder, TensorFlow spends much of its time on starting operations, and for
each dimension that is known only at run time it needs several to compute a shape.
"""

from typing import Any

from keras import ops

from keras_transformer.layers.inputs import expect_dense

Tensor = Any


def reshape(x: Tensor, shape: tuple) -> Tensor:
    """Computes `ops.reshape`; if one dimension alone is unknown, it need not be computed."""
    known = [size for size in shape if isinstance(size, int)]
    if len(known) == len(shape) - 1 and all(known):
        shape = tuple(size if isinstance(size, int) else -1 for size in shape)
    return ops.reshape(x, shape)


def flat(x: Tensor) -> Tensor:
    """Flattens all axes but the last: (..., width) -> (rows, width).

    Raises:
        ValueError: the tensor is ragged.
    """
    expect_dense("inputs", x)
    return x if len(x.shape) == 2 else ops.reshape(x, (-1, ops.shape(x)[-1]))


def unflat(rows: Tensor, x: Tensor) -> Tensor:
    """Gives rows (rows, n) the axes of the `x` (..., width) that `flat` has flattened: (..., n)."""
    return rows if len(x.shape) == 2 else reshape(rows, (*ops.shape(x)[:-1], rows.shape[-1]))


def one_if_empty(size: int | Tensor) -> int | Tensor:
    """Returns 1 if the size of an axis is 0, and else 0, to pad it for what takes no empty tensor.

    A convolution of TensorFlow pads a batch without rows wrongly; Keras's has no length 0, nor has
    its GRU.
    """
    return max(1 - size, 0) if isinstance(size, int) else ops.maximum(1 - size, 0)
