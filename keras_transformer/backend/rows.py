"""Looks up rows of a matrix, with a gradient that Keras's optimizers handle correctly."""

import keras
from keras import ops

from keras_transformer.backend.fused import custom_gradient, value_of


def take_rows(matrix, indices):
    """Computes `ops.take(matrix, indices, axis=0)`, with a dense gradient on TensorFlow too.

    TensorFlow's own gradient lists a row for each index (`tf.IndexedSlices`). Keras's optimizers
    square these rows before they add up those of one index. For a row that occurs twice, with
    gradients a and b, Adam's second moment would be of `a^2 + b^2` instead of `(a + b)^2`.

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
            flat = ops.reshape(upstream, (-1, matrix.shape[1]))  # (number of indices, width)
            return ops.segment_sum(flat, ops.reshape(indices, (-1,)), matrix.shape[0])

        return ops.take(matrix, indices, axis=0), gradient

    return take(value_of(matrix))
