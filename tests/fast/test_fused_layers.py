"""Layers that training computes in few passes equal the plain operations."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import run_python
from keras import ops
from layer_checks import run_layer_test, run_saving_test

from keras_transformer.layers import (
    Dropout,
    EncoderLayer,
    FeedForward,
    LayerNormalization,
    MultiHeadAttention,
    SelfAttention,
    causal_mask,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(3, 50, 64)).astype("float32")
Y = rng.normal(size=X.shape).astype("float32")


def gradients(function, *inputs):
    inputs = [ops.convert_to_tensor(x) for x in inputs]
    function = tf.function(function, autograph=False)  # what is fused is compiled in a graph
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        loss = ops.sum(ops.sin(function(*inputs)))
    return tape.gradient(loss, inputs)


@pytest.mark.parametrize(
    "layer_class, kwargs, weights",
    [
        (Dropout, {"rate": 0.1, "seed": 3}, []),
        (LayerNormalization, {"epsilon": 1e-5}, ["gamma", "beta"]),
    ],
)
def test_it_is_a_layer(layer_class, kwargs, weights, tmp_path):
    any_width = layer_class is Dropout
    run_layer_test(layer_class, lambda: kwargs, {"x": X}, X.shape, weights, any_width)
    run_saving_test(layer_class, lambda: kwargs, {"x": X}, tmp_path)


@pytest.mark.parametrize("training", [False, True])
def test_normalisation_and_its_gradients_are_those_of_keras(training):
    ours, theirs = LayerNormalization(1e-5), keras.layers.LayerNormalization(epsilon=1e-5)
    for layer in (ours, theirs):
        layer.build(X.shape)
    weights = [rng.normal(size=64), rng.normal(size=64)]
    results = []
    for layer in (ours, theirs):
        layer.set_weights(weights)
        call = tf.function(layer, autograph=False)
        with tf.GradientTape() as tape:
            x = tf.constant(X)
            tape.watch(x)
            output = call(x, training=training) if layer is ours else call(x)
            loss = ops.sum(ops.sin(output))
        watched = [x, *(weight.value for weight in layer.trainable_weights)]
        results.append([output, *tape.gradient(loss, watched)])
    for mine, expected in zip(*results, strict=True):
        np.testing.assert_allclose(mine, expected, atol=2e-5, rtol=1e-4)


def in_training_and_not(layer, *inputs, **options):
    """The output and all gradients of a layer without dropout, in training and in inference."""
    results, call = [], tf.function(layer, autograph=False)
    for training in (True, False):
        inputs = [tf.constant(x) for x in inputs]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = call(*inputs, **options, training=training)
            loss = ops.sum(ops.sin(output))
        watched = [*inputs, *(weight.value for weight in layer.trainable_weights)]
        results.append([output, *tape.gradient(loss, watched)])
    return zip(*results, strict=True)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_feed_forward_network_has_the_gradients_of_its_operations(activation):
    layer = FeedForward(d_model=64, d_ff=96, activation=activation)
    layer.build(X.shape)
    layer.set_weights([rng.normal(size=weight.shape) for weight in layer.weights])
    for mine, expected in in_training_and_not(layer, X):
        np.testing.assert_allclose(mine, expected, atol=2e-3, rtol=1e-4)


def test_a_hidden_layer_that_a_user_has_replaced_is_used_in_training_too():
    class Shifted(keras.layers.Dense):
        def call(self, x, training=None):
            return super().call(x) + 1.0

    class Adapted(keras.layers.Layer):
        """Not a subclass: it has no kernel."""

        def __init__(self, dense):
            super().__init__()
            self.dense = dense

        def call(self, x):
            return self.dense(x) + 1.0

    replacements = Shifted(96, activation="relu"), Adapted(keras.layers.Dense(96))
    for hidden in replacements:
        layer = FeedForward(d_model=64, d_ff=96)
        layer.hidden = hidden
        layer(X)
        for mine, expected in in_training_and_not(layer, X):
            np.testing.assert_allclose(mine, expected, atol=2e-3, rtol=1e-4)


@pytest.mark.parametrize("length", [49, 48])
@pytest.mark.parametrize("masked", ["nothing", "what follows", "all that some queries see"])
def test_attention_has_the_gradients_of_its_operations(length, masked):
    layer = MultiHeadAttention(d_model=64, num_heads=4)
    layer.build(X.shape)
    mask = None if masked == "nothing" else causal_mask(length)
    if masked == "all that some queries see":
        mask = mask & (np.arange(length) % 3 > 0)[:, None]
    x, y = X[:, :length], Y[:, :length]
    for mine, expected in in_training_and_not(layer, x, y, attention_mask=mask):
        np.testing.assert_allclose(mine, expected, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("training", [False, True])
def test_xla_is_needed_in_training_only(training):
    """An exported model runs without it."""
    layer = EncoderLayer(8, d_ff=16, dropout=0.1, self_attention=SelfAttention(8, 2, dropout=0.1))
    call = tf.function(lambda x: layer(x, training=training), autograph=False)
    graph = call.get_concrete_function(tf.TensorSpec((None, None, 8))).graph.as_graph_def()
    compiled = [f.signature.name for f in graph.library.function if "_XlaMustCompile" in f.attr]
    assert bool(compiled) == training


def test_dropout_drops_its_share_and_scales_the_rest():
    (output,) = outputs(Dropout(0.3, seed=1), 1, (1000, 1000))
    assert np.mean(output == 0) == pytest.approx(0.3, abs=3e-3)
    np.testing.assert_allclose(output[output > 0], 1 / 0.7, rtol=1e-6)


def test_dropout_hits_rows_columns_and_neighbours_alike():
    (dropped,) = masks(Dropout(0.5, seed=1), 1, (1000, 1000))
    deviation = np.sqrt(0.25 / 1000)
    for axis in (0, 1):
        assert np.std(np.mean(dropped, axis)) == pytest.approx(deviation, rel=0.1)
    for shift in (1, 2, 32, 64, 1000):
        flat = dropped.ravel()
        assert np.corrcoef(flat[:-shift], flat[shift:])[0, 1] == pytest.approx(0, abs=4e-3)


def test_eager_masks_are_those_of_a_graph():
    """A graph computes them compiled."""
    eager = Dropout(0.3, seed=1)(X, training=True)
    np.testing.assert_array_equal(tf.function(Dropout(0.3, seed=1))(X, training=True), eager)


def test_eager_layers_compile_nothing_and_do_not_warn_of_retracing(caplog):
    """A notebook calls a layer for one length after the other."""
    layer = EncoderLayer(d_model=8, num_heads=2, d_ff=16, dropout=0.1)
    for length in range(2, 20):
        layer(X[:, :length, :8], training=True)
    assert not [one for one in caplog.records if "retracing" in one.getMessage()]


def outputs(layer, calls, shape):
    call, ones = tf.function(layer, autograph=False), ops.ones(shape)
    return [call(ones, training=True).numpy() for _ in range(calls)]


def masks(layer, calls, shape):
    return [output == 0 for output in outputs(layer, calls, shape)]


def correlations(a, b):
    """Correlations of two masks at every cyclic shift, over those of independent masks."""
    a, b = (np.fft.rfft((x - x.mean()) / x.std()) for x in (a, b))
    return np.fft.irfft(a * np.conj(b)) / np.sqrt(2 * len(a) - 2)


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_masks_of_calls_and_layers_are_as_independent_as_numpys_at_every_shift(rate):
    size = 2**16
    ours = [mask for seed in (0, 1, 2) for mask in masks(Dropout(rate, seed=seed), 4, size)]
    numpys = list(np.random.default_rng(0).random((12, size)) < rate)
    pairs = [(i, j) for i in range(12) for j in range(i)]
    found, expected = (
        np.array([correlations(x[i], x[j]) for i, j in pairs]) for x in (ours, numpys)
    )
    assert np.abs(found).max() < 1.1 * np.abs(expected).max()
    np.testing.assert_allclose(np.square(found).mean(-1), 1, atol=0.02)
    np.testing.assert_allclose(np.square(expected).mean(-1), 1, atol=0.02)


@pytest.mark.slow
def test_no_two_masks_share_a_stretch_of_64_elements():
    """Masks that are windows of one cyclic sequence of 2**32 elements would share them."""
    stretches = []
    for mask in masks(Dropout(0.5, seed=3), 256, 2**17):
        bits = mask.astype("uint64")
        for width in (1, 2, 4, 8, 16, 32):  # bits[i] has `width` elements from i on
            bits = bits[:-width] | bits[width:] << np.uint64(width)
        # The same sample of stretches in each mask, wherever they are.
        stretches.append(np.unique(bits[bits % 16 == 0]))
    together = np.concatenate(stretches)
    assert len(together) > 2**20
    assert len(np.unique(together)) == len(together)


@pytest.mark.slow
def test_replicas_have_masks_of_their_own_that_repeat():
    run_python("""
import numpy as np, tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from keras_transformer.layers import Dropout

def masks(strategy, compiled):
    with strategy.scope():
        layer = Dropout(0.5, seed=1)
    call = lambda: layer(tf.ones((10_000,)), training=True)
    run = lambda: strategy.experimental_local_results(strategy.run(call))
    run = tf.function(run) if compiled else run
    return np.array([[x.numpy() for x in run()] for _ in range(3)]) == 0

for compiled in (False, True):
    one = masks(tf.distribute.get_strategy(), compiled)
    two = masks(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), compiled)
    np.testing.assert_array_equal(two[:, 0], one[:, 0])
    every = two.reshape(6, -1)
    np.testing.assert_allclose(np.corrcoef(every), np.eye(6), atol=0.05)
    again = masks(tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]), compiled)
    np.testing.assert_array_equal(again, two)
""")


def test_a_seed_repeats_its_masks():
    first, second = (Dropout(0.5, seed=7)(X, training=True) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_the_gradient_of_dropout_has_the_mask_of_its_output():
    layer = Dropout(0.5, seed=1)
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, training=True)
    scale = tape.gradient(output, x)
    assert 0.4 < np.mean(scale == 0) < 0.6
    np.testing.assert_allclose(output, X * scale, rtol=1e-6)


def test_dropout_of_a_functional_model_adds_and_drops_in_training():
    x, residual = keras.Input((4,)), keras.Input((4,))
    model = keras.Model([x, residual], Dropout(0.5, seed=1)(x, residual=residual))
    inputs = [np.ones((100, 4), "float32"), np.full((100, 4), 3, "float32")]
    np.testing.assert_array_equal(model(inputs), np.full((100, 4), 4))
    assert set(np.unique(model(inputs, training=True))) == {3, 5}


def test_adding_is_a_sum_with_what_is_left():
    assert_same = np.testing.assert_allclose
    added = Dropout(0.5, seed=1)(Y, residual=X, training=True)
    assert_same(added, X + Dropout(0.5, seed=1)(Y, training=True), atol=1e-6)
    one, other = Dropout(0.5, seed=1), Dropout(0.5, seed=1)
    together = gradients(lambda x, y: one(y, residual=x, training=True), X, Y)
    apart = gradients(lambda x, y: x + other(y, training=True), X, Y)
    for mine, expected in zip(together, apart, strict=True):
        assert_same(mine, expected, atol=1e-6)
    np.testing.assert_array_equal(Dropout(0.5)(Y, residual=X), X + Y)


@pytest.mark.parametrize("rate", [-0.1, 1.0])
def test_an_impossible_rate_is_refused(rate):
    with pytest.raises(ValueError, match="rate"):
        Dropout(rate)


@pytest.mark.slow
def test_threads_may_run_a_compiled_sum_for_the_first_time_together():
    # Without our flag, TensorFlow 2.21 crashes within some tens of shapes.
    run_python("""
import threading

import keras_transformer
import tensorflow as tf

@tf.function(jit_compile=True, autograph=False)
def sum_and_maximum(x):
    return tf.reduce_sum(tf.exp(x), -1), tf.reduce_max(x, -1)

together = threading.Barrier(8)

def run():
    for length in range(26, 86):
        together.wait()
        sum_and_maximum(tf.zeros((length, 4, 26, length)))

threads = [threading.Thread(target=run) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
""")
