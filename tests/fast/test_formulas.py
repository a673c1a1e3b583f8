"""Each faster variant equals its plain formula: values and gradients, in any dtype."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.config import TransformerConfig
from keras_transformer.fast.attention import fused_attention_weights
from keras_transformer.fast.dense import fused_dense
from keras_transformer.fast.dispatch import fused, op_by_op, runs_op_by_op
from keras_transformer.fast.losses import fused_smoothed_cross_entropy
from keras_transformer.fast.normalization import fused_normalized
from keras_transformer.fast.reductions import fused_max, fused_sum, fused_sum_of_rows
from keras_transformer.fast.rotation import fused_rotated
from keras_transformer.layers.attention import scaled_dot_product_attention
from keras_transformer.layers.attention_weights import attention_weights
from keras_transformer.layers.normalization import normalized
from keras_transformer.layers.positions import rotated
from keras_transformer.losses import smoothed_cross_entropy
from keras_transformer.training import TrainableTransformer

# The rounding of one result, relative to the largest.
ROUNDING = {"float32": 2e-6, "bfloat16": 2e-2, "float16": 3e-3}

rng = np.random.default_rng(0)


def assert_equal_with_gradients(fast, plain, arrays, dtype):
    """Compares results, and the gradients of a random weighting of them.

    In a graph, XLA compiles the fast variant; eagerly it runs as it is. In training, one graph,
    which TensorFlow runs op by op, serves batches of any shape: it knows only the last axis.
    """
    inputs = [tf.cast(array, dtype) for array in arrays]
    shapes = [[None] * (x.shape.rank - 1) + [x.shape[-1]] for x in inputs]
    any_batch = tf.function(
        fast, input_signature=[tf.TensorSpec(s, dtype) for s in shapes], autograph=False
    )
    found = []
    for function in (fast, tf.function(fast, autograph=False), any_batch, plain):
        with op_by_op(function is any_batch):
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                result = function(*inputs)
                weights = np.random.default_rng(1).normal(size=result.shape)
                total = tf.reduce_sum(tf.cast(result, "float32") * weights.astype("float32"))
            found.append([result, *tape.gradient(total, inputs)])
    for *variants, expected in zip(*found, strict=True):
        assert {variant.dtype for variant in variants} == {expected.dtype}
        expected = np.asarray(ops.cast(expected, "float32"))
        atol = ROUNDING[dtype] * max(1.0, np.abs(expected).max())
        for variant in variants:
            variant = ops.cast(variant, "float32")
            np.testing.assert_allclose(variant, expected, rtol=ROUNDING[dtype], atol=atol)


@pytest.mark.parametrize(
    ("reduce", "expected", "length"),
    [(fused_sum, np.sum, length) for length in (0, 1, 7, 8, 17, 24)]
    + [(fused_max, np.max, length) for length in (1, 7, 8, 17, 24)],
)
def test_sums_and_maxima_over_axes_of_any_length(reduce, expected, length):
    x = rng.normal(size=[length] * 3).astype("float32")
    axes = (0, 1, -1)
    reduced = fused(lambda x: [reduce(x, axis) for axis in axes])
    known = tf.function(reduced, autograph=False)
    unknown = tf.function(
        reduced, input_signature=[tf.TensorSpec([None, None, None])], autograph=False
    )
    for function in (reduced, known, unknown):
        for axis, found in zip(axes, function(x), strict=True):
            np.testing.assert_allclose(found, expected(x, axis, keepdims=True), atol=1e-5)


@pytest.mark.parametrize("is_op_by_op", [False, True])
def test_sums_of_rows_begin_with_their_eighths_unless_xla_compiles_the_step(is_op_by_op):
    x = rng.normal(size=(19, 4)).astype("float32")
    compiled = tf.function(
        fused_sum_of_rows, input_signature=[tf.TensorSpec([None, 4])], autograph=False
    )
    with op_by_op(is_op_by_op):
        np.testing.assert_allclose(compiled(x), x.sum(axis=0), atol=1e-5)
    operations = compiled.get_concrete_function().graph.get_operations()
    additions = [operation.type for operation in operations].count("AddV2")
    assert additions >= 7 if is_op_by_op else additions == 0


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_training_step_says_whether_xla_compiles_it(jit_compile, monkeypatch):
    config = TransformerConfig(
        vocab_size=20, num_encoder_layers=1, num_decoder_layers=1, d_model=8, num_heads=2, d_ff=16
    )
    model = TrainableTransformer(config)
    model.compile(keras.optimizers.SGD(), jit_compile=jit_compile)
    found = []

    def token_losses(inputs, labels):
        found.append(runs_op_by_op())
        total = sum(tf.reduce_sum(weight.value) for weight in model.trainable_weights)
        return total * tf.ones(tf.shape(labels)), tf.one_hot(labels, config.vocab_size)

    monkeypatch.setattr(model, "_token_losses", token_losses)
    ids = rng.integers(4, 20, size=(2, 3)).astype("int32")
    model.train_on_batch({"source_ids": ids, "target_ids": ids}, ids)
    assert found == [not jit_compile]


MASKS = {
    "none": None,
    "some": rng.random((2, 3, 4, 5)) < 0.6,
    "padding": np.arange(5) < np.array([5, 2])[:, None, None, None],
    "whole rows": np.array([True, False, True, False])[:, None] & (rng.random((4, 5)) < 0.8),
}


@pytest.mark.parametrize(
    ("mask", "dtype"),
    [
        *((mask, "float32") for mask in MASKS),
        ("none", "bfloat16"),
        ("whole rows", "bfloat16"),
        ("padding", "float16"),
        ("whole rows", "float16"),
    ],
)
def test_attention(mask, dtype):
    shapes = [(2, 3, 4, 6), (2, 3, 5, 6), (2, 3, 5, 7)]
    arrays = [rng.normal(size=shape) for shape in shapes]
    mask = MASKS[mask]

    def attention(weights_of):
        return lambda q, k, v: ops.matmul(weights_of(q, k, mask), v)

    fast, plain = attention(fused_attention_weights), attention(attention_weights)
    assert_equal_with_gradients(fast, plain, arrays, dtype)


@pytest.mark.parametrize("mask", ["none", "some", "padding"])
def test_attention_is_the_equation_and_that_of_keras(mask):
    q, k, v = (rng.normal(size=(2, 3, n, 6)).astype("float32") for n in (4, 5, 5))
    mask = np.broadcast_to(True if MASKS[mask] is None else MASKS[mask], (2, 3, 4, 5))
    mask = mask | (np.arange(5) == 0)
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / np.sqrt(6), -np.inf).astype("float64")
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights / weights.sum(-1, keepdims=True) @ v
    found = scaled_dot_product_attention(*map(ops.convert_to_tensor, (q, k, v)), mask)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    # Keras has the heads after the positions.
    keras_own = ops.dot_product_attention(*(x.swapaxes(1, 2) for x in (q, k, v)), mask=mask)
    np.testing.assert_allclose(found, ops.swapaxes(keras_own, 1, 2), atol=1e-5)


@pytest.mark.parametrize(
    ("epsilon", "dtype"), [(0.0, "float32"), (0.1, "bfloat16"), (0.1, "float16")]
)
def test_smoothed_cross_entropy(epsilon, dtype):
    labels = rng.integers(0, 50, size=(2, 3))
    logits = 3 * rng.normal(size=(2, 3, 50)) + 2
    assert_equal_with_gradients(
        lambda x: fused_smoothed_cross_entropy(labels, x, epsilon),
        lambda x: smoothed_cross_entropy(labels, x, epsilon),
        [logits],
        dtype,
    )


def test_smoothed_cross_entropy_is_that_of_keras_on_dense_targets():
    labels = rng.integers(0, 9, size=(2, 3))
    logits = rng.normal(size=(2, 3, 9)).astype("float32")
    # Keras spreads epsilon over all classes, the label's too: the paper's share is V / (V - 1).
    expected = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=0.1 * 9 / 8, reduction=None
    )(np.eye(9)[labels], logits)
    np.testing.assert_allclose(smoothed_cross_entropy(labels, logits, 0.1), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_normalization(dtype):
    gamma, beta = rng.normal(size=(2, 12)).astype("float32")
    assert_equal_with_gradients(
        lambda x: fused_normalized(x, gamma, beta, 1e-6),
        lambda x: normalized(x, gamma, beta, 1e-6),
        [3 * rng.normal(size=(2, 5, 12)) + 1],
        dtype,
    )


@pytest.mark.parametrize("dtype", ROUNDING)
def test_rotation(dtype):
    queries = 3 * rng.normal(size=(2, 3, 7, 10))
    assert_equal_with_gradients(fused_rotated, rotated, [queries], dtype)


@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("activation", ["relu", "gelu", "linear"])
def test_dense(activation, dtype):
    function = keras.activations.get(activation)
    arrays = [rng.normal(size=shape) for shape in ((7, 6), (6, 10), (10,))]
    assert_equal_with_gradients(
        lambda x, kernel, bias: fused_dense(x, kernel, bias, function),
        lambda x, kernel, bias: function(x @ kernel + bias),
        arrays,
        dtype,
    )
