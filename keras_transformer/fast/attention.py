"""Attention weights for training: two passes over memory, and a gradient in closed form."""

from keras import ops

from keras_transformer.fast.dispatch import custom_gradient, fused, sum_dtype
from keras_transformer.fast.reductions import fused_sum

# Stands for minus infinity before the softmax, so that a fully masked row gives equal weights
# instead of NaN.
MINUS_INFINITY = -1e9


def fused_attention_weights(queries, keys, mask=None):
    """Computes `attention_weights` of `layers/` faster; arguments and result are the same."""
    scores = ops.matmul(queries, ops.swapaxes(keys, -1, -2))  # (batch, heads, query, key)
    return _softmax(scores, True if mask is None else mask, queries.shape[-1] ** -0.5)


@fused
def _softmax(scores, mask, scale):
    @custom_gradient
    def softmax(scores, mask):
        scaled = ops.where(mask, ops.cast(scores, sum_dtype(scores)) * scale, MINUS_INFINITY)
        # (batch, heads, query, key)
        weights = ops.cast(ops.softmax(scaled, axis=-1), scores.dtype)

        def gradient(upstream):
            upstream = ops.cast(upstream, sum_dtype(scores))
            p = ops.cast(weights, sum_dtype(scores))
            mean = fused_sum(upstream * p, axis=-1)  # (batch, heads, query, 1)
            # A masked score has no gradient, even in a fully masked row, where its weight is not 0.
            scores_gradient = ops.where(mask, (upstream - mean) * p * scale, 0.0)
            return ops.cast(scores_gradient, scores.dtype), None

        return weights, gradient

    return softmax(scores, ops.convert_to_tensor(mask))
