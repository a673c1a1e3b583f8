"""Labels outside of the vocabulary: an error where that is cheap, NaN elsewhere."""

import keras
from keras import ops

from keras_transformer.fast.dispatch import builds_tensorflow_graph, sum_dtype


def known_labels(labels, logits):
    """Converts labels to ids of the vocabulary.

    A label outside of it is an error in eager code, and in TensorFlow's graphs on a CPU. In graphs
    that XLA compiles or that a GPU runs, the mark of such a label makes its loss NaN.

    Args:
        labels: (...), of any dtype.
        logits: (..., vocab_size).

    Returns:
        The labels, int32 (...), all in [0, vocab_size). Marks to multiply losses by, (...), in the
        dtype of sums of logits: 1, or NaN for a label outside of the vocabulary.

    Raises:
        ValueError: a label is outside of the vocabulary, in eager code.
        tf.errors.InvalidArgumentError: the same in a TensorFlow graph on a CPU.
    """
    vocab_size = logits.shape[-1]
    # In the labels' own dtype, in which 2.5 and 2**32 are no ids; a clipped NaN stays one.
    known = ops.cast(ops.clip(labels, 0, vocab_size - 1), "int32")
    is_known = ops.equal(ops.cast(known, labels.dtype), labels)
    known = ops.clip(known, 0, vocab_size - 1)
    _expect_known(labels, is_known, vocab_size)
    return known, ops.where(is_known, ops.ones((), sum_dtype(logits)), float("nan"))


def _expect_known(labels, is_known, vocab_size):
    message = f"labels must be ids in [0, {vocab_size}), or pad_id where they do not count: found"
    if not _is_in_graph(labels):
        labels, is_known = ops.convert_to_numpy(labels), ops.convert_to_numpy(is_known)
        if not is_known.all():
            raise ValueError(f"{message} {labels[~is_known][0]}")
    elif keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        if not tf.config.list_physical_devices("GPU"):
            lowest, highest = tf.reduce_min(labels), tf.reduce_max(labels)
            found = tf.where(lowest < 0, lowest, highest)
            tf.raw_ops.Assert(condition=tf.reduce_all(is_known), data=[message, found])


def _is_in_graph(x):
    if keras.backend.backend() == "jax":
        import jax

        return isinstance(x, jax.core.Tracer)
    return builds_tensorflow_graph()
