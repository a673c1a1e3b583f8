"""Counts the pairs, tokens and padding in training batches (TensorFlow)."""

import tensorflow as tf

from keras_transformer.data import BatchCount, Batches
from keras_transformer.data.batches import BATCHES_AHEAD
from keras_transformer.data.numpy_function import numpy_function


class BatchCounts:
    """Counts batches as they are read, so that counting costs the training device nothing.

    Args:
        batches: the batches to count, with the rows of all workers.

    Example:
        >>> counts = BatchCounts(batches)
        >>> dataset = counts.watch(batches.dataset(), start=0)
        >>> history = model.fit(dataset, steps_per_epoch=1, verbose=0)
        >>> counts.take(step=1) == batches.count(0)  # the first batch, once it was trained on
        True
    """

    def __init__(self, batches: Batches):
        self.batches = batches
        self._counts: dict[int, BatchCount] = {}

    def watch(self, dataset: tf.data.Dataset, start: int) -> tf.data.Dataset:
        """Returns the same dataset, of the batches from `start` on, counted as it is read."""

        def count(step, batch):
            numpy_function(self._count, [step], [])
            return batch

        return dataset.enumerate(start).map(count).prefetch(BATCHES_AHEAD)

    def take(self, step: int) -> BatchCount:
        """Returns, and forgets, the counts of the batch that led to a step."""
        return self._counts.pop(step)

    def _count(self, step):
        self._counts[int(step) + 1] = self.batches.count(int(step))
