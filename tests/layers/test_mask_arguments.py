"""Padding changes no result at a real token, in whichever way its mask reaches a layer."""

import functools

import keras
import numpy as np
import pytest
from helpers import randomise
from keras import ops

from keras_transformer import layers

WIDTH, HEADS = 8, 2
SIZES = {"d_model": WIDTH, "num_heads": HEADS, "d_ff": 12, "dropout": 0.0}
IDS = np.array([[3, 1, 4, 1, 5, 9], [9, 2, 6, 0, 0, 0]], "int32")
SOURCES = np.array([[2, 7, 0, 0], [1, 8, 2, 8]], "int32")

LAYERS = {
    "SelfAttention": lambda: layers.SelfAttention(WIDTH, HEADS),
    "SelfAttention, causal, rotary": lambda: layers.SelfAttention(
        WIDTH, HEADS, causal=True, rotation=layers.Rotation()
    ),
    "RestrictedSelfAttention": lambda: layers.RestrictedSelfAttention(WIDTH, HEADS, radius=2),
    "Recurrence": lambda: layers.Recurrence(WIDTH),
    "Convolution": lambda: layers.Convolution(WIDTH, 3),
    "EncoderLayer": lambda: layers.EncoderLayer(**SIZES),
    "EncoderLayer, restricted": lambda: layers.EncoderLayer(
        **SIZES, self_attention=layers.RestrictedSelfAttention(WIDTH, HEADS, radius=1)
    ),
    "EncoderLayer, recurrent": lambda: layers.EncoderLayer(
        **SIZES, self_attention=layers.Recurrence(WIDTH)
    ),
    "EncoderLayer, separable": lambda: layers.EncoderLayer(
        **SIZES, self_attention=layers.Convolution(WIDTH, 3, separable=True)
    ),
    "Encoder, pre-norm": lambda: layers.Encoder(
        [layers.EncoderLayer(**SIZES, pre_norm=True) for _ in range(2)]
    ),
    "FeedForward": lambda: layers.FeedForward(WIDTH, 12),
    "PositionalEncoding": lambda: layers.PositionalEncoding(WIDTH),
    "LearnedPositions": lambda: layers.LearnedPositions(WIDTH, max_length=4),
    "LayerNormalization": lambda: layers.LayerNormalization(),
    "Dropout": lambda: layers.Dropout(0.5),
}
LAYERS_OF_TWO = {
    "DecoderLayer": lambda: layers.DecoderLayer(
        **SIZES, self_attention=layers.SelfAttention(WIDTH, HEADS)
    ),
    "Decoder, pre-norm": lambda: layers.Decoder(
        [layers.DecoderLayer(**SIZES, pre_norm=True) for _ in range(2)]
    ),
}


def embedding():
    layer = keras.layers.Embedding(10, WIDTH, mask_zero=True, name="embedding")
    layer(IDS)
    layer.set_weights([np.random.default_rng(0).normal(size=(10, WIDTH))])
    return layer


def rows_alone(layer, embed, inputs):
    """The layer's output for each row of ids (of each input) alone, without padding."""
    rows = [[ids[ids != 0][None] for ids in row] for row in zip(*inputs, strict=True)]
    return [np.array(layer(*(unmasked(embed(ids)) for ids in row))[0]) for row in rows]


@functools.cache
def layer_of(name):
    """A layer with random weights, an embedding, and the output for each row alone."""
    layer, embed = {**LAYERS, **LAYERS_OF_TWO}[name](), embedding()
    inputs = inputs_of(name)
    layer(*(unmasked(embed(ids)) for ids in inputs))
    randomise(layer)
    return layer, embed, rows_alone(layer, embed, inputs)


def inputs_of(name):
    return (IDS, SOURCES) if name in LAYERS_OF_TWO else (IDS,)


def check_real_positions(found, expected):
    """Compares each row up to its padding with the same row alone."""
    for x, alone in zip(ops.convert_to_numpy(found), expected, strict=True):
        np.testing.assert_allclose(x[: len(alone)], alone, atol=2e-6)


def keras_mask(x):
    """The mask that Keras has attached to a tensor; None if there is none."""
    return getattr(x, "_keras_mask", None)


def unmasked(x):
    return ops.convert_to_tensor(ops.convert_to_numpy(x))


# The ways of a mask: each computes `layer(embed(ids))`.


def attached_to_the_input(layer, embed):
    return layer(embed(IDS))


def attached_beside_an_attention_mask(layer, embed):
    everything = np.ones((1, IDS.shape[1]), bool)
    return layer(embed(IDS), attention_mask=everything)


def given_as_an_argument(layer, embed):
    return layer(unmasked(embed(IDS)), mask=IDS != 0)


def given_beside_an_attention_mask(layer, embed):
    everything = np.ones((1, IDS.shape[1]), bool)
    return layer(unmasked(embed(IDS)), attention_mask=everything, mask=IDS != 0)


def given_as_floats(layer, embed):
    return layer(unmasked(embed(IDS)), mask=(IDS != 0).astype("float32"))


def in_a_functional_model(layer, embed):
    ids = keras.Input((None,), dtype="int32")
    return keras.Model(ids, layer(embed(ids)))(IDS)


def in_a_sequential_model(layer, embed):
    return keras.Sequential([embed, layer])(IDS)


def given_to_a_model(layer, embed):
    return keras.Sequential([layer])(unmasked(embed(IDS)), mask=IDS != 0)


def in_documents_of_two_sentences(layer, embed):
    ids = keras.Input((2, None), dtype="int32")
    model = keras.Model(ids, keras.layers.TimeDistributed(layer)(embed(ids)))
    return model(np.stack([IDS[::-1], IDS], axis=1))[:, 1]


def in_documents_of_any_length(layer, embed):
    ids = keras.Input((None, None), dtype="int32")
    model = keras.Model(ids, keras.layers.TimeDistributed(layer)(embed(ids)))
    return model.predict(np.stack([IDS[::-1], IDS], axis=1), verbose=0)[:, 1]


def in_a_layer_of_ones_own(layer, embed):
    class Wrapped(keras.layers.Wrapper):
        supports_masking = True

        def call(self, x, mask=None):
            return self.layer(x, mask=mask)

    return Wrapped(layer)(embed(IDS))


WAYS = [
    attached_to_the_input,
    attached_beside_an_attention_mask,
    given_as_an_argument,
    given_beside_an_attention_mask,
    given_as_floats,
    in_a_functional_model,
    in_a_sequential_model,
    given_to_a_model,
    in_documents_of_two_sentences,
    in_documents_of_any_length,
    in_a_layer_of_ones_own,
]


def takes_attention_mask(layer):
    return "attention_mask" in layer.call_signature_parameters


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("name", LAYERS)
def test_padding_changes_no_result(name, way):
    layer, embed, expected = layer_of(name)
    if "attention_mask" in way.__name__ and not takes_attention_mask(layer):
        pytest.skip("the layer takes no attention mask")
    check_real_positions(way(layer, embed), expected)


TWO = {
    "attached": lambda layer, x, memory: layer(x, memory),
    "given": lambda layer, x, memory: layer(
        unmasked(x), unmasked(memory), mask=IDS != 0, memory_mask=SOURCES != 0
    ),
    "given by Keras's names": lambda layer, x, memory: layer(
        unmasked(x), unmasked(memory), x_mask=IDS != 0, memory_mask=SOURCES != 0
    ),
    "given for cross-attention": lambda layer, x, memory: layer(
        x, unmasked(memory), source_mask=SOURCES != 0
    ),
    "attached beside an attention mask": lambda layer, x, memory: layer(
        x, memory, source_mask=np.ones((1, IDS.shape[1], SOURCES.shape[1]), bool)
    ),
}


@pytest.mark.parametrize("given", [False, True])
def test_a_causal_layer_does_not_see_padding_in_front(given):
    layer, embed, _ = layer_of("SelfAttention, causal, rotary")  # which knows distances alone
    ids = np.array([[0, 0, 9, 2, 6]], "int32")
    x = embed(ids)
    found = layer(unmasked(x), mask=ids != 0) if given else layer(x)
    np.testing.assert_allclose(found[:, 2:], layer(unmasked(x)[:, 2:]), atol=2e-6)


@pytest.mark.parametrize("way", TWO)
@pytest.mark.parametrize("name", LAYERS_OF_TWO)
def test_padding_of_either_input_changes_no_result(name, way):
    layer, embed, expected = layer_of(name)
    check_real_positions(TWO[way](layer, embed(IDS), embed(SOURCES)), expected)


@pytest.mark.parametrize("given", [False, True])
def test_padding_of_the_values_changes_no_result_of_attention(given):
    layer, embed = layers.MultiHeadAttention(WIDTH, HEADS), embedding()
    query, value = embed(IDS), embed(SOURCES)
    if given:
        masks = {"query_mask": IDS != 0, "value_mask": SOURCES != 0}
        found = layer(unmasked(query), unmasked(value), **masks)
    else:
        found = layer(query, value)
    check_real_positions(found, rows_alone(layer, embed, (IDS, SOURCES)))


@pytest.mark.parametrize("name", {**LAYERS, **LAYERS_OF_TWO})
def test_padding_changes_no_result_where_activations_are_computed_twice(name):
    if keras.backend.backend() == "tensorflow":
        pytest.skip("TensorFlow cannot recompute layers that have a gradient of their own")
    if "recurre" in name.lower():
        pytest.skip("Keras cannot recompute its own GRU")
    embed = embedding()
    with keras.RematScope("full"):
        layer = {**LAYERS, **LAYERS_OF_TWO}[name]()
    inputs = inputs_of(name)
    check_real_positions(layer(*map(embed, inputs)), rows_alone(layer, embed, inputs))


@pytest.mark.parametrize("shape", [(7,), (3, 7), (2, 3, 7)])
@pytest.mark.parametrize("dtype", ["int32", "float32"])  # Keras's default for an input is float32
def test_an_embedding_makes_the_mask_of_ids_of_any_rank(shape, dtype):
    ids = np.random.default_rng(0).integers(0, 3, size=shape).astype(dtype)
    ours = layers.TokenEmbedding(10, WIDTH, mask_zero=True)
    np.testing.assert_array_equal(keras_mask(ours(ids)), ids != 0)
    symbols = [
        keras.Input(shape[1:], dtype=dtype),
        keras.Input((None,) * len(shape[1:]), dtype=dtype),
    ]
    for symbol in symbols:
        assert keras_mask(ours(symbol)).shape == symbol.shape
        logits = ours(ours(symbol), reverse=True)
        assert keras_mask(logits).shape == symbol.shape
    # With `reverse`, numbers are no ids.
    assert keras_mask(ours(np.zeros((*shape, WIDTH), "float32"), reverse=True)) is None
    assert keras_mask(ours(keras.Input((7, WIDTH)), reverse=True)) is None


def test_ids_have_their_mask_as_in_keras_embedding():
    """A subclassed layer may ask for the mask of ids, as Keras's guide to masking does."""
    for mask_zero in (False, True):
        ours = layers.TokenEmbedding(10, WIDTH, mask_zero=mask_zero)
        keras_own = keras.layers.Embedding(10, WIDTH, mask_zero=mask_zero)
        for ids in (IDS[0], IDS, IDS[None]):
            masks = [layer.compute_mask(ops.convert_to_tensor(ids)) for layer in (ours, keras_own)]
            assert (masks[0] is None) == (masks[1] is None) == (not mask_zero)
            if mask_zero:
                np.testing.assert_array_equal(*masks)


@pytest.mark.parametrize("name", {**LAYERS, **LAYERS_OF_TWO})
def test_a_given_mask_travels_on_as_an_attached_one_does(name):
    layer, embed, _ = layer_of(name)
    others = [unmasked(embed(ids)) for ids in inputs_of(name)[1:]]
    for output in (
        layer(embed(IDS), *others),
        layer(unmasked(embed(IDS)), *others, mask=ops.convert_to_tensor(IDS != 0)),
    ):
        np.testing.assert_array_equal(keras_mask(output), IDS != 0)
