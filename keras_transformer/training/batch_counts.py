"""What the batches of training hold: pairs, tokens, and room for them (TensorFlow)."""

from typing import NamedTuple

import tensorflow as tf


class BatchCount(NamedTuple):
    """What a batch holds.

    Attributes:
        pairs: of sentences; rows of nothing but padding are none.
        source_tokens, target_tokens: without padding.
        length: that both sides are padded to.
        rows: with those of padding.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    length: int
    rows: int


class BatchCounts:
    """Counts batches as they are read, so that their figures cost the training device nothing.

    Example:
        >>> counts = BatchCounts(pad_id=0)
        >>> model.fit(counts.watch(batches, start=0), ...)
        >>> counts.take(step=1).pairs  # of the first batch, once it was trained on
        256
    """

    def __init__(self, pad_id: int):
        self.pad_id = pad_id
        self._counts: dict[int, BatchCount] = {}

    def watch(self, batches: tf.data.Dataset, start: int) -> tf.data.Dataset:
        """The same batches, counted: the first of them is that of step `start + 1`."""

        def count(step, batch):
            inputs, labels = batch
            source, target = inputs["source_ids"] != self.pad_id, labels != self.pad_id
            numbers = [
                step,
                tf.math.count_nonzero(tf.reduce_any(target, axis=1)),
                tf.math.count_nonzero(source),
                tf.math.count_nonzero(target),
                tf.shape(labels, tf.int64)[1],
                tf.shape(labels, tf.int64)[0],
            ]
            tf.numpy_function(self._note, [tf.stack(numbers)], [])
            return batch

        return batches.enumerate(start + 1).map(count).prefetch(tf.data.AUTOTUNE)

    def take(self, step: int) -> BatchCount:
        """What the batch of a step holds, which is then forgotten."""
        return self._counts.pop(step)

    def _note(self, numbers):
        step, *count = numbers.tolist()
        self._counts[step] = BatchCount(*count)
