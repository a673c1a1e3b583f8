"""Measures how fast the processor multiplies 16-bit matrices (TensorFlow)."""

import time

import tensorflow as tf

_REPEATS = 5


def slowdown(dtype: str) -> float:
    """Time that a product in `dtype` takes on this processor, as a multiple of float32's.

    It is measured, in a tenth of a second: the flags of a processor do not tell whether TensorFlow
    uses its instructions. What counts is the time that its cores work, and of each type the
    fastest of several products, so that other work on the machine hardly matters.

    Args:
        dtype: "bfloat16" or "float16".

    Example:
        >>> is_emulated = slowdown("bfloat16") > 1
    """
    fastest: dict[str, float] = {}
    for _ in range(_REPEATS):
        for kind in ("float32", dtype):
            seconds = _seconds(kind)
            fastest[kind] = min(seconds, fastest.get(kind, seconds))
    return fastest[dtype] / fastest["float32"]


def _seconds(dtype):
    with tf.device("CPU:0"):
        left, right = tf.ones((256, 512), dtype), tf.ones((512, 1024), dtype)
        start = time.process_time()
        tf.matmul(left, right)
        return time.process_time() - start
