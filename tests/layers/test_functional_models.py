"""Functional models of these layers train like the same models of Keras's layers."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import LabelSmoothedCrossEntropy
from keras_transformer.layers import (
    Dropout,
    Encoder,
    EncoderLayer,
    FeedForward,
    LayerNormalization,
    LearnedPositions,
    MultiHeadAttention,
    RestrictedSelfAttention,
    Rotation,
    SelfAttention,
    TokenEmbedding,
    padding_mask,
)

VOCAB_SIZE, WIDTH, HEADS, D_FF, EPSILON = 11, 8, 2, 12, 1e-5
PARTS = ("attention", "feed-forward relu", "feed-forward gelu", "block", "pre-norm block")


class OfOurs:
    """A model of named parts; `parts` are its layers, in the order of the weights to compare."""

    def __init__(self, names, tied):
        self.parts = []
        ids = keras.Input((None,), dtype="int32")
        x = self.embed(ids)
        for name in names:
            x = self.apply(name, x, ids)
        self.model = keras.Model(ids, self.logits(x, tied))

    def part(self, layer):
        self.parts.append(layer)
        return layer

    @property
    def weights(self):
        return [weight for part in self.parts for weight in part.weights]

    def embed(self, ids):
        self.embedding = self.part(TokenEmbedding(VOCAB_SIZE, WIDTH, scale=False))
        return self.embedding(ids)

    def logits(self, x, tied):
        if tied:
            return self.embedding(x, reverse=True)
        return self.part(keras.layers.Dense(VOCAB_SIZE))(x)

    def apply(self, name, x, ids):
        mask = padding_mask(ids)
        match name.split():
            case ["attention"]:
                layer = self.part(MultiHeadAttention(WIDTH, HEADS, use_bias=True))
                y = layer(x, x, attention_mask=mask)
            case ["feed-forward", activation]:
                y = self.part(FeedForward(WIDTH, D_FF, activation=activation))(x)
            case _:
                block = EncoderLayer(
                    WIDTH,
                    d_ff=D_FF,
                    self_attention=SelfAttention(WIDTH, HEADS, use_bias=True),
                    dropout=0.0,
                    pre_norm=name == "pre-norm block",
                    layer_norm_epsilon=EPSILON,
                )
                self.parts += [
                    block.self_attention,
                    block.self_attention_norm,
                    block.feed_forward,
                    block.feed_forward_norm,
                ]
                return block(x, attention_mask=mask)
        return self.part(LayerNormalization(EPSILON))(Dropout(0.0)(y, residual=x))


class OfKeras(OfOurs):
    """The same model, made only of `keras.layers`."""

    def embed(self, ids):
        self.embedding = self.part(keras.layers.ReversibleEmbedding(VOCAB_SIZE, WIDTH))
        return self.embedding(ids)

    def apply(self, name, x, ids):
        mask = ops.not_equal(ids, 0)[:, None, :]

        def attention(x):
            layer = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS)
            return self.part(layer)(x, x, attention_mask=mask)

        def feed_forward(x, activation="relu"):
            hidden = self.part(keras.layers.Dense(D_FF, activation=activation))(x)
            return self.part(keras.layers.Dense(WIDTH))(hidden)

        def norm():
            return keras.layers.LayerNormalization(epsilon=EPSILON)

        match name.split():
            case ["attention"]:
                x = x + attention(x)
                return self.part(norm())(x)
            case ["feed-forward", activation]:
                x = x + feed_forward(x, activation)
                return self.part(norm())(x)
        for sublayer in (attention, feed_forward):
            layer = norm()
            x = x + sublayer(layer(x)) if name == "pre-norm block" else layer(x + sublayer(x))
            self.part(layer)
        return x


@pytest.mark.slow
@settings(max_examples=3, derandomize=True, phases=[Phase.generate])
@given(
    names=st.lists(st.sampled_from(PARTS), min_size=1, max_size=3),
    tied=st.booleans(),
    jit_compile=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_updates_are_those_of_the_same_model_of_keras_layers(names, tied, jit_compile, seed):
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, VOCAB_SIZE, size=(4, 6)).astype("int32")
    ids[np.arange(6) >= rng.integers(1, 7, size=(4, 1))] = 0
    labels = rng.integers(1, VOCAB_SIZE, size=(4, 6)) * (ids > 0)
    ours, theirs = OfOurs(names, tied), OfKeras(names, tied)
    assert len(ours.weights) == len(theirs.weights) == len(ours.model.trainable_weights)
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        value = mine.numpy() + rng.normal(scale=0.3, size=mine.shape)
        mine.assign(value)
        other.assign(value.reshape(other.shape))
    np.testing.assert_allclose(ours.model(ids), theirs.model(ids), atol=1e-4)
    before = [weight.numpy() for weight in ours.weights]
    for model in (ours.model, theirs.model):
        loss = LabelSmoothedCrossEntropy(0.1)
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=jit_compile)
        model.fit(ids, labels, epochs=2, shuffle=False, verbose=0)
    for mine, other, old in zip(ours.weights, theirs.weights, before, strict=True):
        assert np.all(np.isfinite(mine)), mine.path
        np.testing.assert_allclose(
            mine, other.numpy().reshape(mine.shape), atol=1e-4, err_msg=mine.path
        )
        if not mine.path.endswith("key/bias"):
            assert np.abs(mine.numpy() - old).max() > 1e-5, mine.path


def test_the_first_update_of_adam_moves_rows_that_occur_often_as_far_as_others():
    # Adam divides a gradient by the root of its mean square: in the first update, by itself.
    rng = np.random.default_rng(1)
    ids = np.array([[1, 1, 2], [2, 1, 3]], "int32")  # the last position shares a row too
    layers = [TokenEmbedding(4, WIDTH), LearnedPositions(WIDTH, max_length=2)]
    model = keras.Sequential([keras.Input((None,), dtype="int32"), *layers])
    before = [weight.numpy() for weight in model.weights]
    model.compile(keras.optimizers.Adam(0.01, epsilon=1e-9), "mse")
    model.fit(ids, rng.normal(size=(2, 3, WIDTH)), verbose=0)
    embeddings, positions = (
        np.abs(weight.numpy() - old) for weight, old in zip(model.weights, before, strict=True)
    )
    assert not embeddings[0].any()
    np.testing.assert_allclose(embeddings[1:], np.full((3, WIDTH), 0.01), rtol=1e-3)
    np.testing.assert_allclose(positions, np.full((2, WIDTH), 0.01), rtol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["causal", "rotary", "restricted"])
def test_tensorflow_lite_runs_a_model_at_any_length(kind):
    attention = {
        "causal": lambda: SelfAttention(WIDTH, HEADS, causal=True),
        "rotary": lambda: SelfAttention(WIDTH, HEADS, rotation=Rotation()),
        "restricted": lambda: RestrictedSelfAttention(WIDTH, HEADS, radius=2),
    }[kind]()
    ids = keras.Input((None,), dtype="int32")
    embedding = TokenEmbedding(VOCAB_SIZE, WIDTH, mask_zero=True)
    hidden = EncoderLayer(WIDTH, d_ff=D_FF, self_attention=attention)
    hidden = Encoder([hidden])(embedding(ids))
    # The mask of the ids comes along, and is given too.
    hidden = EncoderLayer(WIDTH, HEADS, D_FF)(hidden, attention_mask=padding_mask(ids))
    model = keras.Model(ids, embedding(hidden, reverse=True))

    converted = tf.lite.TFLiteConverter.from_keras_model(model).convert()
    lite = tf.lite.Interpreter(model_content=converted)
    rows = np.array([[3, 4, 5, 0, 0], [1, 2, 3, 4, 5]], np.int32)
    [source], [output] = lite.get_input_details(), lite.get_output_details()
    lite.resize_tensor_input(source["index"], rows.shape)
    lite.allocate_tensors()
    lite.set_tensor(source["index"], rows)
    lite.invoke()
    np.testing.assert_allclose(lite.get_tensor(output["index"]), model(rows), atol=1e-5)
