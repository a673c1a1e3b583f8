"""Scaled dot-product attention and multi-head attention (paper, section 3.2)."""

import functools

import keras
from keras import ops

from keras_transformer.errors import expect_at_least, expect_rate
from keras_transformer.fast.attention import MINUS_INFINITY, fused_attention_weights
from keras_transformer.fast.dispatch import sum_dtype
from keras_transformer.fast.projection import project
from keras_transformer.fast.shapes import flat, reshape
from keras_transformer.layers.composite import CompositeLayer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.inputs import expect_sequence
from keras_transformer.layers.masks import combined_mask


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


def scaled_dot_product_attention(
    queries, keys, values, mask=None, dropout=None, weights_of=attention_weights
):
    """`Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V` (paper, equation 1).

    Args:
        queries: (batch, heads, query, d_k).
        keys: (batch, heads, key, d_k).
        values: (batch, heads, key, d_v).
        mask: boolean, broadcastable to (batch, heads, query, key), true where attention may look;
            None: no mask.
        dropout: function applied to the weights; None for no dropout.
        weights_of: function with the arguments and the result of `attention_weights`.

    Returns:
        (batch, heads, query, d_v).

    Example:
        >>> x = keras.random.normal((2, 4, 7, 16))
        >>> scaled_dot_product_attention(x, x, x).shape
        TensorShape([2, 4, 7, 16])
    """
    weights = weights_of(queries, keys, mask)  # (batch, heads, query, key)
    if dropout is not None:
        weights = dropout(weights)
    return ops.matmul(weights, values)  # (batch, heads, query, d_v)


def head_width(d_model: int, num_heads: int, width: int | None = None, name: str = "d_k") -> int:
    """Width of one head: `width` if given, else the paper's `d_model / num_heads`.

    Raises:
        ValueError: a size is no integer of at least 1; or `width`, called `name`, is not given, and
            `d_model` is not a multiple of `num_heads`.
    """
    expect_at_least(1, "d_model", d_model)
    expect_at_least(1, "num_heads", num_heads)
    if width is not None:
        expect_at_least(1, name, width)
        return width
    if d_model % num_heads:
        raise ValueError(
            "d_model must be a multiple of num_heads where d_k or d_v is not given: "
            f"found d_model={d_model}, num_heads={num_heads}"
        )
    return d_model // num_heads


class _WithoutKerasArguments(CompositeLayer):
    """Answers the arguments of Keras's attention with ours; apart, for the signature of ours."""

    def __new__(cls, *args, **kwargs):
        if wrong := {"key_dim", "value_dim"} & set(kwargs):
            raise TypeError(
                f"{cls.__name__} takes d_model, num_heads, and d_k and d_v as the widths of one "
                f"head: found {', '.join(sorted(wrong))}, an argument of Keras's layer"
            )
        return super().__new__(cls, *args, **kwargs)


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(_WithoutKerasArguments):
    """Attention of several heads in parallel (paper, section 3.2.2).

    `softmax(Q K^T / sqrt(d_k)) V` in each head, heads concatenated and projected to `d_model`.
    Projections have no bias by default. `d_k` and `d_v` are free: they may differ, and their
    products with `num_heads` need not be `d_model`.

    Args:
        d_model: width of input and output.
        num_heads: number of heads, h.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        dropout: dropout rate on the attention weights.
        use_bias: whether the four projections have biases.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        query: (batch, query_length, d_model).
        value: (batch, value_length, d_model), the sequence that keys and values come from.
        attention_mask: true where attention may look: a padding mask (batch, value_length), an
            attention mask (batch, query_length, value_length), or one for each head
            (batch, num_heads or 1, query_length, value_length); None: no mask.
        query_mask: padding mask of `query`, as in `keras.layers.MultiHeadAttention`. No result at a
            real token depends on it.
        value_mask: padding mask of `value`, (batch, value_length), true at real tokens; default:
            the one that Keras has attached to `value`.

    Returns:
        (batch, query_length, d_model).

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> mask = keras.ops.ones((2, 7), "bool")
        >>> MultiHeadAttention(d_model=64, num_heads=4)(x, x, attention_mask=mask).shape
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
        self.d_v = head_width(d_model, num_heads, d_v, "d_v")
        expect_rate("dropout", dropout)
        self.dropout = dropout
        self.use_bias = use_bias
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})
        self.query = self._projection(num_heads * self.d_k, "query")
        self.key = self._projection(num_heads * self.d_k, "key")
        self.value = self._projection(num_heads * self.d_v, "value")
        self.output_projection = self._projection(d_model, "output")
        self.weights_dropout = Dropout(dropout, dtype=self.dtype_policy, name="weights_dropout")

    def _projection(self, width, name):
        return keras.layers.Dense(width, use_bias=self.use_bias, dtype=self.dtype_policy, name=name)

    def build(self, query_shape, value_shape=None):
        for projection in (self.query, self.key, self.value):
            projection.build((None, None, self.d_model))
        self.output_projection.build((None, None, self.num_heads * self.d_v))

    def call(
        self, query, value, attention_mask=None, query_mask=None, value_mask=None, training=None
    ):
        expect_sequence("query", query, self.d_model)
        expect_sequence("value", value, self.d_model, batch=query.shape[0])
        mask = combined_mask(attention_mask, value_mask, query, value, self.num_heads)
        keys, values = self.keys_and_values(value, training=training)
        return self.attend(self.queries(query, training=training), keys, values, mask, training)

    def queries(self, query, training=None):
        """Projects to queries (batch, num_heads, length, d_k)."""
        return self._split_heads(self.query, query, training)

    def keys_and_values(self, value, training=None):
        """Projects to keys (batch, num_heads, length, d_k) and values (..., length, d_v)."""
        keys = self._split_heads(self.key, value, training)
        return keys, self._split_heads(self.value, value, training)

    def attend(self, queries, keys, values, attention_mask=None, training=None):
        """Computes the output of `call` from the queries, keys and values of all heads.

        `attention_mask` is boolean and of rank 4.
        """
        context = scaled_dot_product_attention(
            queries,
            keys,
            values,
            attention_mask,
            dropout=functools.partial(self.weights_dropout, training=training),
            weights_of=functools.partial(self.attention_weights, training=training),
        )  # (batch, num_heads, query, d_v)
        batch, _, length, _ = ops.shape(context)
        heads = ops.transpose(context, (0, 2, 1, 3))  # (batch, query, num_heads, d_v)
        rows = ops.reshape(heads, (-1, self.num_heads * self.d_v))  # (batch * query, ...)
        return reshape(
            project(self.output_projection, rows, training), (batch, length, self.d_model)
        )

    def attention_weights(self, queries, keys, attention_mask=None, training=None):
        """Computes `attention_weights`; in training, by a faster function with its own gradient."""
        # Only in training: an exported model must not need XLA.
        weights_of = fused_attention_weights if training else attention_weights
        return weights_of(queries, keys, attention_mask)

    def _split_heads(self, projection, x, training):
        if isinstance(x, keras.KerasTensor):
            raise ValueError(
                "the parts of attention expect tensors: in a functional model, call the layer "
                f"itself: found the symbolic {x}"
            )
        batch, length = ops.shape(x)[:2]
        rows = project(projection, flat(x), training)  # (batch * length, num_heads * width)
        heads = (batch, length, self.num_heads, rows.shape[-1] // self.num_heads)
        # (batch, num_heads, length, width)
        return ops.transpose(reshape(rows, heads), (0, 2, 1, 3))

    def compute_output_shape(self, query_shape, value_shape=None):
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
