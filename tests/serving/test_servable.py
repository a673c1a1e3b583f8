"""A model served by CTranslate2 loads TensorFlow for what CTranslate2 lacks, when that is asked."""

import dataclasses

import numpy as np
import pytest
from serving_world import tiny_translator

import keras_transformer as kt
from keras_transformer.errors import UserError
from keras_transformer.report.word_attention import pair_attention
from keras_transformer.serving.servable import TranslatorServable

LIMITED = {"max_source_length": 64, "extra_length": 5}
SENTENCES = ["The girls sleep.", "A horse!"]


@pytest.fixture(scope="module")
def ours():
    """The model's translator in TensorFlow."""
    return tiny_translator()


@pytest.fixture(scope="module")
def translator(ours, tmp_path_factory):
    """Its translator in CTranslate2."""
    path = tmp_path_factory.mktemp("runs") / "en-de"
    kt.ModelDir(path).create_trained(ours.models[0], ours.tokenizer, None, "made by a test")
    return kt.load(path, engine="ctranslate2", **LIMITED)


@pytest.fixture
def loads():
    """A list that has an entry for each time that TensorFlow was loaded."""
    return []


@pytest.fixture
def servable(ours, translator, loads):
    def load_tensorflow():
        loads.append("TensorFlow")
        return ours

    return TranslatorServable(translator, load_tensorflow)


def test_requests_that_ctranslate2_can_answer_load_no_tensorflow(servable, ours, loads):
    rows = servable.predict("serving_default", [(text,) for text in SENTENCES])
    assert [row["translation"] for row in rows] == ours(SENTENCES)
    shorter = dataclasses.replace(servable.options, max_length=3)
    expected = ours.with_options(shorter)(SENTENCES)
    assert [best[0].text for best in servable.translate_n(SENTENCES, shorter)] == expected
    assert servable.engine == "ctranslate2"
    assert not loads


def test_an_option_that_ctranslate2_lacks_is_answered_by_tensorflow(servable, ours, loads):
    options = dataclasses.replace(servable.options, min_length=7, no_repeat_ngram=2)
    expected = ours.with_options(options)(SENTENCES)
    for _ in range(2):
        found = servable.translate_n(SENTENCES, options)
        assert [best[0].text for best in found] == expected
    assert loads == ["TensorFlow"]


def test_the_page_shows_the_attention_that_tensorflow_computes(servable, ours, loads):
    assert servable.attention is not None and not loads
    found = servable.attention("A horse!", "Ein Pferd!")
    expected = pair_attention(ours.models[0], ours.tokenizer, "A horse!", "Ein Pferd!")
    assert found.keys() == expected.keys()
    np.testing.assert_array_equal(found["memory"].weights, expected["memory"].weights)
    assert loads == ["TensorFlow"]


def test_without_tensorflow_there_is_no_attention_and_one_line_says_what_is_lacking(translator):
    servable = TranslatorServable(translator)
    assert servable.attention is None
    options = dataclasses.replace(servable.options, no_repeat_ngram=2)
    with pytest.raises(UserError, match=r"^CTranslate2 does not support no_repeat_ngram=2: leave"):
        servable.translate_n(SENTENCES, options)
