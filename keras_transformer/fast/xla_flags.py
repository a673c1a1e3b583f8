"""Sets flags of XLA before it compiles anything (TensorFlow)."""

import functools
import os

import tensorflow as tf

from keras_transformer.machine import processor

_SUMS_WITHOUT_YNNPACK = "--xla_cpu_experimental_ynn_fusion_type=-reduce"
_WIDE_VECTORS = "--xla_cpu_prefer_vector_width=512"


@functools.cache
def set_xla_flags() -> None:
    """Makes XLA compute sums without YNNPACK, which can crash, and with wide vectors.

    It must run before XLA compiles anything. The first `fused` function of a graph,
    `training.train`, and a `Translator` with `jit_compile` call it. It sets the environment
    variable XLA_FLAGS of this process.

    TensorFlow 2.21 builds YNNPACK's part of a function when the function first runs. Threads that
    run it at the same time each build it, and add its constants to one list without a lock. So two
    parts of a batch, or two batches in translation, sometimes crashed the process. Products have
    no constants and stay with YNNPACK, which makes int8 four times faster.

    XLA computes with vectors of 256 bits even where the processor has 512. Wide ones are faster on
    processors with a matrix unit, and made no difference on an AMD with 512 bits (Zen 5).

    Other versions of TensorFlow are left alone, because XLA ends a process whose flags it does not
    know. A flag that is already set is left alone too.
    """
    if not tf.__version__.startswith("2.21."):
        return
    flags = [_SUMS_WITHOUT_YNNPACK]
    if processor.has_matrix_unit():
        flags.append(_WIDE_VECTORS)
    given = os.environ.get("XLA_FLAGS", "")
    new = [flag for flag in flags if flag.partition("=")[0] not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *new]).strip()
