"""Batches of sentences for a search in batch slots, in few shapes if XLA compiles it."""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from keras_transformer.search.compiled import rounded
from keras_transformer.translation import by_length


class SlotBatch(NamedTuple):
    """A batch of sentences that are encoded together and take turns in the batch slots.

    Attributes:
        rows: indices of the sentences, the longest first.
        num_slots: number of batch slots.
        num_rows: number of rows, including rows of padding.
    """

    rows: list[int]
    num_slots: int
    num_rows: int


@dataclasses.dataclass(frozen=True)
class SlotBatches:
    """Plans batches, and pads their ids.

    Attributes:
        tokens_per_batch: number of source tokens that are encoded together, and of positions that
            the batch slots have room for.
        workers: number of batches computed at the same time; none of them gets more than its share.
        jit_compile: whether XLA compiles the search. Each shape takes seconds, so the numbers of
            slots and rows are then powers of two, and lengths are rounded.
        pad_id: id of padding.
    """

    tokens_per_batch: int
    workers: int
    jit_compile: bool
    pad_id: int

    def plan(
        self, lengths: Mapping[int, int], more_positions: int, in_turns: bool = False
    ) -> Iterator[SlotBatch]:
        """Yields batches of sentences of similar length, the longest first.

        Args:
            lengths: number of tokens of each sentence, by index.
            more_positions: number of positions in a slot besides those for the sentence's length.
            in_turns: whether the sentences take turns in the slots. If not, a batch has as many
                sentences as slots.
        """
        share = math.ceil(len(lengths) / self.workers)
        if self.jit_compile and share:
            share = 1 << (share - 1).bit_length()

        def sizes(length):
            length = self._rounded(length)
            num_slots = max(1, self.tokens_per_batch // (length + more_positions))
            num_rows = max(1, self.tokens_per_batch // length) if in_turns else num_slots
            if self.jit_compile:
                num_slots, num_rows = (1 << round(math.log2(n)) for n in (num_slots, num_rows))
            return min(num_slots, share), min(num_rows, share)

        for rows in by_length(lengths, lambda longest: sizes(longest)[1]):
            yield SlotBatch(rows, *sizes(lengths[rows[0]]))

    def padded(self, ids: np.ndarray, num_rows: int) -> np.ndarray:
        """Pads ids (sentences, length) to one of a few shapes if XLA compiles the search.

        A row of padding alone is done before the first step.
        """
        if not self.jit_compile:
            return ids
        rows, columns = num_rows - ids.shape[0], self._rounded(ids.shape[1]) - ids.shape[1]
        return np.pad(ids, [(0, rows), (0, columns)], constant_values=self.pad_id)

    def _rounded(self, length: int) -> int:
        return rounded(length) if self.jit_compile else length
