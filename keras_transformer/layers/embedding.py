"""Token embeddings and the logits of the same matrix (paper, section 3.4)."""

import keras
from keras import ops


@keras.saving.register_keras_serializable("keras_transformer")
class TokenEmbedding(keras.layers.Layer):
    """Embeds ids, and projects onto the vocabulary with the same matrix (paper, section 3.4).

    Embeddings are multiplied by `sqrt(d_model)`, logits are not.

    Args:
        vocab_size: number of ids.
        d_model: width of an embedding.
        scale: whether embeddings are multiplied by `sqrt(d_model)`.
        logits_bias: whether each id has a bias that is added to its logits.

    Call arguments:
        ids: integer tensor (batch, length).

    Returns:
        (batch, length, d_model).

    Example:
        >>> embedding = TokenEmbedding(vocab_size=100, d_model=64)
        >>> x = embedding(keras.ops.ones((2, 7), "int32"))
        >>> embedding.logits(x).shape
        TensorShape([2, 7, 100])
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        scale: bool = True,
        logits_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.scale = scale
        self.logits_bias = logits_bias
        self._int8_matrix = None

    def build(self, ids_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocab_size, self.d_model),
            initializer=keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
        )
        if self.logits_bias:
            self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros")

    def call(self, ids):
        # Cast the rows, not the matrix: in mixed precision that would copy the vocabulary.
        # Cast the ids: under a strategy Keras builds with the mean of the replicas' batches.
        rows = ops.take(self.embeddings.value, ops.cast(ids, "int32"), axis=0)
        rows = ops.cast(rows, self.compute_dtype)
        return rows * self.d_model**0.5 if self.scale else rows

    def logits(self, x):
        """Scores of every id: (..., d_model) to (..., vocab_size)."""
        if self._int8_matrix is None:
            matrix = ops.cast(self.embeddings, self.compute_dtype)
            logits = ops.matmul(x, ops.transpose(matrix))
        else:
            matrix, matrix_scale = self._int8_matrix
            x, x_scale = keras.quantizers.abs_max_quantize(x, axis=-1)
            logits = ops.cast(ops.matmul(x, ops.transpose(matrix)), self.compute_dtype)
            logits = logits / (x_scale * matrix_scale)
        return logits + ops.cast(self.bias, self.compute_dtype) if self.logits_bias else logits

    def quantize(self, mode: str = "int8", **kwargs):
        """Computes logits from here on in 8-bit integers, as `keras.Model.quantize` asks of layers.

        Embeddings stay what they are: looking rows up is no work to be saved.
        """
        if mode != "int8":
            raise NotImplementedError(f"expected the mode int8, found {mode!r}")
        matrix, scale = keras.quantizers.abs_max_quantize(self.embeddings.value, axis=-1)
        self._int8_matrix = matrix, scale[:, 0]

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.d_model)

    def get_config(self):
        return {
            **super().get_config(),
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "scale": self.scale,
            "logits_bias": self.logits_bias,
        }
