"""Self-attention within a neighbourhood (paper, section 4)."""

import keras
from keras import ops

from keras_transformer.errors import expect_at_least
from keras_transformer.layers.inputs import expect_sequence
from keras_transformer.layers.masks import combined_padding_mask, first_given
from keras_transformer.layers.positions import Rotation
from keras_transformer.layers.self_attention import SelfAttention


@keras.saving.register_keras_serializable("keras_transformer")
class RestrictedSelfAttention(SelfAttention):
    """Self-attention to the positions at most `radius` away: O(r n d) (paper, Table 1).

    The sequence is cut into blocks of `radius` positions. A position attends to its own block and
    the one on either side; only these scores are computed. The result is that of `SelfAttention`
    with a band mask.

    Args:
        d_model: width of input and output.
        num_heads: number of heads, h.
        radius: number of positions on either side that a position attends to, r; at least 1.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        dropout: dropout rate on the attention weights.
        use_bias: whether the four projections have biases.
        causal: whether a position attends only to itself and earlier ones, as in the decoder.
        rotation: a `Rotation`, which turns queries and keys by their position (Su et al., 2021);
            None: they are not turned.
        **kwargs: arguments of `CompositeLayer`, such as `leaves`, and of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask: a padding mask, (batch, length) or (batch, 1, 1, length), true at real
            tokens. A padding position without a real token in reach gets an arbitrary result.
        mask: padding mask of `x`, (batch, length), true at real tokens; default: the one that Keras
            has attached to `x`.
        x_mask: the same as `mask`, under the name by which Keras passes the attached mask to
            calls with an `attention_mask`.

    Returns:
        (batch, length, d_model).

    Raises:
        ValueError: `radius` is below 1, or the mask is not a padding mask.

    Example:
        >>> x = keras.random.normal((2, 70, 64))
        >>> RestrictedSelfAttention(d_model=64, num_heads=4, radius=8)(x).shape
        TensorShape([2, 70, 64])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        radius: int,
        d_k: int | None = None,
        d_v: int | None = None,
        dropout: float = 0.0,
        use_bias: bool = False,
        causal: bool = False,
        rotation: Rotation | None = None,
        **kwargs,
    ):
        super().__init__(
            d_model, num_heads, d_k, d_v, dropout, use_bias, causal, rotation, **kwargs
        )
        expect_at_least(1, "radius", radius)
        self.radius = radius

    def call(self, x, attention_mask=None, mask=None, x_mask=None):
        expect_sequence("x", x, self.d_model)
        padding = first_given(mask, x_mask)
        attention_mask = combined_padding_mask(attention_mask, padding, x, self.num_heads)
        batch, length = ops.shape(x)[:2]
        # A sequence known to be shorter than the radius is one block.
        size = max(1, min(self.radius, length)) if isinstance(length, int) else self.radius
        blocks = (length + size - 1) // size
        before, after = 1, 0 if self.causal else 1
        if attention_mask is None:
            attention_mask = ops.ones((1, 1, 1, length), "bool")
        # The real keys of each neighbourhood: (batch * blocks, 1, 1, neighbourhood)
        real = ops.swapaxes(ops.broadcast_to(attention_mask, (batch, 1, 1, length)), 2, 3)
        real = ops.swapaxes(_neighbourhoods(real, size, blocks, before, after), 2, 3)
        context = self.attend(
            _neighbourhoods(self.queries(x), size, blocks),
            _neighbourhoods(self.keys(x), size, blocks, before, after),
            _neighbourhoods(self.values(x), size, blocks, before, after),
            real & self._band(size),
        )  # (batch * blocks * size, d_model)
        return ops.reshape(context, (batch, blocks * size, self.d_model))[:, :length]

    def _band(self, size):
        """Masks keys beyond the radius: boolean (query in the block, key in its neighbourhood)."""
        end = size if self.causal else 2 * size
        keys = ops.arange(-size, end, dtype="int32")
        distances = keys - ops.arange(size, dtype="int32")[:, None]  # (size, size + end)
        farthest = 0 if self.causal else self.radius
        return (distances >= -self.radius) & (distances <= farthest)

    def visible(self, past):
        first = (past.position - self.radius) * past.beam_size  # (batch,), the first entry near
        entries = ops.arange(ops.shape(past.visible)[3], dtype="int32")
        near = entries >= first[:, None, None, None]  # (batch, 1, 1, size * beam_size)
        return past.visible & near


def _neighbourhoods(x, size, blocks, before=0, after=0):
    """Gathers each block of positions with its neighbours, as one row of the batch.

    Args:
        x: (batch, heads, length, width).
        size: number of positions in a block.
        blocks: number of blocks; zeros fill up the last one.
        before: number of blocks of a neighbourhood that precede its own; zeros before the first.
        after: number of blocks that follow it.

    Returns:
        (batch * blocks, heads, (before + 1 + after) * size, width).
    """
    batch, heads, length, width = ops.shape(x)
    missing = blocks * size - length
    x = ops.pad(x, [(0, 0), (0, 0), (before * size, missing + after * size), (0, 0)])
    x = ops.reshape(x, (batch, heads, before + blocks + after, size, width))
    span = before + 1 + after
    # (batch, heads, blocks, span * size, width)
    x = ops.concatenate([x[:, :, i : i + blocks] for i in range(span)], axis=3)
    return ops.reshape(ops.swapaxes(x, 1, 2), (batch * blocks, heads, span * size, width))
