"""Batches of similar length: whole pairs, few shapes, a token budget, an order by seed."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.data import (
    PairCounts,
    TextPairs,
    bucket_boundaries,
    count_pairs,
    padding_share,
    pair_batches,
    translation_dataset,
)
from keras_transformer.errors import UserError
from keras_transformer.tokenizers import END_ID, PAD_ID, START_ID, SubwordTokenizer

NUM_PAIRS = 300


@pytest.fixture(scope="module")
def tokenizer():
    words = " ".join("abcdefghij0123456789-")
    return SubwordTokenizer.train_from_sentences([words] * 5, 290)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Pair n: n on both sides, after 0 to 10 letters in the source and 0 to 20 in the target."""
    folder = tmp_path_factory.mktemp("text")
    rng = np.random.default_rng(0)
    for name, longest in (("en", 10), ("de", 20)):
        lines = (
            f"{'a ' * rng.integers(longest + 1)}{'-'.join(str(n))}\n" for n in range(NUM_PAIRS)
        )
        (folder / name).write_text("".join(lines))
    return folder / "en", folder / "de"


@pytest.fixture(scope="module")
def pairs(files):
    return TextPairs(*files)


def numbers(tokenizer, ids):
    texts = tokenizer.detokenize(ids).numpy()
    return [int(text.split()[-1].replace(b"-", b"")) for text in texts]


def order(tokenizer, batches):
    return [n for inputs, _ in batches for n in numbers(tokenizer, inputs["source_ids"])]


def test_a_pair_becomes_source_target_and_labels(tokenizer, tmp_path):
    (tmp_path / "en").write_text("a b c\n")
    (tmp_path / "de").write_text("d\n")
    ((inputs, labels),) = translation_dataset(tmp_path / "en", tmp_path / "de", tokenizer)
    abc, d = (tokenizer.tokenize([text])[0].numpy().tolist() for text in ("a b c", "d"))

    def padded(ids):
        return [ids + [PAD_ID] * (8 - len(ids))]

    assert inputs["source_ids"].numpy().tolist() == padded([*abc, END_ID])
    assert inputs["target_ids"].numpy().tolist() == padded([START_ID, *d])
    assert labels.numpy().tolist() == padded([*d, END_ID])


def test_dataset_says_its_ranks_and_types(tokenizer, pairs):
    inputs, labels = pair_batches(pairs, tokenizer).element_spec
    for spec in (inputs["source_ids"], inputs["target_ids"], labels):
        assert spec.dtype == tf.int32 and spec.shape.rank == 2


def test_files_that_do_not_match_are_refused_at_once(tokenizer, files, tmp_path):
    (tmp_path / "short").write_text("1\n")
    with pytest.raises(UserError, match=f"found {NUM_PAIRS} in .* and 1 in"):
        translation_dataset(files[0], tmp_path / "short", tokenizer)


def test_every_pair_comes_once_and_whole(tokenizer, pairs):
    seen = []
    for inputs, labels in pair_batches(pairs, tokenizer, tokens_per_batch=200):
        sources = numbers(tokenizer, inputs["source_ids"])
        assert sources == numbers(tokenizer, inputs["target_ids"]) == numbers(tokenizer, labels)
        seen += sources
    assert sorted(seen) == list(range(NUM_PAIRS))


def test_labels_are_the_target_one_step_later(tokenizer, pairs):
    for inputs, labels in pair_batches(pairs, tokenizer, tokens_per_batch=200):
        target, labels = inputs["target_ids"].numpy(), labels.numpy()
        assert (target[:, 0] == START_ID).all() and END_ID not in target
        assert ((labels == END_ID).sum(axis=1) == 1).all()
        np.testing.assert_array_equal((target != PAD_ID), (labels != PAD_ID))
        np.testing.assert_array_equal(
            target[:, 1:], np.where(labels == END_ID, PAD_ID, labels)[:, :-1]
        )


def test_an_empty_or_too_long_side_leaves_out_the_pair_and_is_counted(tokenizer, tmp_path):
    too_long, longest = "a" * 8, "a" * 7
    tokens = tokenizer.tokenize([longest]).row_lengths().numpy()[0]
    sources = ["a 1", "", "a 3", too_long, "a 5", longest, "   "]
    targets = ["b 1", "b 2", "", "b 4", too_long, "b 6", too_long]
    (tmp_path / "en").write_text("\n".join(sources))
    (tmp_path / "de").write_text("\n".join(targets))
    pairs = TextPairs(tmp_path / "en", tmp_path / "de")

    batches = list(pair_batches(pairs, tokenizer, max_length=tokens + 1, shuffle_buffer=0))
    kept = [
        (s.decode(), t.decode())
        for inputs, _ in batches
        for s, t in zip(
            tokenizer.detokenize(inputs["source_ids"]).numpy(),
            tokenizer.detokenize(inputs["target_ids"]).numpy(),
            strict=True,
        )
    ]
    assert sorted(kept) == [("a 1", "b 1"), (longest, "b 6")]
    real = [
        sum(int(tf.math.count_nonzero(inputs[side])) for inputs, _ in batches)
        for side in ("source_ids", "target_ids")
    ]
    assert count_pairs(pairs, tokenizer, max_length=tokens + 1) == PairCounts(2, 3, 2, *real)


def test_boundaries_start_at_8_and_grow_by_a_tenth_up_to_the_longest():
    boundaries = bucket_boundaries(256)
    assert boundaries[:4] == [8, 9, 10, 11] and boundaries[-1] == 256
    for shorter, longer in itertools.pairwise(boundaries):
        assert shorter < longer <= max(shorter + 1, shorter * 1.1)
    assert bucket_boundaries(8) == [8]
    assert bucket_boundaries(5) == [5]
    with pytest.raises(UserError, match="max_length of at least 2"):
        bucket_boundaries(1)


@pytest.mark.parametrize("replicas", [1, 3])
def test_full_batches_have_one_shape_a_bucket_within_the_budget(tokenizer, pairs, replicas):
    budget, boundaries = 200, bucket_boundaries(30)
    shapes = set()
    for inputs, labels in pair_batches(
        pairs, tokenizer, budget, 30, batch_multiple=replicas, repeat=True
    ).take(100):
        assert inputs["source_ids"].shape == inputs["target_ids"].shape == labels.shape
        shapes.add(tuple(labels.shape))
        longest = np.count_nonzero(np.maximum(inputs["source_ids"], labels), axis=1)
        shorter = [b for b in boundaries if b < labels.shape[1]]
        assert (longest > max(shorter, default=0)).all()
    assert len(shapes) > 5
    assert shapes <= {(budget // b // replicas * replicas, b) for b in boundaries}


def test_a_batch_holds_a_pair_for_each_replica_even_beyond_the_budget(tokenizer, pairs):
    batches = pair_batches(pairs, tokenizer, tokens_per_batch=1, batch_multiple=2, repeat=True)
    assert {labels.shape[0] for _, labels in batches.take(20)} == {2}


def test_one_pass_ends_in_smaller_batches_or_drops_them(tokenizer, pairs):
    batches = list(pair_batches(pairs, tokenizer, tokens_per_batch=200))
    full = list(pair_batches(pairs, tokenizer, tokens_per_batch=200, drop_remainder=True))
    assert len(full) < len(batches)
    assert all(labels.shape[0] == 200 // labels.shape[1] for _, labels in full)


def test_order_is_that_of_the_seed(tokenizer, pairs):
    first, again, other = (
        order(tokenizer, pair_batches(pairs, tokenizer, seed=seed, repeat=True).take(50))
        for seed in (1, 1, 2)
    )
    assert first == again != other


def test_each_epoch_has_an_order_of_its_own(tokenizer, pairs):
    batches = pair_batches(pairs, tokenizer, seed=1)
    first, second = order(tokenizer, batches), order(tokenizer, batches)
    assert first != second and sorted(first) == sorted(second)
    again = pair_batches(pairs, tokenizer, seed=1)
    assert [order(tokenizer, again), order(tokenizer, again)] == [first, second]


def test_without_a_shuffle_buffer_a_bucket_keeps_the_order_of_the_source(tokenizer, pairs):
    for inputs, _ in pair_batches(pairs, tokenizer, tokens_per_batch=200, shuffle_buffer=0):
        found = numbers(tokenizer, inputs["source_ids"])
        assert found == sorted(found)


def test_bpe_dropout_changes_the_subwords_and_not_the_text(tmp_path):
    (tmp_path / "en").write_text("horses\n")
    tokenizer = SubwordTokenizer.train_from_sentences(["horses"] * 5, 272)
    pairs = TextPairs(tmp_path / "en", tmp_path / "en")
    batches = pair_batches(pairs, tokenizer, bpe_dropout=0.5, repeat=True, tokens_per_batch=8)
    rows = [inputs["source_ids"] for inputs, _ in batches.take(20)]
    assert len({tuple(ids[0].numpy()) for ids in rows}) > 1
    assert {tokenizer.detokenize(ids)[0].numpy() for ids in rows} == {b"horses"}


def test_padding_share_counts_both_inputs():
    inputs = {
        "source_ids": tf.constant([[5, 2, 0, 0]]),
        "target_ids": tf.constant([[1, 5, 5, 0]]),
    }
    batches = tf.data.Dataset.from_tensors((inputs, tf.constant([[5, 5, 2, 0]])))
    assert padding_share(batches.repeat(2)) == 3 / 8


def test_less_than_a_tenth_of_real_batches_is_padding(multi30k):
    files = multi30k / "train.en", multi30k / "train.de"
    tokenizer = SubwordTokenizer.train(files, vocab_size=10_000)
    batches = translation_dataset(*files, tokenizer, tokens_per_batch=4096)
    assert 0.02 < padding_share(batches) < 0.1
