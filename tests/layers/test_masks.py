"""Masks of Keras users: recognised by rank, used if attached, refused otherwise."""

import functools
import inspect

import keras
import numpy as np
import pytest
from helpers import randomise
from hypothesis import given, settings
from hypothesis import strategies as st
from keras import ops

from keras_transformer import layers

BATCH, LENGTH, OTHER, WIDTH, HEADS = 2, 5, 7, 8, 2

rng = np.random.default_rng(0)
X = rng.normal(size=(BATCH, LENGTH, WIDTH)).astype("float32")
MEMORY = rng.normal(size=(BATCH, OTHER, WIDTH)).astype("float32")
IDS = np.array([[3, 1, 4, 1, 5], [9, 2, 6, 0, 0]], "int32")


def with_mask(x, mask):
    x = ops.convert_to_tensor(x)
    x._keras_mask = ops.convert_to_tensor(mask)
    return x


@functools.cache
def attentions():
    """Our attention and Keras's, with the same weights."""
    ours = layers.MultiHeadAttention(WIDTH, HEADS)
    keras_own = keras.layers.MultiHeadAttention(HEADS, WIDTH // HEADS, use_bias=False)
    ours(X, MEMORY), keras_own(X, MEMORY)
    randomise(ours)
    query, key, value, output = ours.get_weights()
    split = (WIDTH, HEADS, WIDTH // HEADS)
    keras_own.set_weights(
        [*(w.reshape(split) for w in (query, key, value)), output.reshape(*split[1:], WIDTH)]
    )
    return ours, keras_own


# Two sentences and two heads, so the size of the first axis cannot distinguish masks.
@pytest.mark.parametrize("shape", [(BATCH, LENGTH, OTHER), (BATCH, HEADS, LENGTH, OTHER)])
@pytest.mark.parametrize("dtype", ["bool", "int32", "float32"])
def test_attention_masks_are_those_of_keras(shape, dtype):
    ours, keras_own = attentions()
    mask = rng.random(shape) < 0.6
    mask[..., 0] = True
    mask = mask.astype(dtype)
    np.testing.assert_allclose(
        ours(X, MEMORY, attention_mask=mask),
        keras_own(X, MEMORY, attention_mask=mask),
        atol=1e-5,
    )


def test_a_padding_mask_is_the_attention_mask_of_every_query():
    ours, keras_own = attentions()
    padding = np.arange(OTHER) < np.array([[4], [7]])
    expected = keras_own(X, MEMORY, attention_mask=np.repeat(padding[:, None], LENGTH, axis=1))
    np.testing.assert_allclose(ours(X, MEMORY, attention_mask=padding), expected, atol=1e-5)


@settings(max_examples=20)
@given(st.integers(0, 2**31))
def test_a_mask_of_any_rank_means_what_numpy_says(seed):
    ours, _ = attentions()
    random = np.random.default_rng(seed)
    rank = random.integers(2, 5)
    full = (BATCH, HEADS, LENGTH, OTHER)
    axes = {2: (0, 3), 3: (0, 2, 3), 4: (0, 1, 2, 3)}[rank]
    shape = [full[axis] if random.random() < 0.7 else 1 for axis in axes]
    mask = random.random(shape) < 0.7
    mask[..., 0] = True
    spread = np.ones(full, bool) & mask.reshape(
        [shape[axes.index(axis)] if axis in axes else 1 for axis in range(4)]
    )
    np.testing.assert_allclose(
        ours(X, MEMORY, attention_mask=mask), ours(X, MEMORY, attention_mask=spread), atol=1e-6
    )


@pytest.mark.parametrize(
    "mask",
    [
        np.ones(OTHER, bool),
        np.ones((BATCH, LENGTH), bool),
        np.ones((BATCH, OTHER, LENGTH), bool),
        np.ones((HEADS + 1, LENGTH, OTHER), bool),
        np.ones((BATCH, 3, LENGTH, OTHER), bool),
        np.ones((1, BATCH, HEADS, LENGTH, OTHER), bool),
    ],
    ids=lambda mask: f"{mask.dtype}{mask.shape}",
)
def test_any_other_mask_is_refused_by_naming_the_three(mask):
    with pytest.raises(ValueError) as error:
        layers.MultiHeadAttention(WIDTH, HEADS)(X, MEMORY, attention_mask=mask)
    message = str(error.value)
    assert f"a padding mask ({BATCH}, {OTHER})" in message
    assert f"an attention mask ({BATCH}, {LENGTH}, {OTHER})" in message
    assert f"({BATCH}, {HEADS} or 1, {LENGTH}, {OTHER})" in message
    assert f"found shape {mask.shape}" in message


ENCODER = {"d_model": WIDTH, "num_heads": HEADS, "d_ff": 12, "dropout": 0.0}
OF_X = {
    "SelfAttention": lambda: layers.SelfAttention(WIDTH, HEADS),
    "causal SelfAttention": lambda: layers.SelfAttention(WIDTH, HEADS, causal=True),
    "RestrictedSelfAttention": lambda: layers.RestrictedSelfAttention(WIDTH, HEADS, radius=2),
    "Recurrence": lambda: layers.Recurrence(WIDTH),
    "Convolution": lambda: layers.Convolution(WIDTH, 3),
    "EncoderLayer": lambda: layers.EncoderLayer(**ENCODER),
    "EncoderLayer, pre-norm": lambda: layers.EncoderLayer(**ENCODER, pre_norm=True),
    "Encoder": lambda: layers.Encoder([layers.EncoderLayer(**ENCODER) for _ in range(2)]),
    "Encoder, pre-norm": lambda: layers.Encoder(
        [layers.EncoderLayer(**ENCODER, pre_norm=True) for _ in range(2)]
    ),
}


@pytest.mark.parametrize("name", OF_X)
def test_an_attached_mask_is_a_padding_mask(name):
    layer = OF_X[name]()
    layer(X)
    randomise(layer)
    # A causal layer never sees padding at the end, so here it comes first.
    mask = IDS[:, ::-1] != 0 if "causal" in name else IDS != 0
    attached = layer(with_mask(X, mask))
    np.testing.assert_array_equal(attached, layer(X, attention_mask=mask))
    np.testing.assert_array_equal(attached._keras_mask, mask)
    # Masked positions have no influence on the others.
    changed = np.where(mask[..., None], X, 5.0).astype("float32")
    np.testing.assert_allclose(
        np.asarray(layer(with_mask(changed, mask)))[mask], np.asarray(attached)[mask], atol=1e-5
    )
    assert np.abs(np.asarray(layer(changed))[mask] - np.asarray(layer(X))[mask]).max() > 1e-3


def test_attached_and_passed_masks_both_hold():
    layer = layers.EncoderLayer(**ENCODER)
    past = np.tril(np.ones((LENGTH, LENGTH), bool))[None]
    both = past & (IDS != 0)[:, None]
    layer(X)
    np.testing.assert_array_equal(
        layer(with_mask(X, IDS != 0), attention_mask=past), layer(X, attention_mask=both)
    )


@pytest.mark.parametrize("num_layers", [None, 2])
def test_a_decoder_honours_the_masks_of_both_sides(num_layers):
    decoder = layers.DecoderLayer(**ENCODER)
    if num_layers:
        decoder = layers.Decoder([layers.DecoderLayer(**ENCODER) for _ in range(num_layers)])
    decoder(X, MEMORY)
    randomise(decoder)
    mask, source_mask = IDS[:, ::-1] != 0, np.arange(OTHER) < np.array([[4], [7]])
    output = decoder(with_mask(X, mask), with_mask(MEMORY, source_mask))
    np.testing.assert_array_equal(output._keras_mask, mask)
    # The mask of the memory is the padding mask of cross-attention.
    np.testing.assert_array_equal(
        output, decoder(with_mask(X, mask), MEMORY, source_mask=source_mask)
    )
    # Positions hidden by either mask have no influence.
    x = np.where(mask[..., None], X, 5.0).astype("float32")
    memory = np.where(source_mask[..., None], MEMORY, 5.0).astype("float32")
    np.testing.assert_allclose(
        np.asarray(decoder(with_mask(x, mask), with_mask(memory, source_mask)))[mask],
        np.asarray(output)[mask],
        atol=1e-5,
    )


@pytest.mark.parametrize("name", ["RestrictedSelfAttention", "Recurrence", "Convolution"])
def test_layers_of_padding_masks_alone_refuse_others(name):
    mask = np.ones((BATCH, LENGTH, LENGTH), bool)
    with pytest.raises(ValueError, match=r"must be a padding mask \(batch, length\)"):
        OF_X[name]()(X, attention_mask=mask)


@pytest.mark.parametrize("functional", [True, False])
def test_a_masked_embedding_before_an_encoder_in_functional_and_sequential_models(functional):
    embedding = keras.layers.Embedding(10, WIDTH, mask_zero=True)
    encoder = layers.EncoderLayer(**ENCODER)
    pooling = keras.layers.GlobalAveragePooling1D()  # averages over positions that are not masked
    if functional:
        ids = keras.Input((None,), dtype="int32")
        model = keras.Model(ids, pooling(encoder(embedding(ids))))
    else:
        model = keras.Sequential([embedding, encoder, pooling])
    model(IDS)
    randomise(model)
    one_by_one = np.concatenate([model(row[row != 0][None]) for row in IDS])
    np.testing.assert_allclose(model(IDS), one_by_one, atol=1e-5)
    np.testing.assert_allclose(model.predict(IDS, verbose=0), one_by_one, atol=1e-5)


def pooled_model(embedding, layer, functional=True):
    """A model of ids (batch, length) to a vector of each row: the mean over its real tokens."""
    pooling = keras.layers.GlobalAveragePooling1D()
    if not functional:
        return keras.Sequential([embedding, layer, pooling])
    ids = keras.Input((None,), dtype="int32")
    return keras.Model(ids, pooling(layer(embedding(ids))))


PADDED = np.pad(IDS, ((0, 0), (0, 3)))  # the same two sentences, in a longer batch


@pytest.mark.parametrize(
    "name",
    [
        "causal SelfAttention",
        "RestrictedSelfAttention",
        "Recurrence",
        "Convolution",
        "EncoderLayer",
        "Encoder, pre-norm",
    ],
)
def test_padding_changes_nothing_in_a_model(name, tmp_path):
    embedding = layers.TokenEmbedding(10, WIDTH, mask_zero=True)
    model = pooled_model(embedding, OF_X[name]())
    randomise(model)
    expected = np.concatenate([model(row[row != 0][None]) for row in IDS])
    np.testing.assert_allclose(model.predict(PADDED, verbose=0), expected, atol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(PADDED), expected, atol=1e-5)


@pytest.mark.parametrize("functional", [pytest.param(True, marks=pytest.mark.slow), False])
def test_padding_changes_nothing_in_training(functional):
    embedding = layers.TokenEmbedding(10, WIDTH, mask_zero=True)
    model = pooled_model(embedding, layers.EncoderLayer(**ENCODER), functional)
    model(IDS)
    randomise(model)
    before, trained = model.get_weights(), []
    model.compile(keras.optimizers.SGD(0.1), "mse")
    for ids in (IDS, PADDED):
        model.set_weights(before)
        model.fit(ids, np.ones((BATCH, WIDTH)), epochs=2, shuffle=False, verbose=0)
        trained.append(model.get_weights())
    for old, short, padded in zip(before, *trained, strict=True):
        np.testing.assert_allclose(padded, short, atol=1e-5)
        assert not np.array_equal(short, old)


def test_padding_changes_nothing_in_mixed_precision():
    policy = "mixed_bfloat16"
    embedding = layers.TokenEmbedding(10, WIDTH, mask_zero=True, dtype=policy)
    model = pooled_model(embedding, layers.EncoderLayer(**ENCODER, dtype=policy))
    randomise(model)
    expected = np.concatenate([ops.cast(model(row[row != 0][None]), "float32") for row in IDS])
    found = model.predict(PADDED, verbose=0).astype("float32")
    np.testing.assert_allclose(found, expected, atol=0.03)


def test_padding_of_either_side_changes_nothing_in_a_model_of_two_inputs(tmp_path):
    embedding = layers.TokenEmbedding(10, WIDTH, mask_zero=True)
    source, target = (keras.Input((None,), dtype="int32") for _ in range(2))
    memory = layers.Encoder([layers.EncoderLayer(**ENCODER)])(embedding(source))
    x = layers.Decoder([layers.DecoderLayer(**ENCODER) for _ in range(2)])(
        embedding(target), memory
    )
    model = keras.Model([source, target], embedding(x, reverse=True))
    randomise(model)
    targets = rng.integers(1, 10, size=IDS.shape)
    pairs = zip(IDS, targets, strict=True)
    expected = np.concatenate([model([row[row != 0][None], target[None]]) for row, target in pairs])
    model.save(tmp_path / "model.keras")
    padded = [PADDED, np.pad(targets, ((0, 0), (0, 3)))]
    np.testing.assert_allclose(model.predict(padded, verbose=0)[:, :LENGTH], expected, atol=1e-5)
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(loaded(padded)[:, :LENGTH], expected, atol=1e-5)


CLASSES = list(filter(inspect.isclass, [getattr(layers, name) for name in layers.__all__]))


@pytest.mark.parametrize("layer_class", CLASSES)
def test_public_classes_spell_and_explain_their_arguments(layer_class):
    parameters = inspect.signature(layer_class).parameters.values()
    assert not any(p.kind is p.VAR_POSITIONAL for p in parameters)
    if "Its arguments are those of `keras.layers." in layer_class.__doc__:
        return
    for parameter in parameters:
        assert f"{parameter.name}: " in layer_class.__doc__, parameter.name
