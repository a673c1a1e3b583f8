"""Linear maps in training: a bias has a gradient in float32, with ReLU in one pass."""

import keras
from keras import ops

from keras_transformer.fast.dispatch import custom_gradient, fused, sum_dtype, value_of
from keras_transformer.fast.reductions import fused_sum_of_rows


def fused_dense(rows, kernel, bias, activation):
    """Computes `activation(rows kernel + bias)`, (number of rows, width) -> (..., units).

    Args:
        rows: (number of rows, width).
        kernel: (width, units).
        bias: (units,); None for none.
        activation: a function of Keras.
    """
    if bias is None:
        return activation(ops.matmul(rows, kernel))
    if activation is keras.activations.relu:
        return _rectified(rows, value_of(kernel), value_of(bias))
    return activation(add_bias(ops.matmul(rows, kernel), bias))


def add_bias(rows, bias):
    """Adds a bias in training, (rows, width) + (width,), and sums its gradient in float32.

    TensorFlow sums it in the type of the rows: in bfloat16, a thousand ones make 256.
    """
    if keras.backend.standardize_dtype(rows.dtype) == sum_dtype(rows):
        return ops.add(rows, bias)

    @custom_gradient
    def added(rows, bias):
        return ops.add(rows, bias), lambda upstream: (upstream, _sum_of_rows(upstream))

    return added(rows, value_of(bias))


_sum_of_rows = fused(fused_sum_of_rows)


@custom_gradient
def _rectified(x, kernel, bias):
    """Computes `max(0, x kernel + bias)`, with a gradient rectified and summed in one pass."""
    hidden = ops.relu(ops.add(ops.matmul(x, kernel), bias))  # (rows, units)

    def gradient(upstream):
        upstream, bias_gradient = _rectified_gradient(upstream, hidden)
        kernel_gradient = ops.matmul(ops.transpose(x), upstream)  # (width, units)
        return ops.matmul(upstream, ops.transpose(kernel)), kernel_gradient, bias_gradient

    return hidden, gradient


@fused
def _rectified_gradient(upstream, hidden):
    gradient = ops.where(hidden > 0, upstream, 0)  # (rows, units)
    return gradient, fused_sum_of_rows(gradient)
