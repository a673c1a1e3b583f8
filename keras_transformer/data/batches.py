"""Batches of ids from a corpus, starting at any step."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.data.batch_plan import EpochPlans, WeightedPlans, bucket_boundaries
from keras_transformer.data.bpe_dropout import DropoutPlans
from keras_transformer.data.corpus import BothDirections, Corpus, PairIds, usable_corpus
from keras_transformer.data.numpy_function import numpy_function
from keras_transformer.data.prefetcher import Prefetcher
from keras_transformer.data.sources import TextPairs
from keras_transformer.errors import UserError, expect_at_least
from keras_transformer.text import PAD_ID, Tokenizer
from keras_transformer.text.ragged import ranges

BATCHES_AHEAD = 8  # made ahead while the model trains
_NO_PAIR = -1


def translation_dataset(
    source: str | os.PathLike | Sequence[str | os.PathLike],
    target: str | os.PathLike | Sequence[str | os.PathLike],
    tokenizer: Tokenizer,
    *,
    max_length: int = 256,
    tokens_per_batch: int = 4096,
    seed: int = 0,
    shuffle: bool = True,
) -> tf.data.Dataset:
    """Makes batches of two parallel text files for `model.fit`, on one device or several.

    Each complete iteration is the next epoch, in another order. An iteration that stops before its
    last batch does not count: the next iteration repeats its epoch.

    It is short for `Batches(usable_corpus(TextPairs(source, target), tokenizer)).epoch()`, which
    has more options: a cache of the tokenised text, BPE-dropout, and rows in multiples of the
    number of devices.

    Args:
        source: UTF-8 text file, plain or `.gz`, or a list of them.
        target: the translations, in the same form: line n of one side translates line n of the
            other.
        tokenizer: the vocabulary of both sides.
        max_length: maximum tokens of a side, end symbol included; longer pairs are left out.
        tokens_per_batch: maximum source tokens, and target tokens, in a batch, padding included.
        seed: seed of the order.
        shuffle: False keeps the same order in each epoch, such as for validation.

    Returns:
        A dataset of the batches of one epoch, see `Batches.epoch`.

    Raises:
        UserError: files cannot be read or do not match line by line, no pair can be used, or an
            option is out of range.

    Example:
        >>> files = "train.en", "train.de"
        >>> dataset = translation_dataset(*files, tokenizer, tokens_per_batch=25_000)
        >>> history = model.fit(dataset, epochs=1, verbose=0)
    """
    corpus = usable_corpus(TextPairs(source, target), tokenizer, max_length)
    return Batches(corpus, tokens_per_batch, seed, shuffle).epoch()


class Batch(NamedTuple):
    """int32 arrays `(rows, length)`; see `Batches`."""

    source_ids: np.ndarray
    target_ids: np.ndarray
    labels: np.ndarray


class BatchCount(NamedTuple):
    """Numbers of pairs and tokens in a batch.

    Attributes:
        pairs: sentence pairs; rows of padding alone do not count.
        source_tokens, target_tokens: tokens without padding.
        length: length that both sides are padded to.
        rows: rows, including rows of padding.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    length: int
    rows: int


class _Phase(NamedTuple):
    """The batches from a step until the next phase begins."""

    first_step: int
    batches_per_plan: int
    plans: Prefetcher


class Batches:
    """Batches of pairs of similar length, about as many tokens in each (section 5.1).

    A pair goes to the bucket of its longer side, end symbol included. A batch holds
    `tokens_per_batch // boundary` pairs, with both sides padded to the boundary. There is one shape
    per bucket, so a compiled model compiles once for each of `bucket_boundaries`. If a bucket's
    last batch has room left, pairs of the next shorter bucket fill it. The last two batches of the
    epoch share the remaining pairs, filled up with rows without effect (an empty source, no
    labels). So each pair is in exactly one batch of an epoch. Every epoch shuffles the pairs,
    across the whole corpus, and the order of the batches.

    In an epoch of `WeightedPairs`, each corpus has its share of the pairs, so that pairs of a small
    corpus occur several times. Each corpus starts anew once all its pairs were drawn.

    Batch `step` is a function of the corpus, the options and the step, so a run may start at any
    step. The plans of an epoch and its neighbours take 16 bytes of memory per pair.

    Args:
        corpus: the pairs.
        tokens_per_batch: maximum source tokens, and target tokens, in a batch, padding included;
            exceeded only where fewer than `batch_multiple` pairs would fit.
        seed: seed of the order and of dropout.
        shuffle: False keeps the order of the corpus within each bucket, longest bucket first.
        batch_multiple: number of which each batch's rows are a multiple. In `fit` under a strategy,
            the number of replicas (`strategy.num_replicas_in_sync`) keeps all devices equally busy.
            `Transformer` does not need it; other models do, because Keras expects equal shapes on
            all replicas.
        dropout: share of BPE merges left out at random, anew in each epoch (Provilkov et al.,
            2020), which regularises training; 0.1 is usual. With a parser's vocabulary, the
            parameter p of word dropout: a word seen n times becomes unknown with probability
            p / (p + n).
        bidirectional_steps: number of first batches from epochs of both directions, which have
            each pair twice, once with its sides exchanged. The epochs of one direction follow,
            counted from 0. For `batch` and `dataset`; `epoch` expects 0.

    Raises:
        UserError: an option is out of range, or does not apply to this vocabulary.

    Example:
        >>> batches = Batches(Corpus.build(pairs, tokenizer), tokens_per_batch=4096, seed=1)
        >>> rows, length = batches.batch(1000).labels.shape
        >>> rows * length <= 4096
        True
        >>> history = model.fit(batches.dataset(start=1000), steps_per_epoch=1, verbose=0)
    """

    def __init__(
        self,
        corpus: Corpus,
        tokens_per_batch: int = 4096,
        seed: int = 0,
        shuffle: bool = True,
        batch_multiple: int = 1,
        dropout: float = 0.0,
        bidirectional_steps: int = 0,
    ):
        expect_at_least(1, "tokens_per_batch", tokens_per_batch)
        expect_at_least(1, "batch_multiple", batch_multiple)
        expect_at_least(0, "seed", seed)
        expect_at_least(0, "bidirectional_steps", bidirectional_steps)
        if not corpus.counts.kept:
            raise UserError("corpus must have at least one pair: found none")
        if not 0 <= dropout <= 1:
            raise UserError(f"dropout must be in [0, 1]: found {dropout}")
        self.corpus, self.batch_multiple = corpus, batch_multiple
        self._boundaries = bucket_boundaries(corpus.max_length)
        self._rows = np.array(
            [
                max(1, tokens_per_batch // boundary // batch_multiple) * batch_multiple
                for boundary in self._boundaries
            ]
        )

        def plans_of(pairs):
            how = pairs, self._boundaries, self._rows, seed, shuffle
            plain = WeightedPlans(*how, corpus.parts) if corpus.parts else EpochPlans(*how)
            return DropoutPlans(corpus, plain, dropout) if dropout else plain

        plans = plans_of(corpus.pairs)
        self.batches_per_epoch = plans.plans_per_epoch * plans.batches_per_plan
        self._phases = [_Phase(bidirectional_steps, plans.batches_per_plan, Prefetcher(plans.plan))]
        if bidirectional_steps:
            plans = plans_of(BothDirections(corpus.pairs))
            self._phases.insert(0, _Phase(0, plans.batches_per_plan, Prefetcher(plans.plan)))

    def batch(self, step: int, num_workers: int = 1, worker_index: int = 0) -> Batch:
        """Makes a batch, or one worker's part of its rows.

        `source_ids` and `labels` end in the end symbol, `target_ids` begins with the start symbol.

        Args:
            step: number of the batch over all epochs, from 0.
            num_workers: number of processes that share the rows.
            worker_index: index of this process among them.
        """
        plan, pairs, bucket = self._pairs_of(step)
        rows = np.full(self._rows[bucket], _NO_PAIR, np.int64)
        rows[: len(pairs)] = pairs
        rows = np.split(rows, num_workers)[worker_index]
        return _padded(plan.pairs, rows, self._boundaries[bucket], self.corpus.tokenizer)

    def count(self, step: int) -> BatchCount:
        """Counts the pairs and tokens of a batch over all workers."""
        plan, pairs, bucket = self._pairs_of(step)
        (_, source_lengths), (_, target_lengths) = plan.pairs.sides(pairs)
        rows, length = int(self._rows[bucket]), self._boundaries[bucket]
        # Both sides of a pair have an end symbol; that of a row without a pair does not count.
        source_tokens, target_tokens = (
            int(lengths.sum()) + len(pairs) for lengths in (source_lengths, target_lengths)
        )
        return BatchCount(len(pairs), source_tokens, target_tokens, length, rows)

    def dataset(
        self, start: int = 0, num_workers: int = 1, worker_index: int = 0
    ) -> tf.data.Dataset:
        """Makes an endless dataset of all batches from a step on.

        Args:
            start: the first step.
            num_workers: number of processes, each of which makes its part of each batch's rows.
            worker_index: index of this process among them.

        Returns:
            A dataset of `({"source_ids", "target_ids"}, labels)`. Several batches are made in
            parallel, and ahead of time. A strategy may split them over its replicas, but not over
            workers, because each worker makes its own part.

        Raises:
            UserError: `worker_index` or `batch_multiple` does not go with `num_workers`.
        """
        if not 0 <= worker_index < num_workers or self.batch_multiple % num_workers:
            raise UserError(
                f"worker_index={worker_index} must be in [0, num_workers={num_workers}), and "
                f"num_workers must divide batch_multiple={self.batch_multiple}"
            )
        return self._at(tf.data.Dataset.counter(start), num_workers, worker_index)

    def epoch(self) -> tf.data.Dataset:
        """Makes a dataset of one epoch; each complete iteration moves on to the next epoch.

        An epoch is complete when its last batch is taken. So the number of iterators does not
        matter: Keras makes two per epoch, and may try one batch before the first epoch.

        Raises:
            UserError: the first batches are of both directions.
        """
        if len(self._phases) > 1:
            raise UserError(
                f"epoch needs bidirectional_steps=0: found {self._phases[-1].first_step}; "
                "use dataset instead"
            )
        size, complete, zero = self.batches_per_epoch, 0, np.int64(0)

        def first_step():
            return np.int64(complete * size)

        def completed(step):
            nonlocal complete
            complete = int(step) // size + 1
            return step

        def taken(step, batch):
            is_last = tf.equal(step % size, size - 1)
            tf.cond(
                is_last, lambda: numpy_function(completed, [step], tf.int64, zero), lambda: step
            )
            return batch

        first = tf.data.Dataset.from_tensors(0).map(
            lambda _: tf.ensure_shape(numpy_function(first_step, [], tf.int64, zero), [])
        )
        steps = first.flat_map(lambda step: tf.data.Dataset.range(step, step + size))
        batches = self._at(steps, with_step=True).map(taken)
        return batches.apply(tf.data.experimental.assert_cardinality(size))

    def _pairs_of(self, step):
        """Returns the plan that a batch is part of, its pairs, and its bucket."""
        phase = next(phase for phase in reversed(self._phases) if step >= phase.first_step)
        number, index = divmod(step - phase.first_step, phase.batches_per_plan)
        plan = phase.plans[number]
        first, last, bucket = plan.batches[index]
        return plan, plan.order[first:last], bucket

    def _at(self, steps, num_workers=1, worker_index=0, with_step=False):
        def batch_at(step):
            return self.batch(step, num_workers, worker_index)

        def batch(step):
            empty = [np.zeros((0, 0), np.int32)] * 3
            arrays = numpy_function(batch_at, [step], [tf.int32] * 3, at_exit=empty)
            source_ids, target_ids, labels = (tf.ensure_shape(a, [None, None]) for a in arrays)
            made = {"source_ids": source_ids, "target_ids": target_ids}, labels
            return (step, made) if with_step else made

        options = tf.data.Options()
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        # The autotune thread may miss the end of `fit`, which then waits for it up to a minute.
        options.autotune.enabled = False
        return (
            steps.map(batch, num_parallel_calls=2, deterministic=True)
            .prefetch(BATCHES_AHEAD)
            .with_options(options)
        )


def padding_share(batches: tf.data.Dataset, pad_id: int = PAD_ID) -> float:
    """Computes the share of padding in the ids of finite `batches`, from 0 to 1."""

    def add(counts, batch):
        inputs, _ = batch
        sides = inputs["source_ids"], inputs["target_ids"]
        padding = sum(tf.math.count_nonzero(side == pad_id) for side in sides)
        return counts + tf.stack([padding, sum(tf.size(side, tf.int64) for side in sides)])

    padding, total = batches.reduce(tf.zeros(2, tf.int64), add)
    return float(padding / total)


def _padded(
    pairs: PairIds | BothDirections, rows: np.ndarray, length: int, tokenizer: Tokenizer
) -> Batch:
    batch = Batch(*(np.full((len(rows), length), tokenizer.pad_id, np.int32) for _ in range(3)))
    rows = rows[rows != _NO_PAIR]
    (source_starts, source_lengths), (target_starts, target_lengths) = pairs.sides(rows)
    _put(batch.source_ids, 0, pairs.ids, source_starts, source_lengths)
    _put(batch.target_ids, 1, pairs.ids, target_starts, target_lengths)
    _put(batch.labels, 0, pairs.ids, target_starts, target_lengths)
    batch.source_ids[:, 0][len(rows) :] = tokenizer.end_id
    batch.target_ids[:, 0] = tokenizer.start_id
    real = np.arange(len(rows))
    batch.source_ids[real, source_lengths] = tokenizer.end_id
    batch.labels[real, target_lengths] = tokenizer.end_id
    return batch


def _put(to, column, ids, starts, lengths):
    """Writes `ids[start : start + length]` to each row of `to`, starting at a column."""
    columns = np.full_like(lengths, column)
    row = np.repeat(np.arange(len(lengths)), lengths)
    to[row, ranges(columns, lengths)] = ids[ranges(starts, lengths)]
