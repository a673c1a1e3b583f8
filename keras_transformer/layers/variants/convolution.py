"""A convolution in place of self-attention (paper, section 4)."""

import keras
from keras import ops

from keras_transformer.errors import expect_at_least
from keras_transformer.layers.configured import ConfiguredLayer
from keras_transformer.layers.inputs import expect_sequence
from keras_transformer.layers.masks import combined_padding_mask, first_given
from keras_transformer.layers.shapes import one_if_empty


@keras.saving.register_keras_serializable("keras_transformer")
class Convolution(ConfiguredLayer):
    """A convolution over neighbouring positions: O(k n d^2) (paper, Table 1).

    If separable, it is O(k n d + n d^2). Padding counts as zeros, and so do positions beyond either
    end.

    Args:
        d_model: width of input and output.
        kernel_size: number of positions that each output depends on, k; at least 1.
        separable: whether each channel is convolved on its own before the channels are mixed.
        dilation_rate: distance between neighbouring positions of the kernel.
        causal: whether the kernel covers a position and earlier ones, as in the decoder; otherwise
            it is centred on the position.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask: a padding mask, (batch, length) or (batch, 1, 1, length), true at real
            tokens; None: no mask.
        mask: padding mask of `x`, (batch, length), true at real tokens; default: the one that Keras
            has attached to `x`.
        x_mask: the same as `mask`, under the name by which Keras passes the attached mask to
            calls with an `attention_mask`.

    Returns:
        (batch, length, d_model).

    Raises:
        ValueError: `kernel_size` is below 1.

    Example:
        >>> Convolution(d_model=64, kernel_size=3)(keras.random.normal((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    def __init__(
        self,
        d_model: int,
        kernel_size: int,
        separable: bool = False,
        dilation_rate: int = 1,
        causal: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        expect_at_least(1, "d_model", d_model)
        expect_at_least(1, "kernel_size", kernel_size)
        expect_at_least(1, "dilation_rate", dilation_rate)
        self.d_model = d_model
        self.kernel_size = kernel_size
        self.separable = separable
        self.dilation_rate = dilation_rate
        self.causal = causal
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})
        self.convolution = (keras.layers.SeparableConv1D if separable else keras.layers.Conv1D)(
            d_model,
            kernel_size,
            dilation_rate=dilation_rate,
            data_format="channels_last",  # also where a user's keras.json has images otherwise
            dtype=self.dtype_policy,
            trainable=self.trainable,
            name="convolution",
        )
        self.reach = dilation_rate * (kernel_size - 1)

    def build(self, x_shape):
        self.convolution.build((None, None, self.d_model))

    def call(self, x, attention_mask=None, mask=None, x_mask=None):
        expect_sequence("x", x, self.d_model)
        attention_mask = combined_padding_mask(attention_mask, first_given(mask, x_mask), x)
        if attention_mask is not None:
            x = ops.where(ops.swapaxes(attention_mask[:, 0], 1, 2), x, 0)
        batch, length, _ = ops.shape(x)
        before = self.reach if self.causal else self.reach // 2
        after = self.reach - before + one_if_empty(length)
        x = ops.pad(x, [(0, one_if_empty(batch)), (before, after), (0, 0)])
        return self.convolution(x)[:batch, :length]

    def new_cache(self, batch, beam_size):
        """Creates an empty cache for `step`: inputs (batch, 0, d_model)."""
        return ops.zeros((batch, 0, self.d_model), self.compute_dtype)

    def step(self, x, past, cache):
        """Computes one position of every beam, as `SelfAttention.step` does."""
        cache = past.write(cache, x)
        # (batch, reach + 1)
        reached = past.position[:, None] - ops.arange(self.reach, -1, -1, dtype="int32")
        x = past.read(cache, reached)  # (batch, beam_size, reach + 1, d_model)
        x = self.convolution(ops.reshape(x, (-1, self.reach + 1, self.d_model)))
        return ops.reshape(x, (-1, self.d_model)), cache

    def compute_output_shape(self, x_shape):
        return x_shape
