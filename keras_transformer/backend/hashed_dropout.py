"""Dropout masks that are computed from the index of an element, not stored."""

from keras import ops

from keras_transformer.backend.fused import custom_gradient, fused

# Odd numbers whose products mix the bits of a 32-bit integer well.
_MULTIPLIERS = (-1640531527, 0x21F0AAAD, 0x735A2D97)


def scaled_mask(x, key, rate: float):
    """A mask of the shape of `x`: 0 at a share of `rate`, `1 / (1 - rate)` elsewhere; float32."""
    index = ops.reshape(ops.arange(ops.size(x), dtype="int32"), ops.shape(x))
    bits = ops.bitwise_and(hashed(index, key), 0x7FFFFFFF)
    return ops.where(bits >= int(rate * 2**31), 1.0 / (1.0 - rate), 0.0)


@fused
def dropped(x, key, rate):
    """`x` times its mask, whose gradient computes the mask again."""

    @custom_gradient
    def masked(x):
        def gradient(upstream):
            return _times_mask(upstream, key, rate)

        return _times_mask(x, key, rate), gradient

    return masked(x)


@fused
def dropped_sum(x, y, key, rate):
    """`x + dropped(y)`, in one pass."""

    @custom_gradient
    def masked_sum(x, y):
        def gradient(upstream):
            return upstream, ops.cast(_times_mask(upstream, key, rate), y.dtype)

        return x + ops.cast(_times_mask(y, key, rate), x.dtype), gradient

    return masked_sum(x, y)


def _times_mask(x, key, rate):
    return ops.cast(ops.cast(x, "float32") * scaled_mask(x, key, rate), x.dtype)


def hashed(x, key):
    """A 32-bit hash of integers `x`, another for each `key` of two int32."""
    # The key enters each round: if only the first, all masks would be parts of one sequence.
    for multiplier, word in zip(_MULTIPLIERS, (key[0], key[1], key[0]), strict=True):
        x = x + word
        x = (x ^ _high_half(x)) * multiplier
    return x ^ _high_half(x)


def _high_half(x):
    # A shift of a signed integer drags its sign along.
    return ops.bitwise_and(ops.right_shift(x, 16), 0xFFFF)
