"""Starts TensorFlow without its messages about the machine's devices.

On a machine without a GPU, its C++ code would first print lines of spurious errors.
"""

import contextlib
import gc
import os
import sys
from collections.abc import Iterator

from keras_transformer.errors import UserError
from keras_transformer.machine.gpu import has_gpu


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


@contextlib.contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Collects no garbage in the block, and never looks for any among what the block has made.

    Collections among the objects of TensorFlow would take a quarter of a command's start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def import_tensorflow() -> None:
    """Imports TensorFlow; its devices and number of threads may still be chosen afterwards.

    Keras, which it imports, gets its own defaults: a user's keras.json may name another backend, or
    another precision than `--precision`.

    Raises:
        UserError: the environment asks for another backend of Keras.
    """
    backend = os.environ.get("KERAS_BACKEND") or "tensorflow"
    if backend != "tensorflow":
        raise UserError(
            f"this command runs only on TensorFlow, not on {backend}: set KERAS_BACKEND=tensorflow"
        )
    os.environ["KERAS_BACKEND"] = backend
    os.environ["KERAS_HOME"] = os.devnull  # a folder without keras.json
    os.environ.pop("TF_USE_LEGACY_KERAS", None)  # TensorFlow Text would import Keras 2
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with _without_stderr(), _without_garbage_collection():
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 (registers operations)

        gpus = tf.config.list_physical_devices("GPU")  # fixes no setting, but reports a missing one
    if not gpus and has_gpu():
        print(
            "this machine has an NVIDIA GPU that TensorFlow does not see, so the CPU is used; "
            f"its libraries come with pip install 'tensorflow[and-cuda]=={tf.__version__}'",
            file=sys.stderr,
        )


def find_devices() -> None:
    """Lets TensorFlow find this machine's devices, which fixes its number of threads."""
    import tensorflow as tf

    with _without_stderr():
        tf.config.list_logical_devices()
        # oneDNN reports once that it does not compute this operation.
        tf.transpose(tf.zeros((1, 1), tf.int64))
