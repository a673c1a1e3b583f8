"""Scores of given targets equal those of the search and of the model's probabilities."""

import dataclasses

import keras
import numpy as np
import pytest
from helpers import small_model

from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.search import NO_HYPOTHESIS, SearchOptions, score, search
from keras_transformer.text import SubwordTokenizer
from keras_transformer.translator import Translator

SOURCES = np.array([[5, 9, 7, 2, 0, 0], [12, 4, 4, 8, 6, 2], [3, 2, 0, 0, 0, 0]])
TARGETS = np.array([[7, 2, 0, 0], [4, 0, 11, 2], [2, 0, 0, 0]])


@pytest.fixture(scope="module")
def model():
    """Ends now and then, and never pads: the first feature is 1, its weights are biases."""
    model = small_model(1, tie_output=False)
    norm = model.decoder.layers[-1].feed_forward_norm
    norm.gamma.assign([0.0, *norm.gamma[1:]])
    norm.beta.assign([1.0, *norm.beta[1:]])
    biases = np.zeros(13)
    biases[[0, 2]] = -30.0, 1.0
    model.output_projection.kernel.assign([biases, *model.output_projection.kernel[1:]])
    return model


def log_prob(model, source, target):
    """The sum of the log-probabilities of one target, each token on its own, without padding."""
    total = 0.0
    for position, token in enumerate(target):
        inputs = {"source_ids": [source], "target_ids": [[1, *target[:position]]]}
        inputs = {name: np.array(ids) for name, ids in inputs.items()}
        logits = keras.ops.convert_to_numpy(model(inputs))[0, -1].astype("float64")
        total += logits[token] - np.log(np.exp(logits).sum())
    return total


@pytest.fixture(scope="module")
def log_probs(model):
    pairs = zip(SOURCES, TARGETS, strict=True)
    return [log_prob(model, *(np.trim_zeros(ids, "b") for ids in pair)) for pair in pairs]


@pytest.mark.parametrize("length_penalty", ["power", "gnmt"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.5])
def test_score_is_the_log_probability_of_the_target_over_its_length_penalty(
    model, log_probs, alpha, length_penalty
):
    options = SearchOptions(alpha=alpha, length_penalty=length_penalty)
    scores = keras.ops.convert_to_numpy(score(model, SOURCES, TARGETS, options))
    for target, expected, found in zip(TARGETS, log_probs, scores, strict=True):
        length = len(np.trim_zeros(target, "b"))
        base = length if length_penalty == "power" else (5 + length) / 6
        assert found == pytest.approx(expected / base**alpha, rel=1e-5)


@pytest.mark.parametrize(
    "options",
    [
        SearchOptions(beam_size=3, n_best=3, alpha=2.0, extra_length=3),
        SearchOptions(n_best=4, extra_length=0),
        SearchOptions(n_best=1, max_length=1),
        SearchOptions(beam_size=1, max_length=3, alpha=1.0),
        SearchOptions(n_best=4, max_length=4, sample=True, seed=1),
        SearchOptions(n_best=4, length_penalty="gnmt", patience=None, extra_length=3),
    ],
)
def test_what_a_search_found_has_the_score_that_it_found(model, options):
    found = search(model, SOURCES, options)
    ids, scores = map(keras.ops.convert_to_numpy, found)
    assert np.isfinite(scores).all()
    for n in range(options.n_best):
        np.testing.assert_allclose(score(model, SOURCES, ids[:, n], options), scores[:, n], 1e-4)


def test_hypotheses_that_the_limit_cuts_are_among_those(model):
    ids = search(model, SOURCES, SearchOptions(n_best=4, extra_length=0)).ids
    ends_at_limit = keras.ops.convert_to_numpy(ids)[..., -1] == 2
    assert ends_at_limit.any() and not ends_at_limit.all()


def test_a_target_without_a_probability_scores_as_no_hypothesis_does():
    impossible = small_model(1, tie_output=False)
    impossible.output_projection.kernel.assign(np.full((16, 13), np.nan))
    scores = keras.ops.convert_to_numpy(score(impossible, SOURCES, TARGETS))
    assert scores.tolist() == [NO_HYPOTHESIS] * 3


def test_scores_are_of_the_model_without_dropout():
    with_dropout, without = small_model(1, dropout=0.5), small_model(1)
    without.set_weights(with_dropout.get_weights())
    expected = keras.ops.convert_to_numpy(score(without, SOURCES, TARGETS))
    np.testing.assert_allclose(score(with_dropout, SOURCES, TARGETS), expected, rtol=1e-6)


def test_padding_changes_no_score(model):
    padded = score(model, np.pad(SOURCES, [(0, 0), (0, 5)]), np.pad(TARGETS, [(0, 0), (0, 3)]))
    np.testing.assert_allclose(padded, score(model, SOURCES, TARGETS), rtol=1e-5)


SENTENCES = ["The girls sleep.", "A horse!", "The old man sees two birds.", "Yes"]
TRANSLATIONS = ["Die Mädchen schlafen.", "Ein Pferd!", "Ja, das sieht der alte Mann.", ""]


@pytest.fixture(scope="module")
def translator():
    tokenizer = SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    return Translator(small_model(3, vocab_size=tokenizer.vocab_size, **layers), tokenizer)


def with_end(translator, text):
    return np.array([[*translator.tokenizer.tokenize([text])[0].numpy(), 2]])


@pytest.mark.slow
def test_a_given_translation_has_the_score_of_its_tokens(translator):
    found = translator.score(SENTENCES, TRANSLATIONS)
    for sentence, translation, one in zip(SENTENCES, TRANSLATIONS, found, strict=True):
        ids = with_end(translator, sentence), with_end(translator, translation)
        assert one == pytest.approx(float(score(translator.models[0], *ids)[0]), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("tokens_per_batch", [1, 150])
def test_scores_do_not_depend_on_how_sentences_are_batched(translator, tokens_per_batch):
    other = translator.with_options(translator.options)  # which shares the graph
    other._batches = dataclasses.replace(other._batches, tokens_per_batch=tokens_per_batch)
    batched = other.score(SENTENCES, TRANSLATIONS)
    assert batched == pytest.approx(translator.score(SENTENCES, TRANSLATIONS), rel=1e-5)


def test_a_sentence_without_a_word_has_one_translation(translator):
    sentences, translations = ["", SENTENCES[0], " ", ""], ["", TRANSLATIONS[0], "Pferd", "\t"]
    [alone] = translator.score(SENTENCES[:1], TRANSLATIONS[:1])
    expected = [0.0, pytest.approx(alone, rel=1e-5), NO_HYPOTHESIS, 0.0]
    assert translator.score(sentences, translations) == expected


def test_no_sentences_have_no_scores(translator):
    assert translator.score([], []) == []


def test_endless_sentences_are_scored_up_to_the_limit(translator):
    short = Translator(translator.models[0], translator.tokenizer, max_source_length=20)
    [first] = translator.tokenizer.detokenize(
        translator.tokenizer.tokenize(["house " * 100])[:, :19]
    ).numpy()
    [found] = short.score(["house " * 5000], ["house " * 3000])
    assert found == pytest.approx(translator.score([first], [first])[0], rel=1e-5)


def test_what_does_not_match_is_refused_in_one_line(translator):
    with pytest.raises(UserError, match="must be 2 translations, one for each sentence: found 1"):
        translator.score(["Yes", "No"], ["Ja"])
    with pytest.raises(UserError, match="found a single string"):
        translator.score("Yes", "Ja")
