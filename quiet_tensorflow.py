"""Imported first by the command lines: TensorFlow, without what it says about a machine's devices.

On a machine without a GPU its C++ parts would begin with lines of errors that are none.
"""

import contextlib
import os
import sys


@contextlib.contextmanager
def _without_stderr():
    """Drops what is written to the standard error stream, by C++ too; exceptions still pass."""
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


def find_devices() -> None:
    """Has TensorFlow find the devices of this machine, and settles how many threads it has."""
    with _without_stderr():
        tf.config.list_logical_devices()
        # oneDNN tells once that it leaves these to others.
        tf.transpose(tf.zeros((1, 1), tf.int64))


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
with _without_stderr():
    import tensorflow as tf
    import tensorflow_text  # noqa: F401

    tf.config.list_physical_devices()  # settles nothing yet, but tells that there is no GPU
