"""Beam search: held against enumeration, argmax and a plain NumPy search on toy models."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer.search import (
    NO_HYPOTHESIS,
    DecoderSteps,
    SearchOptions,
    Targets,
    beam_search,
)

START, END, PAD = (
    1,
    2,
    -1,
)  # no toy model emits padding, so it marks positions that were not written


class Steps(DecoderSteps):
    """A decoder made of a function and the state that it starts with."""

    def __init__(self, step, state=()):
        self.function = step
        self.state = state

    def initial_state(self, batch, beam_size):
        return self.state

    def step(self, ids, position, state):
        return self.function(ids, position, state)


def run(
    step,
    state,
    start_ids,
    *,
    max_lengths,
    beam_size,
    n_best=None,
    alpha=0.0,
    patience=None,
    num_slots=None,
    **targets,
):
    """All beams of a search, without `n_best`."""
    options = SearchOptions(
        beam_size=beam_size, n_best=n_best or beam_size, alpha=alpha, patience=patience
    )
    targets = Targets(start_ids, max_lengths, **targets)
    return beam_search(Steps(step, state), targets, options, num_slots)


class ToyModel:
    """A model whose logits depend on the source and, through a cache of symbols, on the history."""

    def __init__(self, seed, vocab_size, end_bias=0.0):
        rng = np.random.default_rng(seed)
        self.logits = rng.normal(scale=2.0, size=(211, vocab_size)).astype("float32")
        self.logits[:, END] += end_bias
        self.weights = rng.integers(1, 211, size=64).astype("int32")

    def log_probs(self, source, symbols):
        """NumPy, float64: log-probabilities of the symbol that follows `symbols`."""
        past = [START, *symbols]
        row = (source + np.dot(past, self.weights[: len(past)])) % len(self.logits)
        logits = self.logits[row].astype("float64")
        return logits - np.log(np.sum(np.exp(logits)))

    def search(self, sources, *, beam_size, max_lengths, cache_length=12, **options):
        def step(ids, position, state):
            is_now = ops.arange(cache_length) == position[:, None, None]
            past = ops.where(is_now, ids[:, :, None], state["past"])
            row = ops.sum(past * self.weights[:cache_length], axis=-1) + state["sources"]
            return ops.take(self.logits, row % len(self.logits), axis=0), {**state, "past": past}

        sources = ops.convert_to_tensor(sources, "int32")
        beams = (ops.shape(sources)[0], beam_size)
        return run(
            step,
            {
                "past": ops.zeros((*beams, cache_length), "int32"),
                "sources": ops.broadcast_to(sources[:, None], beams),
            },
            ops.full_like(sources, START),
            beam_size=beam_size,
            max_lengths=max_lengths,
            pad_id=PAD,
            **options,
        )


def chain(transitions, vocab_size, calls=None):
    """A step whose next symbol depends on the last one only: {last: {next: probability}}."""
    probabilities = np.zeros((vocab_size, vocab_size), "float32")
    for last, following in transitions.items():
        for symbol, probability in following.items():
            probabilities[last, symbol] = probability
    with np.errstate(divide="ignore"):
        logits = np.log(probabilities)

    def step(ids, position, cache):
        if calls is not None:
            calls.append(int(ops.max(position)))
        return ops.take(logits, ids, axis=0), cache

    return step


def score(log_prob, length, alpha):
    return log_prob / length**alpha


def symbols_of(row):
    return [int(symbol) for symbol in row if symbol != PAD]


def by_score(hypotheses):
    """[(symbols, score)], the best first."""
    return sorted(hypotheses, key=lambda h: -h[1])


def assert_hypotheses(ids, scores, expected):
    assert [symbols_of(row) for row in ids] == [symbols for symbols, _ in expected]
    np.testing.assert_allclose(scores, [value for _, value in expected], rtol=1e-5, atol=1e-5)


def reference_search(model, source, beam_size, alpha, limit, n_best, patience=None):
    """The rules in plain Python, with lists, without early stop (but greedy stops at its end)."""
    live, finished = [([], 0.0)], []
    for length in range(1, limit + 1):
        candidates = [
            ([*symbols, symbol], log_prob + more)
            for symbols, log_prob in live
            for symbol, more in enumerate(model.log_probs(source, symbols))
            if length < limit or symbol == END
        ]
        candidates = sorted(candidates, key=lambda c: -c[1])[: 2 * beam_size]
        ends = [c for c in candidates[:beam_size] if c[0][-1] == END]
        finished += [(symbols, score(log_prob, length, alpha)) for symbols, log_prob in ends]
        live = [c for c in candidates if c[0][-1] != END][:beam_size]
        if beam_size == 1 and finished:
            break
        if patience and len(finished) >= max(n_best, patience * beam_size):
            break
    return by_score(finished)[:n_best]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_wide_beam_finds_all_that_enumeration_finds(alpha):
    vocab_size, limit = 4, 4
    model, source = ToyModel(seed=1, vocab_size=vocab_size), 17
    expected = []
    for length in range(1, limit + 1):
        for symbols in itertools.product(range(vocab_size), repeat=length):
            if symbols[-1] == END and END not in symbols[:-1]:
                steps = [model.log_probs(source, symbols[:i])[symbols[i]] for i in range(length)]
                expected.append((list(symbols), score(sum(steps), length, alpha)))
    beam_size = 3 ** (limit - 2) * vocab_size  # all continuations of the last step but one

    result = model.search([source], beam_size=beam_size, alpha=alpha, max_lengths=[limit])

    assert len(expected) == 1 + 3 + 9 + 27
    assert_hypotheses(result.ids[0], result.scores[0], by_score(expected)[:beam_size])


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_a_plain_search(seed):
    rng = np.random.default_rng(seed)
    model = ToyModel(seed, vocab_size=int(rng.integers(3, 9)), end_bias=rng.uniform(-2, 2))
    beam_size = int(rng.integers(1, 6))
    n_best = int(rng.integers(1, beam_size + 1))
    alpha = float(rng.choice([0.0, 0.3, 0.6, 1.0, 2.0]))
    sources, limits = rng.integers(0, 200, size=9), rng.integers(1, 9, size=9)
    patience = rng.choice([None, 0.5, 1.0, 1.5])
    options = {"beam_size": beam_size, "n_best": n_best, "alpha": alpha, "patience": patience}

    result = model.search(sources, max_lengths=limits, **options)

    for ids, scores, source, limit in zip(*result, sources, limits, strict=True):
        expected = reference_search(model, source, limit=limit, **options)
        assert_hypotheses(ids[: len(expected)], scores[: len(expected)], expected)
        assert np.all(scores[len(expected) :] == NO_HYPOTHESIS)  # fewer sequences exist than slots
        assert np.all(ids[len(expected) :] == PAD)


@pytest.mark.parametrize("patience", [None, 0.5, 1.0])
def test_the_best_alone_is_the_first_of_the_n_best(patience):
    model, options = (
        ToyModel(3, vocab_size=6, end_bias=-1.0),
        {"beam_size": 4, "patience": patience},
    )
    alone = SearchOptions(n_best=3, **options).best_only().n_best
    best, all_ = (
        model.search(range(60), n_best=n_best, alpha=0.6, max_lengths=[9] * 60, **options)
        for n_best in (alone, 3)
    )
    np.testing.assert_array_equal(best.ids[:, 0], all_.ids[:, 0])
    np.testing.assert_allclose(best.scores[:, 0], all_.scores[:, 0], rtol=1e-6)


# A search folds many logits into a table of 20 rows: here 9 columns, or 11 with some padding.
@pytest.mark.parametrize(("vocab_size", "level"), [(180, 0), (211, 0), (211, -100)])
def test_a_large_vocabulary_is_searched_like_a_small_one(vocab_size, level):
    model = ToyModel(seed=8, vocab_size=vocab_size, end_bias=4.0)
    model.logits += level  # adds nothing to log-probabilities
    options = {"beam_size": 2, "n_best": 2, "alpha": 0.6}

    result = model.search(range(20), max_lengths=[5] * 20, **options)

    for ids, scores, source in zip(*result, range(20), strict=True):
        assert_hypotheses(ids, scores, reference_search(model, source, limit=5, **options))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 3.0])
def test_one_beam_is_argmax_decoding(alpha):
    model, limit = ToyModel(seed=3, vocab_size=6), 9
    sources = range(20)

    result = model.search(sources, beam_size=1, alpha=alpha, max_lengths=[limit] * 20)

    lengths = set()
    for ids, source in zip(result.ids, sources, strict=True):
        symbols = []
        while END not in symbols:
            is_last = len(symbols) + 1 == limit
            best = END if is_last else int(np.argmax(model.log_probs(source, symbols)))
            symbols.append(best)
        assert symbols_of(ids[0]) == symbols
        lengths.add(len(symbols))
    assert {1, limit} < lengths


def test_a_sentence_alone_and_in_a_batch_gives_the_same():
    model = ToyModel(seed=4, vocab_size=7)
    sources, limits = [5, 5, 60, 7, 180, 33], [1, 3, 10, 8, 5, 2]
    options = {"beam_size": 4, "alpha": 0.6}

    together = model.search(sources, max_lengths=limits, **options)

    for i, (source, limit) in enumerate(zip(sources, limits, strict=True)):
        alone = model.search([source], max_lengths=[limit], **options)
        np.testing.assert_array_equal(together.ids[i, :, :limit], alone.ids[0])
        assert np.all(together.ids[i, :, limit:] == PAD)
        np.testing.assert_allclose(together.scores[i], alone.scores[0], rtol=1e-6)


def test_nothing_follows_the_end_and_scores_are_those_of_the_ids():
    model, alpha = ToyModel(seed=5, vocab_size=6), 0.6
    sources = [3, 90, 150]

    result = model.search(sources, beam_size=5, alpha=alpha, max_lengths=[10, 10, 10])

    assert result.ids.shape == (3, 5, 10) and result.ids.dtype == "int32"
    assert result.scores.shape == (3, 5) and result.scores.dtype == "float32"
    for source, hypotheses, scores in zip(sources, result.ids, result.scores, strict=True):
        assert len({tuple(symbols_of(row)) for row in hypotheses}) == 5
        assert np.all(np.diff(scores) <= 0)
        for row, found in zip(hypotheses, scores, strict=True):
            symbols = symbols_of(row)
            assert symbols.index(END) == len(symbols) - 1
            assert np.all(row[len(symbols) :] == PAD)
            steps = [model.log_probs(source, symbols[:i])[s] for i, s in enumerate(symbols)]
            np.testing.assert_allclose(found, score(sum(steps), len(symbols), alpha), rtol=1e-5)


def test_all_beams_may_end_at_once_and_as_many_live_on():
    # After each first symbol, the end is the most likely continuation. With this strong penalty the
    # two longer hypotheses win, so two beams must live on besides the two that end.
    transitions = {1: {3: 0.6, 4: 0.4}, 3: {2: 0.9, 5: 0.1}, 4: {2: 0.9, 5: 0.1}, 5: {2: 1.0}}
    step = chain(transitions, vocab_size=6)
    options = {"beam_size": 2, "alpha": 30.0, "max_lengths": [3]}

    result = run(step, {}, ops.array([START]), **options)

    np.testing.assert_array_equal(result.ids[0], [[3, 5, END], [4, 5, END]])


def test_an_end_must_be_among_the_first_beam_size_continuations():
    going_on = {3: {3: 0.9, END: 0.1}, 4: {4: 0.9, END: 0.1}}
    step = chain({1: {3: 0.5, 4: 0.3, END: 0.2}, **going_on}, vocab_size=5)

    narrow = run(step, {}, ops.array([START]), beam_size=2, alpha=0, max_lengths=[3])
    wide = run(step, {}, ops.array([START]), beam_size=3, alpha=0, max_lengths=[3])

    np.testing.assert_array_equal(narrow.ids[0], [[3, 3, END], [4, 4, END]])
    np.testing.assert_array_equal(wide.ids[0], [[END, 0, 0], [3, END, 0], [3, 3, END]])


def test_hypotheses_that_the_limit_cuts_end_there_with_the_probability_of_the_end():
    going_on = {3: {3: 0.9, END: 0.1}, 4: {4: 0.2, END: 0.8}}
    step = chain({1: {3: 0.7, 4: 0.2, END: 0.1}, **going_on}, vocab_size=5)

    result = run(step, {}, ops.array([START]), beam_size=4, alpha=1.0, max_lengths=[3])

    expected = [
        ([4, END, 0], 2, 0.2 * 0.8),
        ([3, 3, END], 3, 0.7 * 0.9 * 0.1),
        ([4, 4, END], 3, 0.2 * 0.2 * 0.8),
        ([3, END, 0], 2, 0.7 * 0.1),
    ]
    np.testing.assert_array_equal(result.ids[0], [ids for ids, _, _ in expected])
    scores = [score(np.log(probability), length, 1.0) for _, length, probability in expected]
    np.testing.assert_allclose(result.scores[0], scores, rtol=1e-6)


def test_a_hypothesis_that_cannot_end_at_the_limit_is_missing():
    step = chain({1: {3: 0.7, 4: 0.3}, 3: {3: 1.0}, 4: {4: 0.5, END: 0.5}}, vocab_size=5)

    result = run(step, {}, ops.array([START]), beam_size=3, max_lengths=[3])

    np.testing.assert_array_equal(result.ids[0], [[4, END, 0], [4, 4, END], [0, 0, 0]])
    np.testing.assert_allclose(result.scores[0], [*np.log([0.15, 0.075]), NO_HYPOTHESIS], rtol=1e-6)


@pytest.mark.parametrize(
    ("n_best", "alpha", "patience", "steps"),
    [
        (1, 0.0, None, 2),  # the best has ended; the live beam, at 0.1, cannot overtake it
        (2, 0.0, None, 4),  # the second best ends after four symbols
        (1, 9.0, None, 6),  # the penalty could still favour the live beam until the limit
        (1, 9.0, 0.5, 2),  # one has ended
        (2, 9.0, 0.5, 4),  # two are requested
        (1, 9.0, 1.0, 4),  # two have ended
        (1, 9.0, 0.75, 4),  # two have ended, since one is less than 1.5
    ],
)
def test_stops_when_no_live_beam_can_enter_the_n_best_or_enough_have_ended(
    n_best, alpha, patience, steps
):
    transitions = {
        1: {3: 0.9, 4: 0.1},
        3: {END: 1.0},
        4: {5: 1.0},
        5: {6: 1.0},
        6: {END: 0.9, 4: 0.1},
    }
    calls = []
    step = chain(transitions, vocab_size=7, calls=calls)
    options = {"beam_size": 2, "alpha": alpha, "n_best": n_best, "patience": patience}

    run(step, {}, ops.array([START]), max_lengths=[6], **options)

    assert calls == list(range(steps))


def test_an_end_that_cannot_follow_does_not_count_as_a_finished_hypothesis():
    # A single symbol can follow, so impossible ones, the end among them, fill the other places.
    step = chain({1: {3: 1.0}, 3: {4: 1.0}, 4: {END: 1.0}}, vocab_size=5)
    options = {"beam_size": 4, "n_best": 1, "patience": 0.25, "max_lengths": [5]}

    result = run(step, {}, ops.array([START]), **options)

    np.testing.assert_array_equal(result.ids[0], [[3, 4, END, 0, 0]])


def test_of_equal_scores_the_shorter_comes_first_and_for_no_equal_one_a_step_is_taken():
    calls = []
    step = chain({1: {3: 0.5, END: 0.5}, 3: {END: 1.0}}, vocab_size=4, calls=calls)
    options = {"beam_size": 2, "alpha": 0.0, "max_lengths": [5]}

    both = run(step, {}, ops.array([START]), **options)
    np.testing.assert_array_equal(both.ids[0, :, :3], [[END, 0, 0], [3, END, 0]])
    assert both.scores[0, 0] == both.scores[0, 1]
    assert calls == [0, 1]

    calls.clear()
    run(step, {}, ops.array([START]), n_best=1, **options)
    assert calls == [0]


def test_the_longest_search_of_the_batch_ends_the_loop():
    calls = []
    step = chain({1: {END: 1.0}, 3: {4: 1.0}, 4: {END: 1.0}}, vocab_size=5, calls=calls)

    result = run(
        step, {}, ops.array([1, 3]), beam_size=2, n_best=1, alpha=0.6, max_lengths=[50, 60]
    )

    assert calls == [0, 1]
    np.testing.assert_array_equal(result.ids[:, 0, :3], [[END, 0, 0], [4, END, 0]])


def test_sentences_that_are_done_leave():
    transitions = {1: {END: 1.0}, 3: {4: 1.0}, 4: {5: 1.0}, 5: {6: 1.0}, 6: {END: 1.0}}
    chained, sentences = chain(transitions, vocab_size=7), []

    def step(ids, position, state):
        sentences.append(ids.shape[0])
        return chained(ids, position, state)

    start_ids = ops.array([1, 1, 1, 4, 1, 3, 1, 1, 1])
    result = run(step, {}, start_ids, beam_size=2, n_best=1, max_lengths=[9] * 9)

    assert sentences == [9, 2, 2, 2]
    assert [symbols_of(row[0][row[0] != 0]) for row in result.ids[3:6]] == [
        [5, 6, END],
        [END],
        [4, 5, 6, END],
    ]


def test_a_sentence_takes_the_batch_slot_of_one_that_is_done():
    transitions = {1: {END: 1.0}, 3: {4: 1.0}, 4: {5: 1.0}, 5: {END: 1.0}}
    chained, asked = chain(transitions, vocab_size=6), []

    def step(ids, position, state):
        asked.append((ids[:, 0].numpy().tolist(), position.numpy().tolist()))
        return chained(ids, position, state)

    start_ids = ops.array([3, 1, 1, 4])
    result = run(step, {}, start_ids, beam_size=1, max_lengths=[9] * 4, num_slots=2)

    assert asked == [([3, 1], [0, 0]), ([4, 1], [1, 0]), ([5, 4], [2, 0]), ([5, 5], [2, 1])]
    assert [symbols_of(row[0][row[0] != 0]) for row in result.ids] == [
        [4, 5, END],
        [END],
        [END],
        [5, END],
    ]


def test_a_sentence_without_room_takes_no_batch_slot():
    chained, asked = chain({3: {4: 1.0}, 4: {END: 1.0}}, vocab_size=5), []

    def step(ids, position, state):
        asked.append(ids[:, 0].numpy().tolist())
        return chained(ids, position, state)

    start_ids, limits = ops.array([1, 3, 1, 1, 3]), [0, 9, 0, 0, 9]
    result = run(step, {}, start_ids, beam_size=1, max_lengths=limits, num_slots=1)

    assert asked == [[3], [4], [3], [4]]
    found = [symbols_of(row[0][row[0] != 0]) for row in result.ids]
    assert found == [[], [4, END], [], [], [4, END]]


class Growing(DecoderSteps):
    """A chain whose state has a column for each position that it has room for.

    `steps` lists the number of batch slots and of columns at each step.
    """

    def __init__(self, transitions, vocab_size):
        self.chained, self.steps = chain(transitions, vocab_size), []

    def initial_state(self, batch, beam_size):
        return ops.zeros((batch, beam_size, 0))

    def grow(self, state, size):
        return ops.pad(state, [(0, 0), (0, 0), (0, size - ops.shape(state)[2])])

    def step(self, ids, position, state):
        shape = tf.shape(state)[::2]
        tf.numpy_function(lambda shape: self.steps.append(tuple(shape)), [shape], [])
        return self.chained(ids, position, state)


LINE = {1: {END: 1.0}, 3: {4: 1.0}, 4: {5: 1.0}, 5: {6: 1.0}, 6: {7: 1.0}, 7: {END: 1.0}}


@pytest.mark.parametrize(
    ("start_ids", "num_slots", "is_graph", "steps"),
    [
        ([3], 8, False, [(1, 3), (1, 3), (1, 3), (1, 4), (1, 9)]),
        ([3, 5], 1, True, [(1, 3), (1, 3), (1, 3), (1, 4), *4 * [(1, 9)]]),
        ([1, 1, 1, 5, 1, 3, 1, 1], 8, False, [(8, 3), (2, 9), (2, 9), (2, 9), (2, 9)]),
        ([1, 1, 1, 5, 1, 3, 1, 1], 8, True, [(8, 3), (2, 3), (2, 3), (1, 4), (1, 9)]),
    ],
)
def test_the_state_grows_and_slots_close_as_sentences_need(
    start_ids, num_slots, is_graph, steps, monkeypatch
):
    """A graph takes any shape; else there are few: slots close once, and the state is then full."""
    for name in ("STATE_SIZES", "SIZES_TO_COMPILE"):
        monkeypatch.setattr(f"keras_transformer.search.loop.{name}", (3, 4))
    growing, options = Growing(LINE, vocab_size=8), SearchOptions(beam_size=1)

    def search(start_ids, limits):
        return beam_search(growing, Targets(start_ids, limits), options, num_slots)

    if is_graph:
        search = tf.function(search, [tf.TensorSpec([None], tf.int32)] * 2, autograph=False)

    result = search(tf.constant(start_ids), tf.fill([len(start_ids)], 9))

    expected = {1: [END], 5: [6, 7, END], 3: [4, 5, 6, 7, END]}
    found = [symbols_of(row[0][row[0] != 0]) for row in result.ids]
    assert found == [expected[start] for start in start_ids]
    assert growing.steps == steps


def test_half_precision_logits_are_summed_in_float32():
    row = ops.cast(np.random.default_rng(0).normal(size=50), "bfloat16")

    def step(ids, position, cache):
        return ops.broadcast_to(row, (1, 2, 50)), cache

    options = {"beam_size": 2, "alpha": 0.0, "max_lengths": [8], "pad_id": PAD}
    result = run(step, {}, ops.array([START]), **options)

    logits = np.array(ops.cast(row, "float32"), "float64")
    log_probs = logits - np.log(np.sum(np.exp(logits)))
    expected = sum(log_probs[symbol] for symbol in symbols_of(result.ids[0, 0]))
    np.testing.assert_allclose(result.scores[0, 0], expected, rtol=1e-6)


def test_nan_logits_of_one_sentence_leave_the_others_alone():
    def step(ids, position, cache):
        broken = ops.convert_to_tensor([[[np.nan]], [[0.0]]], "float32")
        return 9.0 * ops.one_hot(ops.full_like(ids, END), 4) + broken, cache

    result = run(step, {}, ops.array([1, 1]), beam_size=2, alpha=0.6, max_lengths=[3, 3])

    assert np.all(result.scores[0] == NO_HYPOTHESIS) and np.all(result.ids[0] == 0)
    np.testing.assert_array_equal(result.ids[1, 0], [END, 0, 0])


def test_nan_logits_of_one_beam_leave_the_others_alone():
    chained = chain({1: {3: 0.6, 4: 0.4}, 4: {5: 0.9, END: 0.1}, 5: {END: 1.0}}, vocab_size=6)

    def step(ids, position, state):
        logits, state = chained(ids, position, state)
        return ops.where(ops.equal(ids, 3)[..., None], np.nan, logits), state

    result = run(step, {}, ops.array([START]), beam_size=2, alpha=0.0, max_lengths=[3])

    np.testing.assert_array_equal(result.ids[0], [[4, 5, END], [4, END, 0]])
    np.testing.assert_allclose(result.scores[0], np.log([0.36, 0.04]), rtol=1e-5)


def test_empty_batch_and_empty_limit():
    model = ToyModel(seed=6, vocab_size=5)

    nothing = model.search(np.zeros(0), beam_size=3, alpha=0.6, max_lengths=np.zeros(0))
    no_room = model.search([4], beam_size=3, alpha=0.6, max_lengths=[0])

    assert nothing.ids.shape == (0, 3, 0) and nothing.scores.shape == (0, 3)
    assert no_room.ids.shape == (1, 3, 0)
    np.testing.assert_array_equal(no_room.scores, [[0.0, NO_HYPOTHESIS, NO_HYPOTHESIS]])


SOURCES = np.array([3, 90, 150, 17, 44, 120, 8, 61, 199], "int32")
LIMITS = np.array([10, 4, 7, 1, 2, 9, 3, 6, 10], "int32")


def assert_same(result, expected):
    np.testing.assert_array_equal(result[0], expected[0])
    np.testing.assert_allclose(result[1], expected[1], rtol=1e-5)


@pytest.mark.slow
def test_exports_with_unknown_batch_size_and_lengths(tmp_path):
    model = ToyModel(seed=7, vocab_size=6)

    def search(sources, limits):  # the cache is as long as the longest limit, as in a real model
        length = ops.max(limits, initial=0)
        weights = ops.convert_to_tensor(model.weights)[:length]

        def step(ids, position, state):
            past, sources = state
            past = ops.where(ops.arange(length) == position[:, None, None], ids[:, :, None], past)
            row = ops.sum(past * weights, axis=-1) + sources
            return ops.take(model.logits, row % len(model.logits), axis=0), (past, sources)

        batch_size = ops.shape(sources)[0]
        return run(
            step,
            (
                ops.zeros((batch_size, 4, length), "int32"),
                ops.broadcast_to(sources[:, None], (batch_size, 4)),
            ),
            ops.full((batch_size,), START, dtype="int32"),
            beam_size=4,
            alpha=0.6,
            max_lengths=limits,
            pad_id=PAD,
        )

    module = tf.Module()
    signature = [tf.TensorSpec([None], tf.int32)] * 2
    module.search = tf.function(search, signature, autograph=False)
    tf.saved_model.save(module, str(tmp_path))
    exported = tf.saved_model.load(str(tmp_path)).search

    expected = model.search(SOURCES, beam_size=4, alpha=0.6, max_lengths=LIMITS)
    assert_same(exported(SOURCES, LIMITS), expected)
    assert_same(exported(SOURCES[:1], LIMITS[:1]), [part[:1] for part in expected])
    assert exported(SOURCES[:0], LIMITS[:0])[0].shape == (0, 4, 0)


@pytest.mark.slow
def test_compiles_with_xla_when_the_buffer_length_is_given():
    model = ToyModel(seed=7, vocab_size=6)
    options = {"beam_size": 4, "alpha": 0.6}

    @tf.function(jit_compile=True, autograph=False)
    def search(sources, limits):
        return model.search(sources, max_lengths=limits, buffer_length=12, **options)

    result = search(SOURCES, LIMITS)
    expected = model.search(SOURCES, max_lengths=LIMITS, **options)
    assert np.all(result.ids[:, :, 10:] == PAD)
    assert_same([result.ids[:, :, :10], result.scores], expected)


@pytest.fixture(scope="module")
def all_at_once():
    """A model, options of a search, and what they find with a slot for each sentence."""
    model, options = ToyModel(seed=7, vocab_size=6), {"beam_size": 4, "n_best": 2, "alpha": 0.6}
    return model, options, model.search(SOURCES, max_lengths=LIMITS, **options)


@pytest.mark.parametrize("how", ["eager", "any shape", pytest.param("xla", marks=pytest.mark.slow)])
def test_the_result_is_the_same_whatever_the_number_of_batch_slots(all_at_once, how, monkeypatch):
    for name in ("STATE_SIZES", "SIZES_TO_COMPILE"):
        monkeypatch.setattr(f"keras_transformer.search.loop.{name}", (3, 4))
    model, options, expected = all_at_once

    def search(sources, limits, num_slots):
        return model.search(sources, max_lengths=limits, num_slots=num_slots, **options)

    def compiled(sources, limits, num_slots):
        return model.search(
            sources, max_lengths=limits, buffer_length=10, num_slots=num_slots, **options
        )

    if how == "any shape":
        signature = [tf.TensorSpec(shape, tf.int32) for shape in ([None], [None], [])]
        search = tf.function(search, signature, autograph=False)
    elif how == "xla":
        search = tf.function(compiled, jit_compile=True, autograph=False)

    # XLA compiles each of them; of 4 or more, it closes all but a quarter on the way.
    for num_slots in (1, 5) if how == "xla" else (1, 2, 5, 20):
        assert_same(search(SOURCES, LIMITS, num_slots), expected)


def test_the_buffer_length_cuts_all_limits():
    model = ToyModel(seed=7, vocab_size=6)
    options = {"beam_size": 4, "alpha": 0.6}

    cut = model.search(SOURCES, max_lengths=LIMITS, buffer_length=3, **options)

    assert_same(cut, model.search(SOURCES, max_lengths=np.minimum(LIMITS, 3), **options))
