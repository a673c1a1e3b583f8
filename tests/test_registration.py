"""Keras loads files of models once `keras_transformer.saving` is imported."""

import re

import keras
import pytest
from helpers import ROOT, run_python

import keras_transformer as kt

PACKAGE = ROOT / "keras_transformer"
# `TrainableTransformer` needs TensorFlow. A program that loads one imports its module.
TENSORFLOW_ONLY = {"TrainableTransformer"}
DECORATED = r'@keras\.saving\.register_keras_serializable\("keras_transformer"\)\nclass (\w+)'
REGISTERED = {
    name for path in PACKAGE.rglob("*.py") for name in re.findall(DECORATED, path.read_text())
}


@pytest.fixture(scope="module")
def functional(tmp_path_factory):
    """A functional model with a layer, a schedule, a loss and a metric of ours."""
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, kt.layers.TokenEmbedding(11, 8)(ids))
    schedule = kt.InverseSquareRootSchedule(8, warmup_steps=100)
    loss, metrics = kt.LabelSmoothedCrossEntropy(0.1), [kt.Perplexity()]
    model.compile(keras.optimizers.Adam(schedule), loss, metrics)
    path = tmp_path_factory.mktemp("saved") / "functional.keras"
    model.save(path)
    return path


@pytest.fixture(scope="module")
def transformer(tmp_path_factory):
    model = kt.Transformer(kt.TransformerConfig(vocab_size=9, d_model=8, num_heads=2, d_ff=8))
    model.build()
    path = tmp_path_factory.mktemp("saved") / "transformer.keras"
    model.save(path)
    return path


@pytest.mark.slow
def test_every_class_is_registered_and_models_are_loaded(functional, transformer):
    script = """
import sys
import keras
import keras_transformer.saving

functional, transformer, *names = sys.argv[1:]
print([name for name in names if not keras.saving.get_registered_object(name)])
print([type(keras.saving.load_model(path)).__name__ for path in (functional, transformer)])
"""
    assert {"Transformer", "Encoder", "Perplexity", "TrainableTransformer"} < REGISTERED
    names = [f"keras_transformer>{name}" for name in REGISTERED - TENSORFLOW_ONLY]
    found = run_python(script, functional, transformer, *names)
    assert found.splitlines() == ["[]", "['Functional', 'Transformer']"]


@pytest.mark.slow
def test_importing_the_package_registers_nothing_and_keras_names_the_missing_module(transformer):
    script = """
import sys
import keras
hooks = [*sys.meta_path]
import keras_transformer

assert sys.meta_path == hooks
try:
    keras.saving.load_model(sys.argv[1])
except TypeError as error:
    print(error)
"""
    found = run_python(script, transformer)
    assert found.startswith("Could not locate class 'Transformer'.")
    assert "{'module': 'keras_transformer.model', 'class_name': 'Transformer'" in found
