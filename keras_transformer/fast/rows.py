"""Rows of matrices: looked up, gathered for each sentence, overwritten in place."""

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


def gather(x, indices):
    """Takes rows by indices that are never negative, by one operation on TensorFlow.

    Args:
        x: (n, ...).
        indices: int32 (m,), each in [0, n).

    Returns:
        (m, ...).
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, indices)
    return ops.take(x, indices, axis=0)


def gather_rows(x, indices):
    """Takes along axis 1, for each row of the batch; otherwise like `gather`.

    Args:
        x: (batch, n, ...).
        indices: int32 (batch, m), each in [0, n).

    Returns:
        (batch, m, ...).
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        return tf.gather(x, indices, batch_dims=1)
    batch, n, *rest = ops.shape(x)
    if batch == 0:  # `ops.take` of JAX would have fewer axes
        return ops.zeros((0, ops.shape(indices)[1], *rest), x.dtype)
    rows = ops.reshape(x, (batch * n, *rest))
    return ops.take(rows, indices + n * ops.arange(batch, dtype="int32")[:, None], axis=0)


def write_rows(matrix, indices, rows):
    """Writes some rows of a matrix, in its own memory where TensorFlow runs a graph.

    TensorFlow's scatter would copy the whole matrix. The caller never reads the old matrix again,
    nor has another one in the same memory.

    Args:
        matrix: tensor (n, width).
        indices: int32 (m,), each in [0, n).
        rows: (m, width).

    Returns:
        (n, width).
    """
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            return tf.raw_ops.InplaceUpdate(x=matrix, i=indices, v=rows)
    return ops.scatter_update(matrix, indices[:, None], rows)
