"""The layers: the results of each, and the requirements for all."""

import re

import keras
import numpy as np
import pytest
from helpers import randomise, small_model
from keras import ops
from keras.src.backend import get_keras_mask
from layer_checks import run_layer_test, run_saving_test

from keras_transformer import LabelSmoothedCrossEntropy
from keras_transformer.layers import (
    Decoder,
    DecoderLayer,
    Dropout,
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositions,
    MultiHeadAttention,
    PositionalEncoding,
    Rotation,
    SelfAttention,
    TokenEmbedding,
    causal_mask,
    padding_mask,
)

ATTENTION = ["query/kernel", "key/kernel", "value/kernel", "output/kernel"]
FEED_FORWARD = ["hidden/kernel", "hidden/bias", "output/kernel", "output/bias"]
NORM = ["gamma", "beta"]
ATTENTION_BIASES = ["query/bias", "key/bias", "value/bias", "output/bias"]


def within(name, paths):
    return [f"{name}/{path}" for path in paths]


def block(*sublayers):
    parts = {"attention": ATTENTION, "forward": FEED_FORWARD}
    return [
        path
        for name in sublayers
        for path in within(name, parts[name.split("_")[1]]) + within(f"{name}_norm", NORM)
    ]


def stack(num_layers, layer):
    return [path for i in range(num_layers) for path in within(f"layer_{i}", layer)]


ENCODER_LAYER = block("self_attention", "feed_forward")
DECODER_LAYER = block("self_attention", "memory_attention", "feed_forward")

rng = np.random.default_rng(0)
X = rng.normal(size=(2, 5, 8)).astype("float32")
MEMORY = rng.normal(size=(2, 7, 8)).astype("float32")
IDS = rng.integers(0, 11, size=(2, 5)).astype("int32")
X_MASK = np.arange(5) < np.array([5, 3])[:, None, None, None]
MEMORY_MASK = np.arange(7) < np.array([4, 7])[:, None, None, None]

WIDTHS = {"d_model": 8, "num_heads": 2, "d_k": 3, "d_v": 5}
BLOCK = {"d_model": 8, "num_heads": 2, "d_ff": 12, "layer_norm_epsilon": 1e-5}
PRE_NORM = {**BLOCK, "dropout": 0.0, "pre_norm": True}
ENCODER_INPUTS = {"x": X, "attention_mask": X_MASK}
DECODER_INPUTS = {"x": X, "memory": MEMORY, "source_mask": MEMORY_MASK}


def of_parts():
    """Arguments of an encoder layer with parts that the user makes."""
    return {
        "d_model": 8,
        "self_attention": SelfAttention(**WIDTHS, use_bias=True, name="self_attention"),
        "feed_forward": FeedForward(8, 12, activation="gelu", name="feed_forward"),
    }


def layers_of(layer_class, **options):
    """Arguments of a stack of two layers."""
    return lambda: {"layers": [layer_class(**options, name=f"layer_{i}") for i in range(2)]}


LAYERS = {
    "attention with biases": (
        MultiHeadAttention,
        {**WIDTHS, "dropout": 0.1, "use_bias": True},
        {"query": X, "value": MEMORY, "attention_mask": MEMORY_MASK},
        ATTENTION + ATTENTION_BIASES,
    ),
    "feed-forward, swish": (
        FeedForward,
        {"d_model": 8, "d_ff": 12, "dropout": 0.1, "activation": "swish"},
        {"x": X},
        FEED_FORWARD,
    ),
    "sinusoids": (PositionalEncoding, {"d_model": 8}, {"x": X}, []),
    "sinusoids, sines first, inclusive": (
        PositionalEncoding,
        {"d_model": 8, "interleave": False, "inclusive": True, "first": 1},
        {"x": X},
        [],
    ),
    "learned positions": (LearnedPositions, {"d_model": 8, "max_length": 5}, {"x": X}, ["table"]),
    "embedding as it is": (
        TokenEmbedding,
        {"vocab_size": 11, "d_model": 8, "scale": False},
        {"ids": IDS},
        ["embeddings"],
    ),
    "encoder layer, biases and gelu": (
        EncoderLayer,
        of_parts,
        ENCODER_INPUTS,
        ENCODER_LAYER + within("self_attention", ATTENTION_BIASES),
    ),
    "encoder layer, pre-norm": (EncoderLayer, PRE_NORM, ENCODER_INPUTS, ENCODER_LAYER),
    "encoder": (Encoder, layers_of(EncoderLayer, **BLOCK), ENCODER_INPUTS, stack(2, ENCODER_LAYER)),
    "encoder, pre-norm": (
        Encoder,
        layers_of(EncoderLayer, **PRE_NORM),
        ENCODER_INPUTS,
        stack(2, ENCODER_LAYER) + within("norm", NORM),
    ),
    "decoder layer": (DecoderLayer, BLOCK, DECODER_INPUTS, DECODER_LAYER),
    "decoder, pre-norm": (
        Decoder,
        layers_of(DecoderLayer, **PRE_NORM),
        DECODER_INPUTS,
        stack(2, DECODER_LAYER) + within("norm", NORM),
    ),
}


def arguments_of(name):
    """The function that makes the arguments of a layer."""
    arguments = LAYERS[name][1]
    return arguments if callable(arguments) else lambda: arguments


@pytest.mark.parametrize("name", LAYERS)
def test_layer_keeps_what_keras_promises(name):
    layer_class, _, inputs, weights = LAYERS[name]
    run_layer_test(layer_class, arguments_of(name), inputs, X.shape, weights)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_in_a_saved_model_loads(name, tmp_path):
    layer_class, _, inputs, _ = LAYERS[name]
    run_saving_test(layer_class, arguments_of(name), inputs, tmp_path)


SEQUENCE_LAYERS = [name for name in LAYERS if not name.startswith(("feed", "embedding"))]


@pytest.mark.parametrize("name", SEQUENCE_LAYERS)
def test_a_sequence_without_a_batch_is_refused(name):
    layer_class, _, inputs, _ = LAYERS[name]
    first, *others = inputs
    others = {name: inputs[name] for name in others}
    with pytest.raises(ValueError, match="expected ndim=3, found ndim=2"):
        layer_class(**arguments_of(name)())(inputs[first][0], **others)


def test_a_subclassed_model_shows_its_layers():
    class Model(keras.Model):
        def __init__(self):
            super().__init__()
            self.decoder = Decoder([DecoderLayer(**BLOCK)], name="decoder")
            self.attention = MultiHeadAttention(8, 2, name="attention")
            self.attention.build((None, None, 8))

        def call(self, x):
            return self.attention(self.decoder(x, MEMORY), x)

    model, lines = Model(), []
    model(X)
    model.summary(print_fn=lambda text, **kwargs: lines.append(text))
    assert re.search(r"decoder .*\(2, 5, 8\)", lines[0])
    assert re.search(r"attention .*\(None, None, 8\)", lines[0])


@pytest.mark.parametrize("floatx", ["float64", "float16"])
def test_layers_and_loss_train_in_any_default_dtype(floatx):
    tf = pytest.importorskip("tensorflow")
    keras.config.set_floatx(floatx)
    try:
        attention = SelfAttention(8, 2, dropout=0.1, dtype=floatx)
        layer = EncoderLayer(**BLOCK, self_attention=attention, dtype=floatx)
        with tf.GradientTape() as tape:
            logits = layer(X, training=True)
            loss = LabelSmoothedCrossEntropy(0.1)(IDS % 8, logits)
        gradients = tape.gradient(loss, layer.trainable_weights)
        assert {x.dtype.name for x in (logits, *gradients)} == {floatx}
        assert all(np.all(np.isfinite(x)) for x in gradients)
    finally:
        keras.config.set_floatx("float32")


@pytest.mark.parametrize("training", [False, True])
def test_a_layer_in_float64_has_the_gradient_of_finite_differences(training):
    """Sums in float32 would change the differences in the third digit."""
    tf = pytest.importorskip("tensorflow")
    attention = SelfAttention(8, 2, rotation=Rotation(dtype="float64"), dtype="float64")
    layer = DecoderLayer(**PRE_NORM, self_attention=attention, dtype="float64")
    x, memory, direction = rng.normal(size=(3, 2, 5, 8))
    layer(x, memory)
    randomise(layer)

    def value(x):
        return ops.sum(ops.sin(layer(x, memory, training=training)))

    x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(x)
        loss = value(x)
    step = 1e-6
    difference = (value(x + step * direction) - value(x - step * direction)) / (2 * step)
    expected = np.sum(tape.gradient(loss, x) * direction)
    assert float(difference) == pytest.approx(expected, rel=1e-6)


def test_a_batch_without_rows_has_a_gradient_of_zero():
    tf = pytest.importorskip("tensorflow")
    layer = DecoderLayer(**BLOCK, memory_attention=MultiHeadAttention(8, 2, dropout=0.1))
    with tf.GradientTape() as tape:
        output = layer(X[:0], MEMORY[:0], training=True)
        loss = ops.sum(output)
    assert output.shape == (0, 5, 8)
    for gradient in tape.gradient(loss, layer.trainable_weights):
        np.testing.assert_array_equal(gradient, np.zeros(gradient.shape))


def test_dropout_in_float64_divides_in_float64():
    pytest.importorskip("tensorflow")
    x = rng.normal(size=(2, 5, 8))
    dropped = np.array(Dropout(0.3, dtype="float64")(x, training=True))
    np.testing.assert_allclose(dropped, np.where(dropped == 0, 0, x / 0.7), rtol=1e-14)


def built(layer_class, **init_kwargs):
    layer = layer_class(**init_kwargs)
    layer.build(X.shape)
    randomise(layer)
    return layer


# Attention


def test_masks_are_true_where_attention_may_look():
    np.testing.assert_array_equal(
        padding_mask(np.array([[5, 3, 0], [4, 0, 0]])),
        [[[[True, True, False]]], [[[True, False, False]]]],
    )
    np.testing.assert_array_equal(causal_mask(3)[0, 0], np.tri(3, dtype=bool))


def test_attention_weights_of_a_row_sum_to_one_and_are_zero_where_masked():
    layer = built(MultiHeadAttention, **WIDTHS)
    keys = layer.keys(MEMORY)
    weights = ops.convert_to_numpy(layer.attention_weights(layer.queries(X), keys, MEMORY_MASK))
    assert weights.shape == (2, 2, 5, 7)
    np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    is_seen = np.broadcast_to(MEMORY_MASK, weights.shape)
    assert np.all(weights[~is_seen] == 0)
    assert np.all(weights[is_seen] > 0)


def test_attention_is_the_formula():
    layer = built(MultiHeadAttention, **WIDTHS)
    q, k, v, o = (w.numpy().astype("float64") for w in layer.weights)
    heads = []
    for h in range(2):
        keys, values = slice(3 * h, 3 * h + 3), slice(5 * h, 5 * h + 5)
        scores = (X @ q[:, keys]) @ (MEMORY @ k[:, keys]).swapaxes(1, 2) / np.sqrt(3)
        weights = np.exp(scores) * MEMORY_MASK[:, 0]
        weights /= weights.sum(-1, keepdims=True)
        heads.append(weights @ (MEMORY @ v[:, values]))
    np.testing.assert_allclose(
        layer(X, MEMORY, attention_mask=MEMORY_MASK), np.concatenate(heads, -1) @ o, atol=1e-5
    )


def test_masked_values_change_nothing():
    layer = built(MultiHeadAttention, **WIDTHS)
    other = np.where(MEMORY_MASK[:, 0].swapaxes(1, 2), MEMORY, 100).astype("float32")
    np.testing.assert_array_equal(
        layer(X, other, attention_mask=MEMORY_MASK), layer(X, MEMORY, attention_mask=MEMORY_MASK)
    )


def test_a_query_that_may_look_nowhere_gets_the_mean_of_all_values():
    layer = built(MultiHeadAttention, **WIDTHS)
    output = layer(X, MEMORY, attention_mask=np.zeros((2, 1, 1, 7), bool))
    _, _, v, o = (w.numpy().astype("float64") for w in layer.weights)
    mean = (MEMORY @ v).mean(axis=1, keepdims=True) @ o
    np.testing.assert_allclose(output, np.repeat(mean, 5, axis=1), atol=1e-5)


def test_a_decoder_layer_does_not_look_ahead():
    layer = built(DecoderLayer, **BLOCK)
    changed = X.copy()
    changed[:, 3] += 1
    before, after = (ops.convert_to_numpy(layer(x, MEMORY)) for x in (X, changed))
    np.testing.assert_allclose(after[:, :3], before[:, :3], atol=1e-6)
    assert np.all(np.abs(after[:, 3:] - before[:, 3:]).max(-1) > 1e-3)


# Dropout


QUIET = {**BLOCK, "dropout": 0.0}
DROPPING = {
    "MultiHeadAttention": lambda: MultiHeadAttention(**WIDTHS, dropout=0.5),
    "FeedForward": lambda: FeedForward(8, 12, dropout=0.5),
    "EncoderLayer": lambda: EncoderLayer(**{**BLOCK, "dropout": 0.5}),
    "EncoderLayer, attention": lambda: EncoderLayer(
        **QUIET, self_attention=SelfAttention(8, 2, dropout=0.5)
    ),
    "EncoderLayer, activation": lambda: EncoderLayer(
        **QUIET, feed_forward=FeedForward(8, 12, dropout=0.5)
    ),
    "Encoder": lambda: Encoder([EncoderLayer(**{**BLOCK, "dropout": 0.5})]),
    "DecoderLayer": lambda: DecoderLayer(**{**BLOCK, "dropout": 0.5}),
    "DecoderLayer, cross-attention": lambda: DecoderLayer(
        **QUIET, memory_attention=MultiHeadAttention(8, 2, dropout=0.5)
    ),
    "Decoder": lambda: Decoder([DecoderLayer(**{**BLOCK, "dropout": 0.5})]),
}


@pytest.mark.parametrize("name", DROPPING)
def test_dropout_drops_in_training_only(name):
    layer = DROPPING[name]()
    inputs = (X, MEMORY) if name.startswith(("Multi", "Decoder")) else (X,)
    quiet = layer(*inputs, training=False)
    np.testing.assert_array_equal(layer(*inputs), quiet)
    assert np.any(np.abs(layer(*inputs, training=True) - quiet) > 1e-3)


def test_without_dropout_training_changes_nothing():
    layer = DecoderLayer(**QUIET)
    np.testing.assert_allclose(layer(X, MEMORY, training=True), layer(X, MEMORY), atol=1e-6)


# Positions


def test_sinusoids_are_the_formula():
    table = np.empty((50, 8))
    for position in range(50):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            table[position, 2 * i : 2 * i + 2] = np.sin(angle), np.cos(angle)
    layer = PositionalEncoding(8)
    np.testing.assert_allclose(layer(np.zeros((1, 50, 8), "float32"))[0], table, atol=1e-5)
    np.testing.assert_allclose(layer(X) - X, np.stack([table[:5]] * 2), atol=1e-6)
    if keras.backend.backend() == "tensorflow":  # the others have no float64 by default
        exact = PositionalEncoding(8, dtype="float64")(np.zeros((1, 50, 8)))[0]
        np.testing.assert_allclose(exact, table, atol=1e-14)


def test_sines_may_come_before_all_cosines():
    interleaved = PositionalEncoding(8)(np.zeros((1, 50, 8), "float32"))[0]
    halves = PositionalEncoding(8, interleave=False)(np.zeros((1, 50, 8), "float32"))[0]
    np.testing.assert_array_equal(halves[:, :4], interleaved[:, 0::2])
    np.testing.assert_array_equal(halves[:, 4:], interleaved[:, 1::2])


def test_frequencies_may_reach_1_in_10000_and_positions_may_count_from_another_number():
    x = np.zeros((1, 9, 8), "float32")
    last = PositionalEncoding(8, inclusive=True)(x)[0, :, 6]
    np.testing.assert_allclose(last, np.sin(np.arange(9) / 10000), atol=1e-6)
    np.testing.assert_array_equal(
        PositionalEncoding(8, first=2)(x)[0], PositionalEncoding(8)(x, start=2)[0]
    )


@pytest.mark.parametrize(
    "layer",
    [
        PositionalEncoding(8),
        PositionalEncoding(8, interleave=False),
        PositionalEncoding(8, inclusive=True, first=1),
        LearnedPositions(8, max_length=9),
    ],
)
def test_positions_may_start_anywhere(layer):
    x = rng.normal(size=(2, 9, 8)).astype("float32")
    np.testing.assert_allclose(layer(x[:, 4:], start=4), layer(x)[:, 4:], atol=1e-6)
    rows = np.stack([layer(x)[0, 4:7], layer(x)[1, 2:5]])
    parts = np.stack([x[0, 4:7], x[1, 2:5]])
    np.testing.assert_allclose(layer(parts, start=ops.array([4, 2])), rows, atol=1e-6)


def test_learned_positions_are_the_rows_of_the_table_and_the_last_one_beyond():
    layer = built(LearnedPositions, d_model=8, max_length=3)
    table = layer.get_weights()[0]
    np.testing.assert_allclose(layer(X) - X, np.stack([table[[0, 1, 2, 2, 2]]] * 2), atol=1e-6)


def test_sinusoids_need_an_even_width():
    with pytest.raises(ValueError, match=r"d_model must be even.*found 7"):
        PositionalEncoding(7)
    with pytest.raises(ValueError, match="d_model must be an integer of at least 4: found 2"):
        PositionalEncoding(2, inclusive=True)


# Embedding and feed-forward


def test_embeddings_are_rows_times_the_root_of_the_width_and_logits_are_not_scaled():
    layer = built(TokenEmbedding, vocab_size=11, d_model=8)
    matrix = layer.get_weights()[0]
    np.testing.assert_allclose(layer(IDS), matrix[IDS] * np.sqrt(8), atol=1e-6)
    np.testing.assert_allclose(layer.logits(X), X @ matrix.T, atol=1e-5)


@pytest.mark.parametrize("dtype", ["int32", "float32"])  # Keras's default for an input is float32
def test_an_embedding_masks_zeros_where_asked_to_and_logits_carry_the_mask(dtype):
    ids = ops.convert_to_tensor([[3, 0, 5], [2, 0, 0]], dtype)
    assert get_keras_mask(TokenEmbedding(11, 8)(ids)) is None
    embedding = TokenEmbedding.from_config(TokenEmbedding(11, 8, mask_zero=True).get_config())
    x = embedding(ids)
    np.testing.assert_array_equal(get_keras_mask(x), np.asarray(ids) != 0)
    np.testing.assert_array_equal(get_keras_mask(embedding(x, reverse=True)), np.asarray(ids) != 0)
    assert get_keras_mask(embedding(np.ones((2, 3, 8), "float32"), reverse=True)) is None


def test_embeddings_may_be_rows_as_they_are_and_logits_may_have_biases():
    layer = built(TokenEmbedding, vocab_size=11, d_model=8, scale=False, logits_bias=True)
    matrix, bias = layer.get_weights()
    np.testing.assert_allclose(layer(IDS), matrix[IDS], atol=1e-6)
    np.testing.assert_allclose(layer.logits(X), X @ matrix.T + bias, atol=1e-5)
    assert TokenEmbedding.from_config(layer.get_config()).get_config() == layer.get_config()


@pytest.mark.parametrize("layer", [EncoderLayer, Encoder])
def test_a_part_of_a_layer_may_be_called_before_the_layer(layer):
    whole = EncoderLayer(d_model=8, num_heads=2, d_ff=16)
    whole = Encoder([whole]) if layer is Encoder else whole
    part = whole.layers[0].feed_forward if layer is Encoder else whole.feed_forward
    x = np.random.default_rng(0).normal(size=(2, 3, 8)).astype("float32")
    before = part(x)
    assert whole(x).shape == (2, 3, 8)
    np.testing.assert_array_equal(part(x), before)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_logits_by_a_copy_of_the_matrix_are_the_same(policy):
    layer = built(TokenEmbedding, vocab_size=11, d_model=8, logits_bias=True, dtype=policy)
    kernel = layer.logits_kernel()
    assert (kernel.shape, kernel.dtype.name) == ((8, 11), layer.compute_dtype)
    np.testing.assert_array_equal(layer.logits(X, kernel), layer.logits(X))
    layer.quantize("int8")
    assert layer.logits_kernel() is None


@pytest.mark.parametrize("logits_bias", [False, True])
def test_a_functional_model_trains_and_saves_the_matrix_that_its_logits_come_from(
    logits_bias, tmp_path
):
    embedding = TokenEmbedding(11, 8, logits_bias=logits_bias)
    ids, x = keras.Input((None,), dtype="int32"), keras.Input((None, 8))
    by_method = keras.Model([ids, x], [embedding(ids), embedding.logits(x)])
    by_argument = keras.Model([ids, x], [embedding(ids), embedding(x, reverse=True)])
    for model in (by_method, by_argument):
        assert [output.shape for output in model.outputs] == [(None, None, 8), (None, None, 11)]
        assert len(model.trainable_weights) == 1 + logits_bias
        randomise(model)
        matrix = embedding.embeddings.numpy()
        bias = embedding.bias.numpy() if logits_bias else 0
        np.testing.assert_allclose(model([IDS, X])[1], X @ matrix.T + bias, atol=1e-5)
        model.save(tmp_path / "model.keras")
        loaded = keras.saving.load_model(tmp_path / "model.keras")
        loaded.compile(keras.optimizers.SGD(0.5), [None, LabelSmoothedCrossEntropy(0.1)])
        before = loaded([IDS, X])[1]
        loaded.fit([IDS, X], [np.zeros((2, 5, 8)), IDS], verbose=0)
        assert np.all(np.abs(loaded([IDS, X])[1] - before) > 0)


def test_logits_alone_build_the_layer():
    embedding = TokenEmbedding(11, 8)
    assert embedding(X, reverse=True).shape == (2, 5, 11)
    np.testing.assert_allclose(embedding.logits(X), X @ embedding.get_weights()[0].T, atol=1e-5)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_in_mixed_precision_rows_are_rounded_and_not_the_whole_matrix(dtype):
    tf = pytest.importorskip("tensorflow")
    embedding = TokenEmbedding(10_000, 8, dtype=dtype)
    embedding(IDS)
    graph = tf.function(embedding).get_concrete_function(tf.TensorSpec((2, 5), "int32")).graph
    low = [tensor for op in graph.get_operations() for tensor in op.outputs]
    low = [tensor.shape for tensor in low if tensor.dtype == embedding.compute_dtype]
    assert low and (10_000, 8) not in low


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_in_mixed_precision_ids_given_as_floats_are_not_rounded(dtype):
    ids = np.array([[257, 2049, 4099]])
    embedding = TokenEmbedding(5000, 8, dtype=dtype)
    np.testing.assert_array_equal(embedding(ids.astype("float32")), embedding(ids))
    model = small_model(vocab_size=5000, dtype=dtype)
    as_ids, as_floats = (
        model({"source_ids": x, "target_ids": x}) for x in (ids, ids.astype("float32"))
    )
    np.testing.assert_array_equal(as_floats, as_ids)


@pytest.mark.parametrize("part", ["queries", "keys", "values"])
def test_parts_of_attention_refuse_symbolic_tensors(part):
    with pytest.raises(
        ValueError,
        match=r"take tensors, not symbols .*: in a functional model, call the layer itself",
    ):
        getattr(MultiHeadAttention(8, 2), part)(keras.Input((None, 8)))


def test_feed_forward_is_the_formula():
    layer = built(FeedForward, d_model=8, d_ff=12)
    w1, b1, w2, b2 = layer.get_weights()
    np.testing.assert_allclose(layer(X), np.maximum(0, X @ w1 + b1) @ w2 + b2, atol=1e-5)


def test_kernels_start_glorot_uniform_and_embeddings_with_unit_scaled_rows():
    keras.utils.set_random_seed(0)
    attention = MultiHeadAttention(256, 4, d_k=32, d_v=128)
    attention.build((None, None, 256))
    for kernel in attention.get_weights():
        bound = np.sqrt(6 / sum(kernel.shape))
        assert 0.98 * bound < np.abs(kernel).max() <= bound
        assert abs(kernel.std() - bound / np.sqrt(3)) < 0.02 * bound
    embedding = TokenEmbedding(1000, 256)
    embedding.build((None, None))
    assert abs(embedding.get_weights()[0].std() - 256**-0.5) < 1e-3


def test_heads_that_do_not_divide_the_width_need_widths_of_their_own():
    with pytest.raises(ValueError, match="d_model=10, num_heads=3"):
        MultiHeadAttention(10, 3)
    assert MultiHeadAttention(10, 3, d_k=2, d_v=4).d_v == 4


@pytest.mark.parametrize("size", [0, -1])
@pytest.mark.parametrize(
    ("layer_class", "name", "others"),
    [
        (FeedForward, "d_ff", {"d_model": 8}),
        (EncoderLayer, "d_model", {"num_heads": 2, "d_ff": 16}),
        (DecoderLayer, "d_ff", {"d_model": 8, "num_heads": 2}),
        (TokenEmbedding, "vocab_size", {"d_model": 8}),
        (TokenEmbedding, "d_model", {"vocab_size": 9}),
        (LearnedPositions, "max_length", {"d_model": 8}),
    ],
)
def test_sizes_are_at_least_1(layer_class, name, others, size):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1: found {size}"):
        layer_class(**others, **{name: size})


@pytest.mark.parametrize("layers", [6, [], EncoderLayer(**BLOCK)])
def test_a_stack_takes_a_list_of_layers(layers):
    with pytest.raises(TypeError, match=r"takes a list of layers, such as Encoder\(\[EncoderLayer"):
        Encoder(layers)


@pytest.mark.parametrize("missing", ["num_heads", "d_ff"])
def test_a_size_is_needed_for_a_part_that_is_not_given(missing):
    sizes = {"num_heads": 2, "d_ff": 12, missing: None}
    with pytest.raises(ValueError, match=f"{missing} is missing: give it, or "):
        EncoderLayer(8, **sizes)


@pytest.mark.parametrize("num_heads", [0, -2])
def test_attention_needs_a_head(num_heads):
    with pytest.raises(
        ValueError, match=f"num_heads must be an integer of at least 1: found {num_heads}"
    ):
        EncoderLayer(8, num_heads, 12)
