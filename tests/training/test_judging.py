"""Validations translate as the commands do: by CTranslate2 on a CPU, where that can be."""

import types

import pytest
from helpers import lively_model, small_model

from keras_transformer.data import BuiltinPairs, TextPairs
from keras_transformer.machine import gpu
from keras_transformer.options.training import TrainingOptions
from keras_transformer.parsing import ParsingTokenizer
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training.judging import report, scored_part, translation_by
from keras_transformer.translator import Translator

SENTENCES = ["The girls sleep.", "A horse!", "He will not buy a small lamp."]
GREEDY = {"beam_size": 1, "extra_length": 4}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


def test_a_validation_uses_the_current_weights_of_the_model_in_memory(tokenizer):
    model, other = (lively_model(seed, tokenizer.vocab_size) for seed in (1, 2))
    translate = translation_by(model, tokenizer, GREEDY, 1)
    assert not isinstance(translate, Translator)
    ours = Translator(model, tokenizer, **GREEDY)  # whose graph reads the weights too
    before = translate(SENTENCES)
    assert before == ours(SENTENCES)
    model.set_weights(other.get_weights())
    after = translate(SENTENCES)
    assert after == ours(SENTENCES) != before


@pytest.mark.parametrize(
    ("fields", "search"),
    [
        ({"layer_type": "restricted", "radius": 2}, GREEDY),
        ({"positions": "rotary"}, GREEDY),
        ({}, {**GREEDY, "patience": None}),
    ],
    ids=str,
)
def test_tensorflow_validates_what_ctranslate2_lacks(fields, search, tokenizer):
    model = small_model(vocab_size=tokenizer.vocab_size, **fields)
    assert isinstance(translation_by(model, tokenizer, search, 1), Translator)


@pytest.mark.parametrize(("greedy", "warnings"), [(None, 0), (0.0, 0), (99.0, 1)])
def test_a_beam_search_that_is_worse_than_greedy_search_is_said(greedy, warnings, tokenizer):
    model, said = small_model(vocab_size=tokenizer.vocab_size), []
    log = types.SimpleNamespace(say=said.append)
    pairs = BuiltinPairs("validation", 3)
    report(model, tokenizer, pairs, "de", TrainingOptions(parallel_parts=1), log, greedy)
    found = [line for line in said if line.startswith("Warning: beam search has 0.00 BLEU")]
    assert len(found) == warnings
    assert all("greedy search 99.00: it ends before long outputs do; try" in line for line in found)


def test_tensorflow_validates_parsers():
    parses = ParsingTokenizer.learn([("Dogs bark .", "(S X X .)")], vocab_size=100)
    model = small_model(vocab_size=parses.vocab_size)
    assert isinstance(translation_by(model, parses, GREEDY, 1), Translator)


@pytest.mark.parametrize(
    ("languages", "part"),
    [
        ([], "the first 1,000 of 2,400 pairs"),
        (["de", "fr"], "the first 500 pairs of each language"),
    ],
)
def test_a_part_that_is_scored_is_named(languages, part, tokenizer, tmp_path):
    for side in ("source", "target"):
        (tmp_path / side).write_text("Yes\n" * 1200)
    pairs = TextPairs([tmp_path / "source"] * 2, [tmp_path / "target"] * 2, languages)
    line = f"Validation BLEU is of {part}; the loss is of all"
    assert scored_part(pairs, tokenizer) == line
    assert scored_part(BuiltinPairs("train", 1000), tokenizer) is None


def test_tensorflow_validates_on_a_gpu(tokenizer, tmp_path, monkeypatch):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpu, "_GPU_FILES", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.setattr(gpu, "_CUDNN_PACKAGE", "json")  # a package that is there
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    model = small_model(vocab_size=tokenizer.vocab_size)
    assert isinstance(translation_by(model, tokenizer, GREEDY, 1), Translator)
