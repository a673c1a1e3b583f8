"""Rows of a matrix by their indices, with a gradient that optimizers of Keras handle rightly."""

import keras
from keras import ops

from keras_transformer.backend.fused import custom_gradient, value_of


def take_rows(matrix, indices):
    """`ops.take(matrix, indices, axis=0)`, with a dense gradient on TensorFlow too.

    TensorFlow's own gradient lists a row for each index (`tf.IndexedSlices`). Keras's optimizers
    square each of them before they add up those of one index, so Adam's second moment of a row that
    occurs twice, with gradients a and b, would be of `a^2 + b^2` instead of `(a + b)^2`.

    Args:
        matrix: a variable or tensor (rows, width).
        indices: int32 (...).

    Returns:
        (..., width).
    """
    if keras.backend.backend() != "tensorflow":
        return ops.take(matrix, indices, axis=0)

    @custom_gradient
    def take(matrix):
        def gradient(upstream):
            flat = ops.reshape(upstream, (-1, matrix.shape[1]))
            return ops.segment_sum(flat, ops.reshape(indices, (-1,)), matrix.shape[0])

        return ops.take(matrix, indices, axis=0), gradient

    return take(value_of(matrix))
