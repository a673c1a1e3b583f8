"""The layers of the paper's Table 1: their results, and that they are interchangeable."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import randomise, small_model
from keras import ops
from layer_checks import run_layer_test, run_saving_test

from keras_transformer import LabelSmoothedCrossEntropy
from keras_transformer.attention_maps import attention_maps
from keras_transformer.layers import (
    Convolution,
    EncoderLayer,
    Recurrence,
    RestrictedSelfAttention,
    Rotation,
    SelfAttention,
)
from keras_transformer.search import (
    DecoderSteps,
    SearchOptions,
    Targets,
    beam_search,
    score,
    search,
)

rng = np.random.default_rng(0)
X = rng.normal(size=(2, 7, 8)).astype("float32")
LENGTHS = np.array([7, 4])
MASK = np.arange(7) < LENGTHS[:, None, None, None]

WIDTHS = {"d_model": 8, "num_heads": 2, "d_k": 3, "d_v": 5}
ATTENTION = ["query/kernel", "key/kernel", "value/kernel", "output/kernel"]
GRU = ["gru_cell/kernel", "gru_cell/recurrent_kernel", "gru_cell/bias"]
CONVOLUTION = ["convolution/kernel", "convolution/bias"]
SEPARABLE = [f"convolution/{name}" for name in ("depthwise_kernel", "pointwise_kernel", "bias")]

LAYERS = {
    "attention": (SelfAttention, WIDTHS, ATTENTION),
    "restricted": (RestrictedSelfAttention, {**WIDTHS, "radius": 2}, ATTENTION),
    "rotary": (
        SelfAttention,
        {**WIDTHS, "d_k": 4, "rotation": Rotation(name="rotation")},
        ATTENTION,
    ),
    "restricted, rotary": (
        RestrictedSelfAttention,
        {**WIDTHS, "d_k": 4, "radius": 2, "rotation": Rotation(name="rotation")},
        ATTENTION,
    ),
    "recurrent": (
        Recurrence,
        {"d_model": 8},
        [f"{direction}/{path}" for direction in ("forward", "backward") for path in GRU],
    ),
    "convolutional": (Convolution, {"d_model": 8, "kernel_size": 3}, CONVOLUTION),
    "dilated": (Convolution, {"d_model": 8, "kernel_size": 3, "dilation_rate": 2}, CONVOLUTION),
    "separable": (Convolution, {"d_model": 8, "kernel_size": 4, "separable": True}, SEPARABLE),
}

LAYER_TYPES = {
    "attention": {},
    "restricted": {"layer_type": "restricted", "radius": 2},
    "rotary": {"positions": "rotary"},
    "restricted, rotary": {"layer_type": "restricted", "radius": 2, "positions": "rotary"},
    "sinusoids and rotary": {"positions": "sinusoidal_rotary"},
    "recurrent": {"layer_type": "recurrent"},
    "convolutional": {"layer_type": "convolutional", "kernel_size": 3},
    "separable": {"layer_type": "separable", "kernel_size": 3},
}
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}


def with_new_layers(init_kwargs):
    """Arguments with a new `Rotation`, of the dtype policy of the moment."""
    rotation = {"rotation": Rotation(name="rotation")} if "rotation" in init_kwargs else {}
    return {**init_kwargs, **rotation}


def built(layer_class, causal=False, **init_kwargs):
    layer = layer_class(**init_kwargs, causal=causal)
    layer.build((None, None, 8))
    randomise(layer)
    return layer


def built_as(name, causal=False):
    layer_class, init_kwargs, _ = LAYERS[name]
    return built(layer_class, causal, **init_kwargs)


# What all of them have in common


@pytest.mark.parametrize(
    ("name", "causal"),
    [
        ("attention", True),
        ("restricted", False),
        ("rotary", False),
        ("restricted, rotary", True),
        ("recurrent", False),
        ("recurrent", True),
        ("convolutional", False),
        ("dilated", True),
        ("separable", False),
    ],
)
def test_layer_keeps_what_keras_promises(name, causal):
    layer_class, init_kwargs, weights = LAYERS[name]
    inputs = {"x": X} if causal else {"x": X, "attention_mask": MASK}
    weights = [path for path in weights if not (causal and path.startswith("backward"))]
    init_kwargs = {**init_kwargs, "causal": causal}
    run_layer_test(layer_class, lambda: with_new_layers(init_kwargs), inputs, X.shape, weights)


@pytest.mark.parametrize("name", LAYERS)
def test_layer_in_a_saved_model_loads(name, tmp_path):
    layer_class, init_kwargs, _ = LAYERS[name]
    new_kwargs = functools.partial(with_new_layers, init_kwargs)
    run_saving_test(layer_class, new_kwargs, {"x": X, "attention_mask": MASK}, tmp_path)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_padding_changes_nothing(name, causal):
    layer = built_as(name, causal)
    longer = np.concatenate([X, rng.normal(size=(2, 5, 8))], axis=1).astype("float32")
    longer[1, 4:] = 100
    mask = np.arange(12) < LENGTHS[:, None, None, None]
    rows = layer(longer, attention_mask=mask)
    for i, length in enumerate(LENGTHS):
        alone = layer(X[i : i + 1, :length])
        np.testing.assert_allclose(rows[i : i + 1, :length], alone, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "restricted",
        "convolutional",
        "separable",
        pytest.param("recurrent", marks=pytest.mark.slow),
    ],
)
def test_no_rows_or_no_positions_give_as_many_and_gradients_of_zero(name, causal):
    layer = built_as(name, causal)

    def with_gradients(x):
        mask = None if causal else ops.ones(ops.shape(x)[:2], "bool")
        with tf.GradientTape() as tape:
            y = layer(x, attention_mask=mask)
            total = ops.sum(y)
        return y, tape.gradient(total, layer.trainable_variables)

    known_shape = tf.function(with_gradients, autograph=False)
    unknown_shape = tf.function(with_gradients, [tf.TensorSpec((None, None, 8))], autograph=False)
    for shape in ((0, 7, 8), (2, 0, 8)):
        for function in (with_gradients, known_shape, unknown_shape):
            y, gradients = function(tf.zeros(shape))
            assert y.shape == shape
            assert not any(np.any(gradient) for gradient in gradients if gradient is not None)


@pytest.mark.parametrize("name", LAYERS)
def test_a_mask_of_size_1_holds_for_all_rows_or_positions(name):
    layer = built_as(name)
    full = layer(X, attention_mask=np.ones((2, 7), bool))
    for shape in ((1, 7), (2, 1), (1, 1)):
        np.testing.assert_array_equal(layer(X, attention_mask=np.ones(shape, bool)), full)


@pytest.mark.parametrize("name", LAYERS)
def test_a_causal_layer_does_not_look_ahead_and_another_does(name):
    changed = X.copy()
    changed[:, 4] += 1
    for causal in (True, False):
        layer = built_as(name, causal)
        difference = np.abs(ops.convert_to_numpy(layer(changed)) - layer(X)).max(-1)
        assert np.all(difference[:, 4] > 1e-3)
        before = difference[:, :4].max()
        assert before <= 1e-6 if causal else before > 1e-3


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_each_of_them_may_be_handed_to_an_encoder_layer(name, pre_norm):
    part = built_as(name)
    layer = EncoderLayer(8, d_ff=12, pre_norm=pre_norm, self_attention=part)
    output = layer(X, attention_mask=MASK)
    norm = layer.self_attention_norm
    expected = X + part(norm(X), attention_mask=MASK) if pre_norm else None
    if expected is None:
        expected = norm(X + part(X, attention_mask=MASK))
        expected = layer.feed_forward_norm(expected + layer.feed_forward(expected))
    else:
        expected = expected + layer.feed_forward(layer.feed_forward_norm(expected))
    np.testing.assert_allclose(output, expected, atol=1e-5)


# Restricted self-attention


def band(length, radius):
    distances = np.arange(length)[:, None] - np.arange(length)
    return np.abs(distances)[None, None] <= radius


def with_gradients(layer, x, mask, real):
    """The layer's output at real positions, and all gradients of a weighted sum of it."""
    coefficients = np.random.default_rng(1).normal(size=x.shape) * real[..., None]
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = layer(x, attention_mask=mask, training=True)
        total = ops.sum(output * coefficients)
    return [output[real], *tape.gradient(total, [x, *layer.trainable_variables])]


@pytest.mark.parametrize(
    ("radius", "length"), [(1, 5), (1, 6), (3, 1), (3, 5), (3, 6), (3, 7), (3, 13), (30, 13)]
)
@pytest.mark.parametrize("causal", [False, True])
def test_restricted_attention_is_attention_masked_by_a_band(causal, radius, length):
    restricted = built(RestrictedSelfAttention, causal, **WIDTHS, radius=radius)
    full = built(SelfAttention, causal, **WIDTHS)
    full.set_weights(restricted.get_weights())
    x = tf.constant(rng.normal(size=(2, length, 8)), "float32")
    everywhere = np.ones((2, length), "bool")
    padded = np.arange(length) < np.array([length, max(1, length - 3)])[:, None]
    for mask, real in ((None, everywhere), (padded[:, None, None], padded)):
        near = band(length, radius) if mask is None else mask & band(length, radius)
        ours, wanted = (
            with_gradients(restricted, x, mask, real),
            with_gradients(full, x, near, real),
        )
        for a, b in zip(ours, wanted, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5, rtol=1e-5)


def test_restricted_attention_of_unknown_length_is_the_same():
    layer = built_as("restricted")
    graph = tf.function(layer, input_signature=[tf.TensorSpec((None, None, 8))])
    for length in (0, 1, 4, 7):
        np.testing.assert_allclose(graph(X[:, :length]), layer(X[:, :length]), atol=1e-6)


def largest_tensor(layer, length):
    x = tf.TensorSpec((1, length, 8))

    @tf.function
    def forward_and_backward(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x)
        return tape.gradient(y, x)

    graph = forward_and_backward.get_concrete_function(x).graph
    return max(
        tensor.shape.num_elements() or 0 for op in graph.get_operations() for tensor in op.outputs
    )


def test_restricted_attention_computes_no_matrix_of_all_pairs():
    length = 600
    assert largest_tensor(built_as("attention"), length) >= length**2
    assert largest_tensor(built_as("restricted"), length) <= 50 * length


def test_a_radius_of_nothing_is_refused():
    with pytest.raises(ValueError, match="radius must be an integer of at least 1: found 0"):
        RestrictedSelfAttention(8, 2, radius=0)


# Convolution and recurrence


@pytest.mark.parametrize("separable", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("kernel_size", "dilation_rate"), [(1, 1), (3, 1), (4, 1), (3, 2), (9, 1)])
def test_a_convolution_is_the_formula(kernel_size, dilation_rate, causal, separable):
    layer = built(
        Convolution,
        causal,
        d_model=8,
        kernel_size=kernel_size,
        dilation_rate=dilation_rate,
        separable=separable,
    )
    *kernels, bias = layer.get_weights()
    kernel = kernels[0]
    if separable:
        depthwise, pointwise = kernels
        kernel = depthwise * pointwise  # (k, d, 1) * (1, d, d)
    reach = dilation_rate * (kernel_size - 1)
    first = -reach if causal else -(reach // 2)
    expected = np.tile(bias, (2, 7, 1))
    for t in range(7):
        for j in range(kernel_size):
            source = t + first + j * dilation_rate
            if 0 <= source < 7:
                expected[:, t] += X[:, source] @ kernel[j]
    np.testing.assert_allclose(layer(X), expected, atol=1e-5)


@pytest.mark.parametrize("separable", [False, True])
def test_the_format_of_images_does_not_matter_to_a_convolution(separable):
    """A user's keras.json may have `image_data_format` channels_first."""
    init_kwargs = {"d_model": 8, "kernel_size": 3, "separable": separable}
    usual = built(Convolution, **init_kwargs)
    format_ = keras.config.image_data_format()
    keras.config.set_image_data_format("channels_first")
    try:
        layer = built(Convolution, **init_kwargs)
    finally:
        keras.config.set_image_data_format(format_)
    layer.set_weights(usual.get_weights())
    np.testing.assert_array_equal(layer(X), usual(X))


def gru(x, kernel, recurrent_kernel, bias):
    """States (length, d) of a sequence (length, d), by the formulas."""

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    states, h = [], np.zeros(x.shape[1])
    for row in x:
        z, r, candidate = np.split(row @ kernel + bias[0], 3)
        past_z, past_r, past = np.split(h @ recurrent_kernel + bias[1], 3)
        z, r = sigmoid(z + past_z), sigmoid(r + past_r)
        h = z * h + (1 - z) * np.tanh(candidate + r * past)
        states.append(h)
    return np.array(states)


@pytest.mark.parametrize("causal", [False, True])
def test_a_recurrence_is_the_formula(causal):
    layer = built_as("recurrent", causal)
    forward, backward = layer.get_weights()[:3], layer.get_weights()[3:]
    for row, x, length in zip(layer(X, attention_mask=MASK), X, LENGTHS, strict=True):
        x = x[:length].astype("float64")
        expected = gru(x, *forward)
        if not causal:
            expected = expected + gru(x[::-1], *backward)[::-1]
        np.testing.assert_allclose(row[:length], expected, atol=1e-5)


# In the Transformer

SOURCES = np.array([[5, 4, 3, 3, 6, 5, 2], [4, 2, 0, 0, 0, 0, 0], [3, 9, 11, 2, 0, 0, 0]], "int32")


class WholePasses(DecoderSteps):
    """A decoder that caches only ids, and recomputes all of them at each step."""

    def __init__(self, model):
        self.model = model

    def initial_state(self, batch, beam_size):
        sources = ops.repeat(SOURCES[:, None], beam_size, axis=1)
        return sources, ops.zeros((batch, beam_size, 0), "int32")

    def grow(self, state, size):
        sources, ids = state
        return sources, ops.pad(ids, [(0, 0), (0, 0), (0, size - ids.shape[2])])

    def step(self, ids, position, state):
        sources, past = state
        batch, beam_size, size = past.shape
        past = ops.where(
            ops.equal(ops.arange(size), position[:, None, None]), ids[:, :, None], past
        )
        rows = {
            "source_ids": ops.reshape(sources, (batch * beam_size, -1)),
            "target_ids": ops.reshape(past, (batch * beam_size, size)),
        }
        logits = ops.reshape(self.model(rows), (batch, beam_size, size, -1))
        here = ops.reshape(position, (batch, 1, 1, 1))
        return ops.take_along_axis(logits, here, axis=2)[:, :, 0], (sources, past)


def masked_by_a_band(self, x, attention_mask=None, mask=None, x_mask=None):
    """`RestrictedSelfAttention.call`, computed with the full attention matrix."""
    near = band(x.shape[1], self.radius)
    near = near if attention_mask is None else near & attention_mask
    return SelfAttention.call(self, x, near, mask, x_mask)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYER_TYPES)
def test_a_search_of_any_shape_finds_what_a_search_with_whole_passes_finds(name, monkeypatch):
    model = small_model(3, **LAYER_TYPES[name], tie_output=False)
    options = SearchOptions(beam_size=4, n_best=4, extra_length=5, no_repeat_ngram=2)
    graph = tf.function(
        lambda ids, num_slots: search(model, ids, options, num_slots=num_slots),
        [tf.TensorSpec((None, None), tf.int32), tf.TensorSpec((), tf.int32)],
        autograph=False,
    )
    found, in_turn = graph(SOURCES, 3), graph(SOURCES, 2)
    np.testing.assert_array_equal(in_turn.ids, found.ids)
    monkeypatch.setattr(RestrictedSelfAttention, "call", masked_by_a_band)
    targets = Targets(
        np.ones(3, "int32"), max_lengths=options.longest(np.array([7, 2, 4])), buffer_length=12
    )
    wanted = beam_search(WholePasses(model), targets, options)
    assert len(np.unique(wanted.ids)) > 4
    np.testing.assert_array_equal(found.ids, wanted.ids)
    np.testing.assert_allclose(found.scores, wanted.scores, atol=1e-5)
    np.testing.assert_allclose(
        score(model, SOURCES, found.ids[:, 0]), found.scores[:, 0], atol=1e-5
    )


TARGETS = np.array([[1, 6, 3, 7, 7], [1, 5, 0, 0, 0], [1, 9, 9, 4, 0]], "int32")
LABELS = np.array([[6, 3, 7, 7, 2], [5, 2, 0, 0, 0], [9, 9, 4, 2, 0]], "int32")


def losses_of_training(model, steps):
    model.compile(keras.optimizers.SGD(0.1), LabelSmoothedCrossEntropy(0.1), run_eagerly=True)
    inputs = {"source_ids": SOURCES, "target_ids": TARGETS}
    return model.fit(inputs, LABELS, epochs=steps, verbose=0).history["loss"]


@pytest.mark.slow
def test_restricted_attention_trains_as_attention_masked_by_a_band(monkeypatch):
    fields = {**LAYER_TYPES["restricted"], **ONE_LAYER}
    model, masked = small_model(**fields), small_model(**fields)
    losses = losses_of_training(model, 5)
    monkeypatch.setattr(RestrictedSelfAttention, "call", masked_by_a_band)
    np.testing.assert_allclose(losses, losses_of_training(masked, 5), rtol=1e-5)
    assert losses[-1] < losses[0]
    for ours, wanted in zip(model.get_weights(), masked.get_weights(), strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["recurrent", "convolutional", "separable"])
def test_each_type_learns(name):
    losses = losses_of_training(small_model(**LAYER_TYPES[name], **ONE_LAYER), 10)
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("name", ["restricted", "recurrent"])
def test_other_layers_than_attention_have_maps_of_the_source_alone(name):
    maps = attention_maps(small_model(**LAYER_TYPES[name]), SOURCES, TARGETS)
    assert maps.encoder == maps.decoder == []
    assert [weights.shape for weights in maps.memory] == [(3, 2, 5, 7)] * 2
