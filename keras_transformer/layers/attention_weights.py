"""Attention weights, the softmax of equation 1 (paper, section 3.2.1)."""

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import keras
from keras import ops

from keras_transformer.fast.attention import MINUS_INFINITY, fused_attention_weights
from keras_transformer.fast.dispatch import sum_dtype

Tensor = Any

_RECORD: contextvars.ContextVar[dict | None] = contextvars.ContextVar("record", default=None)


def attention_weights(queries, keys, mask=None):
    """Attention weights, `softmax(Q K^T / sqrt(d_k))`: the share of each key in a query's output.

    Args:
        queries: (batch, heads, query, d_k).
        keys: (batch, heads, key, d_k).
        mask: boolean, broadcastable to (batch, heads, query, key), true where attention may look;
            None: no mask.

    Returns:
        (batch, heads, query, key), 0 where masked; each row sums to one. A fully masked row has
        equal weights.
    """
    d_k = queries.shape[-1]
    scores = ops.matmul(queries, ops.swapaxes(keys, -1, -2))  # (batch, heads, query, key)
    # At least float32: bfloat16 sums of many small weights do not reach one.
    scaled = ops.cast(scores, sum_dtype(scores)) * d_k**-0.5
    if mask is not None:
        scaled = ops.where(mask, scaled, MINUS_INFINITY)
    return ops.cast(ops.softmax(scaled, axis=-1), scores.dtype)


@keras.saving.register_keras_serializable("keras_transformer")
class AttentionWeights(keras.layers.Layer):
    """Computes `attention_weights`; in training, by a faster function with its own gradient.

    Args:
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        queries, keys, attention_mask: as in `attention_weights`, where the last is `mask`.

    Returns:
        (batch, heads, query, key).

    Example:
        >>> x = keras.random.normal((2, 4, 7, 16))
        >>> AttentionWeights()(x, x).shape
        TensorShape([2, 4, 7, 7])
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, queries, keys, attention_mask=None, training=None):
        # Only in training: an exported model must not need XLA.
        weights_of = fused_attention_weights if training else attention_weights
        weights = weights_of(queries, keys, attention_mask)
        if (record := _RECORD.get()) is not None:
            record[self] = weights
        return weights

    def compute_output_shape(self, queries_shape, keys_shape):
        return (*queries_shape[:-1], keys_shape[-2])


@contextlib.contextmanager
def recorded_attention() -> Iterator[dict[AttentionWeights, Tensor]]:
    """Records the attention weights that are computed in this context and thread.

    Yields:
        A dictionary that gets the last result, (batch, heads, query, key), of each
        `AttentionWeights` layer that is called.

    Example:
        >>> attention = MultiHeadAttention(d_model=64, num_heads=4)
        >>> x = keras.random.normal((2, 7, 64))
        >>> with recorded_attention() as weights:
        ...     _ = attention(x, x)
        >>> weights[attention.attention_weights].shape
        TensorShape([2, 4, 7, 7])
    """
    record: dict[AttentionWeights, Tensor] = {}
    token = _RECORD.set(record)
    try:
        yield record
    finally:
        _RECORD.reset(token)
