"""The common part of encoder and decoder layers: residuals and widths (paper, section 3.1)."""

import keras

from keras_transformer.errors import expect_at_least, expect_rate
from keras_transformer.layers.attention import MultiHeadAttention, head_width
from keras_transformer.layers.composite import CompositeLayer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.normalization import LayerNormalization
from keras_transformer.layers.self_attention import SelfAttention
from keras_transformer.layers.variants.convolution import Convolution
from keras_transformer.layers.variants.recurrence import Recurrence
from keras_transformer.layers.variants.restricted_attention import RestrictedSelfAttention

# The layer types, each with the argument that it alone needs.
LAYER_TYPES = {
    "attention": None,
    "restricted": "radius",
    "recurrent": None,
    "convolutional": "kernel_size",
    "separable": "kernel_size",
}


class TransformerBlock(CompositeLayer):
    """The base of encoder and decoder layers: hyperparameters and residual connections.

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
            True in decoder layers.
        rotary: whether the queries and keys of self-attention are rotated by their position
            (Su et al., 2021).
        **kwargs: arguments of `keras.layers.Layer`.
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
        "causal",
        "rotary",
    )
    is_causal = False  # default of `causal`

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
        causal: bool | None = None,
        rotary: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.d_model = d_model
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.d_k = head_width(d_model, num_heads, d_k)
        self.d_v = head_width(d_model, num_heads, d_v, "d_v")
        expect_at_least(1, "d_ff", d_ff)
        expect_rate("dropout", dropout)
        expect_rate("attention_dropout", attention_dropout)
        expect_rate("activation_dropout", activation_dropout)
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
        self.causal = self.is_causal if causal is None else causal
        self.rotary = rotary
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})
        self.add_sublayers()

    def add_sublayers(self):
        """Creates the sub-layers."""
        self.residual_dropout = Dropout(
            self.dropout, dtype=self.dtype_policy, name="residual_dropout"
        )

    def block_config(self):
        """The arguments of this class, for `get_config` and for the layers of a stack."""
        return {name: getattr(self, name) for name in self.FIELDS}

    def get_config(self):
        return {**super().get_config(), **self.block_config()}

    def compute_output_shape(self, x_shape):
        return x_shape

    def new_self_attention(self, name):
        """Creates the self-attention, or the layer that replaces it for this `layer_type`."""
        self._check_layer_type()
        options = {"causal": self.causal, "name": name}
        if self.rotary and self.layer_type not in ("attention", "restricted"):
            raise ValueError(f"rotary needs attention: found layer_type={self.layer_type!r}")
        match self.layer_type:
            case "attention":
                options["rotary"] = self.rotary
                return self.new_attention(attention=SelfAttention, **options)
            case "restricted":
                options.update(radius=self.radius, rotary=self.rotary)
                return self.new_attention(attention=RestrictedSelfAttention, **options)
            case "recurrent":
                return Recurrence(self.d_model, **options, dtype=self.dtype_policy)
            case "convolutional" | "separable":
                separable = self.layer_type == "separable"
                options.update(separable=separable, dtype=self.dtype_policy)
                return Convolution(self.d_model, self.kernel_size, **options)

    def _check_layer_type(self):
        if self.layer_type not in LAYER_TYPES:
            expected = ", ".join(LAYER_TYPES)
            raise ValueError(f"layer_type must be one of {expected}: found {self.layer_type!r}")
        for name in ("radius", "kernel_size"):
            value, is_needed = getattr(self, name), LAYER_TYPES[self.layer_type] == name
            if (value is not None) != is_needed:
                expected = "given" if is_needed else "left out"
                raise ValueError(
                    f"{name} must be {expected} where layer_type is {self.layer_type}: "
                    f"found {value}"
                )

    def new_attention(self, name, attention=MultiHeadAttention, **options):
        """Creates a multi-head attention of this block's widths."""
        return attention(
            self.d_model,
            self.num_heads,
            d_k=self.d_k,
            d_v=self.d_v,
            dropout=self.attention_dropout,
            use_bias=self.attention_bias,
            **options,
            dtype=self.dtype_policy,
            name=name,
        )

    def new_feed_forward(self, name):
        """Creates a feed-forward network of this block's widths."""
        return FeedForward(
            self.d_model,
            self.d_ff,
            self.activation_dropout,
            self.activation,
            dtype=self.dtype_policy,
            name=name,
        )

    def new_norm(self, name):
        """Creates a layer normalisation with this block's epsilon."""
        return LayerNormalization(
            epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name
        )

    def build_sublayers(self, *sublayers):
        """Builds the given layers for inputs of width `d_model`, unless a call has built them."""
        for sublayer in sublayers:
            if not sublayer.built:
                sublayer.build((None, None, self.d_model))

    def residual(self, x, sublayer, norm, training):
        """Computes `norm(x + dropout(sublayer(x)))`; pre-norm: `x + dropout(sublayer(norm(x)))`."""
        if self.pre_norm:
            update = sublayer(norm(x, training=training))
            return self.residual_dropout(update, residual=x, training=training)
        update = self.residual_dropout(sublayer(x), residual=x, training=training)
        return norm(update, training=training)


class BlockStack(TransformerBlock):
    """A stack of layers of one class; with pre-norm, a normalisation follows the last one.

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
            True in a decoder.
        rotary: whether the queries and keys of self-attention are rotated by their position
            (Su et al., 2021).
        **kwargs: arguments of `keras.layers.Layer`.
    """

    layer_class: type[TransformerBlock]

    def __init__(
        self,
        num_layers: int,
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
        causal: bool | None = None,
        rotary: bool = False,
        **kwargs,
    ):
        expect_at_least(1, "num_layers", num_layers)
        self.num_layers = num_layers
        super().__init__(
            d_model,
            num_heads,
            d_ff,
            d_k,
            d_v,
            attention_bias,
            activation,
            dropout,
            attention_dropout,
            activation_dropout,
            pre_norm,
            layer_norm_epsilon,
            layer_type,
            radius,
            kernel_size,
            causal,
            rotary,
            **kwargs,
        )

    def add_sublayers(self):
        super().add_sublayers()
        self.layers = [
            self.layer_class(**self.block_config(), dtype=self.dtype_policy, name=f"layer_{i}")
            for i in range(self.num_layers)
        ]
        self.norm = self.new_norm("norm") if self.pre_norm else None

    def build(self, x_shape):
        self.build_sublayers(*self.layers, *([self.norm] if self.norm else []))

    def get_config(self):
        return {**super().get_config(), "num_layers": self.num_layers}
