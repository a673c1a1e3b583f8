"""Functions compiled into few passes over memory, where the backend can."""

import functools
from collections.abc import Callable

import keras


def fused(function: Callable) -> Callable:
    """`function` of tensors, compiled by itself where the backend does not compile the whole step.

    TensorFlow runs a function op by op, each a pass over memory; XLA makes one or two of them.
    Matrix products had better stay outside, since TensorFlow's are the faster ones. The other
    backends compile the whole step anyway.

    Example:
        >>> @fused
        ... def gelu_sum(x, y):
        ...     return keras.ops.gelu(x) + keras.ops.gelu(y)
    """
    if keras.backend.backend() != "tensorflow":
        return function
    import tensorflow as tf

    compiled = tf.function(function, jit_compile=True, autograph=False)

    def read(x):  # variables: those of a strategy could not be passed on
        return tf.convert_to_tensor(x) if tf.is_tensor(x) else x

    return functools.wraps(function)(lambda *args: compiled(*map(read, args)))
