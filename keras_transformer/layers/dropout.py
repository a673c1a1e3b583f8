"""Dropout whose mask is computed, not stored (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.fused import fused

# Of a 32-bit integer hash with little bias (multiply, xor with the high half, and again).
_STRIDE, _FIRST, _SECOND = -1640531527, 0x21F0AAAD, 0x735A2D97


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Layer):
    """Drops elements in training, in one pass over memory, forwards and backwards.

    Whether an element is kept is a hash of its index and of a random number, so that the gradient
    computes the mask again instead of reading it.

    Args:
        rate: share of the elements that become 0; the others are divided by `1 - rate`.
        seed: of the masks; default: from Keras's global seed.

    Call arguments:
        x: a float tensor of any shape.
        training: nothing is dropped unless it is true.

    Returns:
        A tensor like `x`.

    Raises:
        ValueError: `rate` is not in [0, 1).

    Example:
        >>> Dropout(0.5, seed=1)(keras.ops.ones((2, 3)), training=True).shape
        TensorShape([2, 3])
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be in [0, 1): found {rate}")
        self.rate = rate
        self.seed = seed
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, x, training=False):
        if not self.drops(training):
            return x
        return _dropped(x, self.new_key(), self.rate)

    def add(self, x, y, training=False):
        """`x + call(y)`, in one pass."""
        if not self.drops(training):
            return x + y
        return _dropped_sum(x, y, self.new_key(), self.rate)

    def drops(self, training) -> bool:
        """Whether anything is dropped at all."""
        return bool(training) and self.rate > 0

    def new_key(self):
        """A random int32 from which one mask is made."""
        seed = ops.cast(self.seed_generator.next(), "int32")
        return _hash(_hash(seed[0]) + seed[1])

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}


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
