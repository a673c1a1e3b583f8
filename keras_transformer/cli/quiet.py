"""TensorFlow without what it says about the devices of a machine.

On a machine without a GPU its C++ parts would begin with lines of spurious errors.
"""

import contextlib
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
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


def import_tensorflow() -> None:
    """Imports TensorFlow; which devices and how many threads it uses may still be chosen."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _without_stderr():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers operations)

        tf.config.list_physical_devices()  # settles nothing yet, but reports that there is no GPU


def find_devices() -> None:
    """Has TensorFlow find the devices of this machine, which settles how many threads it has."""
    import tensorflow as tf

    with _without_stderr():
        tf.config.list_logical_devices()
        # oneDNN reports once that it leaves these to others.
        tf.transpose(tf.zeros((1, 1), tf.int64))
