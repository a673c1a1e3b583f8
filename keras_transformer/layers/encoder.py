"""The encoder: layers of self-attention and a feed-forward network (paper, section 3.1)."""

import keras

from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.given_parts import expect_size, given_part
from keras_transformer.layers.inputs import expect_sequence
from keras_transformer.layers.masks import first_given
from keras_transformer.layers.residual import ResidualLayer
from keras_transformer.layers.self_attention import SelfAttention
from keras_transformer.layers.stack import Stack


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(ResidualLayer):
    """An encoder layer: self-attention, then a feed-forward network (paper, section 3.1).

    Args:
        d_model: width of input and output.
        num_heads: number of heads of the self-attention that the layer creates; needed unless
            `self_attention` is given.
        d_ff: width of the hidden layer of the network that the layer creates; needed unless
            `feed_forward` is given.
        dropout: dropout rate on the output of each part, before it is added to its input.
        pre_norm: whether to normalise the input of each part instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        self_attention: the layer that relates positions to each other, say
            `SelfAttention(512, 8, causal=True)`, `RestrictedSelfAttention`, `Convolution` or
            `Recurrence` (paper, Table 1); default: `SelfAttention(d_model, num_heads)`.
        feed_forward: the layer that follows; default: `FeedForward(d_model, d_ff)`.
        **kwargs: arguments of `CompositeLayer`, such as `leaves`, and of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask: true where attention may look: a padding mask (batch, length), an attention
            mask (batch, length, length), or one for each head
            (batch, num_heads or 1, length, length); None: no mask. Layers that replace attention
            take a padding mask only.
        mask: padding mask of `x`, (batch, length), true at real tokens; default: the one that Keras
            has attached to `x`.
        x_mask: the same as `mask`, under the name by which Keras passes the attached mask to
            calls with an `attention_mask`.

    Returns:
        (batch, length, d_model).

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> EncoderLayer(d_model=64, num_heads=4, d_ff=256)(x).shape
        TensorShape([2, 7, 64])
        >>> EncoderLayer(64, d_ff=256, self_attention=Convolution(64, kernel_size=3))(x).shape
        TensorShape([2, 7, 64])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int | None = None,
        d_ff: int | None = None,
        dropout: float = 0.1,
        pre_norm: bool = False,
        layer_norm_epsilon: float = 1e-6,
        self_attention: keras.layers.Layer | None = None,
        feed_forward: keras.layers.Layer | None = None,
        **kwargs,
    ):
        super().__init__(d_model, dropout, pre_norm, layer_norm_epsilon, **kwargs)
        self.num_heads = expect_size(
            "num_heads", num_heads, "self_attention", self_attention is not None
        )
        self.d_ff = expect_size("d_ff", d_ff, "feed_forward", feed_forward is not None)
        self.self_attention = (
            self.new(SelfAttention, d_model, num_heads, name="self_attention")
            if self_attention is None
            else given_part("self_attention", self_attention)
        )
        self.self_attention_norm = self.new_norm("self_attention_norm")
        self.feed_forward = (
            self.new(FeedForward, d_model, d_ff, name="feed_forward")
            if feed_forward is None
            else given_part("feed_forward", feed_forward)
        )
        self.feed_forward_norm = self.new_norm("feed_forward_norm")

    def build(self, x_shape):
        self.build_parts(
            self.self_attention,
            self.self_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        )

    def call(self, x, attention_mask=None, mask=None, x_mask=None):
        expect_sequence("x", x, self.d_model)
        x = self.apply_self_attention(x, attention_mask, first_given(mask, x_mask))
        return self.apply_feed_forward(x)

    def step(self, x, past, cache):
        """Computes one position of every beam, given those before it; needs a causal layer.

        Args:
            x: (batch * beam_size, d_model), the inputs of all beams at this position.
            past: a `Past`, the position and what each beam sees of the earlier ones.
            cache: cache of the earlier positions, as `new_cache` makes it, with room for this one.

        Returns:
            (batch * beam_size, d_model) and the cache with this position written.
        """
        x, cache = self.step_self_attention(x, past, cache)
        return self.apply_feed_forward(x), cache


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(Stack):
    """A stack of encoder layers; after layers with `pre_norm`, a normalisation follows.

    Layers with `self_attention=SelfAttention(..., causal=True)` make it a language model.

    Args:
        layers: the layers, one `EncoderLayer` for each of the N of the paper.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask, mask, x_mask: as in `EncoderLayer`.

    Returns:
        (batch, length, d_model).

    Example:
        >>> encoder = Encoder([EncoderLayer(64, num_heads=4, d_ff=256) for _ in range(2)])
        >>> encoder(keras.random.normal((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    def build(self, x_shape):
        self.build_layers(x_shape)

    def call(self, x, attention_mask=None, mask=None, x_mask=None):
        mask = first_given(mask, x_mask)
        for layer in self.layers:
            x = layer(x, attention_mask=attention_mask, mask=mask)
        return self.normalized(x)

    def step(self, x, past, cache):
        """Runs `EncoderLayer.step` in each layer; `cache`: one entry per layer."""
        new_cache = []
        for layer, layer_cache in zip(self.layers, cache, strict=True):
            x, layer_cache = layer.step(x, past, layer_cache)
            new_cache.append(layer_cache)
        return self.normalized(x), new_cache
