"""How the cores of a CPU share work that falls into parts (TensorFlow)."""

import contextlib
import os

# Where parts pay: wider models keep all cores busy with one product, and in smaller parts the
# gradients of each, which are to be added up, take too large a share of the time.
_MOST_D_MODEL, _LEAST_TOKENS = 256, 1024


def share_cores(parts: int) -> None:
    """Gives each of several parts that are computed at the same time its share of the cores.

    For all of this process, and only before TensorFlow computes anything: after that its threads
    are settled, and all is left as it is. One core on each of two small operations does more than
    two on one, and then on the other.

    Args:
        parts: of a batch in training (`parallel_parts`), or batches in translation (`workers`); 1
            leaves all as it is.
    """
    import tensorflow as tf

    if parts > 1:
        with contextlib.suppress(RuntimeError):
            tf.config.threading.set_intra_op_parallelism_threads(max(1, number_of_cores() // parts))


def parts_for_cores(d_model: int, tokens_per_batch: int) -> int:
    """Number of parts of a batch to compute at the same time in training, on this machine.

    Args:
        d_model: width of the model.
        tokens_per_batch: of each side.

    Returns:
        On a CPU, and for a narrow model, one for each core that gets enough tokens; else 1.

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
