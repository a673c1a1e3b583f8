"""Models in lower precision: close to the float32 model, and with correct integers."""

import functools
import gc
import re
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import run_python, small_model
from keras import ops

from keras_transformer.fast.xla_flags import set_xla_flags
from keras_transformer.layers import (
    Convolution,
    Encoder,
    EncoderLayer,
    FeedForward,
    SelfAttention,
    TokenEmbedding,
)
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.machine import processor
from keras_transformer.model import Transformer
from keras_transformer.precision import PRECISIONS, in_precision
from keras_transformer.search import SearchOptions, score, search

SOURCES = np.array([[5, 9, 7, 2, 0, 0], [12, 4, 4, 8, 6, 2], [3, 2, 0, 0, 0, 0]], "int32")
INPUTS = {"source_ids": SOURCES, "target_ids": np.array([[1, 7, 4, 9]] * 3, "int32")}
VARIANTS = {"tied": {}, "output of its own": {"tie_output": False, "pre_norm": True}}


def logits_of(model):
    return ops.convert_to_numpy(ops.cast(model(INPUTS, training=False), "float32"))


def wide_model(variant):
    return small_model(1, d_model=32, d_ff=48, **VARIANTS[variant])


def relative_error(found, expected):
    """The error, relative to the standard deviation of the expected values."""
    return np.sqrt(np.mean((found - expected) ** 2)) / expected.std()


def test_float32_is_the_model_as_it_is():
    model = wide_model("tied")
    assert in_precision(model, "float32") is model


@pytest.mark.parametrize("variant", VARIANTS)
def test_bfloat16_is_another_model_near_the_first(variant):
    model = wide_model(variant)
    before = logits_of(model)
    half = in_precision(model, "bfloat16")
    assert {weight.dtype for weight in half.weights} == {"bfloat16"}
    assert half.config == model.config
    assert half(INPUTS).dtype == "bfloat16"
    assert 1e-4 < relative_error(logits_of(half), before) < 0.05  # from 8 bits of mantissa
    np.testing.assert_array_equal(logits_of(model), before)


def classifier(sequence):
    ids = keras.Input((None,), dtype="int32")
    embedding = TokenEmbedding(13, 8, mask_zero=True)
    layers = [embedding, sequence, keras.layers.GlobalAveragePooling1D(), keras.layers.Dense(3)]
    return keras.Model(ids, functools.reduce(lambda x, layer: layer(x), layers, ids))


def of_documents(layer):
    documents = keras.Input((None, None), dtype="int32")
    x = keras.layers.Embedding(13, 8, mask_zero=True)(documents)
    return keras.Model(documents, keras.layers.TimeDistributed(layer)(x))


@keras.saving.register_keras_serializable("tests")
class WithHead(Transformer):
    """A subclass that adds a layer, whose name differs from model to model."""

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.head = keras.layers.Dense(5)

    def call(self, inputs, training=None):
        return self.head(super().call(inputs, training=training))


@keras.saving.register_keras_serializable("tests")
class GatedLayer(EncoderLayer):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.gate = keras.layers.Dense(self.d_model, activation="sigmoid")

    def build(self, x_shape):
        super().build(x_shape)
        self.gate.build(x_shape)

    def call(self, x, attention_mask=None, mask=None, x_mask=None):
        return self.gate(x) * super().call(x, attention_mask, mask, x_mask)


BLOCK = {"d_model": 8, "num_heads": 2, "d_ff": 12}
ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}
QUANTISABLE = {
    "Transformer": lambda: wide_model("tied"),
    "Transformer, output of its own, bfloat16": lambda: small_model(
        **ONE_LAYER, dtype="bfloat16", tie_output=False
    ),
    "Transformer with a layer of a subclass, mixed_bfloat16": lambda: WithHead(
        small_model(**ONE_LAYER).config, dtype="mixed_bfloat16"
    ),
    "EncoderLayer with a layer of a subclass": lambda: classifier(GatedLayer(**BLOCK)),
    "Encoder of convolutions": lambda: classifier(
        Encoder([EncoderLayer(**BLOCK, self_attention=Convolution(8, 3)) for _ in range(2)])
    ),
    "Sequential": lambda: keras.Sequential([TokenEmbedding(13, 8), EncoderLayer(**BLOCK)]),
    "TimeDistributed": lambda: of_documents(EncoderLayer(**BLOCK)),
    "FeedForward": lambda: classifier(FeedForward(8, 12)),
    "SelfAttention": lambda: classifier(SelfAttention(8, 2)),
}


def inputs_of(name):
    if name.startswith("Transformer"):
        return INPUTS
    return np.stack([SOURCES, SOURCES], axis=1) if name == "TimeDistributed" else SOURCES


def quantised(name, mode):
    model = QUANTISABLE[name]()
    before = ops.convert_to_numpy(ops.cast(model(inputs_of(name)), "float32"))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
        model.quantize(mode)
    after = ops.convert_to_numpy(ops.cast(model(inputs_of(name)), "float32"))
    assert 0 < np.abs(after - before).max() < 0.2 * np.abs(before).max() or mode != "int8"
    return model, after


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    [*((name, "int8") for name in QUANTISABLE), ("Transformer", "int4"), ("Sequential", "int4")],
)
def test_a_quantised_model_is_saved_and_loaded_as_it_is(name, mode, tmp_path):
    model, expected = quantised(name, mode)
    for path in (tmp_path / "first.keras", tmp_path / "second.keras"):
        model.save(path)
        model = keras.saving.load_model(path)
        np.testing.assert_array_equal(ops.cast(model(inputs_of(name)), "float32"), expected)
    assert any(weight.dtype == "int8" for weight in model.weights)
    with pytest.raises(ValueError, match="already quantized"):
        model.quantize(mode)


@pytest.mark.slow
def test_a_quantised_model_is_loaded_in_a_fresh_process(tmp_path):
    model, expected = quantised("Transformer", "int8")
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "inputs.npz", **INPUTS)
    script = """
import sys, keras, numpy as np
import keras_transformer.saving
folder = sys.argv[1]
model = keras.saving.load_model(folder + "/model.keras")
np.save(folder + "/logits.npy", model(dict(np.load(folder + "/inputs.npz"))))
"""
    run_python(script, tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "logits.npy"), expected)


def test_the_weights_of_a_quantised_model_are_loaded_into_another(tmp_path):
    model, expected = quantised("Transformer", "int8")
    model.save_weights(tmp_path / "model.weights.h5")
    other, _ = quantised("Transformer", "int8")
    other.set_weights([np.zeros_like(weight) for weight in other.get_weights()])
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(other(INPUTS), expected)


def test_a_part_alone_may_be_quantised(tmp_path):
    model = wide_model("tied")
    model.decoder.layers[0].feed_forward.hidden.quantize("int8")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(INPUTS), model(INPUTS))
    assert sum(weight.dtype == "int8" for weight in loaded.weights) == 1


def test_a_model_with_quantizers_of_its_own_is_not_saved_since_they_would_be_lost(tmp_path):
    model = wide_model("tied")
    config = keras.quantizers.Int8QuantizationConfig(activation_quantizer=None)
    model.quantize(config=config)
    with pytest.raises(ValueError, match="has quantizers of its own, and could not be loaded"):
        model.save(tmp_path / "model.keras")


ALL_BIASES = {"attention_bias": True, "output_bias": True}
GRADIENTS = {
    "output of its own, pre-norm, swish, learned positions": {
        **ALL_BIASES,
        "tie_output": False,
        "pre_norm": True,
        "activation": "swish",
        "positions": "learned",
    },
    "tied, rotary": {**ALL_BIASES, "positions": "rotary"},
    "restricted": {**ALL_BIASES, "layer_type": "restricted", "radius": 8},
}


@functools.cache
def gradients_of_many_rows(variant, dtype):
    """The gradient of each weight by its path, of a batch of 4,096 rows."""
    ids = np.random.default_rng(0).integers(3, 13, (3, 64, 64)).astype("int32")
    model = small_model(1, dtype=dtype, **ONE_LAYER, max_positions=64, **GRADIENTS[variant])
    with tf.GradientTape() as tape:
        logits = model({"source_ids": ids[0], "target_ids": ids[1]}, training=True)
        value = LabelSmoothedCrossEntropy(0.1)(ids[2], logits)
    of = tape.gradient(value, [weight.value for weight in model.trainable_weights])
    return {
        weight.path.partition("/")[2]: ops.convert_to_numpy(tf.cast(gradient, "float32"))
        for weight, gradient in zip(model.trainable_weights, of, strict=True)
    }


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
@pytest.mark.parametrize("variant", GRADIENTS)
def test_gradients_of_many_rows_are_those_of_float32(variant, policy):
    """In bfloat16, a sum of rows that are added one by one stops growing after a few hundred."""
    expected, found = (gradients_of_many_rows(variant, dtype) for dtype in ("float32", policy))
    errors = {
        path: np.linalg.norm(found[path] - gradient) / np.linalg.norm(gradient)
        for path, gradient in expected.items()
        if not path.endswith("key/bias")  # its gradient is 0, but for rounding
    }
    assert {path: error for path, error in errors.items() if error > 0.05} == {}


@pytest.mark.parametrize("variant", VARIANTS)
def test_int8_is_the_model_with_every_matrix_but_the_embeddings_in_8_bits(variant):
    model = wide_model(variant)
    before = logits_of(model)
    matrices = {weight.path for weight in model.weights if weight.path.endswith("kernel")}
    assert in_precision(model, "int8") is model
    # The logits have a matrix of their own, beside the embeddings.
    matrices.add(f"{model.name}/source_embedding/int8_kernel")
    assert matrices == {weight.path for weight in model.weights if weight.dtype == "int8"}
    assert 1e-4 < relative_error(logits_of(model), before) < 0.1  # from 127 steps up to the largest


def test_what_the_caller_kept_out_of_garbage_collections_stays_out_of_them():
    """Command lines keep all that they import out of them."""
    gc.freeze()
    in_precision(small_model(num_encoder_layers=1, num_decoder_layers=1), "int8")
    assert gc.get_freeze_count() > 0


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_xla_multiplies_8_bit_integers_without_widening_a_matrix(variant):
    set_xla_flags()
    model = in_precision(wide_model(variant), "int8")
    inputs = {name: tf.constant(ids) for name, ids in INPUTS.items()}
    compiled = tf.function(lambda x: model(x, training=False), jit_compile=True, autograph=False)
    program = compiled.experimental_get_compiler_ir(inputs)(stage="optimized_hlo")
    assert "s8[32,48]" in program
    assert not re.findall(r"\(param[^)]*: s8\[.*\) -> s32", program)


@pytest.mark.slow
def test_xla_multiplies_a_few_rows_of_8_bit_integers_in_the_matrix_unit(monkeypatch):
    set_xla_flags()
    model = in_precision(small_model(1, d_model=32, d_ff=48, **ONE_LAYER), "int8")
    options = SearchOptions(beam_size=3, max_length=5)
    sources = tf.constant(SOURCES[:1])

    def translate(has_matrix_unit):
        monkeypatch.setattr(processor, "has_matrix_unit", lambda: has_matrix_unit)
        compiled = tf.function(
            lambda ids: search(model, ids, options), jit_compile=True, autograph=False
        )
        program = compiled.experimental_get_compiler_ir(sources)(stage="optimized_hlo")
        rows = re.findall(r"s32\[(\d+),\d+\]\S* dot\(", program)
        return compiled(sources), {int(n) for n in rows}

    with_unit, rows = translate(True)
    assert min(rows) == 8
    without, rows = translate(False)
    assert min(rows) == 3
    np.testing.assert_array_equal(with_unit.ids, without.ids)
    np.testing.assert_allclose(with_unit.scores, without.scores, rtol=1e-5)


def quantized(x):
    """Rows as integers in [-127, 127], and the factors of the rows."""
    scale = 127.0 / np.abs(x).max(axis=-1, keepdims=True)
    return np.round(x * scale).astype("int64"), scale


@pytest.mark.parametrize("logits_bias", [False, True])
def test_int8_logits_are_products_of_integers(logits_bias):
    rng = np.random.default_rng(0)
    embedding = TokenEmbedding(50, 16, logits_bias=logits_bias)
    embedding.build((None, None))
    matrix = rng.normal(size=(50, 16)) * rng.uniform(0.1, 10.0, size=(50, 1))
    embedding.embeddings.assign(matrix)
    bias = rng.normal(size=50) if logits_bias else np.zeros(50)
    if logits_bias:
        embedding.bias.assign(bias)
    x = rng.normal(size=(3, 4, 16)).astype("float32")
    rows = embedding(np.arange(50)[None]).numpy()

    embedding.quantize("int8")

    integers, scale = quantized(x)
    matrix_integers, matrix_scale = quantized(matrix.astype("float32"))
    expected = integers @ matrix_integers.T / (scale * matrix_scale[:, 0]) + bias
    found = embedding.logits(x).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    assert np.abs(found - (x @ matrix.T + bias)).max() > 1e-3  # they were rounded
    np.testing.assert_array_equal(embedding(np.arange(50)[None]), rows)


def test_gradients_pass_int8_logits_and_leave_the_matrix():
    embedding = TokenEmbedding(50, 16)
    embedding.build((None, None))
    embedding.quantize("int8")
    rng = np.random.default_rng(0)
    x, upstream = tf.constant(rng.normal(size=(3, 4, 16)), "float32"), rng.normal(size=(3, 4, 50))
    with tf.GradientTape() as tape:
        tape.watch(x)
        logits = embedding(x, reverse=True, training=True)
    gradient = tape.gradient(logits, x, output_gradients=tf.constant(upstream, "float32"))
    np.testing.assert_allclose(
        gradient, upstream @ embedding.embeddings.numpy(), rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(logits, embedding(x, reverse=True), rtol=1e-5, atol=1e-5)
    assert not embedding.trainable_variables


def test_xla_multiplies_int8_logits_by_a_multiple_of_32_columns():
    set_xla_flags()
    embedding = TokenEmbedding(50, 16)
    embedding.build((None, None))
    embedding.quantize("int8")
    x = tf.constant(np.random.default_rng(0).normal(size=(1, 2, 16)), "float32")
    compiled = tf.function(lambda x: embedding.logits(x), jit_compile=True)
    program = compiled.experimental_get_compiler_ir(x)(stage="optimized_hlo")
    assert "s8[16,64]" in program
    np.testing.assert_allclose(compiled(x), embedding.logits(x), rtol=1e-5, atol=1e-6)


def test_int8_logits_of_nothing_are_the_biases():
    embedding = TokenEmbedding(5, 4)
    embedding.build((None, None))
    embedding.quantize("int8")
    np.testing.assert_array_equal(embedding.logits(np.zeros((1, 2, 4), "float32")), 0.0)


@pytest.mark.slow
def test_a_quantized_feed_forward_network_computes_the_same_in_training():
    layer = FeedForward(16, 32, dropout=0.0)
    x = np.random.default_rng(0).normal(size=(2, 3, 16)).astype("float32")
    layer(x)
    for dense in (layer.hidden, layer.output_projection):
        dense.quantize("int8")
    np.testing.assert_allclose(layer(x, training=True), layer(x), rtol=1e-5)


def test_another_mode_of_quantization_is_refused():
    embedding = TokenEmbedding(5, 4)
    embedding.build((None, None))
    with pytest.raises(NotImplementedError, match="no quantization mode 'float8', but int8"):
        embedding.quantize("float8")


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS[1:])
def test_a_compiled_search_finds_what_the_model_scores_so(precision):
    model = in_precision(small_model(1, d_model=32, **ONE_LAYER), precision)
    options = SearchOptions(n_best=3, extra_length=4, min_length=4)
    compiled = tf.function(
        lambda ids: search(model, ids, options), jit_compile=True, autograph=False
    )
    ids, scores = (x.numpy() for x in compiled(SOURCES))
    assert scores.dtype == "float32"
    assert np.isfinite(scores).all()
    given = score(model, np.repeat(SOURCES, 3, axis=0), ids.reshape(9, -1), options)
    np.testing.assert_allclose(given, scores.ravel(), 0.05)


def test_unknown_precision_is_refused():
    with pytest.raises(ValueError, match="one of float32, bfloat16, int8: found 'int4'"):
        in_precision(small_model(), "int4")
