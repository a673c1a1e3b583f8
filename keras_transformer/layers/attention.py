"""Multi-head attention (paper, section 3.2)."""

import keras
from keras import ops

from keras_transformer.errors import expect_at_least, expect_rate
from keras_transformer.layers.attention_weights import AttentionWeights, attention_weights
from keras_transformer.layers.composite import CompositeLayer
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.inputs import WithoutKerasArguments, expect_sequence
from keras_transformer.layers.masks import both, causal_mask, combined_mask, query_padding
from keras_transformer.layers.shapes import reshape, unflat


def scaled_dot_product_attention(queries, keys, values, mask=None):
    """`Attention(Q, K, V) = softmax(Q K^T / sqrt(d_k)) V` (paper, equation 1).

    `MultiHeadAttention.attend` computes it by leaves, with dropout on the weights.

    Args:
        queries: (batch, heads, query, d_k).
        keys: (batch, heads, key, d_k).
        values: (batch, heads, key, d_v).
        mask: boolean, broadcastable to (batch, heads, query, key), true where attention may look;
            None: no mask.

    Returns:
        (batch, heads, query, d_v).

    Example:
        >>> x = keras.random.normal((2, 4, 7, 16))
        >>> scaled_dot_product_attention(x, x, x).shape
        TensorShape([2, 4, 7, 16])
    """
    return ops.matmul(attention_weights(queries, keys, mask), values)


@keras.saving.register_keras_serializable("keras_transformer")
class MultiHeadAttention(WithoutKerasArguments, CompositeLayer):
    """Attention of several heads in parallel (paper, section 3.2.2).

    Each head computes `softmax(Q K^T / sqrt(d_k)) V` (equation 1). The heads are concatenated and
    projected to `d_model`. `d_k` and `d_v` are free: they may differ, and their products with
    `num_heads` need not be `d_model`. It is called as `keras.layers.MultiHeadAttention` is.

    Args:
        d_model: width of the query and of the output.
        num_heads: number of heads, h.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        dropout: dropout rate on the attention weights.
        use_bias: whether the four projections have biases.
        **kwargs: arguments of `CompositeLayer`, such as `leaves`, and of `keras.layers.Layer`.

    Call arguments:
        query: (batch, query_length, d_model).
        value: (batch, value_length, width), of any width.
        key: (batch, value_length, width), of any width; default: `value`.
        query_mask: padding mask of `query`, (batch, query_length), true at real tokens.
        value_mask: padding mask of `value`, (batch, value_length), true at real tokens.
        key_mask: padding mask of `key`, (batch, value_length), true at real tokens. Each of these
            three is by default the one that Keras has attached to the tensor.
        attention_mask: true where attention may look: a padding mask (batch, value_length), an
            attention mask (batch, query_length, value_length), or one for each head
            (batch, num_heads or 1, query_length, value_length); None: no mask.
        return_attention_scores: whether to return the attention weights too.
        use_causal_mask: whether a position attends only to itself and earlier ones.

    Returns:
        (batch, query_length, d_model); with `return_attention_scores` also the weights before
        dropout, (batch, num_heads, query_length, value_length).

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> mask = keras.ops.ones((2, 7), "bool")
        >>> MultiHeadAttention(d_model=64, num_heads=4)(x, x, attention_mask=mask).shape
        TensorShape([2, 7, 64])
    """

    leaf_names = ("Dense", "Dropout")

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
        self.query = self.new(Dense, num_heads * self.d_k, use_bias=use_bias, name="query")
        self.key = self.new(Dense, num_heads * self.d_k, use_bias=use_bias, name="key")
        self.value = self.new(Dense, num_heads * self.d_v, use_bias=use_bias, name="value")
        self.output_projection = self.new(Dense, d_model, use_bias=use_bias, name="output")
        self.attention_weights = self.new(AttentionWeights, name="attention_weights")
        self.weights_dropout = self.new(Dropout, dropout, name="weights_dropout")

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        # A width that is not known is that of the query.
        self.value_width = value_shape[-1] or self.d_model
        self.key_width = (key_shape or value_shape)[-1] or self.d_model
        self.query.build((None, None, self.d_model))
        self.key.build((None, None, self.key_width))
        self.value.build((None, None, self.value_width))
        self.output_projection.build((None, None, self.num_heads * self.d_v))

    def call(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        use_causal_mask=False,
    ):
        key = value if key is None else key
        expect_sequence("query", query, self.d_model)
        expect_sequence("value", value, self.value_width, batch=query.shape[0])
        expect_sequence("key", key, self.key_width, batch=query.shape[0])
        paddings = (value_mask, key_mask)
        mask = combined_mask(attention_mask, paddings, query, key, self.num_heads)
        mask = both(mask, query_padding(query_mask, query))
        if use_causal_mask:
            mask = both(mask, causal_mask(ops.shape(query)[1], ops.shape(key)[1]))
        queries, keys, values = self.queries(query), self.keys(key), self.values(value)
        if not return_attention_scores:
            return unflat(self.attend(queries, keys, values, mask), query)
        weights = self.attention_weights(queries, keys, mask)
        return unflat(self.weighted_sum(weights, values), query), weights

    def queries(self, query, length=None):
        """Projects to queries (batch, num_heads, length, d_k); arguments as in `split_heads`."""
        return split_heads(self.query(query), self.num_heads, length)

    def keys(self, key, length=None):
        """Projects to keys (batch, num_heads, length, d_k); arguments as in `split_heads`."""
        return split_heads(self.key(key), self.num_heads, length)

    def values(self, value, length=None):
        """Projects to values (batch, num_heads, length, d_v); arguments as in `split_heads`."""
        return split_heads(self.value(value), self.num_heads, length)

    def attend(self, queries, keys, values, mask=None):
        """Computes equation 1 for all heads, then their output projection, as rows.

        Args:
            queries: (batch, num_heads, query_length, d_k).
            keys: (batch, num_heads, value_length, d_k).
            values: (batch, num_heads, value_length, d_v).
            mask: boolean, of rank 4; None: no mask.

        Returns:
            (batch * query_length, d_model).
        """
        return self.weighted_sum(self.attention_weights(queries, keys, mask), values)

    def weighted_sum(self, weights, values):
        """Sums values by their weights, and projects all heads to (batch * query, d_model)."""
        context = ops.matmul(self.weights_dropout(weights), values)  # (batch, heads, query, d_v)
        return self.output_projection(join_heads(context))

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
        return query_shape

    def compute_output_spec(
        self,
        query,
        value,
        key=None,
        query_mask=None,
        value_mask=None,
        key_mask=None,
        attention_mask=None,
        return_attention_scores=False,
        use_causal_mask=False,
    ):
        output = keras.KerasTensor((*query.shape[:-1], self.d_model), self.compute_dtype)
        if not return_attention_scores:
            return output
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return output, keras.KerasTensor(shape, self.compute_dtype)


def split_heads(x, num_heads: int, length: int | None = None):
    """Cuts the features of each position into heads.

    Args:
        x: (batch, length, num_heads * width), or rows (batch * length, num_heads * width).
        num_heads: number of heads.
        length: number of rows of `x` that form a sequence; None if `x` has an axis for it.

    Returns:
        (batch, num_heads, length, width).
    """
    if isinstance(x, keras.KerasTensor):
        raise ValueError(
            "queries, keys and values take tensors, not symbols such as "
            f"{x}: in a functional model, call the layer itself"
        )
    sequences = ops.shape(x)[:2] if length is None else (-1, length)
    heads = reshape(x, (*sequences, num_heads, x.shape[-1] // num_heads))
    return ops.transpose(heads, (0, 2, 1, 3))


def join_heads(x):
    """Concatenates the heads: (batch, num_heads, length, width) -> (batch * length, ...)."""
    num_heads, width = x.shape[1], x.shape[3]
    return ops.reshape(ops.transpose(x, (0, 2, 1, 3)), (-1, num_heads * width))


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
