"""Sequences of different lengths in one NumPy array."""

from typing import NamedTuple

import numpy as np


class Ragged(NamedTuple):
    """Sequences of ids one after the other: all `ids`, and how many each sequence has."""

    ids: np.ndarray
    lengths: np.ndarray

    @property
    def starts(self) -> np.ndarray:
        """The start of each sequence in `ids`."""
        return np.cumsum(self.lengths) - self.lengths


def ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The numbers from each start on, as many as its length.

    Example:
        >>> ranges(np.array([5, 20]), np.array([3, 2]))
        array([ 5,  6,  7, 20, 21])
    """
    return np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
