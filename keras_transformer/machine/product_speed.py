"""The precision in which this machine trains fastest (TensorFlow)."""

import contextlib
import hashlib
import json
import math
import os
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.files import whole_file
from keras_transformer.json_files import read_json
from keras_transformer.machine import processor
from keras_transformer.machine.cores import number_of_cores

PAYS_BELOW = 0.9
"""A type pays off where a linear map takes less than this share of its time in float32."""
_ROWS, _WIDEST, _SECONDS, _LEAST_REPEATS = 1024, 2048, 1.0, 3  # of a measurement
# oneDNN's names of the instruction sets before AVX-512.
_OLD_INSTRUCTIONS = re.compile(r"SSE41|AVX|AVX2\w*", re.IGNORECASE)


class Precision(NamedTuple):
    """A Keras dtype policy, and why it was chosen; empty if nothing was measured."""

    policy: str
    reason: str = ""


def fastest_precision(width: int, units: int) -> Precision:
    """The precision that trains a model fastest on this machine.

    Args:
        width: width of the model.
        units: width of the hidden layer of its feed-forward networks.

    Returns:
        "mixed_bfloat16" or "float32": on GPUs by their compute capability, on CPUs by `slowdown`.

    Example:
        >>> fastest_precision(width=128, units=256).policy in ("float32", "mixed_bfloat16")
        True
    """
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        details = tf.config.experimental.get_device_details(gpus[0])
        if details.get("compute_capability", (0, 0)) >= (8, 0):
            return Precision("mixed_bfloat16", "this GPU has instructions for it")
        return Precision("float32", "this GPU has no instructions for bfloat16")
    for name in ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"):
        if _OLD_INSTRUCTIONS.fullmatch(os.environ.get(name, "")):
            # On a processor with AVX-512, TensorFlow would crash.
            return Precision("float32", f"{name}={os.environ[name]} excludes bfloat16")
    ratio = slowdown("bfloat16", width, units)
    if ratio < PAYS_BELOW:
        return Precision(
            "mixed_bfloat16", f"a product takes {ratio:.2g} times as long as in float32"
        )
    return Precision("float32", f"a product takes {ratio:.2g} times as long in bfloat16")


def slowdown(dtype: str, width: int, units: int) -> float:
    """The time of a linear map's training in `dtype` on this CPU, as a multiple of float32's.

    It is measured once for each processor, shape and version of TensorFlow, and then kept in
    `$XDG_CACHE_HOME/keras_transformer`, by default `~/.cache/keras_transformer`. A file there that
    is damaged is measured again; where none can be written, each call measures.

    Args:
        dtype: "bfloat16" or "float16".
        width: width of the map's input; more than 2,048 are measured as 2,048.
        units: width of its output; the same.

    Example:
        >>> is_emulated = slowdown("bfloat16", 128, 256) > 1
    """
    width, units = min(width, _WIDEST), min(units, _WIDEST)
    conditions = {
        "product": [_ROWS, width, units],
        "dtype": dtype,
        "processor": processor.identity(),
        "cores": number_of_cores(),
        "tensorflow": tf.__version__,
        "environment": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(("ONEDNN_", "DNNL_", "TF_ENABLE_ONEDNN_"))
        },
    }
    path = _cache_file(conditions)
    ratio = _cached(path, conditions)
    if ratio is None:
        ratio = measured_slowdown(dtype, width, units)
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as partial:
                partial.write_text(json.dumps({**conditions, "slowdown": ratio}, indent=1) + "\n")
    return ratio


def measured_slowdown(dtype: str, width: int, units: int) -> float:
    """Measures what `slowdown` returns, in about a second.

    It is measured because processor flags do not tell whether TensorFlow uses the instructions,
    nor whether they are faster. Both types take turns. The time is CPU time, the shortest of each
    type, so that other work on the machine hardly matters.
    """
    fastest: dict[str, float] = {}
    ends, repeats = time.monotonic() + _SECONDS, 0
    with tf.device("CPU:0"):
        steps = {kind: _linear_map(kind, width, units) for kind in ("float32", dtype)}
        while repeats < _LEAST_REPEATS or time.monotonic() < ends:
            for kind, step in steps.items():
                start = time.process_time()
                step()
                seconds = time.process_time() - start
                fastest[kind] = min(seconds, fastest.get(kind, seconds))
            repeats += 1
    return fastest[dtype] / fastest["float32"]


def _linear_map(dtype, width, units):
    """A function that computes a linear map and its gradients as mixed precision does."""
    kernel = tf.ones((width, units))  # a weight, which stays in float32
    inputs, upstream = tf.ones((_ROWS, width), dtype), tf.ones((_ROWS, units), dtype)

    def step():
        converted = tf.cast(kernel, dtype)
        tf.nn.relu(tf.matmul(inputs, converted))
        tf.matmul(upstream, converted, transpose_b=True)
        tf.cast(tf.matmul(inputs, upstream, transpose_a=True), tf.float32)

    step()  # the first time, TensorFlow prepares the products
    return step


def _cache_file(conditions):
    digest = hashlib.blake2b(json.dumps(conditions).encode(), digest_size=8).hexdigest()
    folder = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(folder):  # the specification ignores relative ones
        folder = os.path.expanduser("~/.cache")
    return Path(folder, "keras_transformer", f"slowdown-{digest}.json")


def _cached(path, conditions) -> float | None:
    """The ratio in a file, if it was measured under these conditions."""
    with contextlib.suppress(OSError, UserError):
        found: Any = read_json(path)
        ratio = isinstance(found, dict) and found.pop("slowdown", None)
        if found == conditions and isinstance(ratio, float) and 0 < ratio < math.inf:
            return ratio
    return None
