"""Sequences of different lengths in one NumPy array."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """Sequences of ids in one array: all `ids` in a row, and the length of each sequence."""

    ids: np.ndarray
    lengths: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """The start of each sequence in `ids`."""
        return np.cumsum(self.lengths) - self.lengths


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Concatenates ranges: for each start, as many consecutive numbers as its length.

    Example:
        >>> ranges(np.array([5, 20]), np.array([3, 2]))
        array([ 5,  6,  7, 20, 21])
    """
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())


def padded(sequences: Sequence[Sequence[int] | np.ndarray], pad_id: int) -> np.ndarray:
    """Pads sequences at the right to the length of the longest: int32 (sequences, length).

    Example:
        >>> padded([[5, 9, 7], [4]], pad_id=0)
        array([[5, 9, 7],
               [4, 0, 0]], dtype=int32)
    """
    ids = np.full((len(sequences), max(map(len, sequences))), pad_id, np.int32)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return ids
