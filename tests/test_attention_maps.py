"""The attention of every head, and alignments made from it."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf
from helpers import small_model
from keras import ops

from keras_transformer.attention_maps import attention_maps
from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.text import SubwordTokenizer
from keras_transformer.translator import Translator

SOURCE = np.array([[5, 6, 7, 2], [8, 2, 0, 0]], "int32")
TARGET = np.array([[1, 9, 4], [1, 5, 0]], "int32")


@pytest.fixture(scope="module")
def model():
    return small_model(num_encoder_layers=3)


@pytest.fixture(scope="module")
def maps(model):
    return attention_maps(model, SOURCE, TARGET)


def test_there_is_a_map_of_each_layer_and_head(maps):
    assert [weights.shape for weights in maps.encoder] == [(2, 2, 4, 4)] * 3
    assert [weights.shape for weights in maps.decoder] == [(2, 2, 3, 3)] * 2
    assert [weights.shape for weights in maps.memory] == [(2, 2, 3, 4)] * 2


def test_attention_is_spread_over_what_may_be_seen(maps):
    for weights in (*maps.encoder, *maps.decoder, *maps.memory):
        np.testing.assert_allclose(ops.sum(weights, axis=-1), 1, rtol=1e-5)
    for weights in (*maps.encoder, *maps.memory):
        assert np.all(np.array(weights)[1, ..., 2:] == 0)  # padding
    for weights in maps.decoder:
        assert np.all(np.triu(np.array(weights), k=1) == 0)  # later positions


def test_the_weights_are_those_that_the_layer_computes(model, maps):
    layer = model.encoder.layers[0].self_attention
    x = model.source_positions(model.source_embedding(SOURCE[:1]))
    expected = layer.attention_weights(layer.queries(x), layer.keys(x))
    np.testing.assert_allclose(maps.encoder[0][:1], expected, rtol=1e-5)


def test_attention_maps_do_not_change_the_model(model):
    inputs = {"source_ids": SOURCE, "target_ids": TARGET}
    before = model(inputs)
    attention_maps(model, SOURCE, TARGET)
    np.testing.assert_array_equal(model(inputs), before)


@pytest.mark.slow
def test_threads_that_share_a_model_get_their_own_maps(model, maps):
    def in_a_thread(index):
        if index % 2:
            model({"source_ids": SOURCE, "target_ids": TARGET})  # is not recorded
            return maps
        return attention_maps(model, SOURCE, TARGET)

    with ThreadPoolExecutor(4) as threads:
        for found in threads.map(in_a_thread, range(40)):
            for one, expected in zip(found, maps, strict=True):
                np.testing.assert_array_equal(np.array(one), np.array(expected))


@pytest.fixture(scope="module")
def translator():
    tokenizer = SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)
    return Translator(small_model(vocab_size=tokenizer.vocab_size), tokenizer)


def test_each_target_subword_has_a_link_to_the_source(translator):
    sentences, translations = (
        ["A horse!", "The girls sleep.", "", "Yes"],
        ["Ja.", "Nein!", "Ja", ""],
    )
    alignments = translator.align(sentences, translations)
    for sentence, translation, found in zip(sentences, translations, alignments, strict=True):
        for pieces, text in ((found.source, sentence), (found.target, translation)):
            ids = [translator.tokenizer.pieces.index(piece) for piece in pieces]
            joined = translator.tokenizer.detokenize(tf.ragged.constant([ids], tf.int32))
            assert joined.numpy()[0].decode() == text
        linked = found.target if sentence else []
        assert [target for _, target in found.links] == list(range(len(linked)))
        assert all(0 <= source < len(found.source) for source, _ in found.links)


def test_links_are_where_the_heads_look_most(translator):
    [found] = translator.align(["A horse!"], ["Ein Pferd!"])
    source = [translator.tokenizer.pieces.index(piece) for piece in found.source]
    target = [translator.tokenizer.pieces.index(piece) for piece in found.target]
    maps = attention_maps(translator.models[0], [[*source, 2]], [[1, *target]])
    means = np.mean(np.array(maps.memory[1])[0], axis=0)  # the last of two layers
    assert [source for source, _ in found.links] == means[:-1, :-1].argmax(1).tolist()


def test_unequal_numbers_of_sentences_are_refused(translator):
    with pytest.raises(UserError, match="must be 1 translations, one for each sentence: found 2"):
        translator.align(["a"], ["b", "c"])
