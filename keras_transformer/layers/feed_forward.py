"""The position-wise feed-forward network (paper, section 3.3)."""

import keras

from keras_transformer.errors import expect_at_least, expect_rate
from keras_transformer.layers.composite import CompositeLayer
from keras_transformer.layers.dense import Dense
from keras_transformer.layers.dropout import Dropout


@keras.saving.register_keras_serializable("keras_transformer")
class FeedForward(CompositeLayer):
    """The network `max(0, x W_1 + b_1) W_2 + b_2`, applied at each position (paper, equation 2).

    `max(0, x)` is the paper's activation; `activation` selects another.

    Args:
        d_model: width of input and output.
        d_ff: width of the hidden layer.
        dropout: dropout rate on the hidden layer.
        activation: activation of the hidden layer: "relu", "swish" or another name known to Keras.
        **kwargs: arguments of `CompositeLayer`, such as `leaves`, and of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        mask: padding mask of `x`, which travels on with the output; default: the one that Keras
            has attached to `x`.

    Returns:
        (batch, length, d_model).

    Example:
        >>> FeedForward(d_model=64, d_ff=256)(keras.random.normal((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    leaf_names = ("Dense", "Dropout")

    def __init__(
        self, d_model: int, d_ff: int, dropout: float = 0.0, activation: str = "relu", **kwargs
    ):
        super().__init__(**kwargs)
        expect_at_least(1, "d_model", d_model)
        expect_at_least(1, "d_ff", d_ff)
        expect_rate("dropout", dropout)
        self.d_model = d_model
        self.d_ff = d_ff
        self.dropout = dropout
        self.activation = activation
        self.supports_masking = True
        self.input_spec = keras.InputSpec(min_ndim=2, axes={-1: d_model})
        self.hidden = self.new(Dense, d_ff, activation=activation, name="hidden")
        self.output_projection = self.new(Dense, d_model, name="output")
        self.hidden_dropout = self.new(Dropout, dropout, name="hidden_dropout")

    def build(self, x_shape):
        self.hidden.build((None, None, self.d_model))
        self.output_projection.build((None, None, self.d_ff))

    def call(self, x, mask=None):
        hidden = self.hidden(x)  # (batch, length, d_ff)
        return self.output_projection(self.hidden_dropout(hidden))

    def compute_output_shape(self, x_shape):
        return x_shape
