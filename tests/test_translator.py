"""Strings in, strings out: as many, in order, whatever is in them."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import lively_model, small_model

from keras_transformer.data import BuiltinPairs
from keras_transformer.decoding import SearchOptions, search
from keras_transformer.errors import UserError
from keras_transformer.tokenizers import SubwordTokenizer
from keras_transformer.translator import Translator

SENTENCES = [
    "The girls sleep.",
    "He will not buy a small lamp, because it is dear.",
    "A horse!",
    "The friendly student is sick in winter, and her brother is not able to help.",
    "Yes",
    "The old man sees two birds.",
]


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


@pytest.fixture(scope="module")
def model(tokenizer):
    return lively_model(3, tokenizer.vocab_size)


@pytest.fixture(scope="module")
def translator(model, tokenizer):
    return Translator(model, tokenizer, extra_length=5)


def test_translations_are_in_the_order_of_the_sentences(translator):
    forward = translator(SENTENCES)
    assert len(set(forward)) == len(SENTENCES)
    assert translator(SENTENCES[::-1]) == forward[::-1]


@pytest.mark.parametrize("tokens_per_batch", [1, 40, 2048])
def test_a_sentence_is_translated_as_it_is_alone(model, tokenizer, translator, tokens_per_batch):
    together = Translator(
        model, tokenizer, extra_length=5, tokens_per_batch=tokens_per_batch
    ).translate(SENTENCES)
    for sentence, (text, score) in zip(SENTENCES, together, strict=True):
        [alone] = translator.translate([sentence])
        assert alone.text == text
        assert alone.score == pytest.approx(score, abs=1e-4)


@pytest.mark.parametrize(("beam_size", "alpha"), [(1, 0.6), (4, 0.0), (4, 2.0)])
def test_a_translation_is_that_of_the_search(model, tokenizer, beam_size, alpha):
    ids = tokenizer.tokenize(tf.constant(SENTENCES[:1]))
    source_ids = tf.concat([ids, [[2]]], axis=1).to_tensor()
    options = {"beam_size": beam_size, "alpha": alpha, "extra_length": 5}
    result = search(model, source_ids, SearchOptions(**options))
    [translation] = Translator(model, tokenizer, **options).translate(SENTENCES[:1])
    assert translation.text.encode() == tokenizer.detokenize(result.ids[:, 0]).numpy()[0]
    assert translation.score == pytest.approx(float(result.scores[0, 0]), abs=1e-5)


@pytest.mark.parametrize("blank", ["", " ", "\t \r\n", "\u3000"])
def test_a_sentence_without_a_word_becomes_an_empty_one(translator, blank):
    [expected] = translator(SENTENCES[:1])
    assert translator([blank]) == [""]
    assert translator([blank, SENTENCES[0], blank]) == ["", expected, ""]


def test_no_sentences_become_no_translations(translator):
    assert translator([]) == []


def test_an_endless_sentence_is_translated_up_to_the_limit(model, tokenizer):
    endless = "house " * 5000
    [translation] = Translator(model, tokenizer)([endless])
    assert 0 < len(tokenizer.tokenize(tf.constant([translation]))[0]) < 1100

    short = Translator(model, tokenizer, extra_length=5, max_source_length=20)
    prefix = tokenizer.tokenize(tf.constant([endless]))[:, :19]
    assert short([endless]) == short([tokenizer.detokenize(prefix).numpy()[0]])
    together = short([endless, *SENTENCES])
    assert together[1:] == short(SENTENCES)


@pytest.mark.parametrize("text", [b"\xff\xfe", b"caf\xe9 au lait", b"\xf0\x9f\x90", b"a\x00b"])
def test_bytes_that_are_not_text_are_translated_all_the_same(translator, text):
    [expected] = translator(SENTENCES[:1])
    first, odd, last = translator([SENTENCES[0], text, SENTENCES[0]])
    assert first == last == expected
    assert odd


def test_a_string_that_no_file_can_hold_is_translated_all_the_same(translator):
    assert len(translator(["a lone surrogate: \ud800"])) == 1


def always(tokenizer, token):
    """A model that says one token, whatever it is asked."""
    model = small_model(
        vocab_size=tokenizer.vocab_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        tie_output=False,
    )
    for weight in model.decoder.weights:
        if weight.name in ("gamma", "beta"):
            weight.assign(np.full(weight.shape, float(weight.name == "beta")))
    kernel = np.zeros(model.output_projection.kernel.shape)
    kernel[:, token] = 1.0
    model.output_projection.kernel.assign(kernel)
    return model


@pytest.mark.parametrize("byte", [b"\n", b"\r", b"\xff"])
def test_a_translation_is_one_line_of_text(tokenizer, byte):
    # The vocabulary spells what it does not know in bytes; their ids follow the special ones.
    stubborn = always(tokenizer, token=4 + byte[0])
    [said] = tokenizer.detokenize(tf.constant([[4 + byte[0]]])).numpy()
    assert said == (byte if byte < b"\x80" else "\ufffd".encode())
    [translation] = Translator(stubborn, tokenizer, extra_length=3)(["A horse!"])
    assert len(f"{translation}.".splitlines()) == 1
    translation.encode()


def test_a_translation_that_never_ends_stops_at_its_limit(tokenizer):
    piece = int(tokenizer.tokenize(tf.constant(["horse"]))[0, -1])
    translator = Translator(always(tokenizer, piece), tokenizer, beam_size=1, extra_length=3)
    source_length = len(tokenizer.tokenize(tf.constant(["A horse!"]))[0]) + 1
    [expected] = tokenizer.detokenize(tf.fill([1, source_length + 3], piece)).numpy()
    assert translator(["A horse!"]) == [expected.decode()]


def test_vocabulary_of_another_size_is_refused(tokenizer):
    with pytest.raises(UserError, match=r"a model with vocab_size=340, .*, found 13"):
        Translator(small_model(vocab_size=13), tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"beam_size": 0}, "beam_size must be at least 1: found 0"), ({"alpha": -1.0}, "alpha")],
)
def test_option_out_of_range_is_refused_in_one_line(model, tokenizer, options, message):
    with pytest.raises(UserError, match=message) as error:
        Translator(model, tokenizer, **options)(SENTENCES)
    assert "\n" not in str(error.value)
