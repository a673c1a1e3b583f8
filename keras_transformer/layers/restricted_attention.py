"""Self-attention within a neighbourhood (paper, section 4)."""

import keras
from keras import ops

from keras_transformer.layers.self_attention import SelfAttention


@keras.saving.register_keras_serializable("keras_transformer")
class RestrictedSelfAttention(SelfAttention):
    """Self-attention to the positions at most `radius` away: O(r n d) (paper, Table 1).

    The sequence is cut into blocks of `radius` positions, so that each looks at its own block and
    the one on either side; only these scores are computed. The result is that of `SelfAttention`
    with a mask of the band.

    Args:
        *args, **kwargs: the arguments of `SelfAttention`.
        radius: the farthest that a position looks to either side, r; at least 1.

    Call arguments and result are those of `SelfAttention`, but the mask is of positions alone:
    boolean (batch, 1, 1, length). A padded position that sees nothing gets an arbitrary result.

    Raises:
        ValueError: `radius` is below 1.

    Example:
        >>> x = keras.random.normal((2, 70, 64))
        >>> RestrictedSelfAttention(d_model=64, num_heads=4, radius=8)(x).shape
        TensorShape([2, 70, 64])
    """

    def __init__(self, *args, radius: int, **kwargs):
        super().__init__(*args, **kwargs)
        if radius < 1:
            raise ValueError(f"radius must be at least 1: found {radius}")
        self.radius = radius

    def call(self, x, attention_mask=None, training=None):
        batch, length = ops.shape(x)[:2]
        # A sequence known to be shorter than the radius is one block.
        size = max(1, min(self.radius, length)) if isinstance(length, int) else self.radius
        blocks = (length + size - 1) // size
        before, after = 1, 0 if self.causal else 1
        if attention_mask is None:
            attention_mask = ops.ones((1, 1, 1, length), "bool")
        real = ops.swapaxes(ops.broadcast_to(attention_mask, (batch, 1, 1, length)), 2, 3)
        real = ops.swapaxes(_neighbourhoods(real, size, blocks, before, after), 2, 3)
        keys, values = self.keys_and_values(x)
        context = self.attend(
            _neighbourhoods(self.queries(x), size, blocks),
            _neighbourhoods(keys, size, blocks, before, after),
            _neighbourhoods(values, size, blocks, before, after),
            real & self._band(size),
            training,
        )
        return ops.reshape(context, (batch, blocks * size, self.d_model))[:, :length]

    def _band(self, size):
        """Which positions of its neighbourhood each of a block looks at."""
        end = size if self.causal else 2 * size
        distances = ops.arange(-size, end) - ops.arange(size)[:, None]
        farthest = 0 if self.causal else self.radius
        return (distances >= -self.radius) & (distances <= farthest)

    def step(self, x, position, cache, visible):
        size, beam_size = ops.shape(cache["keys"])[-2:]
        near = ops.arange(size, dtype="int32") >= position[:, None] - self.radius
        near = ops.repeat(near[:, None, None], beam_size, axis=-1)
        return super().step(x, position, cache, visible & near)

    def get_config(self):
        return {**super().get_config(), "radius": self.radius}


def _neighbourhoods(x, size, blocks, before=0, after=0):
    """Each block of positions with its neighbours, as a row of the batch.

    Args:
        x: (batch, heads, length, width).
        size: positions of a block.
        blocks: number of them; zeros fill up the last one.
        before: blocks before each that belong to its neighbourhood; zeros before the first.
        after: blocks after it.

    Returns:
        (batch * blocks, heads, (before + 1 + after) * size, width).
    """
    batch, heads, length, width = ops.shape(x)
    missing = blocks * size - length
    x = ops.pad(x, [(0, 0), (0, 0), (before * size, missing + after * size), (0, 0)])
    x = ops.reshape(x, (batch, heads, before + blocks + after, size, width))
    span = before + 1 + after
    x = ops.concatenate([x[:, :, i : i + blocks] for i in range(span)], axis=3)
    return ops.reshape(ops.swapaxes(x, 1, 2), (batch * blocks, heads, span * size, width))
