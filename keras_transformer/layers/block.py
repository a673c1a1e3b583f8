"""What encoder and decoder layers have in common (paper, sections 3.1 and 5.4)."""

import keras

from keras_transformer.layers.attention import MultiHeadAttention, head_width
from keras_transformer.layers.convolution import Convolution
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.recurrence import Recurrence
from keras_transformer.layers.restricted_attention import RestrictedSelfAttention
from keras_transformer.layers.self_attention import SelfAttention


class TransformerBlock(keras.layers.Layer):
    """The widths and rates of a layer, and the residual connection around its sub-layers.

    Args:
        d_model: width of the residual stream.
        num_heads: attention heads.
        d_ff: width of the feed-forward network's hidden layer.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        attention_bias: whether the projections of attention have biases.
        activation: of the feed-forward network's hidden layer.
        dropout: on the output of every sub-layer, before it is added.
        attention_dropout: on the attention weights.
        activation_dropout: inside the feed-forward network.
        pre_norm: normalise the input of each sub-layer instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        layer_type: what relates positions to each other (paper, Table 1): "attention",
            "restricted", "recurrent", "convolutional" or "separable".
        radius: of restricted attention.
        kernel_size: of convolutions.
    """

    FIELDS = (
        "d_model",
        "num_heads",
        "d_ff",
        "d_k",
        "d_v",
        "attention_bias",
        "activation",
        "dropout",
        "attention_dropout",
        "activation_dropout",
        "pre_norm",
        "layer_norm_epsilon",
        "layer_type",
        "radius",
        "kernel_size",
    )

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        d_ff: int,
        d_k: int | None = None,
        d_v: int | None = None,
        attention_bias: bool = False,
        activation: str = "relu",
        dropout: float = 0.1,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        pre_norm: bool = False,
        layer_norm_epsilon: float = 1e-6,
        layer_type: str = "attention",
        radius: int | None = None,
        kernel_size: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.d_k = head_width(d_model, num_heads, d_k)
        self.d_v = head_width(d_model, num_heads, d_v)
        self.attention_bias = attention_bias
        self.activation = activation
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.pre_norm = pre_norm
        self.layer_norm_epsilon = layer_norm_epsilon
        self.layer_type = layer_type
        self.radius = radius
        self.kernel_size = kernel_size
        self.residual_dropout = Dropout(dropout, dtype=self.dtype_policy)

    def block_config(self):
        """The arguments of this class, for `get_config` and for layers made in its likeness."""
        return {name: getattr(self, name) for name in self.FIELDS}

    def get_config(self):
        return {**super().get_config(), **self.block_config()}

    def compute_output_shape(self, x_shape):
        return x_shape

    def new_self_attention(self, name, causal=False):
        """Self-attention, or what takes its place in layers of this block's type."""
        options = {"causal": causal, "name": name}
        match self.layer_type:
            case "attention":
                return self.new_attention(attention=SelfAttention, **options)
            case "restricted":
                options["radius"] = self.radius
                return self.new_attention(attention=RestrictedSelfAttention, **options)
            case "recurrent":
                return Recurrence(self.d_model, **options, dtype=self.dtype_policy)
            case "convolutional" | "separable":
                separable = self.layer_type == "separable"
                options.update(separable=separable, dtype=self.dtype_policy)
                return Convolution(self.d_model, self.kernel_size, **options)
        raise ValueError(f"unknown layer_type {self.layer_type!r}")

    def new_attention(self, name, attention=MultiHeadAttention, **options):
        """A multi-head attention of this block's widths."""
        return attention(
            self.d_model,
            self.num_heads,
            self.d_k,
            self.d_v,
            self.attention_dropout,
            self.attention_bias,
            **options,
            dtype=self.dtype_policy,
            name=name,
        )

    def new_feed_forward(self, name):
        """A feed-forward network of this block's widths."""
        return FeedForward(
            self.d_model,
            self.d_ff,
            self.activation_dropout,
            self.activation,
            dtype=self.dtype_policy,
            name=name,
        )

    def new_norm(self, name):
        """A layer normalisation of this block's epsilon."""
        return LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def build_sublayers(self, *sublayers):
        """Builds each of these for rows of width `d_model`."""
        for sublayer in sublayers:
            sublayer.build((None, None, self.d_model))

    def residual(self, x, sublayer, norm, training):
        """`norm(x + dropout(sublayer(x)))`, or `x + dropout(sublayer(norm(x)))` with pre-norm."""
        if self.pre_norm:
            return self.residual_dropout.add(x, sublayer(norm(x, training=training)), training)
        return norm(self.residual_dropout.add(x, sublayer(x), training), training=training)


class BlockStack(TransformerBlock):
    """A stack of layers of one class, and with pre-norm a last normalisation.

    Args:
        num_layers: number of layers, N.
        *args, **kwargs: the arguments of `TransformerBlock`, for each layer.
    """

    layer_class: type[TransformerBlock]

    def __init__(self, num_layers: int, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.num_layers = num_layers
        self.layers = [
            self.layer_class(**self.block_config(), dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(num_layers)
        ]
        self.norm = self.new_norm("norm") if self.pre_norm else None

    def build(self, x_shape):
        self.build_sublayers(*self.layers, *([self.norm] if self.norm else []))

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}
