"""Shares the cores of a CPU among parts of a batch, or among batches (TensorFlow)."""

import contextlib
import os

# Splitting a batch is faster only within these limits. Wider models keep all cores busy with one
# product; with fewer tokens per part, adding up the parts' gradients takes too large a share of
# the time.
_MOST_D_MODEL, _LEAST_TOKENS = 256, 1024


def share_cores(parts: int) -> None:
    """Gives each of several parts that are computed at the same time its share of the cores.

    It applies to the whole process, and only before TensorFlow computes anything; later calls have
    no effect. Two small operations finish sooner with one core each than with both cores in turn.

    Args:
        parts: number of parts of a batch in training (`parallel_parts`), or of batches in
            translation (`workers`); 1 changes nothing.
    """
    import tensorflow as tf

    if parts > 1:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(max(1, number_of_cores() // parts))


def parts_for_cores(d_model: int, tokens_per_batch: int) -> int:
    """Number of parts of a batch to compute at the same time in training, on this machine.

    Args:
        d_model: width of the model.
        tokens_per_batch: number of tokens on each side of a batch, or of a micro-batch.

    Returns:
        For a narrow model on a CPU, one part for each core that gets enough tokens; else 1.

    Example:
        >>> parts_for_cores(d_model=512, tokens_per_batch=25_000)  # a wide model
        1
    """
    import tensorflow as tf

    if d_model > _MOST_D_MODEL or tf.config.list_physical_devices("GPU"):
        return 1
    return max(1, min(number_of_cores(), tokens_per_batch // _LEAST_TOKENS))


def number_of_cores() -> int:
    """Number of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
