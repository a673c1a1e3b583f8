"""The model: equal to the paper's formulas, independent of padding and future, saved exactly."""

import functools
import json
import re
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import run_python, small_model
from keras import ops
from layer_checks import check_weights_moved
from numpy_transformer import logits_of

import keras_transformer as kt
from keras_transformer.parameter_count import parameter_count
from keras_transformer.search import SearchOptions, search
from keras_transformer.search.steps import TransformerSteps
from keras_transformer.training import TrainableTransformer

# Two sentence pairs of a batch; all four sides have different lengths.
SOURCES = [[5, 9, 3, 12, 2], [7, 4, 2]]
TARGETS = [[1, 6, 3], [1, 11, 8, 8, 10]]

# Each variant joins fields that do not touch each other, so that a fault in one of them shows.
VARIANTS = {
    "base": {},
    "learned positions, pre-norm, swish": {
        "positions": "learned",
        "pre_norm": True,
        "num_heads": 3,
        "d_k": 5,
        "d_v": 7,
        "activation": "swish",
    },
    "rotary, nothing shared": {
        "positions": "rotary",
        "d_k": 6,
        "d_v": 5,
        "share_embeddings": False,
        "tie_output": False,
        "scale_embeddings": False,
    },
    "sinusoids and rotary, biases of attention, gelu": {
        "positions": "sinusoidal_rotary",
        "num_heads": 3,
        "d_k": 6,
        "d_v": 7,
        "attention_bias": True,
        "tie_output": False,
        "activation": "gelu",
    },
    "sines first, own embeddings with a bias": {
        "positions": "sinusoidal_split",
        "share_embeddings": False,
        "output_bias": True,
        "layer_norm_epsilon": 0.1,
    },
    "sinusoids of OpenNMT-tf, own projection with a bias": {
        "positions": "sinusoidal_opennmt",
        "num_encoder_layers": 1,
        "num_decoder_layers": 3,
        "output_bias": True,
        "tie_output": False,
        "source_end": False,
    },
    "sinusoids of fairseq, pre-norm, shared embeddings with a bias": {
        "positions": "sinusoidal_fairseq",
        "pre_norm": True,
        "output_bias": True,
    },
}

# Other layers instead of self-attention (Table 1), which the formulas do not cover.
LAYER_TYPES = {
    "restricted, rotary": {"layer_type": "restricted", "radius": 2, "positions": "rotary"},
    "restricted, radius over length": {"layer_type": "restricted", "radius": 20},
    "recurrent": {"layer_type": "recurrent"},
    "convolutional, even": {"layer_type": "convolutional", "kernel_size": 4},
    "separable": {"layer_type": "separable", "kernel_size": 3},
}
EVERY_VARIANT = {**VARIANTS, **LAYER_TYPES}


@functools.cache
def model_of(variant):
    """The model of a variant, which no test changes."""
    return small_model(**EVERY_VARIANT[variant])


def padded(rows, length=None):
    length = length or max(map(len, rows))
    return np.array([row + [0] * (length - len(row)) for row in rows], "int32")


def inputs(sources=SOURCES, targets=TARGETS, source_length=None, target_length=None):
    return {
        "source_ids": padded(sources, source_length),
        "target_ids": padded(targets, target_length),
    }


def logits(model, *args, **kwargs):
    return ops.convert_to_numpy(model(inputs(*args, **kwargs)))


# Results


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_the_formulas(name):
    model = model_of(name)
    batch = logits(model)
    assert batch.shape == (2, 5, 13)
    for row, source, target in zip(batch, SOURCES, TARGETS, strict=True):
        expected = logits_of(model, np.array(source), np.array(target))
        np.testing.assert_allclose(row[: len(target)], expected, atol=1e-5)


@pytest.mark.parametrize("rate", ["dropout", "attention_dropout", "activation_dropout"])
def test_each_dropout_drops_in_training_only(rate):
    model = small_model(**{rate: 0.5})
    np.testing.assert_array_equal(model(inputs()), model(inputs(), training=False))
    assert np.abs(model(inputs(), training=True) - model(inputs())).max() > 0.1


def test_any_other_padding_symbol_will_do():
    model, other = small_model(), small_model(pad_id=12)
    other.set_weights(model.get_weights())
    sources = [[5, 9, 2], [7, 2]]
    ids = inputs(sources, source_length=3)
    renamed = {**ids, "source_ids": np.where(ids["source_ids"] == 0, 12, ids["source_ids"])}
    np.testing.assert_allclose(other(renamed), model(ids), atol=1e-5)


def test_the_padding_symbol_may_be_the_start_symbol_too():
    model, other = small_model(), small_model(pad_id=1)
    other.set_weights(model.get_weights())
    ids = inputs(source_length=9)
    renamed = {**ids, "source_ids": np.where(ids["source_ids"] == 0, 1, ids["source_ids"])}
    assert np.all(ids["target_ids"][:, 0] == other.config.pad_id)
    np.testing.assert_allclose(other(renamed), model(ids), atol=1e-5)


# Table 3, last column: parameters in millions, where the paper gives them or where a row has the
# weights of the base model. Row E adds its position tables to the base model's.
PARAMETERS = {
    **dict.fromkeys(["base", "A-h1", "A-h4", "A-h16", "A-h32"], 65),
    **dict.fromkeys(["D-drop0.0", "D-drop0.2", "D-ls0.0", "D-ls0.2"], 65),
    "B-dk16": 58,
    "B-dk32": 60,
    "C-N2": 36,
    "C-N4": 50,
    "C-N8": 80,
    "C-d256": 28,
    "C-d1024": 168,
    "C-ff1024": 53,
    "C-ff4096": 90,
    "big": 213,
}


@pytest.mark.parametrize("preset", PARAMETERS)
def test_a_preset_has_as_many_parameters_as_in_table_3(preset):
    vocab_size = 37_000 if preset == "big" else 40_960
    config = kt.TransformerConfig.from_preset(preset, vocab_size=vocab_size)
    assert parameter_count(config) / 1e6 == pytest.approx(PARAMETERS[preset], rel=0.01)


@pytest.mark.parametrize("name", EVERY_VARIANT)
def test_a_model_has_as_many_parameters_as_its_configuration_says(name):
    model = model_of(name)
    assert model.count_params() == parameter_count(model.config)


# Padding and later positions have no influence


@pytest.mark.parametrize("name", ["base", "recurrent"])
def test_a_target_token_changes_the_logits_from_its_position_on_and_none_before(name):
    model = model_of(name)
    target = TARGETS[1]
    before = logits(model, SOURCES[1:], [target])[0]
    for t in range(len(target)):
        changed = [*target]
        changed[t] = 5
        difference = np.abs(logits(model, SOURCES[1:], [changed])[0] - before).max(-1)
        assert np.all(difference[:t] <= 1e-6)
        assert np.all(difference[t:] > 1e-3)


@pytest.mark.parametrize("name", EVERY_VARIANT)
def test_padding_and_other_rows_change_no_logits(name):
    model = model_of(name)
    rows = logits(model, [*SOURCES, []], [*TARGETS, []], source_length=11, target_length=9)
    assert np.all(np.isfinite(rows))  # even the row that is all padding
    for row, source, target in zip(rows, SOURCES, TARGETS, strict=False):
        alone = logits(model, [source], [target])[0]
        np.testing.assert_allclose(row[: len(target)], alone, atol=1e-5)


def test_every_source_token_is_seen_from_every_target_position():
    model = small_model()
    before = logits(model)[0, :3]
    for t in range(len(SOURCES[0])):
        changed = [*SOURCES[0]]
        changed[t] = 10
        after = logits(model, [changed, SOURCES[1]])[0, :3]
        assert np.all(np.abs(after - before).max(-1) > 1e-4)


# One position after the other


@pytest.mark.parametrize("name", EVERY_VARIANT)
def test_steps_with_a_cache_give_the_logits_of_the_whole(name):
    model = model_of(name)
    beams = np.random.default_rng(0).integers(1, 13, size=(2, 3, 6)).astype("int32")
    steps = TransformerSteps(model, padded(SOURCES))
    state = steps.grow(steps.initial_state(2, 3), 5)
    found = np.zeros((2, 3, 6, 13))
    parents = np.array([[2, 0, 0], [1, 1, 2]])
    for position in range(6):
        logits, state = steps.step(beams[:, :, position], ops.array([position] * 2), state)
        found[:, :, position] = logits
        if position in (1, 3):
            # Now each beam continues another one, as in a search.
            state = steps.reorder(state, ops.array(parents, "int32"))
            for rows in (beams, found):
                past = rows[:, :, : position + 1]
                past[:] = past[np.arange(2)[:, None], parents]
        if position == 4:
            state = steps.grow(state, 9)
    source_of_each_beam = np.repeat(padded(SOURCES), 3, axis=0)
    whole = model({"source_ids": source_of_each_beam, "target_ids": beams.reshape(6, 6)})
    np.testing.assert_allclose(found.reshape(6, 6, 13), whole, atol=1e-5)


# Training, saving, precision


def compiled(model, run_eagerly=True):
    schedule = kt.InverseSquareRootSchedule(16, warmup_steps=10)
    model.compile(
        optimizer=keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9),
        loss=kt.LabelSmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        run_eagerly=run_eagerly,
    )
    return model


ONE_LAYER = {"num_encoder_layers": 1, "num_decoder_layers": 1}
LABELS = padded([[6, 3, 2], [11, 8, 8, 10, 2]])


def test_a_step_of_training_moves_every_weight():
    apart = {"share_embeddings": False, "tie_output": False, "pre_norm": True}
    model = compiled(small_model(**ONE_LAYER, **apart))
    before = model.get_weights()
    model.fit(inputs(), LABELS, verbose=0)
    check_weights_moved(model, before)


@pytest.mark.parametrize("name", EVERY_VARIANT)
def test_a_saved_model_is_loaded_as_it_was(name, tmp_path):
    model = model_of(name)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is kt.Transformer
    assert loaded.config == model.config
    np.testing.assert_array_equal(loaded(inputs()), model(inputs()))


@pytest.mark.slow
def test_a_compiled_model_goes_on_training_after_loading_as_it_would_have(tmp_path):
    model = compiled(small_model(**ONE_LAYER))
    model.fit(inputs(), LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.iterations == 1
    assert loaded.loss.get_config() == model.loss.get_config()
    results = [m.fit(inputs(), LABELS, verbose=0).history for m in (loaded, model)]
    assert results[0] == results[1]
    assert results[0].keys() == {"loss", "token_accuracy", "perplexity"}
    for ours, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
def test_a_saved_model_loads_in_another_process(tmp_path):
    model = compiled(small_model(**ONE_LAYER, num_heads=3, d_k=5, d_v=7))
    model.fit(inputs(), LABELS, verbose=0)
    model.save(tmp_path / "model.keras")
    np.savez(tmp_path / "inputs.npz", **inputs())
    script = """
import sys, keras, numpy as np
import keras_transformer.saving
folder = sys.argv[1]
model = keras.saving.load_model(folder + "/model.keras")
np.save(folder + "/logits.npy", model(dict(np.load(folder + "/inputs.npz"))))
"""
    run_python(script, tmp_path)
    np.testing.assert_allclose(np.load(tmp_path / "logits.npy"), logits(model), atol=1e-6)


def test_a_new_model_has_its_weights(capsys):
    model = kt.Transformer(small_model(**ONE_LAYER).config, name="new")
    assert model.built
    model.summary()
    assert f"Total params: {model.count_params():,}" in capsys.readouterr().out
    before = model.get_weights()
    logits(model)
    assert len(model.get_weights()) == len(before) > 0
    assert all(weight.path.startswith("new/") for weight in model.weights)
    copy = keras.models.clone_model(model)
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in before]


@pytest.mark.slow
def test_a_new_model_may_be_backed_up_while_it_trains(tmp_path):
    model = compiled(kt.Transformer(small_model(**ONE_LAYER).config))
    backup = keras.callbacks.BackupAndRestore(tmp_path)
    model.fit(inputs(), LABELS, callbacks=[backup], verbose=0)


@pytest.mark.parametrize("base", [kt.Transformer, TrainableTransformer])
def test_a_model_may_be_saved_before_it_is_called(base, tmp_path):
    model = base(small_model(**ONE_LAYER).config)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert type(loaded) is base
    np.testing.assert_array_equal(loaded(inputs()), model(inputs()))


def test_frozen_layers_stay_frozen_in_a_saved_model(tmp_path):
    model = kt.Transformer(small_model(**ONE_LAYER).config)
    model.encoder.trainable = False
    model.source_embedding.trainable = False
    model.quantize("int8", filters="decoder")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for each in (loaded, keras.models.clone_model(model)):
        assert not each.encoder.trainable
        assert not each.source_embedding.trainable
        assert len(each.trainable_weights) == len(model.trainable_weights) > 0


def without_build_config(path):
    """Removes from a `.keras` file what Keras builds a model by."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    config = json.loads(files["config.json"])
    config.pop("build_config", None)
    files["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("base", [kt.Transformer, TrainableTransformer])
def test_a_file_without_build_config_is_loaded_with_its_weights(base, tmp_path):
    model = base(small_model(**ONE_LAYER).config)
    model.build()
    model.save(tmp_path / "model.keras")
    without_build_config(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(inputs()), model(inputs()))


def test_a_model_that_does_not_fit_into_memory_is_not_loaded_without_weights(tmp_path, monkeypatch):
    small_model(**ONE_LAYER).save(tmp_path / "model.keras")

    def build(layer, shape):
        raise MemoryError("no room for the embeddings")

    monkeypatch.setattr(kt.layers.TokenEmbedding, "build", build)
    with pytest.raises(MemoryError, match="no room for the embeddings"):
        keras.saving.load_model(tmp_path / "model.keras")


@pytest.mark.slow
def test_a_subclass_may_add_layers_and_builds_them_when_it_is_called(tmp_path):
    class WithHead(kt.Transformer):
        def __init__(self, config, **kwargs):
            super().__init__(config, **kwargs)
            self.head = keras.layers.Dense(3, name="head")

        def call(self, inputs, training=None):
            return self.head(super().call(inputs, training=training))

    model = WithHead(small_model(**ONE_LAYER).config)
    model(inputs())
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras", {"WithHead": WithHead})
    np.testing.assert_array_equal(loaded(inputs()), model(inputs()))


def test_a_subclass_that_cannot_be_built_is_not_loaded_without_its_weights(tmp_path):
    class Demanding(kt.Transformer):
        has_room = True

        def build(self, input_shape=None):
            super().build(input_shape)
            if not self.has_room:
                raise MemoryError("no room for the rest")

    model = Demanding(small_model(**ONE_LAYER).config)
    model.build()
    model.save(tmp_path / "model.keras")
    Demanding.has_room = False
    with pytest.raises(MemoryError, match="no room for the rest"):
        keras.saving.load_model(tmp_path / "model.keras", {"Demanding": Demanding})


@pytest.mark.parametrize("name", ["rotary, nothing shared", *LAYER_TYPES])
def test_layers_have_the_same_names_in_every_model(name):
    models = [small_model(**ONE_LAYER, **EVERY_VARIANT[name], dropout=0.1) for _ in range(2)]
    one, other = ([layer.name for layer in model._flatten_layers(False)] for model in models)
    assert one == other
    assert not any(re.search(r"_\d+$", name) for name in one if not name.startswith("layer_"))


def test_weights_alone_can_be_saved_and_loaded(tmp_path):
    model, other = small_model(seed=0), small_model(seed=1)
    assert np.abs(logits(model) - logits(other)).max() > 0.1
    model.save_weights(tmp_path / "model.weights.h5")
    other.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_array_equal(logits(other), logits(model))


@pytest.mark.parametrize("name", ["learned positions, pre-norm, swish", "rotary, nothing shared"])
def test_in_mixed_precision_weights_are_float32_and_logits_are_near(name):
    model = model_of(name)
    mixed = small_model(**VARIANTS[name], dtype="mixed_bfloat16")
    mixed.set_weights(model.get_weights())
    assert {weight.dtype for weight in mixed.weights} == {"float32"}
    output = mixed(inputs())
    assert keras.backend.standardize_dtype(output.dtype) == "bfloat16"
    difference = np.abs(ops.cast(output, "float32") - model(inputs()))
    assert 0 < difference.mean() < 0.01 * np.abs(model(inputs())).max()


@pytest.mark.parametrize("base", [kt.Transformer, TrainableTransformer])
def test_a_subclass_saves_and_loads_its_own_weights(base, tmp_path):
    class WithTemperature(base):
        def build(self, input_shape=None):
            super().build(input_shape)
            self.temperature = self.add_weight(name="temperature", shape=(3,), initializer="ones")

    config = small_model().config
    model, loaded = WithTemperature(config), WithTemperature(config)
    for one in (model, loaded):
        one.build()
    model.temperature.assign([1.0, 2.0, 3.0])
    model.save_weights(tmp_path / "own.weights.h5")
    loaded.load_weights(tmp_path / "own.weights.h5")
    assert loaded.temperature.numpy().tolist() == [1.0, 2.0, 3.0]


@pytest.mark.slow
def test_a_model_in_mixed_precision_trains_and_loads_as_one(tmp_path):
    model = compiled(small_model(**ONE_LAYER, dtype="mixed_bfloat16"), run_eagerly=False)
    losses = model.fit(inputs(), LABELS, epochs=5, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.dtype_policy.name == "mixed_bfloat16"
    np.testing.assert_array_equal(
        ops.cast(loaded(inputs()), "float32"), ops.cast(model(inputs()), "float32")
    )


def test_a_batch_of_any_size_runs_in_one_graph():
    model = small_model(**ONE_LAYER)
    predicted = model.predict(inputs(), batch_size=1, verbose=0)
    np.testing.assert_allclose(predicted, logits(model), atol=1e-5)


@pytest.mark.parametrize(
    ("wrong", "found"),
    [
        ([np.ones((2, 5))] * 2, "found list"),
        ({"source_ids": np.ones((2, 5))}, "found {'source_ids': (2, 5)}"),
        (dict.fromkeys(("source_ids", "target_ids"), np.ones(5)), "'target_ids': (5,)}"),
        (
            {"source_ids": tf.ragged.constant([[5, 2], [2]]), "target_ids": np.ones((2, 3))},
            "found {'source_ids': 'ragged (2, None)', 'target_ids': (2, 3)}",
        ),
    ],
)
def test_inputs_other_than_two_matrices_of_ids_are_refused(wrong, found):
    with pytest.raises(ValueError) as error:
        small_model()(wrong)
    message = str(error.value)
    assert "source_ids (batch, source_length) and target_ids (batch, target_length)" in message
    assert found in message


def test_a_model_is_made_of_a_configuration():
    with pytest.raises(TypeError, match="config must be a TransformerConfig: found dict"):
        kt.Transformer({"vocab_size": 20})


@pytest.mark.slow
def test_only_the_first_ids_can_be_targets():
    model = small_model(vocab_size=13, target_vocab_size=7, share_embeddings=False)
    ids = keras.ops.ones((2, 5), "int32")
    assert model({"source_ids": 12 * ids, "target_ids": ids}).shape == (2, 5, 7)
    found = search(model, [[12, 5, 2]], SearchOptions(n_best=4, extra_length=5)).ids
    assert int(keras.ops.max(found)) < 7
    untied = small_model(target_vocab_size=7, share_embeddings=False, tie_output=False)
    assert untied({"source_ids": 12 * ids, "target_ids": ids}).shape == (2, 5, 7)
