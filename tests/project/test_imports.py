"""Text, trees and descriptions of models need neither Keras nor TensorFlow."""

import pytest
from helpers import run_python

import keras_transformer as kt

# Of these, none can be imported in the processes here.
BACKENDS = ("jax", "keras", "tensorflow", "tensorflow_text", "torch")
WITHOUT_BACKENDS = f"""
import sys
sys.modules.update(dict.fromkeys({BACKENDS}))
"""


def run_without_backends(script: str, *arguments) -> str:
    return run_python(WITHOUT_BACKENDS + script, *arguments)


def test_translations_are_scored_without_a_backend():
    sides = ["Ein Mann reitet auf einem Pferd ."], ["Ein Mann reitet auf einem Pferd."]
    script = f"""
import keras_transformer as kt
print(kt.evaluation.format_scores(kt.evaluation.translation_scores(*{sides}, "de")))
"""
    scores = kt.evaluation.translation_scores(*sides, "de")
    assert run_without_backends(script) == kt.evaluation.format_scores(scores) + "\n"


def test_trees_are_read_linearized_repaired_and_scored_without_a_backend():
    script = """
import keras_transformer as kt
import keras_transformer.parsing.repair  # a module, which must not hide the function
from keras_transformer.parsing.trees import parse_tree

tree = parse_tree("(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))")
repaired = kt.parsing.repair(kt.parsing.linearize(tree), kt.parsing.words(tree))
print(kt.parsing.format_tree(repaired))
print(kt.parsing.score_trees([repaired], [tree]).f1)
"""
    assert run_without_backends(script).splitlines() == [
        "(S (NP (XX Dogs)) (VP (XX bark)) (. .))",
        "100.0",
    ]


def test_sentence_pairs_are_read_without_a_backend(tmp_path):
    (tmp_path / "trees.mrg").write_text("(S (NP (NNS Dogs)) (VP (VBP bark)))\n")
    (tmp_path / "text").write_text("Dogs bark .\n")
    script = """
import sys
from keras_transformer.data import BuiltinPairs, TextPairs
from keras_transformer.parsing import ParsingOptions, TreebankPairs

trees, text = sys.argv[1:]
pairs = BuiltinPairs("validation", 5), TextPairs(text, text), TreebankPairs(trees, ParsingOptions())
print([source.check() for source in pairs])
"""
    found = run_without_backends(script, tmp_path / "trees.mrg", tmp_path / "text")
    assert found == "[5, 1, 1]\n"


def test_a_model_is_described_without_a_backend():
    script = """
import keras_transformer as kt
from keras_transformer.options import SearchOptions, TrainingOptions

config = kt.TransformerConfig.from_preset("big", vocab_size=9)
options = TrainingOptions(**kt.PRESETS["big"].training)
print(config.d_model, options.steps, SearchOptions().beam_size)
"""
    assert run_without_backends(script) == "1024 300000 4\n"


@pytest.mark.slow
def test_layers_model_and_search_need_keras_and_its_backend_alone(tmp_path):
    """So they can be installed without the package's other requirements: `--no-deps`."""
    script = """
import re, sys, tomllib
required = tomllib.load(open("pyproject.toml", "rb"))["project"]["dependencies"]
required = {re.match(r"[\\w-]+", each)[0].replace("-", "_") for each in required}
# Keras itself needs absl.
needed = {"keras", "tensorflow", "lazy_loader", "absl_py"}
others = required - needed | {"tensorflow_serving", "markdown_it"}  # modules with other names
sys.modules.update(dict.fromkeys(others))

import keras
import keras_transformer as kt
from keras_transformer.search import SearchOptions, search

sizes = dict(d_model=8, num_heads=2, d_ff=8, num_encoder_layers=1, num_decoder_layers=1)
model = kt.Transformer(kt.TransformerConfig(vocab_size=9, **sizes))
model.compile("sgd", kt.LabelSmoothedCrossEntropy(0.1), metrics=[kt.Perplexity()])
ids = keras.ops.ones((2, 4), "int32")
model.fit({"source_ids": ids, "target_ids": ids}, ids, verbose=0)
model.save(sys.argv[1])
model = keras.saving.load_model(sys.argv[1])
print(len(others), search(model, ids, SearchOptions(beam_size=2)).ids.shape[:2])
"""
    found = run_python(script, tmp_path / "model.keras")
    assert found == "12 (2, 1)\n"


def test_importing_a_package_loads_no_backend_unless_it_computes():
    script = """
import importlib, pkgutil
import keras_transformer as kt

for module in pkgutil.iter_modules(kt.__path__):
    if module.ispkg and module.name not in ("layers", "search"):
        importlib.import_module(f"keras_transformer.{module.name}")
"""
    run_without_backends(script)
