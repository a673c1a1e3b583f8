"""Terms that hypotheses must contain, compared with all hypotheses of a small decoder."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from toy_decoder import END, PAD, ROWS, START, Toy, penalty

from keras_transformer.errors import UserError
from keras_transformer.search import NO_HYPOTHESIS, SearchOptions, Targets, beam_search, sample
from keras_transformer.search.term_tables import RequiredTerm, Spelling, term_tables
from keras_transformer.search.terms import Terms, turns


class Words:
    """Symbols as words: 4 and 5 continue a word; after 6, one may begin without a space."""

    def __init__(self, vocab_size):
        symbols = np.arange(vocab_size)
        self.continues, self.opens = np.isin(symbols, [4, 5]), symbols == 6

    def terms(self, sentences):
        tables = term_tables(sentences, self.continues, self.opens, END)
        tables = tables._make(map(ops.convert_to_tensor, tables))
        return Terms(tables, *map(ops.convert_to_tensor, (self.continues, self.opens)))

    def are_met(self, symbols, terms):
        """Whether a hypothesis with its end symbol contains the terms: the definition, in lists."""
        left = [term.times for term in terms]
        for end in range(1, len(symbols)):
            if self.continues[symbols[end]]:
                continue
            found = {}  # the length of the longest spelling of each term that ends here
            for number, term in enumerate(terms):
                for ids, after_space in term.spellings:
                    begin = end - len(ids)
                    before = [6, *symbols][begin] if begin >= 0 else None
                    fits = after_space or (begin >= 0 and self.opens[before])
                    if fits and tuple(symbols[max(begin, 0) : end]) == ids:
                        found[number] = max(found.get(number, 0), len(ids))
            for number, length in found.items():
                left[number] -= length == max(found.values())
        return max(left, default=0) <= 0


def found(toy, options, limits, terms, num_slots=None, jit_compile=False):
    """The result of `beam_search` as NumPy arrays."""

    def run():
        targets = Targets(ops.full((len(limits),), START), limits, int(max(limits)), terms=terms)
        return beam_search(toy, targets, options, num_slots)

    run = tf.function(run, jit_compile=True, autograph=False) if jit_compile else run
    return [ops.convert_to_numpy(x) for x in run()]


def log_prob(following, symbols):
    return sum(following(symbols[:i])[symbol] for i, symbol in enumerate(symbols))


def best_of_all(toy, row, limit, options, is_fit):
    """The best of all hypotheses that are fit, with scores, best first."""
    following, hypotheses = toy.following(row), []
    symbols = [s for s in range(toy.logits.shape[1]) if s not in (PAD, END)]
    for length in range(1, limit + 1):
        for start in itertools.product(symbols, repeat=length - 1):
            if is_fit([*start, END]):
                score = log_prob(following, [*start, END]) / penalty(length, options)
                hypotheses.append(([*start, END], score))
    return sorted(hypotheses, key=lambda h: -h[1])[: options.n_best]


def random_terms(rng, vocab_size, most_symbols=3):
    """One to three terms of one to three forms, which may have symbols or forms in common."""

    def form():
        length = rng.integers(1, most_symbols + 1)
        return tuple(int(symbol) for symbol in rng.integers(3, vocab_size, length))

    return [
        RequiredTerm(
            (Spelling(form()), *(Spelling(form(), bool(rng.integers(2))) for _ in range(forms))),
            times=int(rng.choice([1, 1, 1, 2])),
        )
        for forms in rng.integers(0, 3, rng.integers(1, 4))
    ]


@pytest.mark.slow
def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all_hypotheses_with_the_terms():
    limit, options = 5, SearchOptions(beam_size=400, n_best=5, alpha=0.6, patience=None)
    generators = [np.random.default_rng(seed) for seed in range(12)]
    toy, words = Toy(0, [int(rng.integers(ROWS)) for rng in generators], vocab_size=7), Words(7)
    terms = [random_terms(rng, 7, most_symbols=2) for rng in generators]
    ids, scores = found(toy, options, [limit] * 12, words.terms(terms))
    for row in range(12):

        def is_fit(symbols, row=row):
            return words.are_met(symbols, terms[row])

        expected = best_of_all(toy, row, limit, options, is_fit)
        hypotheses = [[int(s) for s in one if s != PAD] for one in ids[row]]
        assert [h for h in hypotheses if h] == [symbols for symbols, _ in expected]
        expected = [score for _, score in expected]
        np.testing.assert_allclose(scores[row][: len(expected)], expected, rtol=1e-5)


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_all_terms_occur_even_if_the_limit_leaves_room_for_nothing_else(beam_size):
    rng = np.random.default_rng(beam_size)
    vocab_size, sentences = 12, 40
    toy, words = Toy(3, rng.integers(0, ROWS, sentences), vocab_size), Words(vocab_size)

    def form(first):  # one or two words of one to three symbols
        words = [(first, *rng.integers(4, 6, rng.integers(3)).tolist()) for _ in range(2)]
        return Spelling(sum(words[: rng.integers(1, 3)], ()))

    terms = [
        [
            RequiredTerm(tuple(form(first) for _ in range(2)), times=int(rng.integers(1, 3)))
            for first in range(7, 7 + number)
        ]
        for number in rng.integers(1, 5, sentences)
    ]
    tables = words.terms(terms)
    room = ops.convert_to_numpy(ops.sum(tables.tables.shortest * tables.tables.counts, axis=1))
    limits = room + 1 + np.where(rng.integers(2, size=sentences), rng.integers(0, 9, sentences), 0)
    options = SearchOptions(beam_size=beam_size)
    ids, scores = found(toy, options, limits, tables)
    for row, [hypothesis] in enumerate(ids):
        symbols = [int(symbol) for symbol in hypothesis if symbol != PAD]
        assert words.are_met(symbols, terms[row])
        expected = log_prob(toy.following(row), symbols) / penalty(len(symbols), options)
        np.testing.assert_allclose(scores[row, 0], expected, rtol=1e-4)


def test_a_sentence_whose_limit_leaves_no_room_for_its_terms_has_no_hypothesis():
    toy, words = Toy(3, [5, 5], vocab_size=8), Words(8)
    terms = [[RequiredTerm((Spelling((3, 7)),))]] * 2
    ids, scores = found(toy, SearchOptions(beam_size=2), [2, 3], words.terms(terms))
    assert scores[0, 0] == NO_HYPOTHESIS and not ids[0].any()
    assert ids[1, 0].tolist() == [3, 7, END]


def test_sentences_do_not_depend_on_each_other_nor_on_their_slots():
    rng = np.random.default_rng(1)
    sources, limits = rng.integers(0, ROWS, 5), rng.integers(9, 14, 5)
    words, options = Words(9), SearchOptions(beam_size=2, n_best=2)
    terms = [random_terms(rng, 9, most_symbols=2) for _ in sources]
    terms[2] = []
    toy = Toy(3, sources, 9, end_bias=-1.0)
    together = found(toy, options, limits, words.terms(terms))
    in_turns = found(toy, options, limits, words.terms(terms), num_slots=2)
    np.testing.assert_array_equal(in_turns[0], together[0])
    np.testing.assert_allclose(in_turns[1], together[1], rtol=1e-5)
    for row, source in enumerate(sources):
        alone = found(Toy(3, [source], 9, -1.0), options, limits[[row]], words.terms([terms[row]]))
        np.testing.assert_array_equal(alone[0][0], together[0][row, :, : limits[row]])
        np.testing.assert_allclose(alone[1][0], together[1][row], rtol=1e-5)


def test_a_form_counts_only_as_whole_words():
    words, term = Words(8), [RequiredTerm((Spelling((3,)), Spelling((7,), after_space=False)))]
    assert words.are_met([3, END], term)
    assert words.are_met([6, 7, END], term)
    assert not words.are_met([3, 4, END], term)  # 4 continues the word
    assert not words.are_met([5, 7, END], term)  # no space is before 7


def test_a_state_is_explored_only_at_the_symbols_that_its_spellings_go_on_with():
    class Opens(list):
        count = 0

        def __getitem__(self, index):
            self.count += 1
            return super().__getitem__(index)

    rng, opens = np.random.default_rng(1), Opens([False] * 300)
    forms = [tuple(rng.integers(3, 300, 3).tolist()) for _ in range(50)]
    term = RequiredTerm(tuple(map(Spelling, forms)))
    tables = term_tables([[term]], np.zeros(300, bool), opens, END)
    assert opens.count < tables.next_state.size / 10  # else many forms take seconds
    columns = {symbol: column for column, symbol in enumerate(tables.symbols[0].tolist())}
    for form in forms:
        for before in rng.choice([*columns], (20, 2)).tolist():
            state, ended = 1, []
            for symbol in [*before, *form]:
                state = tables.next_state[0, state, columns[symbol]]
                ended.append(tables.ends[0, state, 0])
            assert ended == [0, 0, *[(*before, *form)[n : n + 3] in forms for n in range(3)]]


@pytest.mark.parametrize("jit_compile", [False, True])
def test_banks_take_turns_as_a_comparison_of_all_pairs_finds(jit_compile):
    rng = np.random.default_rng(0)
    log_probs = rng.normal(-5.0, 3.0, (7, 60)).astype("float32")
    log_probs[rng.random((7, 60)) < 0.2] = -np.inf
    log_probs[0] = -np.inf
    needs = rng.integers(0, rng.integers(1, 9, (7, 1)), (7, 60)).astype("int32")
    is_before = log_probs[:, None] > log_probs[:, :, None]
    turn = np.sum(is_before & (needs[:, None] == needs[:, :, None]), axis=2)
    expected = log_probs - 1e5 * turn
    for row in range(1, 7):
        closest = min(needs[row, log_probs[row] > -np.inf])
        expected[row, (needs[row] == closest) & (turn[row] == 0)] = 0.0
    of_any_shape = [tf.TensorSpec([None, None], tf.float32), tf.TensorSpec([None, None], tf.int32)]
    found = tf.function(turns, of_any_shape, autograph=False, jit_compile=jit_compile)
    np.testing.assert_array_equal(found(log_probs, needs), expected.astype("float32"))


def test_no_tensor_has_all_pairs_of_candidates():
    """A sentence with ten terms of eight forms has a thousand candidates."""
    of = (tf.TensorSpec((64, 1000), dtype) for dtype in (tf.float32, tf.int32))
    graph = tf.function(turns, autograph=False).get_concrete_function(*of).graph
    sizes = [x.shape.num_elements() for op in graph.get_operations() for x in op.outputs]
    assert len(sizes) > 20 and max(sizes) <= 64 * 1000


def test_sampling_refuses_terms():
    targets = Targets(ops.array([START]), [9], terms=Words(8).terms([[]]))
    with pytest.raises(UserError, match="sampling does not support terms: leave them out"):
        sample(Toy(1, [3], 8), targets, SearchOptions(sample=True))
