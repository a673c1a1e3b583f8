"""Sets flags of XLA before it compiles anything (TensorFlow)."""

import functools
import os

import tensorflow as tf

_YNNPACK = "--xla_cpu_experimental_ynn_fusion_type"


@functools.cache
def avoid_crash() -> None:
    """Makes XLA compute sums and maxima without YNNPACK, where YNNPACK can crash.

    It must run before XLA compiles anything. The first `fused` function of a graph,
    `training.train`, and a `Translator` with `jit_compile` call it. It sets the environment
    variable XLA_FLAGS of this process.

    TensorFlow 2.21 builds YNNPACK's part of a function when the function first runs. Threads that
    run it at the same time each build it, and add its constants to one list without a lock. So two
    parts of a batch, or two batches in translation, sometimes crashed the process. Products have
    no constants and stay with YNNPACK, which makes int8 four times faster.

    Other versions of TensorFlow are left alone, because XLA ends a process whose flags it does not
    know. A process where the flag is already set is left alone too.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if tf.__version__.startswith("2.21.") and _YNNPACK not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_YNNPACK}=-reduce".strip()
