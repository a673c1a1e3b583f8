"""Dropout masks computed from the indices of elements, not stored."""

from keras import ops

from keras_transformer.fast.dispatch import custom_gradient, fused, sum_dtype
from keras_transformer.fast.integer_hash import hashed


def scaled_mask(x, key, rate: float):
    """A mask of the shape of `x`: 0 with probability `rate`, else `1 / (1 - rate)`."""
    index = ops.reshape(ops.arange(ops.size(x), dtype="int32"), ops.shape(x))
    # The key enters every round. In the first alone, all masks would be parts of one sequence.
    bits = ops.bitwise_and(hashed(index, (key[0], key[1], key[0])), 0x7FFFFFFF)
    factor = ops.convert_to_tensor(1.0 / (1.0 - rate), sum_dtype(x))
    return ops.where(bits >= int(rate * 2**31), factor, 0.0)


@fused
def dropped(x, key, rate):
    """Multiplies `x` by its mask; the gradient computes the mask again."""

    @custom_gradient
    def masked(x, key):
        def gradient(upstream):
            return _times_mask(upstream, key, rate), None

        return _times_mask(x, key, rate), gradient

    return masked(x, key)


@fused
def dropped_sum(x, y, key, rate):
    """Computes `x + dropped(y)` in one pass."""

    @custom_gradient
    def masked_sum(x, y, key):
        def gradient(upstream):
            return upstream, ops.cast(_times_mask(upstream, key, rate), y.dtype), None

        return x + ops.cast(_times_mask(y, key, rate), x.dtype), gradient

    return masked_sum(x, y, key)


def _times_mask(x, key, rate):
    return ops.cast(ops.cast(x, sum_dtype(x)) * scaled_mask(x, key, rate), x.dtype)
