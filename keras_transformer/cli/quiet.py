"""Starts TensorFlow without its messages about the machine's devices.

On a machine without a GPU, its C++ code would first print lines of spurious errors.
"""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """Drops all that is written to standard error, even by C++; exceptions still pass."""
    sys.stderr.flush()
    stderr = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)


def import_tensorflow() -> None:
    """Imports TensorFlow; its devices and number of threads may still be chosen afterwards."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _without_stderr():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers operations)

        tf.config.list_physical_devices()  # fixes no setting, but reports a missing GPU


def find_devices() -> None:
    """Lets TensorFlow find this machine's devices, which fixes its number of threads."""
    import tensorflow as tf

    with _without_stderr():
        tf.config.list_logical_devices()
        # oneDNN reports once that it does not compute this operation.
        tf.transpose(tf.zeros((1, 1), tf.int64))
