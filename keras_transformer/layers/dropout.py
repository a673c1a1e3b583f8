"""Dropout whose mask is computed, not stored (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.fused import fused

# Of a 32-bit integer hash with little bias (multiply, xor with the high half, and again).
_STRIDE, _FIRST, _SECOND = -1640531527, 0x21F0AAAD, 0x735A2D97


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Dropout):
    """`keras.layers.Dropout` in one pass over memory, forwards and backwards.

    Whether an element is kept is a hash of its index and of two random numbers, so that the
    gradient computes the mask again instead of reading it. Arguments are those of Keras's layer.

    Example:
        >>> Dropout(0.5, seed=1)(keras.ops.ones((2, 3)), training=True).shape
        TensorShape([2, 3])
    """

    def call(self, inputs, training=False):
        if not self.drops(training):
            return inputs
        return _dropped(inputs, self.new_key(), self.rate)

    def add(self, x, inputs, training=False):
        """`x + call(inputs)`, in one pass."""
        if not self.drops(training):
            return x + inputs
        return _dropped_sum(x, inputs, self.new_key(), self.rate)

    def drops(self, training) -> bool:
        """Whether anything is dropped at all."""
        return bool(training) and self.rate > 0

    def new_key(self):
        """A random int32 from which one mask is made."""
        seed = ops.cast(self.seed_generator.next(), "int32")
        return _hash(_hash(seed[0]) + seed[1])


def scaled_mask(x, key, rate: float):
    """A mask of the shape of `x`: 0 at a share of `rate`, `1 / (1 - rate)` elsewhere; float32."""
    index = ops.reshape(ops.arange(ops.size(x), dtype="int32"), ops.shape(x))
    bits = ops.bitwise_and(_hash(index * _STRIDE + key), 0x7FFFFFFF)
    return ops.where(bits >= int(rate * 2**31), 1.0 / (1.0 - rate), 0.0)


@fused
def _dropped(x, key, rate):
    @ops.custom_gradient
    def dropped(x):
        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return _times_mask(upstream, key, rate)

        return _times_mask(x, key, rate), gradient

    return dropped(x)


@fused
def _dropped_sum(x, y, key, rate):
    @ops.custom_gradient
    def dropped_sum(x, y):
        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return upstream, ops.cast(_times_mask(upstream, key, rate), y.dtype)

        return x + ops.cast(_times_mask(y, key, rate), x.dtype), gradient

    return dropped_sum(x, y)


def _times_mask(x, key, rate):
    return ops.cast(ops.cast(x, "float32") * scaled_mask(x, key, rate), x.dtype)


def _hash(x):
    for multiplier in (_FIRST, _SECOND):
        x = (x ^ _high_half(x)) * multiplier
    return x ^ _high_half(x)


def _high_half(x):
    # A shift of a signed integer drags its sign along.
    return ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF)
