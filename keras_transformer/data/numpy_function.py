"""Python functions in tf.data, which must not be called while the interpreter ends (TensorFlow).

A thread that enters Python then never returns, and the end waits for that thread: a program whose
batches are made ahead would hang after its last line.
"""

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

_QUIET_SECONDS = 0.1  # after so long without a call, all buffers are full

_lock = threading.Lock()
_exiting = False
_running = 0
_last_end = 0.0


def numpy_function(
    function: Callable, inputs: Sequence[Any], dtypes: Any, at_exit: Any = None
) -> Any:
    """Calls a Python function as `tf.numpy_function` does, until the interpreter is to end.

    Args:
        function: takes arrays and returns arrays.
        inputs: its arguments, tensors.
        dtypes: the type of its result, or a list of types.
        at_exit: what a call returns at once when the interpreter is about to end.

    Returns:
        A tensor, or a list of tensors if `dtypes` is a list.
    """

    def call(*arrays):
        global _running, _last_end
        with _lock:
            _running += 1
        try:
            return at_exit if _exiting else function(*arrays)
        finally:
            with _lock:
                _running -= 1
                _last_end = time.monotonic()

    return tf.numpy_function(call, inputs, dtypes)


@atexit.register
def _wait_for_calls() -> None:
    global _exiting
    _exiting = True
    while _running or time.monotonic() - _last_end < _QUIET_SECONDS:
        time.sleep(_QUIET_SECONDS / 10)
