"""Plans batches: pairs of similar length together, in few shapes (section 5.1)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.data.corpus import BothDirections, PairIds, Part
from keras_transformer.errors import UserError

_CHUNK = 1 << 20  # pairs per pass, so that no array holds all lengths
_MOST_DRAWN = 1_000_000  # pairs in an epoch, unless four times all pairs are more


def bucket_boundaries(max_length: int, first: int = 8, growth: float = 1.1) -> list[int]:
    """Lists the lengths that batches are padded to: each `growth` times the last.

    Example:
        >>> bucket_boundaries(16)
        [8, 9, 10, 11, 12, 13, 14, 15, 16]
    """
    if max_length < 2:
        raise UserError(f"max_length must be at least 2 tokens: found {max_length}")
    boundaries = []
    length = first
    while length < max_length:
        boundaries.append(length)
        length = max(length + 1, int(length * growth))
    return [*boundaries, max_length]


class BatchPlan(NamedTuple):
    """A plan of batches in which each pair is in exactly one batch.

    Attributes:
        pairs: the pairs.
        order: `(pairs,)`, indices of pairs, those of the longest bucket first.
        batches: int64 `(batches, 3)`, rows (first, last, bucket): a batch holds
            `order[first:last]`, padded to the length of the bucket.
    """

    pairs: PairIds | BothDirections
    order: np.ndarray
    batches: np.ndarray


def buckets_of(pairs: PairIds | BothDirections, boundaries: list[int]) -> np.ndarray:
    """Finds each pair's bucket: the first boundary that fits its longer side and an end symbol."""
    buckets = np.empty(pairs.size, np.uint8)
    for first in range(0, pairs.size, _CHUNK):
        chunk = np.arange(first, min(first + _CHUNK, pairs.size))
        (_, source_lengths), (_, target_lengths) = pairs.sides(chunk)
        longer = np.maximum(source_lengths, target_lengths) + 1
        buckets[chunk] = np.searchsorted(boundaries, longer)
    return buckets


def longest_first(buckets: np.ndarray) -> np.ndarray:
    """Sorts the indices of all pairs, longest bucket first, otherwise in order."""
    return np.argsort(np.uint8(255) - buckets, kind="stable").astype(np.uint32)


def plan_batches(counts: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Splits pairs in the order `longest_first` into as few batches as possible.

    A batch has the bucket of its first pair. If the last batch of a bucket has room left, pairs of
    the next shorter buckets fill it, so that only the very last batch is not full. The last two
    batches share their pairs evenly: the gradient is a mean, and a batch of few tokens would give
    an outlier.

    Example: buckets 0 and 1 have 5 and 3 pairs, and batches of 4 and 2 rows:

        >>> plan_batches(np.array([5, 3]), np.array([4, 2]))
        array([[0, 2, 1],
               [2, 4, 1],
               [4, 8, 0]])

    Args:
        counts: number of pairs in each bucket.
        rows: number of rows of a batch of each bucket.

    Returns:
        `BatchPlan.batches`.
    """
    total = counts.sum()
    parts, first, end = [], 0, 0
    for bucket in reversed(range(len(counts))):
        end += counts[bucket]
        starts = np.arange(first, end, rows[bucket])
        ends = np.minimum(starts + rows[bucket], total)
        parts.append(np.stack([starts, ends, np.full_like(starts, bucket)], axis=1))
        first += len(starts) * rows[bucket]
    batches = np.concatenate(parts)
    if len(batches) > 1:
        (start, _, bucket), (_, end, _) = batches[-2:]
        middle = (start + end + 1) // 2
        if end - start <= 2 * rows[bucket]:
            shorter = len(counts) - 1 - np.searchsorted(np.cumsum(counts[::-1]), middle, "right")
            batches[-2:] = [start, middle, bucket], [middle, end, shorter]
    return batches


def split_to(batches: np.ndarray, count: int) -> np.ndarray:
    """Halves the largest batches until there are `count`, at most the number of pairs."""
    halves = batches.tolist()
    while len(halves) < count:
        largest = max(range(len(halves)), key=lambda n: halves[n][1] - halves[n][0])
        first, last, bucket = halves[largest]
        middle = (first + last) // 2
        halves[largest] = [first, middle, bucket]
        halves.append([middle, last, bucket])
    return np.array(halves)


def random_of(*numbers: int) -> np.random.RandomState:
    """A random generator seeded by these numbers; NumPy guarantees its sequence forever."""
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(numbers)))


class EpochPlans:
    """Plans each epoch: shuffles every bucket's pairs, and the order of the batches.

    Args:
        pairs: the pairs.
        boundaries: lengths of the buckets, see `bucket_boundaries`.
        rows: number of rows of a batch of each bucket.
        seed: seed of the order.
        shuffle: False keeps the order of the pairs within each bucket, longest bucket first.

    Attributes:
        plans_per_epoch: 1.
        batches_per_plan: number of batches in an epoch.
    """

    plans_per_epoch = 1

    def __init__(
        self,
        pairs: PairIds | BothDirections,
        boundaries: list[int],
        rows: np.ndarray,
        seed: int,
        shuffle: bool,
    ):
        self.pairs, self.boundaries, self.rows = pairs, boundaries, rows
        self.seed, self.shuffle = seed, shuffle
        buckets = buckets_of(pairs, boundaries)
        self.counts = np.bincount(buckets, minlength=len(boundaries))
        self._longest_first = longest_first(buckets)
        self.batches_per_plan = len(plan_batches(self.counts, rows))

    def order(self, epoch: int) -> np.ndarray:
        """Computes `BatchPlan.order` of an epoch."""
        order = self._longest_first.copy()
        if self.shuffle:
            random = random_of(self.seed, epoch)
            for bucket in np.split(order, np.cumsum(self.counts[::-1])[:-1]):
                random.shuffle(bucket)
        return order

    def plan(self, epoch: int) -> BatchPlan:
        """Makes the plan of an epoch, counted from 0."""
        batches = plan_batches(self.counts, self.rows)
        if self.shuffle:
            batches = batches[random_of(self.seed, epoch, 1).permutation(len(batches))]
        return BatchPlan(self.pairs, self.order(epoch), batches)


class WeightedPlans(EpochPlans):
    """Plans each epoch of several corpora: draws their pairs in proportion to weights.

    An epoch lasts until the corpus that is drawn slowest had all its pairs, but not for more than
    `_MOST_DRAWN` pairs or four times all pairs. It has as many pairs of each corpus and bucket as
    any other epoch, so all epochs have the same number of batches. The pairs of a corpus and bucket
    are drawn in a random order, each once, then in another order, and so on across epochs.

    Example: corpora of 8 and 2 pairs, with weights 1 and 1. An epoch has 16 pairs: each pair of the
    first corpus once, and each of the second four times.

    Args:
        pairs: the pairs of all corpora, one corpus after the other.
        boundaries: lengths of the buckets, see `bucket_boundaries`.
        rows: number of rows of a batch of each bucket.
        seed: seed of the order.
        shuffle: False keeps the order of the pairs within each bucket, longest bucket first.
        parts: the corpora.

    Raises:
        UserError: a corpus has a weight but no pair.
    """

    def __init__(
        self,
        pairs: PairIds | BothDirections,
        boundaries: list[int],
        rows: np.ndarray,
        seed: int,
        shuffle: bool,
        parts: Sequence[Part],
    ):
        super().__init__(pairs, boundaries, rows, seed, shuffle)
        sizes, weights = np.array(parts).T  # (corpora,) each
        if any((sizes == 0) & (weights > 0)):
            number = int(np.argmax((sizes == 0) & (weights > 0)))
            raise UserError(f"corpus {number + 1} of {len(parts)} has a weight but no usable pair")
        owners = np.repeat(np.arange(len(parts)), sizes.astype(int))  # (pairs of one direction,)
        buckets = buckets_of(pairs, boundaries)
        cells = np.resize(owners, pairs.size) * len(boundaries) + buckets  # (pairs,)
        counts = np.bincount(cells, minlength=len(parts) * len(boundaries))
        by_cell = np.argsort(cells, kind="stable").astype(np.uint32)
        self._cells = np.split(by_cell, np.cumsum(counts)[:-1])
        counts = counts.reshape(len(parts), -1)  # (corpora, buckets)
        self.drawn = np.stack(
            [
                _draws(row, target)
                for row, target in zip(counts, _targets(counts.sum(1), weights), strict=True)
            ]
        )
        self.counts = self.drawn.sum(0)
        self.batches_per_plan = len(plan_batches(self.counts, rows))

    def order(self, epoch: int) -> np.ndarray:
        longest_first = []
        random = random_of(self.seed, epoch)
        for bucket in reversed(range(len(self.boundaries))):
            drawn = np.concatenate(
                [self._drawn(part, bucket, epoch) for part in range(len(self.drawn))]
            )
            if self.shuffle:
                random.shuffle(drawn)
            longest_first.append(drawn)
        return np.concatenate(longest_first)

    def _drawn(self, part, bucket, epoch):
        """The pairs of a corpus and bucket in an epoch.

        Example: of 4 pairs, 6 are drawn in an epoch. The first epoch has all 4 and then 2 of
        another order of them; the second epoch has the other 2 of that order, and all 4.
        """
        number = part * len(self.boundaries) + bucket
        cell, count = self._cells[number], int(self.drawn[part, bucket])
        if not count:
            return cell[:0]

        def order(cycle):
            return (
                random_of(self.seed, cycle, 3, number).permutation(cell) if self.shuffle else cell
            )

        first, skipped = divmod(epoch * count, len(cell))
        last, end = divmod((epoch + 1) * count, len(cell))
        if first == last:
            return order(first)[skipped:end]
        between = np.tile(cell, last - first - 1)  # the epoch shuffles them
        return np.concatenate([order(first)[skipped:], between, order(last)[:end]])


def _targets(sizes: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The number of pairs of each corpus in an epoch, see `WeightedPlans`."""
    shares = weights / weights.sum()
    needed = max(size / share for size, share in zip(sizes, shares, strict=True) if share)
    total = min(needed, max(4 * sizes.sum(), _MOST_DRAWN))
    return np.rint(shares * total).astype(np.int64)


def _draws(counts: np.ndarray, target: int) -> np.ndarray:
    """Splits a number of draws over buckets in proportion to their pairs.

    No bucket with pairs is left out, unless the target is 0. The most common bucket makes up for
    rounding.

    Example:
        >>> _draws(np.array([0, 10, 5, 1]), target=8)
        array([0, 5, 2, 1])
    """
    if not target:
        return np.zeros_like(counts)
    draws = np.maximum(np.rint(counts * (target / counts.sum())), counts > 0).astype(np.int64)
    common = counts.argmax()
    draws[common] = max(1, draws[common] + target - draws.sum())
    return draws
