"""Position encodings: sinusoids, a learned table, rotary (paper, section 3.5)."""

import keras
import numpy as np
from keras import ops

from keras_transformer.errors import expect_at_least
from keras_transformer.fast.dispatch import sum_dtype
from keras_transformer.fast.rotation import fused_rotated
from keras_transformer.fast.rows import take_rows
from keras_transformer.layers.configured import ConfiguredLayer
from keras_transformer.layers.inputs import as_floats, expect_sequence


@keras.saving.register_keras_serializable("keras_transformer")
class PositionalEncoding(ConfiguredLayer):
    """Adds sinusoids of the position to the embeddings (paper, section 3.5).

    `PE(pos, 2i) = sin(pos / 10000^(2i / d_model))` and `PE(pos, 2i + 1) = cos(...)`, interleaved.
    Sentences may be of any length.

    Args:
        d_model: width of the embeddings, even.
        interleave: whether sines and cosines alternate, as in the paper; otherwise all sines come
            before all cosines.
        inclusive: whether the last frequency is 1 / 10000, as in OpenNMT-tf and fairseq; in the
            paper, it is the first one that is left out.
        first: number of the first position.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        start: position of the first token: an integer, or int32 (batch,), one per row.
        mask: padding mask of `x`, which travels on with the output; default: the one that Keras
            has attached to `x`.

    Returns:
        (batch, length, d_model).

    Raises:
        ValueError: `d_model` is odd, or 2 and `inclusive`.

    Example:
        >>> PositionalEncoding(64)(keras.ops.zeros((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    def __init__(
        self,
        d_model: int,
        interleave: bool = True,
        inclusive: bool = False,
        first: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        expect_at_least(4 if inclusive else 1, "d_model", d_model)
        if d_model % 2:
            raise ValueError(f"d_model must be even, for pairs of sine and cosine: found {d_model}")
        self.d_model = d_model
        self.interleave = interleave
        self.inclusive = inclusive
        self.first = first
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})
        self.built = True

    def call(self, x, start=0, mask=None):
        expect_sequence("x", x, self.d_model)
        x = as_floats(x, self.compute_dtype)
        dtype = sum_dtype(x)
        positions = _positions(start, ops.shape(x)[1]) + self.first  # (batch or 1, length)
        positions = ops.cast(positions, dtype)
        steps = self.d_model - 2 if self.inclusive else self.d_model
        frequencies = 10000.0 ** (-np.arange(0, self.d_model, 2) / steps)  # (d_model / 2,)
        # (batch or 1, length, d_model / 2)
        angles = positions[..., None] * ops.convert_to_tensor(frequencies, dtype)
        pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1 if self.interleave else -2)
        encoding = ops.reshape(pairs, (*ops.shape(positions), self.d_model))
        return x + ops.cast(encoding, x.dtype)

    def compute_output_shape(self, input_shape):
        return input_shape


@keras.saving.register_keras_serializable("keras_transformer")
class LearnedPositions(ConfiguredLayer):
    """Adds a learned vector for each position, instead of sinusoids (paper, Table 3, row E).

    Args:
        d_model: width of the embeddings.
        max_length: number of positions; later ones use the vector of the last.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, length, d_model).
        start: position of the first token: an integer, or int32 (batch,), one per row.
        mask: padding mask of `x`, which travels on with the output; default: the one that Keras
            has attached to `x`.

    Returns:
        (batch, length, d_model).

    Example:
        >>> LearnedPositions(64, max_length=100)(keras.ops.zeros((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    def __init__(self, d_model: int, max_length: int, **kwargs):
        super().__init__(**kwargs)
        expect_at_least(1, "d_model", d_model)
        expect_at_least(1, "max_length", max_length)
        self.d_model = d_model
        self.max_length = max_length
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})

    def build(self, x_shape):
        self.table = self.add_weight(
            name="table",
            shape=(self.max_length, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )

    def call(self, x, start=0, mask=None):
        expect_sequence("x", x, self.d_model)
        x = as_floats(x, self.compute_dtype)
        positions = _positions(start, ops.shape(x)[1])  # (batch or 1, length)
        return x + take_rows(self.table, ops.minimum(positions, self.max_length - 1))

    def compute_output_shape(self, x_shape):
        return x_shape


def rotated(x, positions=None):
    """Rotates queries or keys by an angle for each position (Su et al., 2021, section 3.2.2).

    The pair `(x[2i], x[2i + 1])` at position `pos` turns by `pos / 10000^(2i / width)`. The dot
    product of a query and a key then depends on the distance between them alone.

    Args:
        x: (batch, heads, length, width), the width even.
        positions: int32 (batch, length) or (batch, 1); default: 0, 1, 2 and so on in every row.

    Returns:
        A tensor like `x`.
    """
    length, width = ops.shape(x)[2:]
    positions = ops.arange(length, dtype="int32")[None] if positions is None else positions
    frequencies = 10000.0 ** (-np.arange(0, width, 2) / width)
    dtype = sum_dtype(x)
    frequencies = ops.convert_to_tensor(frequencies, dtype)
    angles = ops.cast(positions, dtype)[:, None, :, None] * frequencies
    cos, sin = ops.cos(angles), ops.sin(angles)  # (batch or 1, 1, length or 1, width / 2)
    pairs = ops.cast(ops.reshape(x, (*ops.shape(x)[:3], width // 2, 2)), dtype)
    even, odd = pairs[..., 0], pairs[..., 1]  # (batch, heads, length, width / 2) each
    turned = ops.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1)
    return ops.cast(ops.reshape(turned, ops.shape(x)), x.dtype)


@keras.saving.register_keras_serializable("keras_transformer")
class Rotation(ConfiguredLayer):
    """Rotates queries or keys by an angle for each position (Su et al., 2021, section 3.2.2).

    Args:
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, heads, length, width), the width even.
        positions: int32 (batch, length) or (batch, 1); default: 0, 1, 2 and so on in every row.

    Returns:
        A tensor like `x`.

    Example:
        >>> attention = SelfAttention(d_model=64, num_heads=4, rotation=Rotation())
        >>> attention(keras.random.normal((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.built = True

    def call(self, x, positions=None, training=None):
        # The fast twin is compiled by XLA, which an exported model must not need.
        return fused_rotated(x) if training and positions is None else rotated(x, positions)

    def compute_output_shape(self, x_shape, positions_shape=None):
        return x_shape


def _positions(start, length):
    """Positions of each row, int32 (batch, length), or (1, length) if all rows have the same."""
    start = ops.cast(ops.convert_to_tensor(start), "int32")
    return ops.reshape(start, (-1, 1)) + ops.arange(length, dtype="int32")
