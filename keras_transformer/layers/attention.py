"""Scaled dot-product attention and multi-head attention (paper, section 3.2)."""

import keras
from keras import ops

from keras_transformer.fused import fused, fused_sum
from keras_transformer.layers.dropout import Dropout

# Stands for minus infinity before the softmax: a row in which nothing may be attended to then
# gives equal weights and not NaN.
_MINUS_INFINITY = -1e9


def padding_mask(ids, pad_id: int = 0):
    """Where attention may look: everywhere but at padding.

    Args:
        ids: integer tensor (batch, length).
        pad_id: the id that fills a row up to its length.

    Returns:
        Boolean tensor (batch, 1, 1, length) for `MultiHeadAttention`, true at real tokens.
    """
    return ops.not_equal(ids, pad_id)[:, None, None, :]


def causal_mask(length: int):
    """Where the decoder may look: at a position and those before it (paper, section 3.2.3).

    Args:
        length: number of positions.

    Returns:
        Boolean tensor (1, 1, length, length), true where key position <= query position.
    """
    positions = ops.arange(length)
    return (positions[None, :] <= positions[:, None])[None, None]


def head_width(d_model: int, num_heads: int, width: int | None = None) -> int:
    """The given width of a head, or the paper's, `d_model / num_heads`.

    Raises:
        ValueError: none is given, and `d_model` is not a multiple of `num_heads`.
    """
    if width is not None:
        return width
    if d_model % num_heads:
        raise ValueError(
            "d_model must be a multiple of num_heads where d_k or d_v is not given: "
            f"found d_model={d_model}, num_heads={num_heads}"
        )
    return d_model // num_heads


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Attention of several heads in parallel (paper, section 3.2.2).

    `softmax(Q K^T / sqrt(d_k)) V` in each head, heads concatenated and projected to `d_model`.
    Projections have no bias unless asked for. `d_k` and `d_v` are free: they need not be equal, nor
    multiply with `num_heads` to `d_model`.

    Args:
        d_model: width of input and output.
        num_heads: number of heads, h.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        dropout: share of the attention weights that is dropped in training.
        use_bias: whether the four projections have biases.

    Call arguments:
        query: (batch, query_length, d_model).
        value: (batch, value_length, d_model), what is attended to; keys and values are made of it.
        attention_mask: boolean, broadcastable to (batch, num_heads, query_length, value_length),
            true where attention may look; None for everywhere.

    Returns:
        (batch, query_length, d_model).

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> MultiHeadAttention(d_model=64, num_heads=4)(x, x, attention_mask=causal_mask(7)).shape
        TensorShape([2, 7, 64])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_k = head_width(d_model, num_heads, d_k)
        self.d_v = head_width(d_model, num_heads, d_v)
        self.dropout = dropout
        self.use_bias = use_bias
        self.query = self._projection(num_heads * self.d_k, "query")
        self.key = self._projection(num_heads * self.d_k, "key")
        self.value = self._projection(num_heads * self.d_v, "value")
        self.output_projection = self._projection(d_model, "output")
        self.weights_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def _projection(self, width, name):
        return keras.layers.Dense(width, use_bias=self.use_bias, dtype=self.dtype_policy, name=name)

    def build(self, query_shape, value_shape=None):
        for projection in (self.query, self.key, self.value):
            projection.build((None, None, self.d_model))
        self.output_projection.build((None, None, self.num_heads * self.d_v))

    def call(self, query, value, attention_mask=None, training=None):
        keys, values = self.keys_and_values(value)
        return self.attend(self.queries(query), keys, values, attention_mask, training)

    def queries(self, query):
        """Queries (batch, num_heads, length, d_k)."""
        return self._split_heads(self.query(query))

    def keys_and_values(self, value):
        """Keys (batch, num_heads, length, d_k) and values (batch, num_heads, length, d_v)."""
        return self._split_heads(self.key(value)), self._split_heads(self.value(value))

    def attend(self, queries, keys, values, attention_mask=None, training=None):
        """What `call` does, given queries, keys and values of all heads."""
        weights = self.attention_weights(queries, keys, attention_mask, training)
        context = ops.matmul(self.weights_dropout(weights, training=training), values)
        return self.output_projection(self._join_heads(context))

    def attention_weights(self, queries, keys, attention_mask=None, training=None):
        """Weights (batch, num_heads, query_length, value_length); each row sums to one."""
        scores = ops.matmul(queries, ops.swapaxes(keys, -1, -2))
        mask = True if attention_mask is None else attention_mask
        # Only in training: what is exported must not need XLA.
        weights = _weights_in_training if training else _weights
        return weights(scores, mask, self.d_k**-0.5)

    def _split_heads(self, x):
        batch, length = ops.shape(x)[:2]
        heads = ops.reshape(x, (batch, length, self.num_heads, x.shape[-1] // self.num_heads))
        return ops.transpose(heads, (0, 2, 1, 3))

    def _join_heads(self, x):
        batch, length = ops.shape(x)[0], ops.shape(x)[2]
        return ops.reshape(
            ops.transpose(x, (0, 2, 1, 3)), (batch, length, self.num_heads * self.d_v)
        )

    def compute_output_shape(self, query_shape, value_shape):
        return query_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "num_heads": self.num_heads,
            "d_k": self.d_k,
            "d_v": self.d_v,
            "dropout": self.dropout,
            "use_bias": self.use_bias,
        }


def _weights(scores, mask, scale):
    # float32 whatever the policy: bfloat16 sums of many small weights do not reach one.
    dtype = scores.dtype
    scores = ops.where(mask, ops.cast(scores, "float32") * scale, _MINUS_INFINITY)
    return ops.cast(ops.softmax(scores, axis=-1), dtype)


@fused
def _weights_in_training(scores, mask, scale):
    @ops.custom_gradient
    def weights(scores):
        weights = _weights(scores, mask, scale)

        def gradient(*args, upstream=None):
            upstream = ops.cast(args[0] if upstream is None else upstream, "float32")
            p = ops.cast(weights, "float32")
            mean = fused_sum(upstream * p, axis=-1)
            return ops.cast((upstream - mean) * p * scale, scores.dtype)

        return weights, gradient

    return weights(scores)
