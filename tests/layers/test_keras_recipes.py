"""Our attention takes the place of `keras.layers.MultiHeadAttention` in recipes made for it.

The recipes are the models of five of Keras's code examples, small: text classification, translation
(English-Spanish), a vision transformer, time series classification, and a language model.

On a CPU, the outputs without scores have a difference of 0: `ops.dot_product_attention`, by which
Keras computes them, scales the products as we do. If Keras returns scores, it scales the queries
instead. Roundings are allowed everywhere, since other processors may add in another order.
"""

import functools

import keras
import numpy as np
import pytest
from helpers import randomise
from keras import ops

from keras_transformer import layers

ROUNDING = 2e-6  # of numbers of about 1, in float32


def attention(ours, width, num_heads, key_dim, **kwargs):
    """Keras's attention for queries of a width, or ours."""
    if ours:
        options = {"d_k": key_dim, "d_v": key_dim, "use_bias": True}
        return layers.MultiHeadAttention(width, num_heads, **options, **kwargs)
    return keras.layers.MultiHeadAttention(num_heads, key_dim, **kwargs)


def copy_weights(ours, theirs):
    """Gives a layer or model the weights of the same with Keras's attention.

    A kernel (width, heads, key_dim) of Keras is our (width, heads * key_dim).
    """
    randomise(theirs)
    assert len(ours.weights) == len(theirs.weights)
    for mine, other in zip(ours.weights, theirs.weights, strict=True):
        name = other.path.split("/")[-2].replace("attention_output", "output")
        assert mine.path.split("/")[-1] == other.path.split("/")[-1]
        assert name not in ("query", "key", "value", "output") or name in mine.path
        mine.assign(ops.convert_to_numpy(other).reshape(mine.shape))


class RecipeLayer(keras.layers.Layer):
    """A layer as users write it: `training` is passed on, and `get_config` has its arguments."""

    def __init__(self, ours, width=8, **kwargs):
        super().__init__(**kwargs)
        self.ours, self.width = ours, width
        self.supports_masking = True

    def get_config(self):
        return {**super().get_config(), "ours": self.ours, "width": self.width}

    def block(self):
        width = self.width
        feed_forward = [keras.layers.Dense(12, activation="relu"), keras.layers.Dense(width)]
        return (
            attention(self.ours, width, num_heads=2, key_dim=width),
            keras.layers.LayerNormalization(epsilon=1e-6),
            keras.Sequential(feed_forward),
            keras.layers.LayerNormalization(epsilon=1e-6),
        )


@keras.saving.register_keras_serializable("recipes")
class TransformerBlock(RecipeLayer):
    """The block of the text classifier, by a call `att(x, x)`."""

    def __init__(self, ours, **kwargs):
        super().__init__(ours, **kwargs)
        self.att, self.norm1, self.ffn, self.norm2 = self.block()

    def build(self, shape):
        self.att.build(shape, shape)
        self.norm1.build(shape)
        self.ffn.build(shape)
        self.norm2.build(shape)

    def attend(self, x):
        return self.att(x, x)

    def call(self, x, training=None):
        x = self.norm1(x + self.attend(x))
        return self.norm2(x + self.ffn(x, training=training))


@keras.saving.register_keras_serializable("recipes")
class CausalBlock(TransformerBlock):
    """The block of the language model, with an explicit causal mask (batch, length, length)."""

    def attend(self, x):
        batch, length, _ = ops.shape(x)
        positions = ops.arange(length)
        mask = ops.cast(positions[:, None] >= positions, "bool")
        return self.att(x, x, attention_mask=ops.tile(mask[None], (batch, 1, 1)))


@keras.saving.register_keras_serializable("recipes")
class TranslationEncoder(TransformerBlock):
    """The encoder of the translation recipe, with a padding mask of int32."""

    def call(self, x, mask=None):
        if mask is not None:
            mask = ops.cast(mask[:, None, :], "int32")
        x = self.norm1(x + self.att(query=x, value=x, key=x, attention_mask=mask))
        return self.norm2(x + self.ffn(x))


@keras.saving.register_keras_serializable("recipes")
class TranslationDecoder(RecipeLayer):
    """The decoder of the translation recipe: a causal mask, and masks of both inputs."""

    def __init__(self, ours, **kwargs):
        super().__init__(ours, **kwargs)
        self.att1, self.norm1, self.ffn, self.norm3 = self.block()
        self.att2, self.norm2, *_ = self.block()

    def build(self, shapes):
        shape, memory_shape = shapes
        self.att1.build(shape, shape)
        self.att2.build(shape, memory_shape)
        for part in (self.norm1, self.norm2, self.ffn, self.norm3):
            part.build(shape)

    def call(self, inputs, mask=None):
        x, memory = inputs
        x_mask, memory_mask = mask or (None, None)
        update = self.att1(x, x, x, use_causal_mask=True, query_mask=x_mask)
        x = self.norm1(x + update)
        update = self.att2(query=x, value=memory, key=memory, key_mask=memory_mask)
        x = self.norm2(x + update)
        return self.norm3(x + self.ffn(x))

    def compute_output_shape(self, shapes):
        return shapes[0]


def embedded_positions(x):
    """Learned vectors of the positions of `x`, (batch, length)."""
    return keras.layers.Embedding(6, 8)(ops.cumsum(ops.ones_like(x, "int32"), axis=1) - 1)


def text_classification(ours):
    ids = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(11, 8)(ids) + embedded_positions(ids)
    x = TransformerBlock(ours)(x)
    x = keras.layers.GlobalAveragePooling1D()(x)
    return keras.Model(ids, keras.layers.Dense(2)(x))


def translation(ours):
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    memory = keras.layers.Embedding(11, 8, mask_zero=True)(source)
    memory = TranslationEncoder(ours)(memory)
    x = keras.layers.Embedding(11, 8, mask_zero=True)(target)
    x = TranslationDecoder(ours)([x, memory])
    return keras.Model([source, target], keras.layers.Dense(11)(x))


def vision_transformer(ours):
    images = keras.Input((4, 4, 3))
    patches = keras.layers.Reshape((4, 8))(keras.layers.Conv2D(8, 2, strides=2)(images))
    x = patches + embedded_positions(patches[:, :, 0])
    for _ in range(2):
        normed = keras.layers.LayerNormalization(epsilon=1e-6)(x)
        x = keras.layers.Add()([attention(ours, 8, num_heads=2, key_dim=8)(normed, normed), x])
        normed = keras.layers.LayerNormalization(epsilon=1e-6)(x)
        x = keras.layers.Add()([keras.layers.Dense(8, activation="gelu")(normed), x])
    return keras.Model(images, keras.layers.Dense(5)(keras.layers.Flatten()(x)))


def time_series(ours):
    """The heads are far wider than the input, which has a single feature."""
    series = x = keras.Input((9, 1))
    for _ in range(2):
        update = attention(ours, 1, num_heads=4, key_dim=256)(x, x)
        x = keras.layers.LayerNormalization(epsilon=1e-6)(update) + x
        update = keras.layers.Conv1D(4, 1, activation="relu")(x)
        x = keras.layers.LayerNormalization(epsilon=1e-6)(keras.layers.Conv1D(1, 1)(update)) + x
    x = keras.layers.GlobalAveragePooling1D(data_format="channels_last")(x)
    return keras.Model(series, keras.layers.Dense(3)(x))


def language_model(ours):
    ids = keras.Input((6,), dtype="int32")
    x = keras.layers.Embedding(11, 8)(ids) + embedded_positions(ids)
    return keras.Model(ids, keras.layers.Dense(11)(CausalBlock(ours)(x)))


RNG = np.random.default_rng(0)
TEXTS = RNG.integers(1, 11, size=(3, 6)).astype("int32")
SOURCES = np.array([[5, 4, 3, 0], [4, 2, 0, 0], [3, 9, 1, 2]], "int32")
TARGETS = np.array([[1, 6, 3, 7, 7], [1, 5, 0, 0, 0], [1, 9, 9, 4, 0]], "int32")
RECIPES = {
    text_classification: TEXTS,
    translation: [SOURCES, TARGETS],
    vision_transformer: RNG.normal(size=(3, 4, 4, 3)).astype("float32"),
    time_series: RNG.normal(size=(3, 9, 1)).astype("float32"),
    language_model: TEXTS,
}


def of_both(recipe):
    """The recipe with our attention, and with Keras's; the weights are equal, and uneven."""
    ours, theirs = recipe(True), recipe(False)
    copy_weights(ours, theirs)
    return ours, theirs


def check_equal(found, expected):
    """Compares within roundings, in proportion to the largest number."""
    expected = ops.convert_to_numpy(expected)
    np.testing.assert_allclose(found, expected, rtol=0, atol=ROUNDING * np.abs(expected).max())


all_recipes = pytest.mark.parametrize(
    ("recipe", "inputs"), RECIPES.items(), ids=[recipe.__name__ for recipe in RECIPES]
)


@all_recipes
def test_a_recipe_gives_what_it_gives_with_keras_attention(recipe, inputs):
    ours, theirs = of_both(recipe)
    check_equal(ours(inputs), theirs(inputs))
    check_equal(ours.predict(inputs, verbose=0), theirs.predict(inputs, verbose=0))


@pytest.mark.slow
@all_recipes
def test_a_step_of_training_ends_as_with_keras_attention(recipe, inputs):
    ours, theirs = of_both(recipe)
    labels = np.random.default_rng(1).integers(2, size=theirs(inputs).shape[:-1])
    before = ours.get_weights()
    for model in (ours, theirs):
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        # One of them as a graph; to trace it takes seconds.
        run_eagerly = recipe is not translation
        model.compile(keras.optimizers.SGD(0.1), loss, jit_compile=False, run_eagerly=run_eagerly)
        model.fit(inputs, labels, verbose=0)
    for mine, other, old in zip(ours.weights, theirs.weights, before, strict=True):
        value = ops.convert_to_numpy(other).reshape(mine.shape)
        np.testing.assert_allclose(mine, value, rtol=0, atol=ROUNDING, err_msg=other.path)
        # All features are equal after a normalisation of one, so time series stop there.
        if recipe is not time_series and "key/bias" not in mine.path:
            assert not np.array_equal(mine, old), mine.path


@all_recipes
def test_a_recipe_is_the_same_after_saving_and_loading(recipe, inputs, tmp_path):
    model = recipe(True)
    randomise(model)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(inputs), model(inputs))


WIDTHS = {"query": 8, "value": 6, "key": 4}
QUERY, VALUE, KEY = (
    np.random.default_rng(2).normal(size=(3, length, width)).astype("float32")
    for length, width in ((5, 8), (7, 6), (7, 4))
)
MASK = np.random.default_rng(3).random((3, 5, 7)) < 0.7
BLIND = MASK & (np.arange(5) != 2)[:, None]  # one query may look nowhere
MASKS = {
    "no mask": {},
    "bool": {"attention_mask": MASK},
    "int32": {"attention_mask": MASK.astype("int32")},
    "float32": {"attention_mask": MASK.astype("float32")},
    "float32, 0.3 for true": {"attention_mask": MASK * np.float32(0.3)},
    "one mask for all rows": {"attention_mask": MASK[:1]},
    "one mask for all queries": {"attention_mask": MASK[:, :1]},
    "of each head": {"attention_mask": np.stack([MASK, MASK[::-1]], axis=1)},
    "a query that may look nowhere": {"attention_mask": BLIND},
    "causal": {"use_causal_mask": True},
    "causal, and a mask": {"use_causal_mask": True, "attention_mask": MASK | (np.arange(7) < 1)},
    "of the values": {"value_mask": np.arange(7) < [[7], [2], [5]]},
    "of the values, int32": {"value_mask": (np.arange(7) < [[7], [2], [5]]).astype("int32")},
    "of the keys": {"key_mask": np.arange(7) < [[7], [2], [5]], "attention_mask": MASK[:1]},
    "training": {"training": True},
}


@functools.cache
def both_layers(inputs, **kwargs):
    """Our layer and Keras's with equal weights, for these names of inputs."""
    pair = [
        attention(ours, 8, num_heads=2, key_dim=3, name=f"ours_{ours}", **kwargs)
        for ours in (True, False)
    ]
    shapes = [(None, None, WIDTHS[name]) for name in inputs]
    for layer in pair:
        layer.build(*shapes)
    copy_weights(*pair)
    return pair


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("inputs", [(QUERY, VALUE), (QUERY, VALUE, KEY)], ids=["value", "key"])
def test_a_call_with_masks_is_that_of_keras(inputs, name):
    ours, theirs = both_layers(("query", "value", "key")[: len(inputs)])
    check_equal(ours(*inputs, **MASKS[name]), theirs(*inputs, **MASKS[name]))


@pytest.mark.parametrize("name", MASKS)
def test_scores_are_those_of_keras_except_where_a_query_may_look_nowhere(name):
    ours, theirs = both_layers(("query", "value"))
    found, expected = (
        [np.array(x) for x in layer(QUERY, VALUE, return_attention_scores=True, **MASKS[name])]
        for layer in (ours, theirs)
    )
    # Keras's scores of such a query are 0 if they are returned; else it takes the mean, as we do.
    blind = ~expected[1].any(axis=-1)  # (batch, heads, query)
    assert blind.any() == (name in ("a query that may look nowhere", "of the keys"))
    check_equal(found[1][~blind], expected[1][~blind])
    np.testing.assert_allclose(found[1][blind], 1 / 7, rtol=1e-6)
    sighted = ~blind.any(axis=1)
    check_equal(found[0][sighted], expected[0][sighted])


def embedded(ids, mask_zero=True):
    embedding = keras.layers.Embedding(10, 8, mask_zero=mask_zero)
    embedding.build()
    embedding.set_weights([np.random.default_rng(4).normal(size=(10, 8))])
    return embedding(ids)


@pytest.mark.parametrize("mask", [None, np.tril(np.ones((1, 5, 4), "int32"))])
def test_masks_of_embeddings_are_applied_and_travel_on_as_in_keras(mask):
    ours, theirs = (
        layer(embedded(TARGETS), embedded(SOURCES), attention_mask=mask)
        for layer in both_layers(("query", "query"))
    )
    # Padding may look nowhere: it gets the mean of all values.
    check_equal(ours, theirs)
    np.testing.assert_array_equal(ours._keras_mask, TARGETS != 0)
    np.testing.assert_array_equal(theirs._keras_mask, TARGETS != 0)


def test_symbols_have_the_shapes_of_keras():
    query, value = keras.Input((None, 8)), keras.Input((None, 6))
    for options in ({}, {"return_attention_scores": True}):
        ours, theirs = (
            keras.tree.map_structure(
                lambda x: (x.shape, x.dtype),
                attention(which, 8, num_heads=2, key_dim=3)(query, value, **options),
            )
            for which in (True, False)
        )
        assert ours == theirs


def test_a_functional_model_may_return_the_scores(tmp_path):
    query, value = keras.Input((None, 8)), keras.Input((None, 6))
    mask = keras.Input((None, None), dtype="bool")
    models = []
    for layer in both_layers(("query", "value")):
        outputs = layer(query, value, attention_mask=mask, return_attention_scores=True)
        models.append(keras.Model([query, value, mask], outputs))
    models[0].save(tmp_path / "model.keras")
    models[0] = keras.saving.load_model(tmp_path / "model.keras")
    for found, expected in zip(*(m([QUERY, VALUE, MASK]) for m in models), strict=True):
        check_equal(found, expected)


@pytest.mark.parametrize("training", [True, False, None])
@pytest.mark.parametrize("ours", [True, False])
def test_the_callers_training_reaches_the_dropout(ours, training):
    layer = attention(ours, 8, num_heads=2, key_dim=3, dropout=0.5)
    one, other = (layer(QUERY, VALUE, training=training) for _ in range(2))
    assert np.array_equal(one, other) == (not training)


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_rounds_no_more_than_keras(dtype):
    exact = both_layers(("query", "value"))[1]
    errors = []
    for ours in (True, False):
        layer = attention(ours, 8, num_heads=2, key_dim=3, dtype=dtype)
        layer.build((None, None, 8), (None, None, 6))
        for weight, other in zip(layer.weights, exact.weights, strict=True):
            weight.assign(ops.reshape(other.value, weight.shape))
        output = layer(QUERY, VALUE, attention_mask=MASK)
        assert keras.backend.standardize_dtype(output.dtype) == dtype.removeprefix("mixed_")
        expected = exact(QUERY, VALUE, attention_mask=MASK)
        errors.append(np.abs(ops.cast(output, "float32") - expected).mean())
    assert errors[0] < 1.2 * errors[1]


def test_the_arguments_of_keras_are_answered_with_ours():
    with pytest.raises(TypeError, match=r"has no key_dim.*give d_model and num_heads.*d_k"):
        layers.MultiHeadAttention(num_heads=2, key_dim=4)


DECODER_MASKS = {
    "no mask": (None, None),
    "padding": (np.arange(5) < [[5], [2], [4]], (np.arange(5) < [[5], [2], [4]])[:, None]),
    "attention": (MASK[:, :, :5], MASK[:, :, :5]),
    "int32": (MASK[:, :, :5].astype("int32"), MASK[:, :, :5]),
    "of each head": (np.stack([MASK, MASK[::-1]], axis=1)[..., :5],) * 2,
}


@pytest.mark.parametrize("name", DECODER_MASKS)
def test_a_decoder_layer_with_a_mask_of_self_attention_is_that_of_keras_layers(name):
    ours = layers.DecoderLayer(8, 2, 12, dropout=0.0)
    ours.build((None, None, 8), (None, None, 6))
    randomise(ours)
    attentions = [keras.layers.MultiHeadAttention(2, 4, use_bias=False) for _ in range(2)]
    attentions[0].build((None, None, 8), (None, None, 8))
    attentions[1].build((None, None, 8), (None, None, 6))
    for layer, mine in zip(attentions, (ours.self_attention, ours.memory_attention), strict=True):
        for weight, other in zip(layer.weights, mine.weights, strict=True):
            weight.assign(ops.reshape(other.value, weight.shape))
    hidden, output = ours.feed_forward.hidden, ours.feed_forward.output_projection

    mask, of_keras = DECODER_MASKS[name]
    x = attentions[0](QUERY, QUERY, attention_mask=of_keras, use_causal_mask=True) + QUERY
    x = ours.self_attention_norm(x)
    x = ours.memory_attention_norm(x + attentions[1](x, VALUE, attention_mask=MASK))
    x = ours.feed_forward_norm(x + output(hidden(x)))
    for whole in (ours, layers.Decoder([ours])):
        check_equal(whole(QUERY, VALUE, attention_mask=mask, source_mask=MASK), x)
