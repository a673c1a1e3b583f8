"""Functions compiled into few passes over memory, where the backend can."""

import functools
from collections.abc import Callable

import keras
from keras import ops


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

    from keras_transformer.xla_flags import avoid_crash

    avoid_crash()
    compiled = tf.function(function, jit_compile=True, autograph=False)

    def with_tensors(*args):  # variables of a strategy could not be passed on
        return compiled(*(value_of(x) if tf.is_tensor(x) else x for x in args))

    return functools.wraps(function)(with_tensors)


def value_of(variable):
    """A tensor of what a variable holds, for functions with a gradient of their own."""
    if keras.backend.backend() != "tensorflow":
        return ops.convert_to_tensor(variable)
    import tensorflow as tf

    return tf.convert_to_tensor(ops.convert_to_tensor(variable))  # Keras's leaves it a variable


def fused_sum(x, axis: int):
    """The sum over an axis, which stays as one of length 1; for use in a `fused` function.

    On a CPU it adds halves to each other, which TensorFlow's XLA turns into vector instructions; a
    plain sum of floats, whose order is fixed, it adds up one by one.
    """
    length = x.shape[axis]
    while _sums_by_halves() and length is not None and length > 1 and length % 2 == 0:
        x = ops.add(*ops.split(x, 2, axis=axis))
        length //= 2
    return x if length == 1 else ops.sum(x, axis=axis, keepdims=True)


@functools.cache
def _sums_by_halves():
    if keras.backend.backend() != "tensorflow":
        return False
    import tensorflow as tf

    return not tf.config.list_physical_devices("GPU")
