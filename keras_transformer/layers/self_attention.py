"""Self-attention of encoder and decoder (paper, sections 3.2.3 and 4)."""

import keras
from keras import ops

from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.inputs import expect_sequence
from keras_transformer.layers.masks import both, causal_mask, combined_mask, first_given
from keras_transformer.layers.positions import Rotation
from keras_transformer.layers.shapes import unflat


@keras.saving.register_keras_serializable("keras_transformer")
class SelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself: O(n^2 d) (paper, Table 1).

    Args:
        d_model: width of input and output.
        num_heads: number of heads, h.
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
        attention_mask: true where attention may look: a padding mask (batch, length), an attention
            mask (batch, length, length), or one for each head
            (batch, num_heads or 1, length, length); None: no mask.
        mask: padding mask of `x`, (batch, length), true at real tokens; default: the one that Keras
            has attached to `x`.
        x_mask: the same as `mask`, under the name by which Keras passes the attached mask to
            calls with an `attention_mask`.

    Returns:
        (batch, length, d_model).

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> SelfAttention(d_model=64, num_heads=4, causal=True)(x).shape
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
        causal: bool = False,
        rotation: Rotation | None = None,
        **kwargs,
    ):
        super().__init__(d_model, num_heads, d_k, d_v, dropout, use_bias, **kwargs)
        if not isinstance(rotation, Rotation | None):
            raise TypeError(f"rotation must be a Rotation or None: found {rotation!r}")
        if rotation is not None and self.d_k % 2:
            raise ValueError(f"d_k must be even for a rotation: found {self.d_k}")
        self.causal = causal
        self.rotation = rotation

    def build(self, x_shape):  # Keras passes the shape by the name of the argument of `call`
        super().build(x_shape)

    def call(self, x, attention_mask=None, mask=None, x_mask=None):
        expect_sequence("x", x, self.d_model)
        mask = combined_mask(attention_mask, [first_given(mask, x_mask)], x, x, self.num_heads)
        if self.causal:
            mask = both(mask, causal_mask(ops.shape(x)[1]))
        return unflat(self.attend(self.queries(x), self.keys(x), self.values(x), mask), x)

    def queries(self, query, length=None, positions=None):
        """Projects to queries (batch, num_heads, length, d_k), turned by the `rotation`.

        Args:
            query, length: as in `split_heads`.
            positions: int32 (batch, length) or (batch, 1), the positions of each row's queries;
                default: 0, 1, 2 and so on.
        """
        return self._turned(super().queries(query, length), positions)

    def keys(self, key, length=None, positions=None):
        """Projects to keys (batch, num_heads, length, d_k), turned like queries."""
        return self._turned(super().keys(key, length), positions)

    def _turned(self, x, positions):
        return x if self.rotation is None else self.rotation(x, positions)

    def new_cache(self, batch, beam_size):
        """Creates an empty cache for `step`: keys and values of no position."""
        return {
            "keys": ops.zeros((batch, self.num_heads, 0, self.d_k), self.compute_dtype),
            "values": ops.zeros((batch, self.num_heads, 0, self.d_v), self.compute_dtype),
        }

    def step(self, x, past, cache):
        """Computes one position of every beam, given the positions before it.

        Args:
            x: (batch * beam_size, d_model), the inputs of all beams at this position.
            past: a `Past`, the position and what each beam sees of the earlier ones.
            cache: cache of the earlier positions, as `new_cache` makes it, with room for this one.

        Returns:
            (batch * beam_size, d_model) and the cache with this position written.
        """
        positions = past.position[:, None]  # (batch, 1): the same for all beams of a sentence
        queries = self.queries(x, past.beam_size, positions)
        cache = {
            "keys": past.write(cache["keys"], self.keys(x, past.beam_size, positions)),
            "values": past.write(cache["values"], self.values(x, past.beam_size)),
        }
        return self.attend(queries, cache["keys"], cache["values"], self.visible(past)), cache

    def visible(self, past):
        """The entries of a `Past` that a step attends to, in the shape of `past.visible`."""
        return past.visible

    def compute_output_shape(self, x_shape):
        return x_shape

    def compute_output_spec(self, x, attention_mask=None, mask=None, x_mask=None):
        return keras.KerasTensor(x.shape, self.compute_dtype)
