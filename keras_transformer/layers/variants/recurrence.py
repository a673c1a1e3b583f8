"""A recurrent network in place of self-attention (paper, section 4)."""

import keras
from keras import ops

from keras_transformer.errors import expect_at_least
from keras_transformer.layers.configured import ConfiguredLayer
from keras_transformer.layers.inputs import expect_sequence
from keras_transformer.layers.masks import combined_padding_mask, first_given
from keras_transformer.layers.shapes import one_if_empty


@keras.saving.register_keras_serializable("keras_transformer")
class Recurrence(ConfiguredLayer):
    """Gated recurrent units over the sequence: O(n d^2), n sequential steps (paper, Table 1).

    It runs on TensorFlow and JAX, not on Keras's PyTorch backend.

    Args:
        d_model: width of input, state and output.
        causal: whether to read forwards only, as in the decoder; otherwise the states of a second
            network, which reads backwards, are added.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        attention_mask: a padding mask, (batch, length) or (batch, 1, 1, length), true at real
            tokens; None: no mask. Padding is at the right.
        mask: padding mask of `x`, (batch, length), true at real tokens; default: the one that Keras
            has attached to `x`.
        x_mask: the same as `mask`, under the name by which Keras passes the attached mask to
            calls with an `attention_mask`.

    Returns:
        (batch, length, d_model).

    Example:
        >>> Recurrence(d_model=64)(keras.random.normal((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    def __init__(self, d_model: int, causal: bool = False, **kwargs):
        if keras.backend.backend() == "torch":
            # The networks' names, which are in weight files, are names of methods in PyTorch.
            raise NotImplementedError(
                "Recurrence does not run on PyTorch: set KERAS_BACKEND to tensorflow or jax"
            )
        super().__init__(**kwargs)
        expect_at_least(1, "d_model", d_model)
        self.d_model = d_model
        self.causal = causal
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})
        self.forward = self._gru("forward")
        self.backward = None if causal else self._gru("backward")

    def _gru(self, name):
        return keras.layers.GRU(
            self.d_model,
            return_sequences=True,
            # Not Keras's default, orthogonal, which TensorFlow cannot compute in bfloat16.
            recurrent_initializer="glorot_uniform",
            dtype=self.dtype_policy,
            trainable=self.trainable,
            name=name,
        )

    def build(self, x_shape):
        self.forward.build((None, None, self.d_model))
        if self.backward:
            self.backward.build((None, None, self.d_model))

    def call(self, x, attention_mask=None, mask=None, x_mask=None):
        expect_sequence("x", x, self.d_model)
        attention_mask = combined_padding_mask(attention_mask, first_given(mask, x_mask), x)
        batch, length, _ = shape = ops.shape(x)
        padding = [(0, one_if_empty(batch)), (0, one_if_empty(length)), (0, 0)]
        # A copy, because Keras would apply a mask attached to the caller's tensor.
        x = ops.pad(x, padding)
        states = self.forward(x)  # (batch, length, d_model)
        if self.backward:
            # (batch, length, 1)
            mirrored = ops.pad(_mirrored(shape, attention_mask), padding)
            backward = self.backward(ops.take_along_axis(x, mirrored, axis=1))
            states = states + ops.take_along_axis(backward, mirrored, axis=1)
        return states[:batch, :length]

    def new_cache(self, batch, beam_size):
        """Creates an empty cache for `step`: states (batch, 0, d_model)."""
        return ops.zeros((batch, 0, self.d_model), self.compute_dtype)

    def step(self, x, past, cache):
        """Computes one position of every beam, as `SelfAttention.step` does."""
        state = past.read(cache, past.position[:, None] - 1)  # (batch, beam_size, 1, d_model)
        state, _ = self.forward.cell(x, [ops.reshape(state, (-1, self.d_model))])
        return state, past.write(cache, state)

    def compute_output_shape(self, x_shape):
        return x_shape


def _mirrored(shape, attention_mask):
    """Computes the indices that reverse the real positions: integer (batch, length, 1).

    Padding stays in place, so that it comes last in this direction too.
    """
    batch, length, _ = shape
    positions = ops.arange(length, dtype="int32")
    real = ops.ones((1, 1), "int32")
    if attention_mask is not None:
        real = ops.cast(attention_mask[:, 0, 0], "int32")
    # A mask of size 1 holds for every row, or for every position.
    lengths = ops.sum(ops.broadcast_to(real, (batch, length)), axis=-1, keepdims=True)
    mirrored = ops.where(positions < lengths, lengths - 1 - positions, positions)
    return mirrored[..., None]
