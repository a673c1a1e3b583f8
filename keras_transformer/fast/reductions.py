"""Sums and maxima that XLA computes in vector instructions on a CPU."""

import functools
import operator

import keras
from keras import ops

from keras_transformer.fast.dispatch import runs_op_by_op, sum_dtype


def fused_sum(x, axis: int):
    """Sums over an axis, which is kept with length 1; for use in a `fused` function."""
    # Not `ops.add`, which fails on TensorFlow for tensors without rows.
    return _in_pieces(operator.add, ops.sum, x, axis)


def fused_sum_of_rows(x):
    """Sums over all axes but the last, (..., width) -> (width,); for use in a `fused` function.

    The sum is computed in `sum_dtype`, and has the type of `x`.
    """
    rows = ops.cast(ops.reshape(x, (-1, x.shape[-1])), sum_dtype(x))  # (rows, width)
    # Where XLA compiles the whole step, pieces of rows make it three times as slow.
    total = fused_sum(rows, axis=0)[0] if runs_op_by_op() else ops.sum(rows, axis=0)
    return ops.cast(total, x.dtype)


def fused_max(x, axis: int):
    """Takes the maximum over an axis; otherwise like `fused_sum`."""
    # The maximum of no rows is an error in Keras without an initial value.
    highest = functools.partial(ops.max, initial=float("-inf"))
    return _in_pieces(ops.maximum, highest, x, axis)


def _in_pieces(combine, reduce, x, axis):
    """Reduces an axis to length 1.

    On a CPU it first combines the eighths of the axis with each other, which TensorFlow's XLA turns
    into vector instructions. It adds up a plain sum of floats one by one, because its order is
    fixed. It computes sixteenths, or halves of halves, in passes of their own.
    """
    length = ops.shape(x)[axis]  # a tensor where it differs between batches
    if not _reduces_in_pieces() or (isinstance(length, int) and length < 8):
        return reduce(x, axis=axis, keepdims=True)

    def part(start, stop):
        return x[(slice(None),) * (axis % len(x.shape)) + (slice(start, stop),)]

    eighth = length // 8
    eighths = [part(i * eighth, (i + 1) * eighth) for i in range(8)]
    total = reduce(functools.reduce(combine, eighths), axis=axis, keepdims=True)
    if isinstance(length, int) and length % 8 == 0:
        return total
    return combine(total, reduce(part(8 * eighth, length), axis=axis, keepdims=True))


@functools.cache
def _reduces_in_pieces():
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.config.list_physical_devices("GPU")
