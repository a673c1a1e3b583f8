"""Parts that are handed in to a layer, and arguments of its leaves."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer.layers import (
    Convolution,
    Decoder,
    DecoderLayer,
    Dense,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNormalization,
    MultiHeadAttention,
    Recurrence,
    SelfAttention,
)

X = np.random.default_rng(0).normal(size=(4, 7, 16)).astype("float32")


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (
            lambda: EncoderLayer(16, d_ff=32),
            ValueError,
            "num_heads is missing: give it, or self_att",
        ),
        (lambda: EncoderLayer(16, 4), ValueError, "d_ff is missing: give it, or feed_forward"),
        (
            lambda: EncoderLayer(16, -3, 32, self_attention=SelfAttention(16, 2)),
            ValueError,
            "num_heads must be an integer of at least 1: found -3",
        ),
        (
            lambda: EncoderLayer(16, 4, 32, self_attention=keras.layers.MultiHeadAttention(4, 4)),
            TypeError,
            "self_attention must be a layer of keras_transformer",
        ),
        (
            lambda: DecoderLayer(16, 4, 32, memory_attention=keras.layers.MultiHeadAttention(4, 4)),
            TypeError,
            "memory_attention must be a layer of keras_transformer",
        ),
        (lambda: SelfAttention(16, 4, rotation=True), TypeError, "rotation must be a Rotation"),
        (lambda: Encoder([EncoderLayer, 1]), TypeError, "Encoder takes a list of layers"),
        (lambda: Encoder(num_layers=2, d_model=16), TypeError, "Encoder takes a list of layers"),
        (lambda: Decoder(6), TypeError, "Decoder takes a list of layers"),
        (
            lambda: FeedForward(16, 32, leaves={"Dense": {"activation": "gelu"}}),
            ValueError,
            "leaves cannot set activation",
        ),
        (
            lambda: EncoderLayer(16, 4, 32).new_cache(1, 1),
            ValueError,
            "cannot take single steps: its attention is not causal",
        ),
    ],
)
def test_a_wrong_part_or_size_is_named(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


def test_a_part_belongs_to_one_layer():
    part = FeedForward(16, 32)
    EncoderLayer(16, 4, feed_forward=part)
    with pytest.raises(ValueError, match="a part of another layer: make a new one for each"):
        EncoderLayer(16, 4, feed_forward=part)


class WithoutBuild(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(16)

    def call(self, x, attention_mask=None, mask=None):
        return self.dense(x)


@pytest.mark.filterwarnings("ignore:`build")
@pytest.mark.parametrize(
    "make",
    [
        lambda: EncoderLayer(16, d_ff=32, self_attention=WithoutBuild()),
        lambda: Encoder([WithoutBuild()]),
    ],
)
def test_a_layer_of_a_users_own_must_build_its_layers(make):
    with pytest.raises(ValueError, match="WithoutBuild needs a method `build` that builds dense"):
        make()(X)


def test_a_stack_may_be_built_twice_and_its_norm_has_leaves():
    leaves = {"LayerNormalization": {"gamma_initializer": "zeros"}}
    encoder = Encoder([EncoderLayer(16, 4, 32, pre_norm=True)], leaves=leaves)
    encoder.build((None, None, 16))
    encoder.build((None, None, 16))
    assert not np.any(encoder(X))


@pytest.mark.parametrize(
    "layer", [SelfAttention(16, 4), EncoderLayer(16, 4, 32), Encoder([EncoderLayer(16, 4, 32)])]
)
def test_a_symbol_of_unknown_width_builds_the_layer(layer):
    layer(keras.Input((None, None)))
    assert layer(X).shape == X.shape


def test_masks_may_be_given_by_position_in_functional_models():
    x, mask = keras.Input((7, 16)), keras.Input((7,), dtype="bool")
    assert MultiHeadAttention(16, 4)(x, x, x, mask).shape == (None, 7, 16)
    assert SelfAttention(16, 4)(x, mask).shape == (None, 7, 16)


def test_a_memory_mask_that_is_given_replaces_the_attached_one():
    layer, real = DecoderLayer(16, 4, 32), np.arange(7) < np.array([[3], [7], [7], [2]])
    masked = ops.convert_to_tensor(X)
    masked._keras_mask = ops.convert_to_tensor(real)
    everywhere = np.ones((4, 7), bool)
    expected = layer(X, ops.convert_to_tensor(X))
    np.testing.assert_array_equal(layer(X, masked, memory_mask=everywhere), expected)
    assert np.any(np.abs(layer(X, masked) - expected) > 1e-3)


class Scaled(FeedForward):
    def __init__(self, d_model, d_ff, dtype=None, name=None, *, factor=1.0, **kwargs):
        super().__init__(d_model, d_ff, dtype=dtype, name=name, **kwargs)
        self.factor = factor


def test_the_configuration_of_a_subclass_has_its_arguments_and_its_dtype():
    layer = Scaled(16, 32, dtype="mixed_bfloat16", factor=2.0)
    copy = Scaled.from_config(layer.get_config())
    assert (copy.factor, copy.dtype_policy.name) == (2.0, "mixed_bfloat16")


@keras.saving.register_keras_serializable("tests")
class TwoExperts(keras.layers.Layer):
    """A feed-forward network of a user's own, of plain Keras layers."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.experts = [keras.layers.Dense(16, name=f"expert_{number}") for number in range(2)]

    def build(self, x_shape):
        for expert in self.experts:
            expert.build(x_shape)

    def call(self, x):
        return self.experts[0](x) + self.experts[1](x)

    def get_config(self):
        return super().get_config()  # with the name, which Keras leaves out of its own


@pytest.mark.parametrize(
    "make",
    [
        lambda: TwoExperts(),
        lambda: keras.layers.Dense(16),
        lambda: keras.layers.Conv1D(16, 1),
        lambda: FeedForward(16, 8, activation=keras.layers.PReLU()),
    ],
    ids=["own", "dense", "convolution", "activation"],
)
def test_weights_of_plain_keras_parts_keep_their_paths(make, tmp_path):
    inputs = keras.Input((7, 16))
    model = keras.Model(inputs, EncoderLayer(16, 2, feed_forward=make())(inputs))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert [one.path for one in loaded.weights] == [one.path for one in model.weights]
    np.testing.assert_array_equal(loaded.predict(X, verbose=0), model.predict(X, verbose=0))


def test_an_activation_may_read_the_other_tokens():
    def softmax_over_length(x):
        return ops.softmax(x, axis=1)

    plain = keras.layers.Dense(8, activation=softmax_over_length)
    expected = plain(X)
    dense = Dense(8, activation=softmax_over_length)
    dense.build(X.shape)
    dense.set_weights(plain.get_weights())
    for training in (False, True):
        found = dense(X, training=training)
        np.testing.assert_allclose(*map(ops.convert_to_numpy, (found, expected)), rtol=1e-5)
    for layer in (dense, plain):
        layer.quantize("int8")
    np.testing.assert_allclose(*map(ops.convert_to_numpy, (dense(X), plain(X))), rtol=1e-5)


def test_weights_of_a_saved_model_and_of_a_clone_have_their_paths(tmp_path):
    """Keras's `get_state_tree` needs different paths, and users choose weights by them."""
    x, memory = keras.Input((None, 16)), keras.Input((None, 12))
    part = EncoderLayer(16, d_ff=32, self_attention=Convolution(16, 3))
    encoder = Encoder([EncoderLayer(16, 4, 32), part], name="encoder")
    decoder = Decoder([DecoderLayer(16, 4, 32) for _ in range(2)], name="decoder")
    model = keras.Model([x, memory], decoder(encoder(x), memory))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    paths = [weight.path for weight in model.weights]
    assert len(set(paths)) == len(paths)
    for copy in (loaded, keras.models.clone_model(model)):
        assert [weight.path for weight in copy.weights] == paths


def num_trained(*models):
    return [len(model.trainable_variables) for model in models]


@pytest.mark.parametrize(
    ("part_of", "expected"),
    [
        (lambda encoder: encoder, 0),
        (lambda encoder: encoder.layers[0], 12),
        (lambda encoder: encoder.layers[0].self_attention, 20),
        (lambda encoder: encoder.layers[1].feed_forward.hidden, 22),
    ],
    ids=["encoder", "layer", "part", "leaf"],
)
def test_what_is_frozen_stays_so_in_a_saved_model_and_in_a_clone(part_of, expected, tmp_path):
    x = keras.Input((7, 16))
    encoder = Encoder([EncoderLayer(16, 4, 32) for _ in range(2)])
    model = keras.Model(x, encoder(x))
    part_of(encoder).trainable = False
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert num_trained(model, loaded, keras.models.clone_model(model)) == [expected] * 3
    for value in (False, True):
        loaded.trainable = value
    assert num_trained(loaded) == [24]


@pytest.mark.parametrize(
    "make",
    [
        lambda: Encoder([EncoderLayer(16, 4, 32, pre_norm=True)], trainable=False),
        lambda: EncoderLayer(16, d_ff=32, self_attention=Convolution(16, 3), trainable=False),
        lambda: Convolution(16, 3, trainable=False),
        lambda: Recurrence(16, trainable=False),
        lambda: FeedForward(16, 32, trainable=False),
    ],
)
def test_a_layer_may_be_frozen_by_its_argument(make):
    x, layer = keras.Input((7, 16)), make()
    model = keras.Model(x, layer(x))
    assert num_trained(layer, model) == [0, 0]
    layer.trainable = True
    assert num_trained(model) == [len(model.weights)]


def test_a_decoder_layer_may_be_frozen_by_its_argument():
    layer = DecoderLayer(16, 4, 32, memory_attention=MultiHeadAttention(16, 4), trainable=False)
    x = keras.Input((7, 16))
    assert num_trained(keras.Model(x, layer(x, x))) == [0]


def test_float8_records_its_scales_in_training():
    layer = FeedForward(16, 32)
    x = keras.Input((7, 16))
    model = keras.Model(x, layer(x))
    model.quantize("float8", filters=r"hidden|output")
    model.compile("sgd", "mse")
    model.fit(X, X, verbose=0)
    assert np.max(layer.hidden.inputs_amax_history) > 0


def test_training_needs_no_gradient_of_the_input():
    """On JAX, what is not differentiated has no tangent."""
    for layer in (
        LayerNormalization(),
        FeedForward(16, 32),
        EncoderLayer(16, 4, 32, pre_norm=True),
    ):
        x = keras.Input((7, 16))
        model = keras.Model(x, layer(x))
        model.compile("sgd", "mse")
        before = model.get_weights()
        model.fit(X, np.ones_like(X), verbose=0)
        assert any(np.any(w != old) for w, old in zip(model.get_weights(), before, strict=True))
