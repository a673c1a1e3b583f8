"""The position-wise feed-forward network (paper, section 3.3)."""

import keras
from keras import ops

from keras_transformer.errors import expect_at_least, expect_rate
from keras_transformer.fast.feed_forward import rectified
from keras_transformer.fast.projection import project
from keras_transformer.fast.shapes import flat, reshape
from keras_transformer.layers.composite import CompositeLayer
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
        **kwargs: arguments of `keras.layers.Layer`.

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
        self.hidden = keras.layers.Dense(
            d_ff, activation=activation, dtype=self.dtype_policy, name="hidden"
        )
        self.output_projection = keras.layers.Dense(d_model, dtype=self.dtype_policy, name="output")
        self.hidden_dropout = Dropout(dropout, dtype=self.dtype_policy, name="hidden_dropout")

    def build(self, x_shape):
        self.hidden.build((None, None, self.d_model))
        self.output_projection.build((None, None, self.d_ff))

    def call(self, x, mask=None, training=None):
        # Flattened, so that TensorFlow multiplies, adds and rectifies in one pass.
        rows = flat(x)  # (batch * length, d_model)
        if training and self._is_rectified_dense():
            hidden = rectified(rows, self.hidden.kernel, self.hidden.bias)
        else:
            hidden = project(self.hidden, rows, training)
        hidden = self.hidden_dropout(hidden, training=training)  # (batch * length, d_ff)
        return reshape(project(self.output_projection, hidden, training), ops.shape(x))

    def _is_rectified_dense(self):
        """Whether `hidden` is what it was made as: a user may have wrapped or quantised it."""
        return (
            type(self.hidden) is keras.layers.Dense
            and self.hidden.activation is keras.activations.relu
            and not self.hidden.quantization_mode
        )

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {
            **super().get_config(),
            "d_model": self.d_model,
            "d_ff": self.d_ff,
            "dropout": self.dropout,
            "activation": self.activation,
        }
