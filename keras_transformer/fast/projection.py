"""Linear projections, with a bias whose gradient is summed in float32."""

import keras
from keras import ops

from keras_transformer.fast.dispatch import (
    custom_gradient,
    fused,
    fused_sum_of_rows,
    sum_dtype,
    value_of,
)
from keras_transformer.fast.int8 import enough_rows


def project(dense, rows, training=None):
    """Computes `dense(rows)`, (number of rows, width) -> (number of rows, units)."""
    if dense.quantization_mode:
        return dense(enough_rows(rows))[: rows.shape[0]]
    if training and type(dense) is keras.layers.Dense and dense.use_bias:
        return dense.activation(add_bias(ops.matmul(rows, dense.kernel), dense.bias))
    return dense(rows)


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
