"""Search over a model: equal to enumeration and to an argmax loop, independent of the batch."""

import dataclasses
import itertools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import small_model
from keras import ops

from keras_transformer import Transformer
from keras_transformer.errors import UserError
from keras_transformer.search import Required, SearchOptions, search
from keras_transformer.search import score as score_targets

PAD, START, END = 0, 1, 2
SOURCES = [[5, 4, 3, 3, 6, 5, 2], [4, 2], [3, 5, 2], [6, 6, 4, 2]]


def padded(rows, length=None):
    length = length or max(map(len, rows))
    return np.array([row + [0] * (length - len(row)) for row in rows], "int32")


POST_NORM = {"seed": 1}
PRE_NORM = {"seed": 2, "pre_norm": True, "num_heads": 3, "d_k": 5, "d_v": 7}


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(POST_NORM, id="post-norm"),
        pytest.param(PRE_NORM, id="pre-norm", marks=pytest.mark.slow),
    ],
)
def model(request):
    """An untrained model that says something else after each history, often the end, never padding.

    The first feature of its last layer is 1, whose weights are biases of the symbols.
    """
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    model = small_model(**request.param, vocab_size=7, tie_output=False, **layers)
    norm = model.decoder.norm or model.decoder.layers[-1].feed_forward_norm
    norm.gamma.assign([0.0, *norm.gamma[1:]])
    norm.beta.assign([1.0, *norm.beta[1:]])
    biases = np.where(np.arange(7) == PAD, -30.0, 0.0)
    kernel = model.output_projection.kernel
    kernel.assign([biases, *2 * kernel.numpy()[1:]])
    return model


def log_probs(model, source, hypotheses):
    """Log-probabilities (n, length) of each symbol of hypotheses that are equally long."""
    hypotheses = np.array(hypotheses, "int32")
    target_ids = np.pad(hypotheses[:, :-1], ((0, 0), (1, 0)), constant_values=START)
    source_ids = np.repeat(padded([source]), len(hypotheses), axis=0)
    logits = model({"source_ids": source_ids, "target_ids": target_ids})
    every = ops.convert_to_numpy(ops.log_softmax(ops.cast(logits, "float32")))
    return np.take_along_axis(every, hypotheses[..., None], -1)[..., 0]


def score(model, source, hypothesis, alpha):
    return log_probs(model, source, [hypothesis]).sum() / len(hypothesis) ** alpha


def until_end(row):
    """The symbols of a row of ids, up to the end symbol if there is one."""
    row = row.tolist()
    return row[: row.index(END) + 1] if END in row else row


def found(model, sources, **options):
    result = search(model, padded(sources), SearchOptions(**options))
    return ops.convert_to_numpy(result.ids), ops.convert_to_numpy(result.scores)


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_a_beam_as_wide_as_the_tree_finds_the_best_of_all_hypotheses(model, alpha):
    sources = [[4, 2], [3, 5, 2]]
    ids, scores = found(model, sources, beam_size=750, alpha=alpha, extra_length=1, n_best=20)
    for row, row_scores, source in zip(ids, scores, sources, strict=True):
        ranked = []
        for length in range(1, len(source) + 2):
            others = [symbol for symbol in range(7) if symbol not in (PAD, END)]
            hypotheses = [[*h, END] for h in itertools.product(others, repeat=length - 1)]
            totals = log_probs(model, source, hypotheses).sum(1) / length**alpha
            ranked += zip(totals, hypotheses, strict=True)
        ranked.sort(reverse=True)
        assert [until_end(r) for r in row] == [hypothesis for _, hypothesis in ranked[:20]]
        np.testing.assert_allclose(row_scores, [total for total, _ in ranked[:20]], atol=1e-4)


def test_one_beam_is_the_argmax_of_full_passes(model):
    ids, _ = found(model, SOURCES, beam_size=1, extra_length=1)
    num_early = 0
    for row, source in zip(ids[:, 0], SOURCES, strict=True):
        target, limit = [START], len(source) + 1
        while target[-1] != END:
            logits = model({"source_ids": padded([source]), "target_ids": np.array([target])})
            is_last = len(target) == limit
            target.append(END if is_last else int(np.argmax(logits[0, -1])))
        assert row.tolist() == target[1:] + [0] * (len(row) - len(target) + 1)
        num_early += len(target) - 1 < limit
    assert num_early > 0


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_sentence_alone_is_translated_as_in_any_batch(model, beam_size):
    options = {"beam_size": beam_size, "extra_length": 3, "n_best": beam_size}
    ids, scores = found(model, SOURCES, **options)
    wider_ids, wider_scores = found(model, [*SOURCES, [3] * 9 + [END], []], **options)
    np.testing.assert_allclose(wider_scores[: len(SOURCES)], scores, rtol=1e-5)
    for i, source in enumerate(SOURCES):
        alone_ids, alone_scores = found(model, [source], **options)
        np.testing.assert_allclose(alone_scores[0], scores[i], rtol=1e-5)
        width = alone_ids.shape[-1]
        for batched in (ids[i], wider_ids[i]):
            np.testing.assert_array_equal(batched[:, :width], alone_ids[0])
            assert np.all(batched[:, width:] == 0)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_the_score_is_that_of_the_ids_under_full_passes(model, alpha):
    ids, scores = found(model, SOURCES, beam_size=4, alpha=alpha, extra_length=1, n_best=4)
    for row, row_scores, source in zip(ids, scores, SOURCES, strict=True):
        assert len({tuple(hypothesis) for hypothesis in row.tolist()}) == 4
        for hypothesis, value in zip(row, row_scores, strict=True):
            symbols = until_end(hypothesis)[: len(source) + 1]
            assert score(model, source, symbols, alpha) == pytest.approx(value, abs=1e-4)


@pytest.mark.slow
def test_without_an_end_a_translation_is_as_long_as_its_own_source_allows():
    model = small_model(tie_output=False, num_encoder_layers=1, num_decoder_layers=1)
    last = model.decoder.layers[-1].feed_forward_norm
    last.set_weights([np.zeros(16), np.ones(16)])  # its output is always ones
    # So at each step all symbols are equally likely, except the end, which only the limit forces.
    model.output_projection.set_weights([np.tile(np.where(np.arange(13) == END, -9, 0), (16, 1))])
    lengths = np.array([10, 5, 6, 7])
    for beam_size in (1, 3):
        ids, scores = found(model, SOURCES, beam_size=beam_size, alpha=0.0, extra_length=3)
        assert ids.shape == (4, 1, 10)
        expected = -lengths * np.log(12) - 16 * 9  # the last symbol is the end
        np.testing.assert_allclose(scores[:, 0], expected, rtol=1e-5)


def test_search_may_start_with_the_padding_symbol(model):
    config = dataclasses.replace(model.config, pad_id=START)
    other = Transformer(config)
    other.build()
    other.set_weights(model.get_weights())
    renamed = np.where(padded(SOURCES) == PAD, START, padded(SOURCES))
    result = search(other, renamed, SearchOptions(extra_length=3, n_best=4))
    for rank in range(4):
        ids = result.ids[:, rank]
        for row in np.array(ids):
            assert START not in until_end(row)
        np.testing.assert_allclose(
            score_targets(other, renamed, ids), result.scores[:, rank], rtol=1e-4
        )


def test_search_runs_in_mixed_precision():
    model = small_model(dtype="mixed_bfloat16")
    ids, scores = found(model, SOURCES, extra_length=3)
    assert ids.shape == (4, 1, 10) and scores.dtype == "float32"
    assert np.all(np.isfinite(scores))


SEARCHES = {
    "beam": ({"layer_type": "restricted", "radius": 2}, {"beam_size": 2}),
    "sample": ({"positions": "rotary"}, {"sample": True, "seed": 1}),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "eager", "in_graph"),
    [("beam", "float16", "float64"), ("sample", "float64", "float16")],
)
def test_search_is_the_same_with_any_default_dtype(kind, eager, in_graph):
    """Keras gives an integer that comes without a dtype as many bits as `floatx`."""
    layers, options = SEARCHES[kind]
    model = small_model(**layers, dtype="float32", num_encoder_layers=1, num_decoder_layers=1)
    options = SearchOptions(**options, extra_length=2)

    def run(ids):
        return search(model, ids, options)

    ids, scores = run(padded(SOURCES))
    for floatx, function in ((eager, run), (in_graph, tf.function(run, autograph=False))):
        keras.config.set_floatx(floatx)
        try:
            found = function(padded(SOURCES))
        finally:
            keras.config.set_floatx("float32")
        np.testing.assert_array_equal(found.ids, ids)
        np.testing.assert_allclose(found.scores, scores, rtol=1e-5)


@pytest.mark.slow
def test_search_runs_in_a_graph_with_batch_and_length_unknown(model):
    signature = [tf.TensorSpec((None, None), tf.int32)]
    graph = tf.function(
        lambda ids: search(model, ids, SearchOptions(extra_length=6)),
        input_signature=signature,
        autograph=False,
    )
    for sources in (SOURCES, SOURCES[1:2]):
        result = graph(padded(sources))
        ids, scores = found(model, sources, extra_length=6)
        np.testing.assert_array_equal(result.ids, ids)
        np.testing.assert_allclose(result.scores, scores, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(None, None), (4, 7)])
def test_each_cache_in_a_graph_has_memory_of_its_own(shape):
    """Keys and values of all layers begin as equal zeros, and a step may write in their memory."""
    model = small_model(num_encoder_layers=1, num_decoder_layers=2)
    options = SearchOptions(extra_length=12)  # the caches grow on the way
    graph = tf.function(
        lambda ids: search(model, ids, options, num_slots=2),
        [tf.TensorSpec(shape, tf.int32)],
        autograph=False,
    )
    expected = search(model, padded(SOURCES), options)
    for _ in range(2):  # the second call would find what the first one left
        result = graph(padded(SOURCES))
        np.testing.assert_array_equal(result.ids, expected.ids)
        np.testing.assert_allclose(result.scores, expected.scores, rtol=1e-5)


def test_no_sentences_give_no_translations():
    assert search(
        small_model(), np.zeros((0, 3), "int32"), SearchOptions(extra_length=2)
    ).ids.shape == (0, 1, 5)


@pytest.mark.parametrize("sample", [False, True])
def test_prefixes_may_be_a_list(model, sample):
    options = SearchOptions(extra_length=3, sample=sample)
    prefixes = [[6], [5], [4], [3]]
    found, expected = (
        search(model, padded(SOURCES), options, Required(given), seed=1)
        for given in (prefixes, np.array(prefixes, "int32"))
    )
    np.testing.assert_array_equal(found.ids, expected.ids)
    assert np.array(found.ids)[:, 0, 0].tolist() == [6, 5, 4, 3]


@pytest.mark.parametrize("sample", [False, True])
def test_a_first_symbol_has_probability_one_and_counts_in_the_length(model, sample):
    options = SearchOptions(
        beam_size=3, n_best=3, alpha=0.7, min_length=2, extra_length=3, sample=sample
    )
    sources = padded(SOURCES)
    found = search(model, sources, options, Required(first_id=6), seed=1)
    ids, scores = np.array(found.ids), np.array(found.scores)
    assert (ids[:, :, 0] == 6).all() and (scores > -1e9).all()
    assert ((ids[:, :, 1:] != PAD).sum(-1) >= 2).all()  # min_length does not count it
    limits = (sources != PAD).sum(-1) + 3
    assert ((ids[:, :, 1:] != PAD).sum(-1) <= limits[:, None]).all()
    for source, targets, expected in zip(sources, ids, scores, strict=True):
        given = score_targets(model, np.stack([source] * 3), targets[:, 1:], options, first_id=6)
        np.testing.assert_allclose(given, expected, atol=1e-4)
        paid = score_targets(model, np.stack([source] * 3), targets, options)
        assert (np.array(paid) < expected).all()  # the model gives the symbol less than 1


@pytest.mark.parametrize("sample", [False, True])
def test_a_prefix_follows_a_first_symbol(model, sample):
    options = SearchOptions(extra_length=3, sample=sample)
    required = Required([[5], [4], [3], [6]], first_id=6)
    found = search(model, padded(SOURCES), options, required, seed=1)
    assert np.array(found.ids)[:, 0, :2].tolist() == [[6, 5], [6, 4], [6, 3], [6, 6]]


def test_a_prefix_alone_is_refused():
    with pytest.raises(UserError, match=r"^required must be a Required: found list$"):
        search(small_model(), padded(SOURCES), SearchOptions(), [[5]])


def test_another_model_and_features_are_refused():
    functional = keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)])
    with pytest.raises(UserError, match=r"^model must be a Transformer, or several: found Seq"):
        search(functional, padded(SOURCES))
    with pytest.raises(UserError, match=r"^source_ids must be ids of .* found shape \(1, 5, 8\)$"):
        search(small_model(), np.zeros((1, 5, 8), "float32"))
    with pytest.raises(UserError, match=r"^source_ids must be ids of .* found shape \(3,\)$"):
        search(small_model(), [5, 6, 2])
    with pytest.raises(UserError, match=r"^model must be a Transformer, or several: found none$"):
        search([], padded(SOURCES))


def test_fewer_than_one_slot_is_refused():
    with pytest.raises(UserError, match=r"^num_slots must be an integer of at least 1: found 0$"):
        search(small_model(), padded(SOURCES), SearchOptions(), num_slots=0)


@pytest.mark.parametrize(
    "options", [{"beam_size": 0}, {"alpha": -1.0}, {"n_best": 5}, {"n_best": 0}]
)
def test_impossible_options_are_refused(options):
    with pytest.raises(UserError, match=next(iter(options))):
        search(small_model(), padded(SOURCES), SearchOptions(**options))


@pytest.mark.slow
def test_xla_finds_the_likeliest_symbols_without_sorting_all_candidates():
    model = small_model(1, vocab_size=400, num_encoder_layers=1, num_decoder_layers=1)
    options = SearchOptions(beam_size=4, max_length=3)
    compiled = tf.function(lambda ids: search(model, ids, options), jit_compile=True)
    inspect = compiled.experimental_get_compiler_ir(tf.constant([[5, 9, 7, 2]]))
    program = inspect(stage="optimized_hlo")
    assert "TopK" in program
    sorted_widths = {int(n) for n in re.findall(r"\(f32\[\d+,(\d+)\]\S* [^=]* sort\(", program)}
    assert max(sorted_widths, default=0) < 100  # 3 columns of 20 symbols for each beam: 240
