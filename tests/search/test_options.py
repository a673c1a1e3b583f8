"""Every search option, compared with the same search in plain Python lists."""

import dataclasses
import functools
import importlib
import itertools

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from helpers import small_model
from keras import ops
from toy_decoder import END, PAD, ROWS, START, Toy, log_softmax, penalty

from keras_transformer.cli.flags import define_record_flags
from keras_transformer.errors import UserError
from keras_transformer.options.records import field
from keras_transformer.options.search import LENGTH_PENALTIES
from keras_transformer.search import (
    NO_HYPOTHESIS,
    DecoderSteps,
    Required,
    SearchOptions,
    Targets,
    beam_search,
    sample,
    score,
    search,
)
from keras_transformer.search.constraints import Constraints, Exclusion
from keras_transformer.search.loop import at_position
from keras_transformer.search.steps import EnsembleSteps, TransformerSteps


def ngrams(symbols, n):
    return [tuple(symbols[i : i + n]) for i in range(len(symbols) - n + 1)]


def may_follow(symbols, symbol, options, limit, prefix):
    if len(symbols) + 1 == limit:
        return symbol == END
    if len(symbols) < len(prefix):
        return symbol == prefix[len(symbols)]
    if symbol in getattr(options, "forbidden", ()):
        return False
    if getattr(options, "no_double", False) and symbol == [START, *symbols][-1]:
        return False
    if getattr(options, "no_echo", False) and symbol in [START, *symbols][-2:]:
        return False
    if symbol == PAD or (symbol == END and len(symbols) + 1 < len(prefix) + options.min_length):
        return False
    *before, last = ngrams([*symbols, symbol], options.no_repeat_ngram or 999) or [None]
    return last not in before


def plain_search(following, options, limit, prefix=()):
    """[(symbols, score)]: the rules in lists; only patience and a greedy search end it early."""
    live, ended = [([], 0.0)], []  # at the limit, all end
    for length in range(1, limit + 1):
        grown = [
            ([*symbols, symbol], total + more)
            for symbols, total in live
            for symbol, more in enumerate(following(symbols))
            if may_follow(symbols, symbol, options, limit, prefix)
        ]
        grown = sorted(grown, key=lambda h: -h[1])[: 2 * options.beam_size]
        ends = [h for h in grown[: options.beam_size] if h[0][-1] == END]
        ended += [(symbols, total / penalty(length, options)) for symbols, total in ends]
        live = [h for h in grown if h[0][-1] != END][: options.beam_size]
        enough = options.patience and max(options.n_best, options.patience * options.beam_size)
        if ended and (options.beam_size == 1 or (enough and len(ended) >= enough)):
            break
    return sorted(ended, key=lambda h: -h[1])[: options.n_best]


def padded(rows, length=0):
    length = max([length, *map(len, rows)])
    return np.array([[*row, *[PAD] * (length - len(row))] for row in rows], "int32")


def found(steps, options, limits, prefixes=None, jit_compile=False):
    """The result of `beam_search` as NumPy arrays."""
    prefix_ids = None if prefixes is None else padded(prefixes)

    def run():
        return beam_search(
            steps,
            Targets(
                start_ids=ops.full((len(limits),), START),
                max_lengths=limits,
                buffer_length=int(max(limits)),
                prefix_ids=prefix_ids,
                end_id=END,
                pad_id=PAD,
            ),
            options,
        )

    compiled = tf.function(run, jit_compile=True, autograph=False)
    result = compiled() if jit_compile else run()
    return [ops.convert_to_numpy(x) for x in result]


def assert_hypotheses(ids, scores, expected, atol=1e-4):
    """Checks one sentence's result, and that slots without a hypothesis are empty."""
    hypotheses = [symbols for symbols, _ in expected]
    missing = len(ids) - len(expected)
    np.testing.assert_array_equal(ids, padded(hypotheses + [[]] * missing, ids.shape[1]))
    expected_scores = [value for _, value in expected] + [NO_HYPOTHESIS] * missing
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-5, atol=atol)


PREFIXES = [[3, 4, 3], [], [4]]
CASES = {
    "power of the length": ({"alpha": 0.6}, None),
    "GNMT's penalty": ({"alpha": 0.6, "length_penalty": "gnmt"}, None),
    "no end before no live beam can improve the result": ({"patience": None}, None),
    "half the patience": ({"patience": 0.5, "n_best": 1}, None),
    "minimum length": ({"min_length": 6}, None),
    "no symbol twice": ({"no_repeat_ngram": 1}, None),
    "no two symbols twice": ({"no_repeat_ngram": 2}, None),
    "prefixes": ({}, PREFIXES),
    "prefixes of nothing": ({"beam_size": 2, "n_best": 2}, [[], [], []]),
    "all": (
        {"length_penalty": "gnmt", "min_length": 5, "no_repeat_ngram": 2, "beam_size": 4},
        PREFIXES,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_compiled_search_is_the_plain_one(case):
    fields, prefixes = CASES[case]
    default = SearchOptions(beam_size=3, n_best=3, patience=1.0)
    options = dataclasses.replace(default, **fields)
    toy, limits = Toy(2, sources=[5, 60, 100], end_bias=-2.0), [12, 9, 12]
    others = []
    for row, result in enumerate(
        zip(*found(toy, options, limits, prefixes, jit_compile=True), strict=True)
    ):
        prefix = prefixes[row] if prefixes else ()
        expected = plain_search(toy.following(row), options, limits[row], prefix)
        assert_hypotheses(*result, expected)
        others.append(expected != plain_search(toy.following(row), default, limits[row]))
    assert any(others)  # the options make a difference here


@pytest.mark.parametrize("seed", range(12))
def test_any_options_together_give_what_the_plain_search_gives(seed):
    rng = np.random.default_rng(seed)
    beam_size = int(rng.integers(1, 5))
    options = SearchOptions(
        beam_size=beam_size,
        n_best=int(rng.integers(1, beam_size + 1)),
        alpha=float(rng.choice([0.0, 0.6, 2.0])),
        length_penalty=str(rng.choice(LENGTH_PENALTIES)),
        patience=rng.choice([None, 0.5, 1.0, 1.5]),
        min_length=int(rng.integers(1, 9)),
        no_repeat_ngram=int(rng.integers(0, 4)),
    )
    sources, limits = rng.integers(0, ROWS, 3), rng.integers(1, 11, 3).tolist()
    toy = Toy(seed, sources, int(rng.integers(4, 8)), end_bias=rng.uniform(-2, 1))
    # A prefix may exceed the limit, which cuts it, or repeat itself.
    prefixes = [rng.integers(3, toy.logits.shape[1], n).tolist() for n in rng.integers(0, 5, 3)]
    result = found(toy, options, limits, prefixes)
    for row, (ids, scores) in enumerate(zip(*result, strict=True)):
        expected = plain_search(toy.following(row), options, limits[row], prefixes[row])
        assert_hypotheses(ids, scores, expected)


def test_a_wide_beam_with_a_minimum_length_finds_the_best_that_are_long_enough():
    limit, options = 5, SearchOptions(beam_size=64, n_best=12, alpha=0.6, min_length=4)
    toy = Toy(4, sources=[7], vocab_size=4)
    expected = []
    for length in (4, 5):
        for symbols in itertools.product((START, 3), repeat=length - 1):
            hypothesis = [*symbols, END]
            log_probs = [toy.following(0)(hypothesis[:i])[s] for i, s in enumerate(hypothesis)]
            expected.append((hypothesis, sum(log_probs) / penalty(length, options)))
    expected.sort(key=lambda h: -h[1])
    ids, scores = found(toy, options, [limit])
    assert_hypotheses(ids[0], scores[0], expected[:12])


def test_a_minimum_beyond_the_limit_asks_for_the_limit():
    toy = Toy(4, sources=[7])
    ids, scores = found(toy, SearchOptions(min_length=50, beam_size=2, n_best=2), [6])
    expected = plain_search(toy.following(0), SearchOptions(min_length=6, beam_size=2, n_best=2), 6)
    assert_hypotheses(ids[0], scores[0], expected)


def test_a_sentence_without_an_allowed_hypothesis_has_none():
    # There are three symbols besides padding: after two, the end must follow, but may not.
    options = SearchOptions(beam_size=2, n_best=2, no_repeat_ngram=1, min_length=4)
    ids, scores = found(Toy(1, [3], vocab_size=4), options, [8])
    assert np.all(ids == PAD)
    assert np.all(scores == NO_HYPOTHESIS)


def test_hypotheses_of_probability_zero_are_missing():
    toy = Toy(1, [3], vocab_size=5)
    toy.logits[:] = [0.0, *4 * [-np.inf]]  # nothing but padding can follow
    ids, scores = found(toy, SearchOptions(beam_size=2, n_best=2), [3])
    assert np.all(ids == PAD)
    assert scores.tolist() == [[NO_HYPOTHESIS] * 2] == [[-1e9] * 2]


# A constraint is added in two places: a field of the options, and a rule in `Constraints`.


@dataclasses.dataclass(frozen=True)
class MoreOptions(SearchOptions):
    """The first place: fields."""

    forbidden: tuple = field((), "symbols that no hypothesis contains")
    no_double: bool = field(False, "no symbol follows itself")


@pytest.fixture
def more_constraints(monkeypatch):
    """The second place: the names of the fields, and their rules. A symbol that is always forbidden
    is an exclusion; a rule that depends on the symbols so far is a mask."""
    init, allowed = Constraints.__init__, Constraints.allowed

    def init_with_more(self, options, *arguments):
        init(self, options, *arguments)
        self.no_double = options.no_double
        self.exclusions += tuple(Exclusion(symbol) for symbol in options.forbidden)

    def allowed_with_more(self, live_ids, position, vocab_size):
        before = allowed(self, live_ids, position, vocab_size)
        if not self.no_double:
            return before
        last = at_position(live_ids, position)[..., None]  # (batch, beam_size, 1)
        differs = ops.not_equal(ops.arange(vocab_size, dtype="int32"), last)
        return differs if before is None else before & differs

    # In a file, the names in `CONSTRAINTS` become part of each list.
    lists = {"beam": "BEAM_SEARCH_OPTIONS", "sampling": "SAMPLING_OPTIONS"}
    for module, name in lists.items():
        module = importlib.import_module(f"keras_transformer.search.{module}")
        monkeypatch.setattr(module, name, (*getattr(module, name), "forbidden", "no_double"))
    monkeypatch.setattr(Constraints, "__init__", init_with_more)
    monkeypatch.setattr(Constraints, "allowed", allowed_with_more)


NEW_CONSTRAINTS = [
    {"forbidden": (3, 4, 5, 6, 7)},
    {"no_double": True},
    {"forbidden": (4,), "no_double": True, "no_repeat_ngram": 2, "min_length": 4},
]


@pytest.mark.parametrize(
    ("fields", "jit_compile"),
    [*((fields, False) for fields in NEW_CONSTRAINTS), (NEW_CONSTRAINTS[-1], True)],
    ids=str,
)
def test_beam_search_obeys_a_new_constraint(fields, jit_compile, more_constraints):
    options = MoreOptions(beam_size=2, n_best=2, **fields)
    toy, limits = Toy(2, sources=[5, 60, 100], vocab_size=40, end_bias=2.0), [8, 5, 8]
    # There are more likely forbidden symbols than beams; allowed candidates must remain.
    toy.logits[:, 3:8] += 5.0
    result = found(toy, options, limits, jit_compile=jit_compile)
    others = []
    for row, (ids, scores) in enumerate(zip(*result, strict=True)):
        expected = plain_search(toy.following(row), options, limits[row])
        assert_hypotheses(ids, scores, expected)
        plain = SearchOptions(beam_size=2, n_best=2)
        others.append(expected != plain_search(toy.following(row), plain, limits[row]))
    assert any(others)  # the constraint makes a difference here


@pytest.mark.parametrize("fields", NEW_CONSTRAINTS, ids=str)
def test_sampling_obeys_a_new_constraint(fields, more_constraints):
    def drawn(options):
        toy = Toy(2, sources=[5], vocab_size=9)
        toy.logits *= 0.3  # so that all symbols occur
        ids, _ = sample(toy, Targets(ops.array([START]), [6]), options, seed=1)
        return ops.convert_to_numpy(ids)[0]

    def is_obeyed(row, options):
        symbols = [int(symbol) for symbol in row if symbol != PAD]
        return all(may_follow(symbols[:i], s, options, 6, ()) for i, s in enumerate(symbols))

    settings = {"sample": True, "beam_size": 200, "n_best": 200}
    options = MoreOptions(**settings, **fields)
    rows = drawn(options)
    assert all(is_obeyed(row, options) for row in rows)
    assert {int(row[0]) for row in rows} == {
        symbol for symbol in range(9) if may_follow([], symbol, options, 6, ())
    }  # all others occur
    assert not all(is_obeyed(row, options) for row in drawn(MoreOptions(**settings)))


# A constraint may also be a user's function.


@dataclasses.dataclass(frozen=True)
class WithoutEcho(SearchOptions):
    """The rule of `no_echo`, for the plain search."""

    no_echo: bool = field(True, "neither of the last two symbols may follow")


def no_echo(ids):
    symbols = ops.arange(9, dtype="int32")
    return ops.not_equal(symbols, ids[..., -1:]) & ops.not_equal(symbols, ids[..., -2:-1])


@pytest.mark.parametrize(
    ("fields", "jit_compile"),
    [
        ({}, False),
        ({"beam_size": 1, "n_best": 1}, False),
        ({"no_repeat_ngram": 2, "min_length": 4}, True),
    ],
    ids=str,
)
def test_beam_search_obeys_the_users_constraint_but_for_a_prefix(fields, jit_compile):
    fields = {"beam_size": 3, "n_best": 3, **fields}
    options = SearchOptions(**fields, constraint=no_echo)
    toy, limits = Toy(2, sources=[5, 60, 100], vocab_size=9, end_bias=-2.0), [9, 6, 9]
    prefixes = [[], [4, 4], []]
    others = []
    for row, (ids, scores) in enumerate(
        zip(*found(toy, options, limits, prefixes, jit_compile), strict=True)
    ):
        arguments = limits[row], prefixes[row]
        expected = plain_search(toy.following(row), WithoutEcho(**fields), *arguments)
        assert_hypotheses(ids, scores, expected)
        others.append(expected != plain_search(toy.following(row), options, *arguments))
    assert any(others)  # the constraint makes a difference here


def test_sampling_obeys_the_users_constraint():
    toy = Toy(2, sources=[5], vocab_size=9)
    toy.logits *= 0.3  # so that all symbols occur
    options = SearchOptions(sample=True, beam_size=200, n_best=200, constraint=no_echo)
    ids, _ = sample(toy, Targets(ops.array([START]), [6]), options, seed=1)
    for row in ops.convert_to_numpy(ids)[0].tolist():
        symbols = [symbol for symbol in row if symbol != PAD]
        for i, symbol in enumerate(symbols):
            assert may_follow(symbols[:i], symbol, WithoutEcho(), 6, ())
    assert set(np.unique(ids)) == set(range(9))  # all symbols occur, and padding


def test_a_constraint_that_allows_nothing_leaves_no_hypothesis():
    options = SearchOptions(beam_size=2, n_best=2, constraint=lambda ids: np.zeros(5, bool))
    ids, scores = found(Toy(1, [3]), options, [4])
    assert np.all(ids == PAD)
    assert np.all(scores == NO_HYPOTHESIS)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.zeros(5, "float32"), r"boolean .* vocab_size=5\): found float32 of shape \(5,\)"),
        (np.ones(4, "bool"), r"vocab_size=5\): found bool of shape \(4,\)"),
        (np.bool_(True), r"found bool of shape \(\)"),
    ],
    ids=str,
)
def test_a_constraint_that_returns_no_mask_is_refused(mask, message):
    with pytest.raises(UserError, match=message):
        found(Toy(1, [3]), SearchOptions(constraint=lambda ids: mask), [4])


def test_the_field_of_a_new_constraint_is_a_flag():
    try:
        define_record_flags(MoreOptions, only=["no_double"])
        assert "no symbol follows itself" in flags.FLAGS["no_double"].help
    finally:
        delattr(flags.FLAGS, "no_double")


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("beam_size", 10**9, "in [1, 10000]"),
        ("patience", 1e6, "in (0, 65536]"),
        ("extra_length", 2**31 - 1, "in [0, 65536]"),
        ("max_length", 2**20, "in [1, 65536]"),
        ("min_length", 2**20, "in [1, 65536]"),
        ("no_repeat_ngram", 99999, "in [0, 100]"),
        ("temperature", 1e-300, "at least 1e-6"),
        ("top_p", 1e-300, "in [1e-6, 1]"),
    ],
)
def test_what_no_search_can_do_is_refused(field, value, expected):
    with pytest.raises(UserError) as error:
        SearchOptions(**{field: value}, sample=field in ("temperature", "top_p"))
    assert str(error.value) == f"{field} must be {expected}: found {value}"


@pytest.mark.parametrize(
    "fields", [{"no_repeat_ngram": 100}, {"patience": 65536}, {"min_length": 65536}], ids=str
)
def test_the_largest_values_end_and_are_beyond_any_hypothesis(fields):
    toy, options = Toy(4, sources=[7]), SearchOptions(beam_size=2, n_best=2, **fields)
    ids, scores = found(toy, options, [6])
    assert_hypotheses(ids[0], scores[0], plain_search(toy.following(0), options, 6))


def test_a_prefix_may_repeat_itself():
    options = SearchOptions(beam_size=2, no_repeat_ngram=1)
    toy = Toy(1, [3], vocab_size=7, end_bias=-3.0)
    ids, scores = found(toy, options, [9], [[5, 5, 4, 5]])
    assert ids[0, 0, :4].tolist() == [5, 5, 4, 5]
    assert not {4, 5} & set(ids[0, 0, 4:].tolist())
    assert np.isfinite(scores).all()


def test_a_search_without_room_takes_no_step():
    class NoSteps(DecoderSteps):
        def step(self, ids, position, state):
            raise AssertionError("a step")

    for alpha, length_penalty in itertools.product([0.0, 1.0], LENGTH_PENALTIES):
        options = SearchOptions(beam_size=2, n_best=2, alpha=alpha, length_penalty=length_penalty)
        ids, scores = found(NoSteps(), options, [0, 0])
        assert ids.shape == (2, 2, 0)
        np.testing.assert_array_equal(scores, [[0.0, NO_HYPOTHESIS]] * 2)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_an_ensemble_of_decoders_is_the_mean_of_their_probabilities(jit_compile):
    toys = [Toy(seed, sources=[5, 60], end_bias=-1.0) for seed in (1, 2, 3)]
    options = SearchOptions(beam_size=3, n_best=3)
    result = found(EnsembleSteps(toys), options, [9, 7], jit_compile=jit_compile)
    for row, limit in enumerate((9, 7)):

        def mean(symbols, row=row):
            return np.log(np.mean([np.exp(toy.following(row)(symbols)) for toy in toys], axis=0))

        assert_hypotheses(result[0][row], result[1][row], plain_search(mean, options, limit))


# The same with a Transformer.


def lively_model(seed, end_bias=0.0):
    """A model that says something else after each history, and often wants to say padding.

    The first feature of its last layer is 1, whose weights are biases of the symbols.
    """
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    model = small_model(seed, tie_output=False, **layers)
    norm = model.decoder.layers[-1].feed_forward_norm
    norm.gamma.assign([0.0, *norm.gamma[1:]])
    norm.beta.assign([1.0, *norm.beta[1:]])
    biases = np.zeros(13)
    biases[[PAD, END]] = 2.0, end_bias
    model.output_projection.kernel.assign([biases, *2 * model.output_projection.kernel[1:]])
    return model


@pytest.fixture(scope="module")
def model():
    return lively_model(1)


@pytest.fixture(scope="module")
def other_model():
    return lively_model(2)


SOURCES = padded([[5, 9, 7, 2], [], [12, 4, 4, 8, 6, 2], [3, 2]])
FORCED = padded([[7, 4, 7], [], [6], []])


def full_passes(models, length):
    """A function from a source and symbols to log-probabilities of the next, by full passes."""

    @tf.function(autograph=False)
    def logits(source_ids, target_ids, position):
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        return [model(inputs, training=False)[0, position] for model in models]

    def log_probs(source, symbols):
        target_ids = tf.constant(padded([[START, *symbols]], length))
        every = logits(tf.constant(source[None]), target_ids, tf.constant(len(symbols)))
        every = [log_softmax(one.numpy().astype("float64")) for one in every]
        return np.logaddexp.reduce(every) - np.log(len(models))

    return log_probs


def symbols_of(row):
    return np.trim_zeros(row, "b").tolist()


def assert_scores_of_ids(models, ids, scores, options):
    real = [0, 2, 3]
    ids, scores = ids[real], scores[real]
    sources = np.repeat(SOURCES[real], ids.shape[1], axis=0)
    given = score(models, sources, ids.reshape(len(sources), -1), options)
    np.testing.assert_allclose(given, scores.ravel(), rtol=1e-4)


def all_found(model, options, prefix_ids=None, source_ids=SOURCES):
    return [
        ops.convert_to_numpy(x)
        for x in search(model, source_ids, SearchOptions(**options), Required(prefix_ids))
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"min_length": 9, "no_repeat_ngram": 2, "length_penalty": "gnmt", "alpha": 1.0},
        {"max_length": 4, "no_repeat_ngram": 1},
        {"min_length": 5, "max_length": 5},
    ],
    ids=str,
)
def test_hypotheses_are_as_asked_and_have_the_scores_of_their_ids(model, options):
    options = {"beam_size": 3, "n_best": 3, "extra_length": 6, **options}
    ids, scores = all_found(model, options, FORCED)
    for row, length in ((0, 4), (2, 6), (3, 2)):
        limit = min(length + 6, options.get("max_length", 99))
        prefix = symbols_of(FORCED[row])
        for symbols in map(symbols_of, ids[row]):
            assert PAD not in symbols
            assert symbols[: len(prefix)] == prefix
            assert min(options.get("min_length", 1), limit) <= len(symbols) - len(prefix) <= limit
            assert symbols.index(END) == len(symbols) - 1
            # Only prefixes may repeat n-grams.
            grams = ngrams(symbols[2:], options.get("no_repeat_ngram", 99))
            assert len(set(grams)) == len(grams)
    assert len({tuple(row) for row in ids[[0, 2, 3]].reshape(9, -1)}) == 9
    assert_scores_of_ids(model, ids, scores, SearchOptions(**options))


@pytest.mark.slow
def test_an_empty_prefix_forces_nothing(model):
    options = {"beam_size": 3, "n_best": 3, "extra_length": 6}
    ids, scores = all_found(model, options)
    forced_ids, forced_scores = all_found(model, options, FORCED)
    longest = ids.shape[2]  # beyond it is the room for a prefix
    np.testing.assert_array_equal(forced_ids[3, :, :longest], ids[3])
    np.testing.assert_allclose(forced_scores[3], scores[3], rtol=1e-5)
    assert not np.array_equal(forced_ids[0, :, :longest], ids[0])
    for width in (0, 2):
        nothing_ids, nothing_scores = all_found(model, options, np.zeros((4, width), "int32"))
        np.testing.assert_array_equal(nothing_ids[..., :longest], ids)
        assert not nothing_ids[..., longest:].any()
        np.testing.assert_allclose(nothing_scores, scores, rtol=1e-5)


def test_no_translation_is_longer_than_the_maximum_however_long_the_source(model):
    ids, _ = all_found(model, {"max_length": 5, "min_length": 5, "no_repeat_ngram": 3})
    assert ids.shape == (4, 1, 5)
    assert np.all(ids[[0, 2, 3]] != PAD)


@pytest.mark.parametrize(("alpha", "length_penalty"), [(1.0, "power"), (0.0, "gnmt")])
def test_a_row_of_padding_alone_has_the_empty_translation_of_score_0(model, alpha, length_penalty):
    options = {"alpha": alpha, "length_penalty": length_penalty, "extra_length": 3}
    ids, scores = all_found(model, {**options, "beam_size": 2, "n_best": 2})
    assert np.all(ids[1] == PAD)
    np.testing.assert_array_equal(scores[1], [0.0, NO_HYPOTHESIS])
    empty = score(model, SOURCES, ids[:, 0], SearchOptions(**options))
    np.testing.assert_allclose(empty, scores[:, 0], rtol=1e-4)


def test_rows_of_padding_alone_cost_no_step(model, monkeypatch):
    monkeypatch.setattr(TransformerSteps, "step", None)
    ids, _ = all_found(model, {"extra_length": 3}, source_ids=np.zeros((2, 4), "int32"))
    assert ids.shape == (2, 1, 7)


@pytest.mark.slow
def test_an_ensemble_is_the_mean_of_probabilities(model, other_model):
    options = SearchOptions(beam_size=3, n_best=3, extra_length=4, no_repeat_ngram=2, min_length=4)
    models = [model, other_model]

    @tf.function(jit_compile=True, autograph=False)
    def compiled():
        return search(models, SOURCES, options, Required(FORCED))

    ids, scores = map(ops.convert_to_numpy, compiled())
    log_probs = full_passes(models, 10)
    for row, length in ((0, 4), (2, 6), (3, 2)):
        following, prefix = functools.partial(log_probs, SOURCES[row]), symbols_of(FORCED[row])
        expected = plain_search(following, options, length + 4 + len(prefix), prefix)
        assert_hypotheses(ids[row], scores[row], expected)
    assert_scores_of_ids(models, ids, scores, options)


def test_an_ensemble_of_the_same_model_twice_is_the_model(model):
    options = {"beam_size": 3, "n_best": 3, "extra_length": 4}
    ids, scores = all_found(model, options)
    twice_ids, twice_scores = all_found([model, model], options)
    np.testing.assert_array_equal(twice_ids, ids)
    np.testing.assert_allclose(twice_scores, scores, rtol=1e-4)


@pytest.fixture(scope="module")
def long_translations():
    """A model, options of a search for long translations, and what full passes find."""
    model = lively_model(5, end_bias=-30.0)
    options = SearchOptions(beam_size=3, n_best=3, extra_length=130, no_repeat_ngram=3)
    following = functools.partial(full_passes([model], 136), SOURCES[2])
    return model, options, plain_search(following, options, 136)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_translations_longer_than_every_size_of_the_state_are_those_of_full_passes(
    long_translations, jit_compile
):
    model, options, expected = long_translations
    signature = None if jit_compile else [tf.TensorSpec([None, None], tf.int32)]
    compiled = tf.function(
        lambda ids: search(model, ids, options), signature, jit_compile=jit_compile, autograph=False
    )
    ids, scores = map(ops.convert_to_numpy, compiled(tf.constant(SOURCES[2:3])))
    assert ids.shape == (1, 3, 136)
    assert_hypotheses(ids[0], scores[0], expected)
    assert len(set(ids[0, 0].tolist())) > 4  # not the same symbol repeated


# What is refused.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 0}, "beam_size"),
        ({"beam_size": 2.5}, "beam_size"),
        ({"alpha": -0.1}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"n_best": 0}, "n_best"),
        ({"n_best": 5}, r"n_best .*\[1, beam_size=4\]"),
        ({"extra_length": -1}, "extra_length"),
        ({"max_length": 0}, "max_length"),
        ({"min_length": 0}, "min_length"),
        ({"min_length": 6, "max_length": 5}, "min_length must be at most max_length=5: found 6"),
        ({"no_repeat_ngram": -1}, "no_repeat_ngram"),
        ({"sample": True, "temperature": 0.0}, "temperature"),
        ({"sample": True, "top_k": -1}, "top_k"),
        ({"sample": True, "top_p": 0.0}, "top_p"),
        ({"sample": True, "top_p": 1.1}, "top_p"),
        ({"sample": True, "seed": -1}, "seed"),
        ({"temperature": 0.5}, "temperature .*sample"),
        ({"top_k": 5}, "top_k .*sample"),
        ({"top_p": 0.9}, "top_p .*sample"),
        ({"seed": 0}, "seed .*sample"),
    ],
    ids=str,
)
def test_options_out_of_range_or_that_exclude_each_other_are_refused_in_one_line(options, message):
    with pytest.raises(UserError, match=message) as error:
        SearchOptions(**options)
    assert "\n" not in str(error.value)
