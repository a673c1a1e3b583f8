"""BPE-dropout, exactly repeatable: subwords are split anew in each epoch (Provilkov et al., 2020).

Lengths, and so batches, are known only once the text is split. To find batch k without the batches
before it, the pairs of an epoch are dealt into groups with similar length distributions. Each group
makes the same number of batches.
"""

import math

import numpy as np

from keras_transformer.data.batch_plan import (
    BatchPlan,
    EpochPlans,
    buckets_of,
    longest_first,
    plan_batches,
    random_of,
    split_to,
)
from keras_transformer.data.corpus import Corpus, PairIds
from keras_transformer.data.prefetcher import Prefetcher
from keras_transformer.text.ragged import Ragged, ranges

_GROUP_BATCHES = 64  # before dropout: few to split quickly, yet enough to cover all lengths
_SPARE = 0.01  # share of batches added to those of the first group, as another may need more


class DropoutPlans:
    """Plans each group of pairs, with subwords split anew.

    Args:
        corpus: the corpus of the pairs.
        epochs: plans of the pairs without dropout: their order and the shapes of batches.
        dropout: `dropout` of `Tokenizer.resplit`.

    Attributes:
        plans_per_epoch: number of groups in an epoch.
        batches_per_plan: number of batches in each group.

    Raises:
        UserError: the vocabulary allows no dropout.
    """

    def __init__(self, corpus: Corpus, epochs: EpochPlans, dropout: float):
        self.corpus, self.epochs, self.dropout = corpus, epochs, dropout
        self._orders = Prefetcher(epochs.order)
        self.plans_per_epoch = max(1, epochs.batches_per_plan // _GROUP_BATCHES)
        self.batches_per_plan = self._batches_needed()
        pairs_per_epoch = int(epochs.counts.sum())
        smallest_group = pairs_per_epoch // self.plans_per_epoch
        if self.batches_per_plan > smallest_group:  # about one pair in each batch
            self.plans_per_epoch = 1
            self.batches_per_plan = min(self._batches_needed(), pairs_per_epoch)

    def plan(self, number: int) -> BatchPlan:
        """Makes the plan of a group, counted over all epochs.

        If the group needs more than `batches_per_plan` batches, it is split again with half the
        dropout. Without dropout it never needs more.
        """
        epoch, group = divmod(number, self.plans_per_epoch)
        random = random_of(self.epochs.seed, epoch, 2, group)
        chosen = self._orders[epoch][group :: self.plans_per_epoch].copy()
        random.shuffle(chosen)
        for dropout in (self.dropout, self.dropout / 2, self.dropout / 4, 0.0):
            pairs, buckets, batches = self._sampled(chosen, dropout, random)
            if len(batches) <= self.batches_per_plan:
                break
        batches = split_to(batches, self.batches_per_plan)
        random.shuffle(batches)
        return BatchPlan(pairs, longest_first(buckets), batches)

    def _batches_needed(self):
        chosen = self._orders[0][:: self.plans_per_epoch]
        _, _, batches = self._sampled(chosen, self.dropout, random_of(self.epochs.seed))
        # Before dropout, a group has this many pairs of each bucket, or one less.
        counts = -(-self.epochs.counts // self.plans_per_epoch)
        return max(
            math.ceil((1 + _SPARE) * len(batches)) + 1, len(plan_batches(counts, self.epochs.rows))
        )

    def _sampled(self, chosen, dropout, random):
        pairs = _split_anew(self.corpus, self.epochs.pairs, chosen, dropout, random)
        buckets = buckets_of(pairs, self.epochs.boundaries)
        counts = np.bincount(buckets, minlength=len(self.epochs.boundaries))
        return pairs, buckets, plan_batches(counts, self.epochs.rows)


def _split_anew(corpus: Corpus, pairs, chosen: np.ndarray, dropout: float, random) -> PairIds:
    """Splits the chosen pairs with dropout; a side that becomes too long keeps its old subwords."""
    sides = pairs.sides(chosen)
    starts, lengths = (np.stack(both, axis=1).ravel() for both in zip(*sides, strict=True))
    plain = Ragged(pairs.ids[ranges(starts, lengths)].astype(np.int32), lengths)
    new = corpus.tokenizer.resplit(plain, dropout, random) if dropout else plain
    fits = new.lengths < corpus.max_length
    starts = np.where(fits, new.starts, len(new.ids) + plain.starts)
    lengths = np.where(fits, new.lengths, plain.lengths)
    ids = np.concatenate([new.ids, plain.ids])[ranges(starts, lengths)]
    source_lengths, target_lengths = lengths.reshape(-1, 2).T
    offsets = np.concatenate([[0], np.cumsum(source_lengths + target_lengths)])
    return PairIds(ids, offsets, source_lengths)
