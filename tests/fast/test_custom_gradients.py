"""A custom gradient holds wherever TensorFlow differentiates, and does not outlive its graph."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_transformer as kt
from keras_transformer.fast.dispatch import custom_gradient, fused
from keras_transformer.fast.rows import take_rows

X = np.array([1.0, -2.0, 3.0], "float32")


@custom_gradient
def marked(x):
    """The cube, with ten times its gradient: a result tells which gradient was taken."""
    return x * x * x, lambda upstream: 30.0 * x * x * upstream


marked_by_xla = fused(marked)


def gradient_of(function, x=X):
    x = tf.identity(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(function(x))
    return tape.gradient(y, x)


HOW = [
    gradient_of,
    tf.function(gradient_of, autograph=False),
    tf.function(gradient_of, autograph=False, jit_compile=True),
]


@pytest.mark.parametrize("function", [marked, marked_by_xla])
@pytest.mark.parametrize("how", HOW, ids=["eager", "graph", "xla"])
def test_the_gradient_is_the_given_one(how, function):
    np.testing.assert_allclose(how(function), 30 * X**2, rtol=1e-6)


@pytest.mark.parametrize("function", [marked, marked_by_xla])
@pytest.mark.parametrize("how", HOW, ids=["eager", "graph", "xla"])
def test_the_gradient_of_the_gradient_is_that_of_the_given_one(how, function):
    second = how(lambda x: gradient_of(function, x))
    np.testing.assert_allclose(second, 60 * X, rtol=1e-6)


@pytest.mark.parametrize("function", [marked, marked_by_xla])
@pytest.mark.parametrize("how", HOW[1:], ids=["graph", "xla"])
def test_the_gradient_holds_in_loops_branches_and_functions(how, function):
    def twice(x):
        _, y = tf.while_loop(
            lambda i, _: i < 2,
            lambda i, y: (i + 1, function(y)),
            [0, x],
            maximum_iterations=2,
        )
        return y

    chain = 30 * X**2 * 30 * X**6  # of marked(marked(x))
    np.testing.assert_allclose(how(twice), chain, rtol=1e-5)
    by_branch = how(lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: function(x), lambda: x))
    np.testing.assert_allclose(by_branch, 30 * X**2, rtol=1e-6)
    nested = how(lambda x: tf.function(lambda y: function(y), autograph=False)(x))
    np.testing.assert_allclose(nested, 30 * X**2, rtol=1e-6)


def test_a_gradient_within_a_loop_is_the_given_one():
    @tf.function(autograph=False)
    def sum_of_gradients():
        return tf.while_loop(
            lambda i, _: i < 3,
            lambda i, total: (i + 1, total + gradient_of(marked_by_xla)),
            [0, tf.zeros(3)],
        )[1]

    np.testing.assert_allclose(sum_of_gradients(), 90 * X**2, rtol=1e-6)


def test_a_saved_graph_is_differentiated_without_the_given_gradient(tmp_path):
    module = tf.Module()
    module.call = tf.function(marked, [tf.TensorSpec([3])], autograph=False)
    tf.saved_model.save(module, str(tmp_path))
    loaded = tf.saved_model.load(str(tmp_path))
    np.testing.assert_allclose(gradient_of(loaded.call), 3 * X**2, rtol=1e-6)


def test_a_graph_with_a_gradient_is_freed():
    def graph_of_a_gradient():
        function = tf.function(lambda x: gradient_of(lambda x: marked(x) + 1.0, x), autograph=False)
        return weakref.ref(function.get_concrete_function(tf.TensorSpec([3])).graph)

    graph = graph_of_a_gradient()
    gc.collect()
    assert graph() is None


@pytest.mark.parametrize("how", HOW, ids=["eager", "graph", "xla"])
def test_rows_have_a_dense_gradient_which_optimizers_add_up_by_row(how):
    matrix = keras.Variable(np.random.default_rng(0).normal(size=(5, 2)).astype("float32"))
    ids = np.array([[1, 4, 1], [0, 1, 4]])

    def rows(matrix):
        found = gradient_of(lambda matrix: take_rows(matrix, ids) ** 2, matrix)
        assert tf.is_tensor(found) and not isinstance(found, tf.IndexedSlices)
        return found

    expected = np.zeros((5, 2))
    np.add.at(expected, ids, 2 * matrix.numpy()[ids])
    run = rows if how is HOW[0] else tf.function(rows, jit_compile=how is HOW[2], autograph=False)
    np.testing.assert_allclose(run(matrix.value), expected, rtol=1e-6)


@pytest.mark.slow
def test_a_saved_layer_is_differentiated_after_it_is_loaded(tmp_path):
    layer = kt.layers.EncoderLayer(d_model=8, num_heads=2, d_ff=16, dropout=0.0)
    x = tf.constant(np.random.default_rng(0).normal(size=(2, 3, 8)), tf.float32)
    layer(x)
    module = tf.Module()
    module.weights = layer.weights
    signature = [tf.TensorSpec((None, 3, 8))]
    module.call = tf.function(lambda x: layer(x, training=True), signature)
    tf.saved_model.save(module, tmp_path)

    def gradient(call):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(call(x) ** 2)
        return tape.gradient(loss, x)

    loaded = tf.saved_model.load(tmp_path)
    np.testing.assert_allclose(gradient(loaded.call), gradient(layer), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_threads_may_trace_their_first_training_at_once():
    def trace(width):
        layer = kt.layers.FeedForward(d_model=width, d_ff=16)
        x = tf.ones((2, 3, width))

        @tf.function(autograph=False)
        def step():
            with tf.GradientTape() as tape:
                tape.watch(x)
                loss = tf.reduce_sum(layer(x, training=True))
            return tape.gradient(loss, x)

        return step().shape

    with ThreadPoolExecutor(4) as pool:
        widths = [7, 7, 9, 9, 11, 11]
        assert list(pool.map(trace, widths)) == [(2, 3, width) for width in widths]
