"""Mistakes in calling the layers: each error names the argument as the user wrote it."""

import keras
import numpy as np
import pytest
from helpers import small_model

import keras_transformer as kt
from keras_transformer import layers

X = np.zeros((2, 7, 16), "float32")
WIDE = np.zeros((2, 7, 24), "float32")
MORE = np.zeros((3, 7, 16), "float32")
FLAT = np.zeros((2, 16), "float32")
SIZES = {"d_model": 16, "num_heads": 4, "d_ff": 32}

# Layers of one input, and of two with the name of the second.
OF_ONE = {
    "SelfAttention": lambda: layers.SelfAttention(16, 4),
    "RestrictedSelfAttention": lambda: layers.RestrictedSelfAttention(16, 4, radius=2),
    "Recurrence": lambda: layers.Recurrence(16),
    "Convolution": lambda: layers.Convolution(16, 3),
    "EncoderLayer": lambda: layers.EncoderLayer(**SIZES),
    "Encoder": lambda: layers.Encoder(
        [layers.EncoderLayer(**SIZES, pre_norm=True) for _ in range(2)]
    ),
    "PositionalEncoding": lambda: layers.PositionalEncoding(16),
    "LearnedPositions": lambda: layers.LearnedPositions(16, 9),
}
OF_TWO = {
    "MultiHeadAttention": ("value", lambda: layers.MultiHeadAttention(16, 4)),
    "DecoderLayer": ("memory", lambda: layers.DecoderLayer(**SIZES)),
    "Decoder": (
        "memory",
        lambda: layers.Decoder([layers.DecoderLayer(**SIZES, pre_norm=True) for _ in range(2)]),
    ),
}


def message_of(mistake, kind=ValueError):
    with pytest.raises(kind) as error:
        mistake()
    # Keras adds the values of all arguments.
    return str(error.value).partition("Arguments received by")[0]


@pytest.mark.parametrize("name", OF_ONE)
def test_an_input_that_is_no_tensor_is_named(name):
    layer = OF_ONE[name]()
    layer(X)
    assert "x must be a tensor (batch, length, 16)" in message_of(lambda: layer([X]))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="ragged tensors are its own")
@pytest.mark.parametrize("name", OF_ONE)
def test_an_input_that_is_ragged_is_named(name):
    import tensorflow as tf

    ragged = tf.RaggedTensor.from_row_lengths(X[0], [3, 4])
    expected = "x must have rows of equal length: found ragged shape (2, None, 16); pad"
    assert expected in message_of(lambda: OF_ONE[name]()(ragged))


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="ragged tensors are its own")
@pytest.mark.parametrize("lengths", [[3, 1], [3, 4]])  # 4 tokens would be two rows of 2
def test_ragged_rows_are_not_cut_anew(lengths):
    import tensorflow as tf

    ragged = tf.RaggedTensor.from_row_lengths(X[0, : sum(lengths)], lengths)
    embedding = layers.TokenEmbedding(9, 16)
    for call in (
        layers.FeedForward(16, 32),
        layers.Dense(8),
        lambda x: layers.Dense(8)(x, training=True),
        lambda x: embedding(x, reverse=True),
    ):
        message = message_of(lambda call=call: call(ragged))
        assert "inputs must have rows of equal length: found ragged" in message


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_ids_that_mixed_precision_has_rounded_are_refused(policy):
    embedding = layers.TokenEmbedding(4000, 8, dtype=policy)
    expected = "ids must be integers: found .*16.*, which rounds them; begin a `Sequential` model"
    with pytest.raises(ValueError, match=expected):
        keras.Sequential([embedding])(np.array([[1001, 1999, 257]]))
    first = keras.Input((None,), dtype="int32")
    model = keras.Sequential([first, layers.TokenEmbedding(4000, 8, dtype=policy)])
    rows = keras.ops.convert_to_numpy(keras.ops.cast(model(np.array([[1001]])), "float32"))
    table = keras.ops.convert_to_numpy(model.layers[0].embeddings)
    np.testing.assert_allclose(rows[0, 0], table[1001] * 8**0.5, rtol=1e-2)


@pytest.mark.parametrize(
    "layer",
    [
        layers.PositionalEncoding(4),
        layers.LearnedPositions(4, 9),
        layers.LayerNormalization(),
        lambda x: layers.Dropout(0.5, seed=1)(x, training=True),
        lambda x: layers.Dropout(0.5)(x),
        layers.EncoderLayer(4, 2, 8),
    ],
    ids=["sinusoids", "learned", "normalization", "dropout", "no dropout", "encoder layer"],
)
def test_integers_are_read_as_floats(layer):
    integers = np.arange(2 * 3 * 4, dtype="int32").reshape(2, 3, 4)
    found, expected = layer(integers), layer(integers.astype("float32"))
    assert keras.backend.standardize_dtype(found.dtype) == "float32"
    np.testing.assert_array_equal(*map(keras.ops.convert_to_numpy, (found, expected)))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (WIDE, "must be a tensor (2, length, 16): found shape (2, 7, 24)"),
        (MORE, "must be a tensor (2, length, 16): found shape (3, 7, 16)"),
        (FLAT, "found shape (2, 16)"),
        (None, "found NoneType"),
    ],
    ids=["width", "batch", "rank", "nothing"],
)
@pytest.mark.parametrize("name", OF_TWO)
def test_a_second_input_of_another_shape_is_named(name, wrong, expected):
    argument, make = OF_TWO[name]
    layer = make()
    layer(X, X)  # builds it for this width
    message = message_of(lambda: layer(X, wrong))
    assert f"{argument} must be" in message
    assert expected in message


@pytest.mark.parametrize("name", OF_TWO)
def test_a_second_input_of_more_rows_than_the_first_is_named(name):
    argument, make = OF_TWO[name]
    layer = make()
    assert layer(X, X[:1]).shape == X.shape  # the other way round, the row is repeated
    message = message_of(lambda: layer(X[:1], X))
    assert f"{argument} must be a tensor (1, length, 16): found shape (2, 7, 16)" in message


SIZES_AND_RATES = [
    ({"d_model": 32.0}, "d_model must be an integer of at least 1: found 32.0"),
    ({"d_ff": -1}, "d_ff must be an integer of at least 1: found -1"),
    ({"num_heads": 0}, "num_heads must be an integer of at least 1: found 0"),
    ({"dropout": 1.0}, "dropout must be a number in [0, 1): found 1.0"),
]


@pytest.mark.parametrize(("wrong", "expected"), SIZES_AND_RATES)
@pytest.mark.parametrize("layer", [layers.EncoderLayer, layers.DecoderLayer])
def test_a_size_or_a_rate_of_a_block_is_named(layer, wrong, expected):
    assert expected in message_of(lambda: layer(**{**SIZES, **wrong}))


@pytest.mark.parametrize(
    ("mistake", "expected"),
    [
        (lambda: layers.MultiHeadAttention(16, 4, dropout="0.1"), "dropout must be a number"),
        (lambda: layers.MultiHeadAttention(16.0, 4), "d_model must be an integer"),
        (lambda: layers.SelfAttention(16, 4, d_v=-1), "d_v must be an integer"),
        (lambda: layers.SelfAttention(16, 4, d_k="8"), "d_k must be an integer"),
        (lambda: layers.FeedForward(16, 0), "d_ff must be an integer"),
        (lambda: layers.FeedForward(16, 8, dropout=2), "dropout must be a number"),
        (lambda: layers.Recurrence(-16), "d_model must be an integer"),
        (lambda: layers.Convolution(16, 0), "kernel_size must be an integer"),
        (lambda: layers.PositionalEncoding(16.0), "d_model must be an integer"),
        (lambda: layers.LearnedPositions(16, 0), "max_length must be an integer"),
        (lambda: layers.TokenEmbedding(0, 16), "vocab_size must be an integer"),
        (lambda: layers.Dropout("0.1"), "rate must be a number"),
    ],
)
def test_a_size_or_a_rate_of_a_layer_is_named(mistake, expected):
    assert expected in message_of(mistake)


@pytest.mark.parametrize("layer", [layers.MultiHeadAttention, layers.SelfAttention])
def test_the_arguments_of_keras_attention_are_answered_with_ours(layer):
    message = message_of(lambda: layer(num_heads=4, key_dim=16), TypeError)
    assert f"{layer.__name__} has no key_dim, which Keras's layer has" in message
    assert "give d_model and num_heads, and the width of one head as d_k and d_v" in message


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (np.ones((2, 7, 7)), "a padding mask must be (2, 7)"),
        (np.ones((2, 6)), "a padding mask must be (2, 7)"),
    ],
)
def test_a_padding_mask_of_another_shape_is_refused(mask, expected):
    message = message_of(lambda: layers.EncoderLayer(**SIZES)(X, mask=mask))
    assert expected in message
    assert f"found shape {mask.shape}" in message


def test_a_mask_of_cross_attention_is_named():
    mask = np.ones((2, 6), bool)
    message = message_of(
        lambda: layers.Decoder([layers.DecoderLayer(**SIZES)])(X, X, source_mask=mask)
    )
    assert "source_mask must be a padding mask (2, 7)" in message


def ids(source, target):
    return {"source_ids": np.array(source, "int32"), "target_ids": np.array(target, "int32")}


GOOD = [[1, 5, 2], [1, 6, 2]]


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        (ids([[1, 13]], [[1, 2]]), "source_ids must be at least 0 and below the size of the"),
        (ids([[1, 2]], [[1, 99]]), "target_ids must be at least 0 and below the size of the"),
        (ids([[-1, 2]], [[1, 2]]), "vocabulary, 13: found -1"),
        (ids(GOOD, [[1, 2]]), "must have equal numbers of rows: found shapes (2, 3) and (1, 2)"),
    ],
)
def test_ids_that_the_model_cannot_take_are_named(inputs, expected):
    assert expected in message_of(lambda: small_model()(inputs))


@pytest.mark.slow
def test_an_id_beyond_the_vocabulary_is_named_in_graphs_too():
    model = small_model(num_encoder_layers=1, num_decoder_layers=1)
    model.compile("sgd", kt.LabelSmoothedCrossEntropy(0.1))
    wrong = ids([[1, 50, 2], [1, 6, 2]], GOOD)
    expected = "source_ids and target_ids must be below the size of the vocabulary, 13: found 50"
    for run in (
        lambda: model.fit(wrong, wrong["target_ids"], verbose=0),
        lambda: model.evaluate(wrong, wrong["target_ids"], verbose=0),
        lambda: model.predict(wrong, verbose=0),
        lambda: model.train_on_batch(wrong, wrong["target_ids"]),
    ):
        assert message_of(run) == expected
    assert keras.ops.shape(model(ids(GOOD, GOOD))) == (2, 3, 13)


@pytest.mark.slow
def test_fit_names_a_label_that_is_not_in_the_vocabulary():
    model = small_model(num_encoder_layers=1, num_decoder_layers=1)
    model.compile("sgd", kt.LabelSmoothedCrossEntropy(0.1))
    ids = np.ones((2, 4), "int32")
    with pytest.raises(ValueError, match=r"^labels must be ids in \[0, 13\), .*: found -100$"):
        model.fit({"source_ids": ids, "target_ids": ids}, ids - 101, verbose=0)
