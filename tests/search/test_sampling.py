"""Sampled translations: their frequencies, their tokens, and what they share with a search."""

import dataclasses
import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import small_model
from keras import ops

from keras_transformer.data import BuiltinPairs
from keras_transformer.search import (
    NO_HYPOTHESIS,
    DecoderSteps,
    SearchOptions,
    Targets,
    beam_search,
    sample,
    score,
    search,
)
from keras_transformer.search.sampling import choose, keep_likely, uniform
from keras_transformer.text import SubwordTokenizer
from keras_transformer.translator import Translator

PAD, START, END = 0, 1, 2
DRAWS = 5000


class Chain(DecoderSteps):
    """A Markov chain: the last symbol alone determines the logits of the next one."""

    def __init__(self, logits):
        self.logits = logits.astype("float32")

    def step(self, ids, position, state):
        return ops.take(self.logits, ids, axis=0), state


@pytest.fixture(scope="module")
def logits():
    return np.random.default_rng(0).normal(scale=1.5, size=(8, 8))


def softmax(logits):
    exp = np.exp(logits - np.max(logits))
    return exp / exp.sum()


def without(logits, *symbols):
    return np.where(np.isin(np.arange(len(logits)), symbols), -np.inf, logits)


def drawn(
    logits,
    *,
    n=DRAWS,
    rows=1,
    length=3,
    seed=1,
    sentence_ids=None,
    prefixes=None,
    jit=False,
    num_slots=None,
    **options,
):
    """All samples of `rows` sentences: ids (rows, n, length) and scores."""
    options = SearchOptions(sample=True, beam_size=n, n_best=n, seed=seed, **options)

    def run():
        start_ids = ops.full((rows,), START)
        targets = Targets(start_ids, [length] * rows, length, prefixes, end_id=END, pad_id=PAD)
        return sample(
            Chain(logits), targets, options, num_slots, seed=options.seed, sentence_ids=sentence_ids
        )

    compiled = tf.function(run, jit_compile=True, autograph=False)
    return [x.numpy() for x in (compiled() if jit else run())]


def assert_drawn_from(probabilities, symbols):
    """Pearson's statistic is within six standard deviations of its mean."""
    counts = np.bincount(symbols, minlength=len(probabilities))
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    expected = len(symbols) * probabilities[possible]
    statistic = np.sum((counts[possible] - expected) ** 2 / expected)
    freedom = possible.sum() - 1
    assert statistic <= freedom + 6 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("jit", [False, True])
def test_symbols_come_as_often_as_they_are_likely_and_padding_never(logits, jit):
    ids, _ = drawn(logits, jit=jit)
    first, second, _ = ids[0].T
    assert_drawn_from(softmax(without(logits[START], PAD)), first)
    for symbol in np.argsort(-logits[START])[:4]:
        if symbol not in (PAD, END):
            assert_drawn_from(softmax(without(logits[symbol], PAD)), second[first == symbol])
    assert np.all(second[first == END] == PAD)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_logits_are_divided_by_the_temperature(logits, temperature):
    ids, _ = drawn(logits, length=2, temperature=temperature)
    assert_drawn_from(softmax(without(logits[START], PAD) / temperature), ids[0, :, 0])


def likely(logits, top_k, top_p):
    """The symbols that may be sampled, from the most likely one."""
    kept, total = [], 0.0
    order = np.argsort(-logits)[: top_k or None]
    probabilities = np.exp(logits[order]) / np.exp(logits[order]).sum()
    for symbol, probability in zip(order, probabilities, strict=True):
        if total < top_p or top_p == 1:
            kept.append(symbol)
        total += probability
    return kept


LIMITS = [(3, 1.0), (0, 0.5), (0, 0.9), (4, 0.8), (1, 1.0), (0, 1e-6), (100, 1.0), (0, 1.0)]


@pytest.mark.parametrize(("top_k", "top_p"), LIMITS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_only_the_likeliest_symbols_take_part(top_k, top_p, temperature):
    rows = np.random.default_rng(1).normal(scale=2.0, size=(2, 10, 40)).astype("float32")
    options = SearchOptions(sample=True, top_k=top_k, top_p=top_p, temperature=temperature)
    found = keep_likely(ops.convert_to_tensor(rows), options).numpy()
    expected = np.full(rows.shape, -np.inf)
    for place in np.ndindex(2, 10):
        kept = likely(rows[place] / temperature, top_k, top_p)
        expected[place][kept] = rows[place][kept] / temperature
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_what_is_left_is_drawn_as_often_as_it_is_likely_among_itself(logits):
    ids, _ = drawn(logits, length=2, top_k=5, top_p=0.8, temperature=1.3)
    row = without(logits[START], PAD) / 1.3
    kept = likely(row, 5, 0.8)
    assert 1 < len(kept) < 5
    assert_drawn_from(softmax(without(row, *set(range(8)) - set(kept))), ids[0, :, 0])


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}], ids=str)
def test_where_one_symbol_is_left_it_is_greedy_decoding(logits, options):
    ids, scores = drawn(logits, n=3, length=6, **options)
    greedy = beam_search(
        Chain(without_padding(logits)), Targets(ops.array([START]), [6]), SearchOptions(beam_size=1)
    )
    np.testing.assert_array_equal(ids[0], np.repeat(greedy.ids[0], 3, axis=0))
    full = log_prob(logits, np.trim_zeros(ids[0, 0], "b"))
    assert scores[0, 0] == pytest.approx(full[0] / full[1], rel=1e-5)


def without_padding(logits):
    return np.where(np.arange(8) == PAD, -1e9, logits)


def log_prob(logits, symbols, alpha=1.0):
    """The log-probability of symbols, of temperature 1 and all of the vocabulary; its penalty."""
    before = [START, *symbols[:-1]]
    total = sum(
        logits[last][symbol] - np.log(np.exp(logits[last]).sum())
        for last, symbol in zip(before, symbols, strict=True)
    )
    return total, len(symbols) ** alpha


@pytest.mark.parametrize("jit_compile", [False, True])
def test_choose_never_takes_what_has_no_probability(jit_compile):
    rng = np.random.default_rng(0)
    probabilities = rng.random((64, 2000)) ** 4 * (rng.random((64, 2000)) < 0.3)
    probabilities[:4] *= np.arange(2000) == [[7], [0], [1999], [300]]
    probabilities[:4] += np.arange(2000) == [[7], [0], [1999], [300]]
    probabilities = (probabilities / probabilities.sum(1, keepdims=True)).astype("float32")
    compiled = tf.function(choose, jit_compile=jit_compile)
    sums = tf.function(lambda p: ops.cumsum(p, axis=-1), jit_compile=jit_compile)
    sums = sums(probabilities).numpy()
    # The hardest cases: 0, almost 1, and the exact end of one symbol's share.
    chances = [np.full(64, chance, "float32") for chance in (0.0, 0.5, 1 - 2**-24)]
    chances += [sums[:, i] / sums[:, -1] for i in range(0, 2000, 23)]
    for chance in chances:
        tokens = compiled(probabilities, chance).numpy()
        assert np.all(np.take_along_axis(probabilities, tokens[:, None], 1) > 0)
    assert tokens[:4].tolist() == [7, 0, 1999, 300]


def test_choose_takes_the_symbol_whose_share_holds_the_number():
    chances = np.array([0.0, 0.19, 0.21, 0.69, 0.71, 0.999], "float32")
    probabilities = np.tile(np.array([0.2, 0.0, 0.5, 0.3, 0.0], "float32"), (6, 1))
    assert choose(probabilities, chances).numpy().tolist() == [0, 0, 2, 2, 3, 3]


def test_choose_takes_the_next_symbol_where_the_share_of_one_ends():
    probabilities = ops.array([[0.5, 0.25, 0.25]] * 3)
    assert choose(probabilities, ops.array([0.25, 0.5, 0.75])).numpy().tolist() == [0, 1, 2]


@pytest.mark.parametrize("n", [1, 3])
def test_without_room_one_empty_sequence_is_drawn(logits, n):
    ids, scores = drawn(logits, n=n, length=0)
    assert ids.shape == (1, n, 0)
    assert scores.tolist() == [[0.0] + [NO_HYPOTHESIS] * (n - 1)]


def test_without_a_seed_each_call_draws_anew(logits):
    assert np.any(drawn(logits, n=50, seed=None)[0] != drawn(logits, n=50, seed=None)[0])


def test_the_same_seed_draws_the_same_and_another_one_does_not(logits):
    options = {"n": 8, "rows": 2, "length": 12}
    ids, _ = drawn(logits, seed=3, **options)
    np.testing.assert_array_equal(drawn(logits, seed=3, **options)[0], ids)
    assert not np.array_equal(drawn(logits, seed=4, **options)[0], ids)
    # Two sentences, or two translations of one sentence, get different samples.
    assert not np.array_equal(ids[0], ids[1])
    assert len({tuple(row) for row in ids[0].tolist()}) > 4


@pytest.mark.slow
def test_what_is_drawn_does_not_depend_on_what_is_drawn_at_the_same_time(logits):
    options = {"n": 3, "rows": 7, "length": 12}
    ids, _ = drawn(logits, **options)
    np.testing.assert_array_equal(drawn(logits, num_slots=2, **options)[0], ids)
    chosen = [5, 0, 6]
    some, _ = drawn(logits, sentence_ids=chosen, **{**options, "rows": 3})
    np.testing.assert_array_equal(some, ids[chosen])
    longer, _ = drawn(logits, **{**options, "length": 20})
    for here, there in zip(ids, longer, strict=True):  # a sentence's samples, by their scores
        short = {tuple(row) for row in here if row[-1] == PAD}  # ended before the limit
        assert short <= {tuple(row[:12]) for row in there}
    assert (ids[..., -1] == PAD).any()


def test_random_numbers_are_uniform_and_of_every_counter():
    """Counters are consecutive seeds, sentences, beams and positions, as in a search."""
    shape = (8, 16, 4, 64)
    counters = np.meshgrid(
        *(np.arange(n, dtype="int32") for n in shape), indexing="ij", sparse=True
    )
    found = ops.convert_to_numpy(uniform(*map(ops.convert_to_tensor, counters)))
    assert found.shape == shape and found.dtype == "float32"
    assert found.min() >= 0 and found.max() < 1
    assert len(np.unique(found)) > 0.99 * found.size
    counts, _ = np.histogram(found, bins=64, range=(0, 1))
    assert_drawn_from(np.full(64, 1 / 64), np.repeat(np.arange(64), counts))
    for axis in range(4):  # neighbouring numbers are independent
        one, other = (
            np.moveaxis(found, axis, 0)[:-1].ravel(),
            np.moveaxis(found, axis, 0)[1:].ravel(),
        )
        assert abs(np.corrcoef(one, other)[0, 1]) < 4 / np.sqrt(one.size)


@pytest.mark.parametrize("jit", [False, True])
def test_random_numbers_are_those_of_the_hash_in_python(jit):
    def hashed(x):
        for multiplier in (0x21F0AAAD, 0x735A2D97):
            x = (x ^ x >> 16) * multiplier % 2**32
        return x ^ x >> 16

    def number(*counters):
        bits = 0
        for counter in counters:
            bits = hashed((bits + counter + 0x9E3779B9) % 2**32)
        return (bits >> 8) / 2**24

    counters = np.random.default_rng(0).integers(0, 2**31, size=(4, 20)).astype("int32")
    found = tf.function(uniform, jit_compile=jit)(*map(tf.constant, counters))
    assert found.numpy().tolist() == [number(*map(int, row)) for row in counters.T]


def test_scores_are_those_of_the_model_whatever_was_left_out(logits):
    ids, scores = drawn(logits, n=50, length=6, temperature=2.0, top_k=6, min_length=2)
    for row, found in zip(ids[0], scores[0], strict=True):
        total, penalty = log_prob(logits, np.trim_zeros(row, "b"))
        assert found == pytest.approx(total / penalty, rel=1e-4)


def test_sequences_come_from_the_best_on_and_each_ends_at_the_limit_at_the_latest(logits):
    ids, scores = drawn(logits, n=200, length=4)
    assert np.all(np.diff(scores[0]) <= 0)
    np.testing.assert_array_equal(np.sum(ids[0] == END, axis=-1), 1)
    assert 20 < np.sum(ids[0, :, -1] == END) < 180
    for row, found in zip(ids[0], scores[0], strict=True):
        total, penalty = log_prob(logits, np.trim_zeros(row, "b"))
        assert found == pytest.approx(total / penalty, rel=1e-5)


def test_fewer_are_returned_than_drawn_and_these_are_the_best(logits):
    ids, scores = drawn(logits, n=50, length=8)
    options = SearchOptions(sample=True, beam_size=50, n_best=3, seed=1)
    best = sample(Chain(logits), Targets(ops.array([START]), [8], 8), options, seed=1)
    np.testing.assert_array_equal(best.ids[0], ids[0, :3])
    np.testing.assert_array_equal(best.scores[0], scores[0, :3])


@pytest.mark.parametrize("jit", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_constraints_hold(logits, jit):
    prefixes = np.array([[5, 6, 5], [3, 0, 0], [0, 0, 0]], "int32")
    options = {"min_length": 7, "no_repeat_ngram": 2, "temperature": 2.0}
    ids, scores = drawn(logits, n=30, rows=3, length=9, prefixes=prefixes, jit=jit, **options)
    assert np.isfinite(scores).all()
    for prefix, hypotheses in zip(prefixes, ids, strict=True):
        prefix = np.trim_zeros(prefix).tolist()
        for row in hypotheses:
            symbols = np.trim_zeros(row, "b").tolist()
            assert PAD not in symbols
            assert 7 <= len(symbols) <= 9
            assert END not in symbols[:-1]
            assert symbols[: len(prefix)] == prefix
            pairs = list(itertools.pairwise(symbols))
            assert len(set(pairs)) == len(pairs)
    assert len({tuple(row) for row in ids[2].tolist()}) > 10


def test_where_nothing_may_follow_there_is_no_translation_as_in_a_search(logits):
    # There are three symbols besides padding: after two, the end must follow, but may not.
    small = logits[:4, :4]
    options = {"no_repeat_ngram": 1, "min_length": 4}
    ids, scores = drawn(small, n=3, length=6, **options)
    searched = beam_search(
        Chain(small),
        Targets(ops.array([START]), [6]),
        SearchOptions(beam_size=3, n_best=3, **options),
    )
    np.testing.assert_array_equal(scores, searched.scores)
    np.testing.assert_array_equal(ids, searched.ids)
    assert np.all(scores == NO_HYPOTHESIS)


# A Transformer, and a translator.

SOURCES = np.array([[5, 9, 7, 2, 0, 0], [0] * 6, [12, 4, 4, 8, 6, 2]], "int32")


@pytest.fixture(scope="module")
def model():
    return small_model(1, num_encoder_layers=1, num_decoder_layers=1)


@pytest.mark.slow
@pytest.mark.parametrize("compiled", ["eager", "graph", "xla"])
def test_what_a_transformer_draws_has_the_score_of_its_ids(model, compiled):
    options = SearchOptions(sample=True, n_best=4, extra_length=3, top_p=0.95, seed=7)

    def draw(source_ids):
        return search(model, source_ids, options)

    run = {
        "eager": draw,
        "graph": tf.function(draw, [tf.TensorSpec([None, None], tf.int32)], autograph=False),
        "xla": tf.function(draw, jit_compile=True, autograph=False),
    }[compiled]
    ids, scores = (x.numpy() for x in run(tf.constant(SOURCES)))
    again, _ = run(tf.constant(SOURCES))
    np.testing.assert_array_equal(again, ids)
    assert ids.shape == (3, 4, 9)
    rows = [0, 2]
    given = score(model, np.repeat(SOURCES[rows], 4, axis=0), ids[rows].reshape(8, 9), options)
    np.testing.assert_allclose(given, scores[rows].ravel(), rtol=1e-4)
    assert np.all(ids[1] == PAD)
    np.testing.assert_array_equal(scores[1], [0.0, *3 * [NO_HYPOTHESIS]])


SENTENCES = ["The girls sleep.", "A horse!", "", "The old man sees two birds."]


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


@pytest.fixture(scope="module")
def speaker(tokenizer):
    """A model with varied translations that end now and then."""
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    return small_model(3, vocab_size=tokenizer.vocab_size, **layers)


@pytest.fixture(scope="module")
def sampling_translator(speaker, tokenizer):
    """Makes translators that draw from the same seed on; they share graphs, to trace them once."""
    options = {"sample": True, "beam_size": 2, "extra_length": 4, "max_length": 12, "seed": 5}
    made = {
        jit_compile: Translator(speaker, tokenizer, jit_compile=jit_compile, **options)
        for jit_compile in (False, True)
    }

    def make(jit_compile=False, **sizes):
        translator = made[jit_compile].with_options(made[jit_compile].options)
        vars(translator).update(sizes)
        translator._batches = dataclasses.replace(translator._batches, **sizes)
        return translator

    return make


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_a_translator_draws_anew_at_each_call_and_the_same_from_its_seed_on(
    sampling_translator, jit_compile
):
    def translations():
        translator = sampling_translator(jit_compile)
        return [translator(SENTENCES) for _ in range(2)]

    first, second = translations()
    assert first[2] == second[2] == ""
    assert all(a != b for a, b in zip(first, second, strict=True) if a)
    assert translations() == [first, second]


MANY = [f"{sentence} {word}" for word in ("Yes", "A horse.", "No") for sentence in SENTENCES]


@pytest.fixture(scope="module")
def drawn_at_once(sampling_translator):
    return sampling_translator()(MANY)


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"workers": 3},
        {"tokens_per_batch": 1},
        {"tokens_per_batch": 60, "workers": 2},
        {"jit_compile": True},
    ],
    ids=str,
)
def test_what_is_drawn_depends_on_the_seed_and_the_index_alone(
    sampling_translator, drawn_at_once, options
):
    assert len(set(drawn_at_once)) == len(MANY)
    # With other sentences, or in several calls, each sentence has the same index.
    others = ["house " * (i % 5) if i % 3 else sentence for i, sentence in enumerate(MANY)]
    drawn = sampling_translator(**options)(others)
    assert drawn[::3] == drawn_at_once[::3]
    in_calls = sampling_translator(**options)
    assert [*in_calls(MANY[:5]), *in_calls([]), *in_calls(MANY[5:])] == drawn_at_once


@pytest.mark.slow
def test_without_a_seed_no_translator_draws_like_another(speaker, tokenizer):
    translator = Translator(speaker, tokenizer, sample=True, extra_length=4)
    other = translator.with_options(translator.options)
    assert translator(SENTENCES) != other(SENTENCES)


@pytest.mark.slow
def test_a_translator_starts_what_it_draws_with_a_prefix(speaker, tokenizer):
    prefixes = ["Die Mädchen", "", "", "Der alte"]
    translator = Translator(speaker, tokenizer, sample=True, n_best=3, extra_length=30, seed=1)
    for prefix, translations in zip(
        prefixes, translator.translate_n(SENTENCES, prefixes), strict=True
    ):
        assert all(text.startswith(prefix) for text, _ in translations)
    assert len(set(translations)) == 3


@pytest.mark.slow
def test_a_seed_is_that_of_the_options_unless_another_is_given(model):
    options = SearchOptions(sample=True, n_best=4, extra_length=4, seed=7)
    ids = search(model, SOURCES, options).ids
    np.testing.assert_array_equal(search(model, SOURCES, options, seed=7).ids, ids)
    generator = keras.random.SeedGenerator(7)
    draws = [search(model, SOURCES, options, seed=generator).ids.numpy() for _ in range(2)]
    assert not np.array_equal(*draws)
