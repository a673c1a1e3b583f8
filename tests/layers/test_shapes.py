"""Reshapes that compute no shape where TensorFlow can infer it."""

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.layers.shapes import flat, reshape

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def traced(function, *spec):
    """The function for tensors of these shapes, and the types of the graph's operations."""
    specs = [tf.TensorSpec(shape, tf.float32) for shape in spec]
    graph_function = tf.function(function, autograph=False).get_concrete_function(*specs)
    return graph_function, [operation.type for operation in graph_function.graph.get_operations()]


def test_one_unknown_dimension_is_inferred():
    def heads_apart(x):
        batch, length, _ = tf.unstack(tf.shape(x))
        return reshape(x, (batch, 3, 2, 2)), reshape(x, (batch * length, 4))

    apart, rows = traced(heads_apart, (None, 3, 4))[0](X)
    np.testing.assert_array_equal(apart, X.reshape(2, 3, 2, 2))
    np.testing.assert_array_equal(rows, X.reshape(6, 4))
    assert "Pack" not in traced(lambda x: reshape(x, (tf.size(x) // 4, 4)), (None, 3, 4))[1]


@pytest.mark.parametrize("size", [0, 2])
def test_two_unknown_dimensions_or_an_empty_one_are_computed(size):
    x = np.zeros((size, 3, 4), "float32")
    by_shape, _ = traced(
        lambda x: reshape(x, (tf.shape(x)[0], tf.shape(x)[1], 2, 2)), (None, None, 4)
    )
    assert by_shape(x).shape == (size, 3, 2, 2)
    empty, _ = traced(lambda x: reshape(x[..., :0], (tf.shape(x)[0], 3, 0)), (None, 3, 4))
    assert empty(x).shape == (size, 3, 0)
    assert reshape(x, (size, 12)).shape == (size, 12)


def test_flat_rows_have_the_width_of_the_last_axis():
    np.testing.assert_array_equal(flat(tf.constant(X)), X.reshape(6, 4))
    assert traced(flat, (None, None, 4))[0].structured_outputs.shape.as_list() == [None, 4]
