"""Batches of similar length: whole pairs, few shapes, a token budget; a function of the step."""

import functools
import gc
import hashlib
import inspect
import itertools
import threading
import weakref
from collections import Counter

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from helpers import run_python

from keras_transformer.data import (
    Batches,
    Corpus,
    TextPairs,
    WeightedPairs,
    bucket_boundaries,
    padding_share,
    translation_dataset,
    usable_corpus,
)
from keras_transformer.data.batch_plan import EpochPlans, buckets_of, plan_batches, split_to
from keras_transformer.data.bpe_dropout import DropoutPlans
from keras_transformer.data.prefetcher import Prefetcher
from keras_transformer.errors import UserError
from keras_transformer.text import END_ID, PAD_ID, START_ID, SubwordTokenizer

NUM_PAIRS = 300
PLAIN, DROPOUT = {"tokens_per_batch": 200}, {"tokens_per_batch": 200, "dropout": 0.2}
BOTH = [{**options, "bidirectional_steps": 50} for options in (PLAIN, DROPOUT)]


@pytest.fixture(scope="module")
def tokenizer():
    words = " ".join("abcdefghij0123456789-") + " aa aaa aaaa aaaaaa"
    return SubwordTokenizer.train_from_sentences([words] * 5, 293)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pair n: both sides end in n, after 0 to 10 words in the source and 0 to 20 in the target."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    for name, longest in (("en", 10), ("de", 20)):
        lines = (
            f"{'aaaa ' * rng.integers(longest + 1)}{'-'.join(str(n))}\n" for n in range(NUM_PAIRS)
        )
        (folder / name).write_text("".join(lines))
    return folder / "en", folder / "de"


@pytest.fixture(scope="module")
def corpus(files, tokenizer):
    return Corpus.build(TextPairs(*files), tokenizer, max_length=100)


def numbers(tokenizer, ids):
    """The numbers of the pairs in these rows, without rows of padding."""
    # Faster than `detokenize` for small batches.
    special = {PAD_ID, START_ID, END_ID}
    rows = [[int(id_) for id_ in row if id_ not in special] for row in ids]
    texts = processor_of(tokenizer.model).decode(rows)
    return [int(text.split()[-1].replace("-", "")) for text in texts if text]


@functools.cache
def processor_of(model):
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def pairs_of(batches, step):
    return numbers(batches.corpus.tokenizer, batches.batch(step).source_ids)


def digest(batch):
    return hashlib.sha256(b"".join(array.tobytes() for array in batch)).hexdigest()


def flat(element):
    inputs, labels = element
    return tuple(x.numpy() for x in (inputs["source_ids"], inputs["target_ids"], labels))


def assert_same(found, expected):
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)


# The content of a batch


def test_a_pair_becomes_source_target_and_labels(tokenizer, tmp_path):
    (tmp_path / "en").write_text("a b c\n")
    (tmp_path / "de").write_text("d\n")
    ((inputs, labels),) = translation_dataset(
        tmp_path / "en", tmp_path / "de", tokenizer, tokens_per_batch=16
    )
    abc, d = (tokenizer.tokenize([text])[0].numpy().tolist() for text in ("a b c", "d"))

    def padded(ids):
        return ids + [PAD_ID] * (8 - len(ids))

    # The second row is only there for the shape.
    assert inputs["source_ids"].numpy().tolist() == [padded([*abc, END_ID]), padded([END_ID])]
    assert inputs["target_ids"].numpy().tolist() == [padded([START_ID, *d]), padded([START_ID])]
    assert labels.numpy().tolist() == [padded([*d, END_ID]), padded([])]


def test_dataset_says_its_ranks_and_types(corpus):
    for dataset in (Batches(corpus).dataset(), Batches(corpus).epoch()):
        inputs, labels = dataset.element_spec
        for spec in (inputs["source_ids"], inputs["target_ids"], labels):
            assert spec.dtype == tf.int32 and spec.shape.rank == 2


def test_files_that_do_not_match_are_refused_at_once(tokenizer, files, tmp_path):
    (tmp_path / "short").write_text("1\n")
    with pytest.raises(UserError, match=f"found {NUM_PAIRS} in .* and 1 in"):
        translation_dataset(files[0], tmp_path / "short", tokenizer)


@pytest.mark.parametrize("options", [PLAIN, DROPOUT, *BOTH])
def test_labels_are_the_target_one_step_later(corpus, options):
    batches = Batches(corpus, **options)
    for step in range(batches.batches_per_epoch):
        _, target, labels = batches.batch(step)
        ends = (labels == END_ID).sum(axis=1)
        assert (target[:, 0] == START_ID).all() and END_ID not in target
        assert (ends == (labels != PAD_ID).any(axis=1)).all()
        np.testing.assert_array_equal(
            target[:, 1:], np.where(labels == END_ID, PAD_ID, labels)[:, :-1]
        )


def test_boundaries_start_at_8_and_grow_by_a_tenth_up_to_the_longest():
    by_one, by_a_tenth = range(8, 21), [22, 24, 26, 28, 30, 33, 36, 39, 42, 46, 50, 55, 60]
    assert bucket_boundaries(64) == [*by_one, *by_a_tenth, 64]
    assert bucket_boundaries(8) == [8]
    assert bucket_boundaries(5) == [5]
    assert bucket_boundaries(2) == [2]
    with pytest.raises(UserError, match="max_length must be at least 2"):
        bucket_boundaries(1)


@pytest.mark.parametrize("options", [PLAIN, DROPOUT])
@pytest.mark.parametrize("replicas", [1, 3])
def test_there_is_one_shape_a_bucket_within_the_budget(corpus, options, replicas):
    batches = Batches(corpus, batch_multiple=replicas, **options)
    shapes = set()
    for step in range(batches.batches_per_epoch):
        source_ids, target_ids, labels = batches.batch(step)
        assert source_ids.shape == target_ids.shape == labels.shape
        shapes.add(labels.shape)
        if "dropout" in options:
            continue
        # The longest pair needs this bucket (but half a batch may lack its longest pair).
        longest = max(np.count_nonzero(side, axis=1).max() for side in (source_ids, labels))
        shorter = [b for b in bucket_boundaries(100) if b < labels.shape[1]]
        assert max(shorter, default=0) < longest <= labels.shape[1]
    assert len(shapes) > 3
    fitting = {b: 200 // b // replicas * replicas or replicas for b in bucket_boundaries(100)}
    assert shapes <= {(rows, b) for b, rows in fitting.items()}


def test_a_batch_holds_a_row_for_each_replica_even_beyond_the_budget(corpus):
    batches = Batches(corpus, tokens_per_batch=1, batch_multiple=2)
    assert {batches.batch(step).labels.shape[0] for step in range(20)} == {2}


def test_only_the_last_two_batches_of_an_epoch_have_rows_without_a_pair(corpus):
    batches = Batches(corpus, shuffle=False, **PLAIN)
    full = [
        (batches.batch(n).labels != PAD_ID).any(axis=1).all()
        for n in range(len(batches_of(batches)))
    ]
    assert all(full[:-2])


@pytest.mark.parametrize("options", [PLAIN, DROPOUT])
def test_no_batch_is_of_few_tokens(corpus, options):
    """Its gradient would be far from those of other batches."""
    for seed in range(10):
        batches = Batches(corpus, seed=seed, **options)
        tokens = [batches.count(n).target_tokens for n in range(batches.batches_per_epoch)]
        assert min(tokens) > np.median(tokens) / 5


def batches_of(batches, epoch=0):
    first = epoch * batches.batches_per_epoch
    return [batches.batch(step) for step in range(first, first + batches.batches_per_epoch)]


def reference_batches(lengths, boundaries, tokens_per_batch):
    """Plans batches in plain Python: the longest remaining pair determines the shape, and the next
    longest fill it; the last two batches share the rest."""
    bucket = [next(n for n, b in enumerate(boundaries) if b >= length) for length in lengths]
    waiting = sorted(range(len(lengths)), key=lambda pair: -bucket[pair])
    batches = []
    while waiting:
        boundary = boundaries[bucket[waiting[0]]]
        rows = max(1, tokens_per_batch // boundary)
        if rows < len(waiting) <= 2 * rows:
            half = (len(waiting) + 1) // 2
            waiting, last = waiting[:half], waiting[half:]
            of_last = boundaries[bucket[last[0]]]
            last = (of_last, max(1, tokens_per_batch // of_last), last)
            return [*batches, (boundary, rows, waiting), last]
        batches.append((boundary, rows, waiting[:rows]))
        waiting = waiting[rows:]
    return batches


@pytest.mark.parametrize("tokens_per_batch", [1, 40, 200, 5000])
def test_unshuffled_batches_are_those_of_a_simple_batcher(files, corpus, tokens_per_batch):
    tokenizer = corpus.tokenizer
    sides = [tokenizer.tokenize(path.read_text().splitlines()).to_list() for path in files]
    lengths = [max(map(len, pair)) + 1 for pair in zip(*sides, strict=True)]
    expected = reference_batches(lengths, bucket_boundaries(100), tokens_per_batch)
    batches = Batches(corpus, tokens_per_batch, shuffle=False)
    assert batches.batches_per_epoch == len(expected)
    for step, (boundary, rows, pairs) in enumerate(expected):
        source, target, labels = batches.batch(step)
        assert labels.shape == (rows, boundary)
        for row, pair in enumerate(pairs):
            for found, ids in (
                (source, [*sides[0][pair], END_ID]),
                (target, [START_ID, *sides[1][pair]]),
                (labels, [*sides[1][pair], END_ID]),
            ):
                assert found[row].tolist() == ids + [PAD_ID] * (boundary - len(ids))


def test_shuffled_batches_have_the_shapes_of_unshuffled_ones(corpus):
    def shapes(shuffle):
        batches = batches_of(Batches(corpus, shuffle=shuffle, **PLAIN))
        return Counter(batch.labels.shape for batch in batches)

    assert shapes(True) == shapes(False)


@pytest.mark.parametrize(
    ("counts", "rows", "batches"),
    [
        # Two full batches of the short bucket, none of the long one.
        ([4, 0], [2, 1], [[0, 2, 0], [2, 4, 0]]),
        # A pair of the short bucket fills the batch of the long one.
        ([4, 1], [4, 2], [[0, 2, 1], [2, 5, 0]]),
        # The last two share the rest, in the shape of the longer one if they fit.
        ([2, 4], [4, 3], [[0, 3, 1], [3, 6, 1]]),
        ([1, 4], [9, 4], [[0, 3, 1], [3, 5, 1]]),
        ([2, 4], [9, 4], [[0, 3, 1], [3, 6, 1]]),
        ([5, 1], [9, 4], [[0, 3, 1], [3, 6, 0]]),
        ([1, 9], [9, 4], [[0, 4, 1], [4, 7, 1], [7, 10, 1]]),
        # The very last one begins with the first pair of the short bucket.
        ([3, 3], [9, 4], [[0, 3, 1], [3, 6, 0]]),
        # The rest is more than two batches of the longer hold: 5 pairs, 2 rows each.
        ([3, 2], [10, 2], [[0, 2, 1], [2, 5, 0]]),
        ([1, 0], [4, 2], [[0, 1, 0]]),
    ],
)
def test_pairs_are_cut_into_as_few_batches_as_can_be(counts, rows, batches):
    assert plan_batches(np.array(counts), np.array(rows)).tolist() == batches


def test_the_largest_batches_are_halved_until_there_are_enough():
    batches = np.array([[0, 5, 2], [5, 7, 1]])
    assert split_to(batches, 2).tolist() == batches.tolist()
    assert split_to(batches, 3).tolist() == [[0, 2, 2], [5, 7, 1], [2, 5, 2]]
    halves = [[0, 1, 2], [1, 2, 2], [2, 3, 2], [3, 5, 2], [5, 7, 1]]
    assert sorted(split_to(batches, 5).tolist()) == halves
    assert sorted(split_to(batches, 7)[:, 0]) == list(range(7))


def test_buckets_are_found_part_by_part(corpus, monkeypatch):
    boundaries = bucket_boundaries(100)
    at_once = buckets_of(corpus.pairs, boundaries)
    (_, source_lengths), (_, target_lengths) = corpus.pairs.sides(np.arange(NUM_PAIRS))
    for bucket, *sides in zip(at_once, source_lengths, target_lengths, strict=True):
        assert boundaries[bucket] == min(b for b in boundaries if b > max(sides))
    for chunk in (1, 7, NUM_PAIRS - 1, NUM_PAIRS):
        monkeypatch.setattr("keras_transformer.data.batch_plan._CHUNK", chunk)
        np.testing.assert_array_equal(buckets_of(corpus.pairs, boundaries), at_once)


def test_plans_are_made_once_and_ahead_and_only_those_in_use_are_kept():
    class Plan:
        pass

    made, ahead = [], threading.Event()

    def make(number):
        made.append(number)
        if number == 6:
            ahead.set()
        return Plan()

    plans = Prefetcher(make)
    references = []
    for number in range(5):
        assert plans[number] is plans[number]
        references.append(weakref.ref(plans[number]))
    assert plans[5] is plans[5]
    gc.collect()
    assert [reference() is not None for reference in references] == [False] * 4 + [True]
    assert plans[4] is references[4]()  # kept for a slow thread
    assert ahead.wait(60)  # nobody has asked for it
    assert plans[6] is not None
    assert made[:7] == list(range(7))
    last = weakref.ref(plans[6])
    assert plans[0] is not None
    gc.collect()
    assert last() is None  # nor are later ones kept after a jump back


# The order of pairs


@pytest.mark.parametrize(
    "options",
    [
        PLAIN,
        DROPOUT,
        pytest.param({"tokens_per_batch": 60, "dropout": 0.5}, marks=pytest.mark.slow),
    ],
)
def test_every_pair_comes_once_in_each_epoch_and_whole(tokenizer, corpus, options):
    batches = Batches(corpus, seed=1, **options)
    for epoch in range(3):
        seen = []
        for batch in batches_of(batches, epoch):
            sources = numbers(tokenizer, batch.source_ids)
            assert sources == numbers(tokenizer, batch.target_ids)
            assert sources == numbers(tokenizer, batch.labels)
            seen += sources
        assert sorted(seen) == list(range(NUM_PAIRS))


def test_each_epoch_of_both_directions_has_every_pair_once_each_way(corpus):
    def pairs(batches, count):
        """The pairs of the first batches, up to a number of pairs."""
        found, step = Counter(), 0
        while found.total() < count:
            batch, step = batches.batch(step), step + 1
            for sides in zip(batch.source_ids, batch.labels, strict=True):
                source, target = (tuple(side[side != PAD_ID].tolist()) for side in sides)
                if target:  # not a row of padding
                    found[source, target] += 1
        return found

    forwards = pairs(Batches(corpus, seed=1, **PLAIN), NUM_PAIRS)
    backwards = Counter({row[::-1]: number for row, number in forwards.items()})
    both = Batches(corpus, seed=1, **PLAIN, bidirectional_steps=1000)
    assert pairs(both, 2 * NUM_PAIRS) == forwards + backwards


@pytest.mark.parametrize("options", [PLAIN, DROPOUT])
def test_one_direction_follows_as_if_it_had_come_alone(corpus, options):
    alone = Batches(corpus, seed=1, **options)
    batches = Batches(corpus, seed=1, **options, bidirectional_steps=7)
    for step in range(10):
        assert_same(batches.batch(7 + step), alone.batch(step))
        assert batches.count(7 + step) == alone.count(step)


def test_dropout_in_several_groups_still_has_every_pair_once(tokenizer, corpus, monkeypatch):
    monkeypatch.setattr("keras_transformer.data.bpe_dropout._GROUP_BATCHES", 8)
    plans = DropoutPlans(corpus, EpochPlans(*shapes_of(corpus), seed=0, shuffle=True), 0.3)
    assert plans.plans_per_epoch == 3
    for epoch in range(2):
        first = epoch * plans.plans_per_epoch
        made = [plans.plan(first + group) for group in range(plans.plans_per_epoch)]
        assert {len(plan.batches) for plan in made} == {plans.batches_per_plan}
        seen = []
        for plan in made:
            parts = [plan.order[start:end] for start, end, _ in plan.batches]
            assert sorted(np.concatenate(parts)) == list(range(len(plan.order)))
            (starts, lengths), _ = plan.pairs.sides(plan.order)
            ids = [plan.pairs.ids[s : s + n] for s, n in zip(starts, lengths, strict=True)]
            seen += numbers(tokenizer, ids)
        assert sorted(seen) == list(range(NUM_PAIRS))
    batches = Batches(corpus, **PLAIN, dropout=0.3)
    assert batches.batches_per_epoch == plans.plans_per_epoch * plans.batches_per_plan
    for epoch in range(2):
        made = batches_of(batches, epoch)
        seen = [pair for batch in made for pair in numbers(tokenizer, batch.source_ids)]
        assert sorted(seen) == list(range(NUM_PAIRS))


def test_a_group_that_needs_too_many_batches_is_split_with_less_dropout(corpus):
    plans = DropoutPlans(corpus, EpochPlans(*shapes_of(corpus), seed=0, shuffle=True), 1.0)
    with_dropout = plans.plan(0)
    plans.batches_per_plan = len(Batches(corpus, **PLAIN).epoch())
    without = plans.plan(0)
    assert len(without.batches) == plans.batches_per_plan
    assert len(without.pairs.ids) == len(corpus.pairs.ids) < len(with_dropout.pairs.ids)


def shapes_of(corpus):
    boundaries = bucket_boundaries(100)
    return corpus.pairs, boundaries, np.array([200 // boundary for boundary in boundaries])


@pytest.mark.parametrize("options", [PLAIN, DROPOUT, *BOTH])
def test_a_stream_begun_anywhere_is_the_rest_of_the_whole_stream(corpus, options):
    whole = Batches(corpus, seed=1, **options)
    epoch = whole.batches_per_epoch
    steps = 2 * epoch + 3
    expected = [flat(element) for element in whole.dataset().take(steps)]
    for start, number in (
        (1, steps - 1),
        *((start, 3) for start in (0, epoch - 1, epoch, epoch * 3 // 2, 2 * epoch - 1)),
    ):
        rest = Batches(corpus, seed=1, **options).dataset(start).take(number)
        found = [flat(element) for element in rest]
        assert len(found) == number
        for left, right in zip(found, expected[start : start + number], strict=True):
            assert_same(left, right)


def test_a_batch_that_takes_long_to_make_keeps_its_place(corpus, monkeypatch):
    batches, make, second = Batches(corpus, **PLAIN), Batches.batch, threading.Event()

    def first_after_second(self, step, *worker):
        if step == 0:
            second.wait(10)
        batch = make(self, step, *worker)
        if step == 1:
            second.set()
        return batch

    monkeypatch.setattr(Batches, "batch", first_after_second)
    found = [flat(element) for element in batches.dataset().take(2)]
    assert second.is_set()
    for element, step in zip(found, (0, 1), strict=True):
        assert_same(element, make(batches, step))


@pytest.mark.parametrize("options", [PLAIN, DROPOUT, *BOTH])
def test_steps_in_any_order_give_the_same_batches(corpus, options):
    forwards, anyhow = (Batches(corpus, seed=1, **options) for _ in range(2))
    steps = np.random.default_rng(0).permutation(3 * forwards.batches_per_epoch)[:20]
    expected = {step: forwards.batch(step) for step in sorted(steps)}
    for step in steps:
        assert_same(anyhow.batch(step), expected[step])


@pytest.mark.slow
def test_another_process_makes_the_same_batches(files, corpus, tmp_path):
    corpus.tokenizer.save(tmp_path / "vocabulary")
    script = """
import sys, hashlib
from keras_transformer.data import Batches, Corpus, TextPairs
from keras_transformer.text import SubwordTokenizer
source, target, vocabulary = sys.argv[1:]
corpus = Corpus.build(TextPairs(source, target), SubwordTokenizer.load(vocabulary), max_length=100)
print(corpus.fingerprint)
for dropout in (0.0, 0.2):
    batches = Batches(corpus, tokens_per_batch=200, seed=1, dropout=dropout)
    for step in (100, 7):
        content = b"".join(array.tobytes() for array in batches.batch(step))
        print(hashlib.sha256(content).hexdigest())
"""
    found = run_python(script, *files, tmp_path / "vocabulary").split()
    expected = [
        digest(Batches(corpus, seed=1, **options).batch(step))
        for options in (PLAIN, DROPOUT)
        for step in (100, 7)
    ]
    assert found == [corpus.fingerprint, *expected]


def test_the_order_of_pairs_and_of_lengths_changes_with_seed_and_epoch(corpus):
    def order(seed, epoch):
        batches = Batches(corpus, seed=seed, **PLAIN)
        first = epoch * batches.batches_per_epoch
        steps = range(first, first + batches.batches_per_epoch)
        shapes = [batches.batch(step).labels.shape for step in steps]
        return [pairs_of(batches, step) for step in steps], shapes

    orders = [order(*which) for which in ((1, 0), (1, 1), (2, 0))]
    for (pairs, shapes), (other_pairs, other_shapes) in itertools.combinations(orders, 2):
        assert pairs != other_pairs and shapes != other_shapes
        assert sorted(map(tuple, pairs)) != sorted(map(tuple, other_pairs))
    assert order(1, 0) == orders[0]


@pytest.mark.parametrize(
    ("options", "first", "second"),
    [
        (PLAIN, [218, 273, 123, 20, 104], [61, 70, 82, 175, 185]),
        (DROPOUT, [192, 112, 67, 241, 69], [190, 215, 158, 201, 274]),
        (BOTH[0], [119, 95, 192, 217, 80], [105, 161, 297, 157, 217]),
    ],
)
def test_the_order_is_that_of_every_version(corpus, options, first, second):
    """A run that began with an older NumPy resumes with the same batches."""
    batches = Batches(corpus, seed=1, **options)
    assert pairs_of(batches, 0)[:5] == first
    assert pairs_of(batches, batches.batches_per_epoch)[:5] == second


def test_pairs_are_drawn_from_the_whole_corpus(tokenizer, tmp_path):
    lines = "".join(f"{'-'.join(f'{n:03}')}\n" for n in range(1000))
    (tmp_path / "en").write_text(lines)
    corpus = Corpus.build(TextPairs(tmp_path / "en", tmp_path / "en"), tokenizer)
    first = pairs_of(Batches(corpus, tokens_per_batch=1000), 0)
    assert len(first) > 80 and min(first) < 100 and max(first) > 900


def test_unshuffled_a_bucket_keeps_the_order_of_the_source(corpus):
    batches = Batches(corpus, shuffle=False, **PLAIN)
    by_bucket = {}
    for step in range(batches.batches_per_epoch):
        lengths = np.count_nonzero(np.maximum(*batches.batch(step)[::2]), axis=1)
        for pair, length in zip(pairs_of(batches, step), lengths, strict=False):
            bucket = np.searchsorted(bucket_boundaries(100), length)
            by_bucket.setdefault(bucket, []).append(pair)
    assert len(by_bucket) > 3
    assert all(pairs == sorted(pairs) for pairs in by_bucket.values())


def test_each_iteration_over_epochs_is_the_next_epoch(corpus):
    batches = Batches(corpus, seed=1, **PLAIN)
    epochs = Batches(corpus, seed=1, **PLAIN).epoch()
    assert len(epochs) == batches.batches_per_epoch
    for epoch in range(3):
        found = list(epochs)
        assert len(found) == batches.batches_per_epoch
        for element, expected in zip(found, batches_of(batches, epoch), strict=True):
            assert_same(flat(element), expected)


@pytest.mark.parametrize("first", [0, 1])
def test_the_order_does_not_depend_on_how_many_iterators_are_made(corpus, first):
    """As Keras does, leaves some iterators unused and takes a single batch from one."""
    batches = Batches(corpus, seed=1, **PLAIN)
    epochs = batches.epoch()
    tried = iter(epochs)
    for _ in range(first):
        next(tried)
    for epoch in range(3):
        iter(epochs)
        found = [flat(element) for _, element in zip(range(len(epochs)), epochs, strict=False)]
        for element, expected in zip(found, batches_of(batches, epoch), strict=True):
            assert_same(element, expected)


def test_iterators_side_by_side_are_of_the_same_epoch(corpus):
    batches = Batches(corpus, seed=1, **PLAIN)
    epochs = batches.epoch()
    for left, right in zip(epochs, epochs, strict=True):
        assert_same(flat(left), flat(right))
    assert_same(flat(next(iter(epochs))), batches.batch(batches.batches_per_epoch))


def test_an_iteration_that_is_broken_off_is_not_an_epoch(corpus):
    batches = Batches(corpus, seed=1, **PLAIN)
    epochs = batches.epoch()
    for _ in epochs.take(len(epochs) - 1):
        pass
    assert_same(flat(next(iter(epochs))), batches.batch(0))


def test_a_corpus_without_pairs_is_refused(tokenizer, tmp_path):
    (tmp_path / "empty").write_text("\n")
    corpus = Corpus.build(TextPairs(*[tmp_path / "empty"] * 2), tokenizer)
    for options in (PLAIN, DROPOUT):
        with pytest.raises(UserError, match=r"^corpus must have at least one pair: found none$"):
            Batches(corpus, **options)


def test_files_without_a_usable_pair_are_refused(tokenizer, tmp_path):
    (tmp_path / "en").write_text("\na b c d\n")
    with pytest.raises(UserError, match="1 have an empty side, 1 are too long") as error:
        translation_dataset(*[tmp_path / "en"] * 2, tokenizer, max_length=3)
    assert "\n" not in str(error.value)


def test_dropped_pairs_are_reported(tokenizer, tmp_path, capsys):
    (tmp_path / "en").write_text("a\n\nb\na b c d\n")
    files = [tmp_path / "en"] * 2
    batches = translation_dataset(*files, tokenizer, max_length=4)
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"Dropped from {tmp_path / 'en'}")
    assert "1 pair with an empty side" in line and f"({tmp_path / 'en'}:2)" in line
    assert "1 with a side of more than 4 tokens" in line and f"({tmp_path / 'en'}:4)" in line
    ((_, labels),) = batches
    assert np.count_nonzero((labels != PAD_ID).numpy().any(axis=1)) == 2
    said = []
    usable_corpus(TextPairs(*files), tokenizer, max_length=4, say=said.append)
    assert said == [line] and capsys.readouterr().out == ""


def test_the_dataset_takes_the_options_of_batches(tokenizer, files):
    options = dict(tokens_per_batch=300, seed=3, shuffle=False)
    corpus = Corpus.build(TextPairs(*files), tokenizer, max_length=50)
    expected = Batches(corpus, **options)
    found = translation_dataset(*files, tokenizer, max_length=50, **options)
    for element, batch in zip(found, batches_of(expected), strict=True):
        assert_same(flat(element), batch)


def test_the_dataset_has_the_defaults_of_batches():
    of_dataset, of_corpus, of_batches = (
        {name: parameter.default for name, parameter in inspect.signature(f).parameters.items()}
        for f in (translation_dataset, Corpus.build, Batches)
    )
    of_parts = of_corpus | of_batches
    shared = of_dataset.keys() & of_parts.keys()
    assert shared > {"max_length", "tokens_per_batch", "seed", "shuffle"}
    assert {n: of_dataset[n] for n in shared} == {n: of_parts[n] for n in shared}


def test_a_corpus_keeps_its_ids_in_the_cache(tokenizer, files, tmp_path):
    said = []
    for _ in range(2):
        usable_corpus(TextPairs(*files), tokenizer, cache=tmp_path, say=said.append)
    assert [line.split(" the tokenised")[0] for line in said] == ["Wrote", "Using"]


# Workers and replicas


@pytest.mark.parametrize("options", [PLAIN, DROPOUT, *BOTH])
def test_the_rows_of_all_workers_together_are_the_batch(corpus, options):
    batches = Batches(corpus, batch_multiple=6, **options)
    for step in range(2 * batches.batches_per_epoch):
        parts = [batches.batch(step, 3, worker) for worker in range(3)]
        assert len({part.labels.shape for part in parts}) == 1
        assert_same(map(np.concatenate, zip(*parts, strict=True)), batches.batch(step))
    for worker in range(3):
        part = next(iter(batches.dataset(5, num_workers=3, worker_index=worker)))
        assert_same(flat(part), batches.batch(5, 3, worker))


@pytest.mark.parametrize("options", [PLAIN, DROPOUT, *BOTH])
def test_batches_are_counted_as_they_are(corpus, options):
    """Counted from the plan, compared with what the batches hold."""
    batches = Batches(corpus, **options)
    pad_id = corpus.tokenizer.pad_id
    for step in range(2 * batches.batches_per_epoch):
        batch = batches.batch(step)
        rows, length = batch.labels.shape
        is_pair = np.any(batch.labels != pad_id, axis=1)
        sides = batch.source_ids[is_pair], batch.labels[is_pair]
        tokens = [np.count_nonzero(side != pad_id) for side in sides]
        assert batches.count(step) == (is_pair.sum(), *tokens, length, rows)


@pytest.mark.parametrize(("multiple", "workers", "index"), [(3, 2, 0), (2, 2, 2), (2, 2, -1)])
def test_workers_that_cannot_share_the_rows_are_refused(corpus, multiple, workers, index):
    batches = Batches(corpus, batch_multiple=multiple)
    with pytest.raises(UserError, match=r"worker_index=.* must be in \[0, num_workers=2\)"):
        batches.dataset(num_workers=workers, worker_index=index)


@pytest.mark.slow
def test_a_strategy_splits_a_batch_evenly_over_its_replicas(files, tmp_path, corpus):
    corpus.tokenizer.save(tmp_path / "vocabulary")
    script = """
import sys
import numpy as np
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from keras_transformer.data import Batches, Corpus, TextPairs
from keras_transformer.text import SubwordTokenizer
source, target, vocabulary = sys.argv[1:]
corpus = Corpus.build(TextPairs(source, target), SubwordTokenizer.load(vocabulary), max_length=100)
batches = Batches(corpus, tokens_per_batch=200, batch_multiple=2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
steps = iter(strategy.experimental_distribute_dataset(batches.dataset(start=3)))
for step in range(3, 43):
    _, labels = next(steps)
    parts = [part.numpy() for part in labels.values]
    assert parts[0].shape == parts[1].shape
    np.testing.assert_array_equal(np.concatenate(parts), batches.batch(step).labels)
print("even")
"""
    assert run_python(script, *files, tmp_path / "vocabulary").split()[-1] == "even"


@pytest.mark.slow
def test_a_program_ends_while_batches_are_made_ahead(files, tmp_path, corpus):
    """A batch takes long, so that one is always being made when the program ends."""
    corpus.tokenizer.save(tmp_path / "vocabulary")
    script = """
import sys
import time
from keras_transformer.data import Batches, Corpus, TextPairs
from keras_transformer.text import SubwordTokenizer
class SlowBatches(Batches):
    def batch(self, *args):
        end = time.monotonic() + 0.05
        while time.monotonic() < end:
            pass
        return super().batch(*args)
source, target, vocabulary = sys.argv[1:]
corpus = Corpus.build(TextPairs(source, target), SubwordTokenizer.load(vocabulary), max_length=100)
batches = SlowBatches(corpus, tokens_per_batch=200)
streams = [iter(batches.dataset()), iter(batches.epoch())]
for stream in streams:
    next(stream)
print("last line")
"""
    said = run_python(script, *files, tmp_path / "vocabulary")
    assert said.splitlines()[-1] == "last line"


def test_model_fit_takes_epochs(corpus):
    batches = Batches(corpus, **PLAIN)
    steps = []

    class Model(keras.Model):
        def train_step(self, data):
            inputs, labels = data
            tf.numpy_function(lambda ids: steps.append(ids), [inputs["source_ids"]], [])
            return {"loss": tf.reduce_mean(tf.cast(labels, tf.float32))}

        def call(self, inputs):
            return inputs["source_ids"]

    model = Model()
    model.built = True
    model.compile(jit_compile=False)
    model.fit(batches.epoch(), epochs=2, verbose=0)
    expected = [*batches_of(batches, 0), *batches_of(batches, 1)]
    assert_same(steps, [batch.source_ids for batch in expected])


# BPE-dropout


def test_bpe_dropout_changes_the_subwords_and_not_the_text(tokenizer, corpus):
    plain, dropout = Batches(corpus, **PLAIN), Batches(corpus, **DROPOUT)

    def subwords(batches, epoch):
        """{text: ids} of an epoch."""
        found = {}
        for batch in batches_of(batches, epoch):
            for ids, text in zip(
                batch.labels, tokenizer.detokenize(batch.labels).numpy(), strict=True
            ):
                found[text] = tuple(ids[ids != PAD_ID])
        return found

    splits = [subwords(plain, 0), subwords(dropout, 0), subwords(dropout, 1)]
    for one, other in itertools.combinations(splits, 2):
        assert one.keys() == other.keys()
        assert np.mean([one[text] != other[text] for text in one]) > 0.5


def test_a_side_that_dropout_makes_too_long_stays_as_it_was(tokenizer, tmp_path):
    (tmp_path / "en").write_text("aaaaaa\n")
    plain = tokenizer.tokenize(["aaaaaa"]).to_list()[0]
    corpus = Corpus.build(TextPairs(*[tmp_path / "en"] * 2), tokenizer, max_length=len(plain) + 1)
    batch = Batches(corpus, dropout=1.0).batch(0)
    assert batch.labels[0].tolist() == [*plain, END_ID]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dropout": 2.0}, r"dropout must be in \[0, 1\]: found 2"),
        ({"dropout": -0.1}, r"dropout must be in \[0, 1\]: found -0.1"),
        ({"tokens_per_batch": 0}, "tokens_per_batch must be an integer of at least 1: found 0"),
        ({"tokens_per_batch": 1e4}, "tokens_per_batch must be an integer .* found 10000.0"),
        ({"batch_multiple": 0}, "batch_multiple must be an integer of at least 1: found 0"),
        ({"seed": -1}, "seed must be an integer of at least 0: found -1"),
        ({"bidirectional_steps": -1}, "bidirectional_steps must be .* at least 0: found -1"),
    ],
)
def test_options_out_of_range_are_refused_at_once(corpus, options, message):
    with pytest.raises(UserError, match=message):
        Batches(corpus, **options)


def test_epochs_are_of_one_direction(corpus):
    with pytest.raises(UserError, match="epoch needs bidirectional_steps=0: found 7"):
        Batches(corpus, bidirectional_steps=7).epoch()


# Padding


def test_padding_share_counts_both_inputs():
    inputs = {
        "source_ids": tf.constant([[5, 2, 0, 0]]),
        "target_ids": tf.constant([[1, 5, 5, 0]]),
    }
    batches = tf.data.Dataset.from_tensors((inputs, tf.constant([[5, 5, 2, 0]])))
    assert padding_share(batches.repeat(2)) == 3 / 8
    assert padding_share(batches, pad_id=2) == 1 / 8


def test_less_than_a_tenth_of_real_batches_is_padding(multi30k):
    files = multi30k / "train.en", multi30k / "train.de"
    tokenizer = SubwordTokenizer.train(files, vocab_size=10_000)
    batches = translation_dataset(*files, tokenizer, tokens_per_batch=4096)
    assert 0.02 < padding_share(batches) < 0.1


# Several corpora with weights: pair n of `files` belongs to the first corpus if n < 240.

NUM_FIRST = 240


@pytest.fixture(scope="module")
def parts(files, tmp_path_factory):
    """The pairs of `files`, as two corpora."""
    folder = tmp_path_factory.mktemp("parts")
    for file in files:
        lines = file.read_text().splitlines(keepends=True)
        (folder / f"first.{file.name}").write_text("".join(lines[:NUM_FIRST]))
        (folder / f"second.{file.name}").write_text("".join(lines[NUM_FIRST:]))
    return [TextPairs(folder / f"{n}.en", folder / f"{n}.de") for n in ("first", "second")]


def weighted(parts, tokenizer, *weights):
    return Corpus.build(WeightedPairs(parts, weights), tokenizer)


def numbers_drawn(batches, steps):
    return [number for step in steps for number in pairs_of(batches, step)]


WEIGHTS = [(1, 1), (1, 3), (5, 1), (0, 1)]


@pytest.mark.parametrize("options", [PLAIN, DROPOUT], ids=["plain", "dropout"])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_an_epoch_has_the_share_of_each_corpus(parts, tokenizer, weights, options):
    batches = Batches(weighted(parts, tokenizer, *weights), **options)
    drawn = np.array(numbers_drawn(batches, range(batches.batches_per_epoch)))
    assert np.mean(drawn < NUM_FIRST) == pytest.approx(weights[0] / sum(weights), abs=1e-3)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_each_corpus_cycles_by_itself(parts, tokenizer, weights):
    """Each pair is drawn as often as the others of its corpus and length, or once more."""
    corpus = weighted(parts, tokenizer, *weights)
    batches = Batches(corpus, **PLAIN)
    lengths = buckets_of(corpus.pairs, bucket_boundaries(corpus.max_length))
    times = Counter()
    for epochs in (1, 2, 3):
        end = epochs * batches.batches_per_epoch
        times.update(numbers_drawn(batches, range(end - batches.batches_per_epoch, end)))
        for pairs, weight in ((range(NUM_FIRST), weights[0]), (range(NUM_FIRST, NUM_PAIRS), 1)):
            assert all(times[n] >= epochs for n in pairs) == (weight > 0)
            for length in set(lengths):
                counts = {times[n] for n in pairs if lengths[n] == length}
                assert not counts or max(counts) - min(counts) <= 1


def test_a_corpus_that_is_drawn_slowly_does_not_make_an_epoch_endless(
    parts, tokenizer, monkeypatch
):
    monkeypatch.setattr("keras_transformer.data.batch_plan._MOST_DRAWN", 100)
    batches = Batches(weighted(parts, tokenizer, 1, 19), **PLAIN)
    drawn = np.array(numbers_drawn(batches, range(batches.batches_per_epoch)))
    assert len(drawn) == 4 * NUM_PAIRS  # all pairs of the first corpus would need 4800
    assert np.mean(drawn < NUM_FIRST) == 1 / 20
    times = Counter(numbers_drawn(batches, range(8 * batches.batches_per_epoch)))
    assert len(times) > NUM_PAIRS - 10


def test_weights_of_the_sizes_draw_each_pair_once_in_an_epoch(parts, tokenizer):
    corpus = weighted(parts, tokenizer, NUM_FIRST, NUM_PAIRS - NUM_FIRST)
    batches = Batches(corpus, **PLAIN)
    times = Counter(numbers_drawn(batches, range(batches.batches_per_epoch)))
    assert times == dict.fromkeys(range(NUM_PAIRS), 1)


def test_a_stream_of_weighted_corpora_begins_anywhere_and_follows_from_the_seed(parts, tokenizer):
    corpus = weighted(parts, tokenizer, 1, 3)
    for options in (*BOTH, PLAIN, DROPOUT):
        whole, later = Batches(corpus, **options, seed=3), Batches(corpus, **options, seed=3)
        other = Batches(corpus, **options, seed=4)
        steps = [2 * whole.batches_per_epoch + 3, 60, 51, 49, 7]
        batches = [whole.batch(step) for step in range(max(steps) + 1)]
        differ = 0
        for step in steps:
            for ours, theirs in zip(later.batch(step), batches[step], strict=True):
                np.testing.assert_array_equal(ours, theirs)
            differ += not np.array_equal(other.batch(step).labels, batches[step].labels)
        assert differ >= 4


def test_both_directions_of_weighted_corpora_have_the_same_shares(parts, tokenizer):
    batches = Batches(weighted(parts, tokenizer, 1, 3), **PLAIN, bidirectional_steps=400)
    starts = [batches._pairs_of(step) for step in range(200)]
    pairs = np.concatenate([pairs for _, pairs, _ in starts])
    exchanged, numbers = np.divmod(pairs, NUM_PAIRS)
    assert np.mean(exchanged) == pytest.approx(0.5, abs=0.05)
    assert np.mean(numbers < NUM_FIRST) == pytest.approx(0.25, abs=0.05)


def test_sizes_of_parts_are_in_the_fingerprint_and_in_the_cache(parts, tokenizer, tmp_path):
    corpora = [
        Corpus.build(pairs, tokenizer, cache=tmp_path / "cache", say=lambda _: None)
        for pairs in (
            WeightedPairs(parts, [1, 3]),
            WeightedPairs(parts, [1, 3]),
            WeightedPairs(parts, [3, 1]),
            WeightedPairs(parts[::-1], [1, 3]),
        )
    ]
    assert [[tuple(part) for part in corpus.parts] for corpus in corpora] == [
        [(240, 1.0), (60, 3.0)],
        [(240, 1.0), (60, 3.0)],
        [(240, 3.0), (60, 1.0)],
        [(60, 1.0), (240, 3.0)],
    ]
    assert len({corpus.fingerprint for corpus in corpora}) == 2
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_a_corpus_with_a_weight_has_a_usable_pair(parts, tokenizer, tmp_path):
    (tmp_path / "empty").write_text("\n")
    empty = TextPairs(tmp_path / "empty", tmp_path / "empty")
    Batches(weighted([*parts, empty], tokenizer, 1, 1, 0))
    with pytest.raises(UserError, match=r"^corpus 3 of 3 has a weight but no usable pair$"):
        Batches(weighted([*parts, empty], tokenizer, 1, 1, 1))
