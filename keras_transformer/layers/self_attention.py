"""Self-attention of encoder and decoder (paper, sections 3.2.3 and 4)."""

import keras
from keras import ops

from keras_transformer.layers.attention import MultiHeadAttention, causal_mask
from keras_transformer.layers.cache import write


@keras.saving.register_keras_serializable("keras_transformer")
class SelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself: O(n^2 d) (paper, Table 1).

    Args:
        *args, **kwargs: the arguments of `MultiHeadAttention`.
        causal: whether a position looks only at itself and those before it, as in the decoder.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask: boolean, broadcastable to (batch, num_heads, length, length), true where
            attention may look, as `padding_mask` makes it; None for everywhere.

    Returns:
        (batch, length, d_model).

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> SelfAttention(d_model=64, num_heads=4, causal=True)(x).shape
        TensorShape([2, 7, 64])
    """

    def __init__(self, *args, causal: bool = False, **kwargs):
        super().__init__(*args, **kwargs)
        self.causal = causal

    def build(self, x_shape):
        super().build(x_shape)

    def call(self, x, attention_mask=None, training=None):
        if self.causal:
            past = causal_mask(ops.shape(x)[1])
            attention_mask = past if attention_mask is None else past & attention_mask
        return super().call(x, x, attention_mask, training)

    def new_cache(self, batch, beam_size):
        """An empty cache for `step`, of size 0, laid out as attention reads it.

        Keys are (batch, num_heads, d_k, size, beam_size), values
        (batch, num_heads, size, beam_size * d_v).
        """
        keys = (batch, self.num_heads, self.d_k, 0, beam_size)
        values = (batch, self.num_heads, 0, beam_size * self.d_v)
        return {
            "keys": ops.zeros(keys, self.compute_dtype),
            "values": ops.zeros(values, self.compute_dtype),
        }

    def step(self, x, position, cache, visible):
        """One position of every beam, given those before it.

        Args:
            x: (batch, beam_size, d_model), the beams' inputs at `position`.
            position: int32 (batch,), how far each sentence is.
            cache: of the positions before, as `new_cache` makes it, with room for this one.
            visible: boolean (batch, 1, beam_size, size * beam_size), which cached positions of
                which beams each beam goes back to.

        Returns:
            (batch, beam_size, d_model) and the cache with this position written.
        """
        batch, beam_size = ops.shape(x)[:2]
        keys, values = self.keys_and_values(x)
        row = (batch, self.num_heads, beam_size * self.d_v)
        cache = {
            "keys": write(cache["keys"], ops.swapaxes(keys, 2, 3), position),
            "values": write(cache["values"], ops.reshape(values, row), position),
        }
        keys = ops.reshape(cache["keys"], (batch, self.num_heads, self.d_k, -1))
        values = ops.reshape(cache["values"], (batch, self.num_heads, -1, self.d_v))
        return self.attend(self.queries(x), ops.swapaxes(keys, 2, 3), values, visible), cache

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "causal": self.causal}
