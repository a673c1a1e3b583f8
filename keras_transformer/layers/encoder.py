"""The encoder: a stack of self-attention and feed-forward layers (paper, section 3.1)."""

import keras

from keras_transformer.layers.block import BlockStack, TransformerBlock
from keras_transformer.layers.inputs import expect_sequence


@keras.saving.register_keras_serializable("keras_transformer")
class EncoderLayer(TransformerBlock):
    """An encoder layer: self-attention, then a feed-forward network (paper, section 3.1).

    Args:
        d_model: width of the residual stream.
        num_heads: number of attention heads.
        d_ff: width of the feed-forward network's hidden layer.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        attention_bias: whether the projections of attention have biases.
        activation: activation of the feed-forward network's hidden layer.
        dropout: dropout rate on the output of each sub-layer, before the residual sum.
        attention_dropout: dropout rate on the attention weights.
        activation_dropout: dropout rate on the feed-forward network's hidden layer.
        pre_norm: whether to normalise the input of each sub-layer instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        layer_type: how positions relate to each other (paper, Table 1): "attention",
            "restricted", "recurrent", "convolutional" or "separable".
        radius: number of positions on either side that restricted attention reaches.
        kernel_size: width of the convolution kernel, in positions.
        causal: whether each position attends only to itself and earlier positions; default:
            False. An encoder of causal layers is a decoder-only language model.
        rotary: whether the queries and keys of self-attention are rotated by their position
            (Su et al., 2021).
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask: true where attention may look: a padding mask (batch, length), an attention
            mask (batch, length, length), or one for each head
            (batch, num_heads or 1, length, length); None: no mask. Layer types other than
            "attention" take a padding mask only.
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
    """

    def add_sublayers(self):
        super().add_sublayers()
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

    def call(self, x, attention_mask=None, mask=None, x_mask=None, training=None):
        expect_sequence("x", x, self.d_model)
        masks = {"attention_mask": attention_mask, "mask": x_mask if mask is None else mask}

        def self_attention(x):
            return self.self_attention(x, **masks, training=training)

        def feed_forward(x):
            return self.feed_forward(x, training=training)

        x = self.residual(x, self_attention, self.self_attention_norm, training)
        return self.residual(x, feed_forward, self.feed_forward_norm, training)


@keras.saving.register_keras_serializable("keras_transformer")
class Encoder(BlockStack):
    """A stack of encoder layers; with pre-norm, a normalisation follows the last one.

    Args:
        num_layers: number of layers, N.
        d_model: width of the residual stream.
        num_heads: number of attention heads.
        d_ff: width of the feed-forward network's hidden layer.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        attention_bias: whether the projections of attention have biases.
        activation: activation of the feed-forward network's hidden layer.
        dropout: dropout rate on the output of each sub-layer, before the residual sum.
        attention_dropout: dropout rate on the attention weights.
        activation_dropout: dropout rate on the feed-forward network's hidden layer.
        pre_norm: whether to normalise the input of each sub-layer instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        layer_type: how positions relate to each other (paper, Table 1): "attention",
            "restricted", "recurrent", "convolutional" or "separable".
        radius: number of positions on either side that restricted attention reaches.
        kernel_size: width of the convolution kernel, in positions.
        causal: whether each position attends only to itself and earlier positions; default:
            False. An encoder of causal layers is a decoder-only language model.
        rotary: whether the queries and keys of self-attention are rotated by their position
            (Su et al., 2021).
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask: true where attention may look: a padding mask (batch, length), an attention
            mask (batch, length, length), or one for each head
            (batch, num_heads or 1, length, length); None: no mask. Layer types other than
            "attention" take a padding mask only.
        mask: padding mask of `x`, (batch, length), true at real tokens; default: the one that Keras
            has attached to `x`.
        x_mask: the same as `mask`, under the name by which Keras passes the attached mask to
            calls with an `attention_mask`.

    Returns:
        (batch, length, d_model).

    Example:
        >>> x = keras.random.normal((2, 7, 64))
        >>> Encoder(num_layers=2, d_model=64, num_heads=4, d_ff=256)(x).shape
        TensorShape([2, 7, 64])
    """

    layer_class = EncoderLayer

    def call(self, x, attention_mask=None, mask=None, x_mask=None, training=None):
        expect_sequence("x", x, self.d_model)
        masks = {"attention_mask": attention_mask, "mask": x_mask if mask is None else mask}
        for layer in self.layers:
            x = layer(x, **masks, training=training)
        return self.norm(x, training=training) if self.norm else x
