"""The flags of XLA on this machine, set before it compiles anything (TensorFlow)."""

import functools
import os

import tensorflow as tf

_YNNPACK = "--xla_cpu_experimental_ynn_fusion_type"


@functools.cache
def avoid_crash() -> None:
    """Has XLA make sums and maxima by itself, not with YNNPACK, where the latter can crash.

    It is called before this package has XLA compile anything: by the first `fused` function, by
    `training.train`, and by a `Translator` with `jit_compile`. It sets the environment variable
    XLA_FLAGS of this process.

    TensorFlow 2.21 builds YNNPACK's part of a function when the function is first run, once more
    for each thread that runs it at the same time, and all of them add its constants to one list
    without a lock. So two parts of a batch, or two batches in translation, now and then ended the
    process. Products, which hold no constants, stay with YNNPACK: int8 is four times faster by it.

    Other versions are left alone, as XLA ends a process whose flags it does not know, and so is a
    process where the flag is given. It comes too late where XLA has compiled something before.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    if tf.__version__.startswith("2.21.") and _YNNPACK not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_YNNPACK}=-reduce".strip()
