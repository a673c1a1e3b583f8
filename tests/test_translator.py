"""Strings in, strings out: as many, in order, whatever they contain.


Tracing a search takes 2 s, so most translators here share the graphs of one.
"""

import copy
import dataclasses
import functools
import json
import logging
from threading import current_thread
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from helpers import lively_model, small_model
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.search import NO_HYPOTHESIS, SearchOptions, search
from keras_transformer.search import compiled as compiled_search
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.words import split_words
from keras_transformer.translation import TermsWarning
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


def with_limits(translator, **limits):
    """The translator with another `tokens_per_batch`, `max_source_length` or `workers`."""
    other, sizes = copy.copy(translator), dict(limits)
    other.max_source_length = sizes.pop("max_source_length", translator.max_source_length)
    other._batches = dataclasses.replace(translator._batches, **sizes)
    return other


@pytest.mark.parametrize("name", ["options", "tokens_per_batch", "jit_compile", "workers"])
def test_what_its_graphs_and_batches_are_made_for_cannot_be_set_later(name, model, tokenizer):
    translator = Translator(model, tokenizer)
    with pytest.raises(AttributeError, match=f"'{name}'.* has no setter"):
        setattr(translator, name, getattr(translator, name))


def test_the_model_of_these_tests_has_no_ties(model):
    rng = np.random.default_rng(0)
    inputs = {side: rng.integers(260, 340, (8, 10)) for side in ("source_ids", "target_ids")}
    logits = np.sort(model(inputs), axis=-1)
    assert np.diff(logits[..., -20:]).min() > 1e-6


@pytest.mark.slow
def test_translations_are_in_the_order_of_the_sentences(translator):
    forward = translator(SENTENCES)
    assert len(set(forward)) == len(SENTENCES)
    assert translator(SENTENCES[::-1]) == forward[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("tokens_per_batch", [1, 40, 2048])
def test_a_sentence_is_translated_as_it_is_alone(translator, tokens_per_batch):
    together = with_limits(translator, tokens_per_batch=tokens_per_batch).translate(SENTENCES)
    for sentence, (text, score) in zip(SENTENCES, together, strict=True):
        [alone] = translator.translate([sentence])
        assert alone.text == text
        assert alone.score == pytest.approx(score, abs=1e-4)


def test_a_translation_is_that_of_the_search(model, tokenizer, translator):
    ids = tokenizer.tokenize(tf.constant(SENTENCES[:1]))
    source_ids = tf.concat([ids, [[2]]], axis=1).to_tensor()
    options = SearchOptions(beam_size=2, alpha=2.0, extra_length=5)
    result = search(model, source_ids, options)
    [translation] = translator.with_options(options).translate(SENTENCES[:1])
    assert translation.text.encode() == tokenizer.detokenize(result.ids[:, 0]).numpy()[0]
    assert translation.score == pytest.approx(float(result.scores[0, 0]), abs=1e-5)


def test_a_sentence_without_a_word_becomes_an_empty_one(translator):
    [expected], blanks = translator(SENTENCES[:1]), ["", " ", "\t \r\n", "\u3000"]
    assert [translator([blank]) for blank in blanks] == [[""]] * 4
    assert translator([*blanks, SENTENCES[0], *blanks]) == [*[""] * 4, expected, *[""] * 4]


def test_no_sentences_become_no_translations(translator):
    assert translator([]) == []


@pytest.mark.slow
def test_an_endless_sentence_is_translated_up_to_the_limit(translator, tokenizer):
    endless = "house " * 5000
    [translation] = translator.with_options(SearchOptions())([endless])
    assert 0 < len(tokenizer.tokenize(tf.constant([translation]))[0]) < 1100

    short = with_limits(translator, max_source_length=20)
    prefix = tokenizer.tokenize(tf.constant([endless]))[:, :19]
    assert short([endless]) == short([tokenizer.detokenize(prefix).numpy()[0]])
    together = short([endless, *SENTENCES])
    assert together[1:] == short(SENTENCES)


def test_bytes_that_are_not_text_are_translated_all_the_same(translator):
    [expected] = translator(SENTENCES[:1])
    texts = [b"\xff\xfe", b"caf\xe9 au lait", b"\xf0\x9f\x90", b"a\x00b"]
    first, *odd, last = translator([SENTENCES[0], *texts, SENTENCES[0]])
    assert first == last == expected
    # They become U+FFFD, which the vocabulary removes; nothing is left of two of the texts.
    assert odd == translator(["", "caf au lait", "", "a b"])


def test_a_string_that_no_file_can_hold_is_translated_all_the_same(translator):
    assert len(translator(["a lone surrogate: \ud800"])) == 1


@pytest.fixture(scope="module")
def always(tokenizer):
    """A translator that always generates one token: `always(token, **options)`."""
    model = small_model(
        vocab_size=tokenizer.vocab_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        tie_output=False,
    )
    for weight in model.decoder.weights:
        if weight.name in ("gamma", "beta"):
            weight.assign(np.full(weight.shape, float(weight.name == "beta")))
    translator = Translator(model, tokenizer, beam_size=1)

    def always(token, **options):
        kernel = np.zeros(model.output_projection.kernel.shape)
        kernel[:, token] = 1.0
        model.output_projection.kernel.assign(kernel)
        return translator.with_options(SearchOptions(beam_size=1, **options))

    return always


@pytest.mark.slow
@pytest.mark.parametrize("byte", [b"\n", b"\r", b"\xff"])
def test_a_translation_is_one_line_of_text(tokenizer, always, byte):
    # The vocabulary spells unknown characters as bytes, whose ids follow the special ones.
    [said] = tokenizer.detokenize(tf.constant([[4 + byte[0]]])).numpy()
    assert said == (byte if byte < b"\x80" else "\ufffd".encode())
    [translation] = always(token=4 + byte[0], extra_length=3)(["A horse!"])
    assert len(f"{translation}.".splitlines()) == 1
    translation.encode()


@pytest.mark.slow
def test_a_translation_that_never_ends_stops_at_its_limit(tokenizer, always):
    piece = int(tokenizer.tokenize(tf.constant(["horse"]))[0, -1])
    source_length = len(tokenizer.tokenize(tf.constant(["A horse!"]))[0]) + 1
    limit = source_length + 3  # the last token is the end symbol
    [expected] = tokenizer.detokenize(tf.fill([1, limit - 1], piece)).numpy()
    assert always(piece, extra_length=3)(["A horse!"]) == [expected.decode()]


def test_vocabulary_of_another_size_is_refused(tokenizer):
    with pytest.raises(UserError, match=r"model must have vocab_size=340, .*: found 13"):
        Translator(small_model(vocab_size=13), tokenizer)
    fewer_targets = small_model(vocab_size=340, target_vocab_size=200, share_embeddings=False)
    with pytest.raises(UserError, match=r"model must have target_vocab_size=None, .*: found 200"):
        Translator(fewer_targets, tokenizer)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"beam_size": 0}, r"beam_size must be in \[1, 10000\]: found 0"), ({"alpha": -1.0}, "alpha")],
)
def test_option_out_of_range_is_refused_in_one_line(model, tokenizer, options, message):
    with pytest.raises(UserError, match=message) as error:
        Translator(model, tokenizer, **options)(SENTENCES)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [0, -5, 1.5, None])
@pytest.mark.parametrize(
    ("argument", "least"), [("max_source_length", 2), ("tokens_per_batch", 1), ("workers", 1)]
)
def test_argument_out_of_range_is_refused_in_one_line(model, tokenizer, argument, value, least):
    expected = f"{argument} must be an integer of at least {least}: found {value}"
    with pytest.raises(UserError, match=expected):
        Translator(model, tokenizer, **{argument: value})


def test_an_ensemble_of_no_models_is_refused(tokenizer):
    with pytest.raises(UserError, match="model must be one model or several: found an empty list"):
        Translator([], tokenizer)


@pytest.mark.slow
def test_the_lowest_source_limit_leaves_one_token(model, tokenizer, translator):
    with pytest.raises(UserError, match="at least 2: found 1"):
        Translator(model, tokenizer, max_source_length=1)
    first = tokenizer.tokenize(tf.constant(SENTENCES[:1])).to_tensor()[:, :1]
    ids = search(model, tf.concat([first, [[2]]], axis=1), translator.options).ids
    [expected] = tokenizer.detokenize(ids[:, 0]).numpy()
    short = with_limits(translator, max_source_length=2)
    assert short(SENTENCES[:1]) == [expected.decode()] != [""]


@pytest.mark.slow
def test_the_score_of_a_missing_translation_is_finite(model, tokenizer):
    impossible = {"no_repeat_ngram": 1, "min_length": 400, "extra_length": 390}
    [translation] = Translator(model, tokenizer, beam_size=1, **impossible).translate(["Yes"])
    assert translation == ("", NO_HYPOTHESIS)
    assert json.loads(json.dumps(translation.score, allow_nan=False)) == NO_HYPOTHESIS


class Nothing:
    """A constraint that allows no symbol. It equals no other object, and has no hash."""

    __hash__ = None

    def __eq__(self, other):
        return False

    def __call__(self, ids):
        return np.zeros(340, bool)


def test_a_constraint_is_an_option_of_the_search(model, tokenizer):
    translator = Translator(model, tokenizer, constraint=Nothing(), beam_size=1, extra_length=2)
    for _ in range(2):
        assert translator.translate(["Yes"]) == [("", NO_HYPOTHESIS)]
    free = dataclasses.replace(translator.options, constraint=None)
    [translation] = translator.with_options(free).translate(["Yes"])
    assert translation.score > NO_HYPOTHESIS


@pytest.fixture
def echo(monkeypatch):
    """Lets searches return their input, so that they compile quickly."""

    def echo(models, source_ids, *arguments):
        return source_ids[:, None], tf.zeros([tf.shape(source_ids)[0], 1])

    monkeypatch.setattr(compiled_search, "search", echo)


@pytest.fixture
def warnings():
    """The messages that TensorFlow logs during a test."""
    records = []
    handler = logging.Handler()
    handler.emit = lambda record: records.append(record.getMessage())
    tf.get_logger().addHandler(handler)
    yield records
    tf.get_logger().removeHandler(handler)


@pytest.mark.parametrize("workers", [1, 2])
def test_compiling_warns_of_nothing(model, tokenizer, echo, workers, warnings):
    options = dict(jit_compile=True, workers=workers, tokens_per_batch=1)
    translator = Translator(model, tokenizer, **options)
    sentences = ["house " * n for n in (1, 5, 10, 15, 25, 40, 60, 90)]
    assert translator(sentences) == [sentence.strip() for sentence in sentences]
    assert warnings == []


def test_a_search_is_compiled_in_a_thread_that_runs_no_other(model, tokenizer, echo, monkeypatch):
    translator = Translator(model, tokenizer, jit_compile=True)
    compiled, threads = translator._search.function(), []

    @functools.cache  # the same function for the same shapes
    def recorded(search):
        return lambda *arguments: (threads.append(current_thread()), search(*arguments))[1]

    def get_concrete_function(*arguments):
        return recorded(compiled.get_concrete_function(*arguments))

    functions = SimpleNamespace(get_concrete_function=get_concrete_function)
    monkeypatch.setattr(translator._search, "function", lambda: functions)
    for count in (1, 1, 20, 20, 1):
        translator(["house " * count])
    compiler, *runs = threads[0], threads[1], threads[3], threads[4]
    assert threads[2] is compiler and compiler.is_alive()  # another shape
    assert compiler not in runs


def test_several_translators_warn_of_nothing(model, tokenizer, echo, warnings):
    for _ in range(6):
        assert Translator(model, tokenizer)(["house"]) == ["house"]
    assert warnings == []


# Prefixes.


@pytest.mark.parametrize("limits", [{"max_length": 3}, {"max_length": 1}, {"extra_length": 0}])
def test_a_translation_starts_with_its_whole_prefix_whatever_the_limits(
    translator, tokenizer, limits
):
    translator = translator.with_options(SearchOptions(**limits))
    prefixes = ["house " * 30, "\N{VULGAR FRACTION ONE HALF}", "Die alte Männer", ""]
    tokens = tokenizer.tokenize_target(tf.constant(prefixes))
    found = translator.translate(["A horse!"] * 4, prefixes)
    for (text, score), start in zip(found, tokenizer.detokenize(tokens).numpy(), strict=True):
        start = " ".join(start.decode().split())
        assert text.startswith(start) and not text.endswith("\N{REPLACEMENT CHARACTER}")
        assert text == start or limits != {"max_length": 1}  # which is the end symbol
        assert score > NO_HYPOTHESIS


def test_a_blank_sentence_has_an_empty_translation_with_a_prefix_too(translator):
    assert translator.translate(["", " \t"], ["Ein", ""]) == [("", 0.0)] * 2
    assert translator.score(["", ""], ["", "Ein"]) == [0.0, NO_HYPOTHESIS]


def test_a_prefix_that_is_too_long_is_refused(model, tokenizer):
    translator = Translator(model, tokenizer, max_source_length=10)
    with pytest.raises(UserError, match=r"the prefix 'house house .* has \d+ tokens: .*at most 9"):
        translator.translate(["Yes", "Yes"], ["", "house " * 20])


def test_no_limit_leaves_half_a_character(always):
    """The model says one byte of the two that spell a character."""
    assert always(token=4 + 0xC2, max_length=2)(["A horse!", "Yes"]) == ["", ""]


# Sentences translated together, compared with one at a time.

ANY_TEXT = st.one_of(
    st.sampled_from([*SENTENCES, "", " ", "\t \r\n", "\u3000", "\0", "a\0b", "house " * 2000]),
    st.text(st.characters(), max_size=12),  # all of Unicode, including unpaired surrogates
    st.binary(max_size=6),
)
PREFIXES = st.sampled_from(["", "", "Yes", "house", "\0", "Die ä"])
TOGETHER = settings(max_examples=15, derandomize=True)
LIMITS = dict(beam_size=3, n_best=3, extra_length=4, max_source_length=8)


@pytest.fixture(scope="module")
def limited(model, tokenizer):
    return Translator(model, tokenizer, **LIMITS)


@pytest.fixture(scope="module")
def alone(limited):
    """The translations of a sentence, translated alone."""

    @functools.cache
    def alone(sentence, prefix):
        prefixes = None if prefix is None else [prefix]
        [translations] = limited.translate_n([sentence], prefixes)
        return translations

    return alone


def assert_each_as_alone(found, sentences, prefixes, alone):
    for translations, *one in zip(found, sentences, prefixes, strict=True):
        expected = alone(*one)
        assert [text for text, _ in translations] == [text for text, _ in expected]
        scores = [score for _, score in expected]
        assert [score for _, score in translations] == pytest.approx(scores, abs=1e-4)


@pytest.mark.slow
@TOGETHER
@given(
    pairs=st.lists(st.tuples(ANY_TEXT, PREFIXES), max_size=6),
    with_prefixes=st.booleans(),
    workers=st.integers(1, 3),
    tokens_per_batch=st.integers(1, 100),
)
def test_any_sentences_together_are_translated_as_each_alone(
    limited, alone, pairs, with_prefixes, workers, tokens_per_batch
):
    together = with_limits(limited, workers=workers, tokens_per_batch=tokens_per_batch)
    sentences = [sentence for sentence, _ in pairs]
    prefixes = [prefix if with_prefixes else None for _, prefix in pairs]
    found = together.translate_n(sentences, prefixes if with_prefixes else None)
    assert_each_as_alone(found, sentences, prefixes, alone)


@pytest.fixture(scope="module")
def compiled(model, tokenizer):
    """A translator compiled for one source length and a few batch sizes."""
    return Translator(model, tokenizer, jit_compile=True, tokens_per_batch=16, **LIMITS)


@pytest.mark.slow
@TOGETHER
@given(pairs=st.lists(st.tuples(ANY_TEXT, PREFIXES), max_size=6), workers=st.integers(1, 3))
def test_any_sentences_compiled_are_translated_as_each_alone(compiled, alone, pairs, workers):
    sentences, prefixes = map(list, zip(*pairs, strict=True)) if pairs else ([], [])
    found = with_limits(compiled, workers=workers).translate_n(sentences, prefixes)
    assert_each_as_alone(found, sentences, prefixes, alone)


# Terms.


def words_of(text):
    return " ".join(split_words(text))


def test_every_term_is_in_its_translation_and_other_sentences_stay_as_they_are(model, tokenizer):
    translator = Translator(model, tokenizer, n_best=4)
    terms = [
        [("Haus",)],
        [],
        [("alte Lampe", "alten Lampe"), ("Yes",)],
        [("Bär",), ("Bär",)],
        [],
        [],
    ]
    found = translator.translate_n(SENTENCES, terms=terms)
    plain = translator.translate_n(SENTENCES)
    for translations, of_sentence, expected in zip(found, terms, plain, strict=True):
        if not of_sentence:
            texts = [text for text, _ in expected]
            assert [text for text, _ in translations] == texts
        for text, _ in translations:
            words = f" {words_of(text)} "
            for forms in of_sentence:
                here = [form for form in forms if f" {form} " in words.replace("Alte", "alte")]
                assert here
                words = words.replace(f" {here[0]} ", "  ", 1)


def test_terms_without_room_are_left_out_with_a_warning(translator):
    short = translator.with_options(SearchOptions(max_length=3))
    terms = [[("Ein sehr langes Wort",)], [], [], [], [("Ja",)], []]
    with pytest.warns(TermsWarning, match="1 of the sentences are .* at index 0$") as record:
        found = short.translate(SENTENCES, terms=terms)
    assert [warning.message.indices for warning in record] == [[0]]
    assert found[0] == short.translate(SENTENCES[:1])[0]
    assert "Ja" in found[4].text


def test_terms_and_prefixes_go_together(translator):
    terms = [[("Stadt",), ("alte",)], [("Stadt",)], []]
    sentences, prefixes = ["A horse!"] * 3, ["Die alte", "", "Ein"]
    found = translator.translate(sentences, prefixes, terms)
    for translation, prefix in zip(found, prefixes, strict=True):
        assert translation.text.startswith(prefix)
    assert ["Stadt" in split_words(one.text) for one in found] == [True, True, False]
    [alone] = translator.translate(sentences[1:2], terms=terms[1:2])
    assert found[1].text == alone.text


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ([], "there must be 1 lists of terms, one for each sentence: found 0"),
        ("Hund", "terms must be a list for each sentence, as from Glossary.terms: found str"),
        ([["Hund"]], "each term must be a list of its forms, none .*: found 'Hund' at index 0"),
        ([[("Hund", "")]], "none of them empty"),
        ([[()]], "none of them empty"),
        ([[(1,)]], r"each term must be a list of its forms, .*: found \(1,\)"),
        ([[5]], "each term must be a list of its forms, .*: found 5 at index 0"),
        ([None], "the terms of a sentence must be a list, empty for none: found None at index 0"),
    ],
)
def test_malformed_terms_are_refused(translator, terms, message):
    with pytest.raises(UserError, match=message):
        translator.translate(["A horse!"], terms=terms)


def test_sampling_refuses_terms(translator):
    sampling = translator.with_options(SearchOptions(sample=True, seed=1))
    with pytest.raises(UserError, match="sampling does not support terms: leave them out, or"):
        sampling.translate(["A horse!"], terms=[[]])
