"""The encoder: a stack of self-attention and feed-forward layers (paper, section 3.1)."""

import keras

from keras_transformer.layers.block import BlockStack, TransformerBlock


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(TransformerBlock):
    """Self-attention, then a feed-forward network, each with its residual (paper, section 3.1).

    Arguments are those of `TransformerBlock`.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask: boolean (batch, 1, 1, length), true at real tokens, as `padding_mask` makes
            it. Attention that is not restricted takes any (batch, num_heads, length, length).

    Returns:
        (batch, length, d_model).

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> EncoderLayer(d_model=64, num_heads=4, d_ff=256)(x).shape
        TensorShape([2, 7, 64])
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.self_attention = self.new_self_attention("self_attention")
        self.self_attention_norm = self.new_norm("self_attention_norm")
        self.feed_forward = self.new_feed_forward("feed_forward")
        self.feed_forward_norm = self.new_norm("feed_forward_norm")

    def build(self, x_shape):
        self.build_sublayers(
            self.self_attention,
            self.self_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        )

    def call(self, x, attention_mask=None, training=None):
        def self_attention(x):
            return self.self_attention(x, attention_mask=attention_mask, training=training)

        def feed_forward(x):
            return self.feed_forward(x, training=training)

        x = self.residual(x, self_attention, self.self_attention_norm, training)
        return self.residual(x, feed_forward, self.feed_forward_norm, training)


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(BlockStack):
    """A stack of encoder layers, and with pre-norm a last normalisation.

    Args:
        num_layers: number of layers, N.
        *args, **kwargs: the arguments of `TransformerBlock`.

    Call arguments and result are those of `EncoderLayer`.

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> Encoder(num_layers=2, d_model=64, num_heads=4, d_ff=256)(x).shape
        TensorShape([2, 7, 64])
    """

    layer_class = EncoderLayer

    def call(self, x, attention_mask=None, training=None):
        for layer in self.layers:
            x = layer(x, attention_mask=attention_mask, training=training)
        return self.norm(x, training=training) if self.norm else x
