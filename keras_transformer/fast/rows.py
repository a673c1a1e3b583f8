"""Looks up rows of a matrix, with a gradient that Keras's optimizers handle correctly."""

import keras
from keras import ops

from keras_transformer.fast.dispatch import value_of


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
    if keras.backend.backend() == "tensorflow":
        # The gradient of a reshape is dense, because it adds up the rows of each index.
        matrix = ops.reshape(value_of(matrix), matrix.shape)
    return ops.take(matrix, indices, axis=0)
