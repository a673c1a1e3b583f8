"""The precision in which this machine multiplies matrices fastest (TensorFlow)."""

import os
import time

import tensorflow as tf

from keras_transformer.machine import processor

_REPEATS = 15


def slowdown(dtype: str) -> float:
    """Measures the time of a product in `dtype` on this processor, as a multiple of float32's.

    It takes a fifth of a second. It is measured because processor flags do not tell whether
    TensorFlow uses the instructions. The time is CPU time, of the fastest of several products for
    each type, so that other work on the machine hardly matters.

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


def fastest_policy() -> str:
    """The Keras dtype policy that multiplies matrices fastest on this machine.

    It depends on the hardware alone, so two runs on one machine get the same policy.

    Returns:
        "mixed_bfloat16" on processors with instructions for bfloat16 products (AVX512_BF16, AMX),
        which TensorFlow's oneDNN uses, and on GPUs since NVIDIA's compute capability 8.0; else
        "float32".

    Example:
        >>> fastest_policy() in ("float32", "mixed_bfloat16")
        True
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        is_faster = details.get("compute_capability", (0, 0)) >= (8, 0)
    else:
        has_instructions = not processor.flags().isdisjoint(("avx512_bf16", "amx_bf16"))
        is_faster = has_instructions and os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
    return "mixed_bfloat16" if is_faster else "float32"


def _seconds(dtype):
    with tf.device("CPU:0"):
        left, right = tf.ones((256, 512), dtype), tf.ones((512, 1024), dtype)
        start = time.process_time()
        tf.matmul(left, right)
        return time.process_time() - start
