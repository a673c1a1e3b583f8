"""The speed of this machine's processor, without TensorFlow, which is set up later (NumPy)."""

import time

import numpy as np

from keras_transformer.machine.cores import number_of_cores

_SIZE, _SECONDS = 1024, 0.3


def product_flops() -> float:
    """Measures the floating-point operations per second of large products in float32, all cores.

    It takes a third of a second. Processor time is counted, of the fastest of several products,
    so that other work on the machine hardly matters. Operations are multiplications and additions.

    Example:
        >>> product_flops() > 1e8
        True
    """
    factor = np.ones((_SIZE, _SIZE), np.float32)
    fastest, ends = float("inf"), time.monotonic() + _SECONDS
    while time.monotonic() < ends:
        start = time.process_time()
        factor @ factor
        fastest = min(fastest, time.process_time() - start)
    return 2 * _SIZE**3 / fastest * number_of_cores()
