"""Token embeddings, and logits from the same matrix (paper, section 3.4)."""

import keras
from keras import ops

from keras_transformer.errors import expect_at_least
from keras_transformer.fast.dense import add_bias
from keras_transformer.fast.int8 import enough_rows, whole_columns
from keras_transformer.fast.rows import take_rows
from keras_transformer.layers.configured import ConfiguredLayer
from keras_transformer.layers.shapes import flat, unflat
from keras_transformer.private_names import set_padding_mask


@keras.saving.register_keras_serializable("keras_transformer")
class TokenEmbedding(ConfiguredLayer):
    """Embeds ids, and projects onto the vocabulary by the same matrix (paper, section 3.4).

    Embeddings are multiplied by `sqrt(d_model)`, logits are not.

    Args:
        vocab_size: number of ids.
        d_model: width of an embedding.
        scale: whether embeddings are multiplied by `sqrt(d_model)`.
        logits_bias: whether each id has a bias that is added to its logits.
        mask_zero: whether id 0 is padding, as in `keras.layers.Embedding`: embeddings then carry a
            padding mask, which later layers apply.
        embeddings_initializer: initializer of the matrix; default: a normal distribution of
            variance `1 / d_model`.
        embeddings_regularizer: regularizer of the matrix.
        embeddings_constraint: constraint of the matrix.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        ids: integer tensor (batch, length); with `reverse`, a float tensor (..., d_model).
        reverse: whether to project onto the vocabulary instead.
        mask: padding mask of the first argument, which travels on with the output unless
            `mask_zero` makes one; default: the one that Keras has attached to that argument.

    Returns:
        (batch, length, d_model); with `reverse`, logits (..., vocab_size), which carry the mask
        of their argument.

    Raises:
        ValueError: ids are given as float16 or bfloat16, as a `Sequential` model without an
            `Input` does in mixed precision.

    Example:
        >>> embedding = TokenEmbedding(vocab_size=100, d_model=64)
        >>> x = embedding(keras.ops.ones((2, 7), "int32"))
        >>> embedding(x, reverse=True).shape
        TensorShape([2, 7, 100])
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        scale: bool = True,
        logits_bias: bool = False,
        mask_zero: bool = False,
        embeddings_initializer=None,
        embeddings_regularizer=None,
        embeddings_constraint=None,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # bfloat16 would round ids given as floats
        expect_at_least(1, "vocab_size", vocab_size)
        expect_at_least(1, "d_model", d_model)
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.scale = scale
        self.logits_bias = logits_bias
        self.mask_zero = mask_zero
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.embeddings_regularizer = keras.regularizers.get(embeddings_regularizer)
        self.embeddings_constraint = keras.constraints.get(embeddings_constraint)
        self.supports_masking = True

    def build(self, ids_shape):
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocab_size, self.d_model),
            initializer=self.embeddings_initializer
            or keras.initializers.RandomNormal(stddev=self.d_model**-0.5),
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            autocast=False,
        )
        if self.logits_bias:
            self.bias = self.add_weight(name="bias", shape=(self.vocab_size,), initializer="zeros")
        if self.quantization_mode:
            self._build_int8()

    def _build_int8(self):
        self.embeddings.trainable = False  # the integers would not follow
        # (d_model, vocab_size): XLA would multiply by a transpose in 32-bit integers.
        self.int8_kernel = self.add_weight(
            name="int8_kernel",
            shape=(self.d_model, whole_columns(self.vocab_size)),
            initializer="zeros",
            dtype="int8",
            trainable=False,
        )
        self.int8_scale = self.add_weight(
            name="int8_scale",
            shape=(self.vocab_size,),
            initializer="ones",
            trainable=False,
            autocast=False,
        )

    def call(self, ids, reverse=False, mask=None, training=None):
        if reverse:
            return self._logits(ids, training=training)
        if keras.backend.standardize_dtype(ids.dtype) in ("bfloat16", "float16"):
            raise ValueError(
                f"ids must be integers: found {ids.dtype}, which rounds them; begin a `Sequential` "
                'model with keras.Input((None,), dtype="int32")'
            )
        # Cast the rows: in mixed precision, casting the matrix would copy the whole vocabulary.
        # Cast the ids: under a strategy, Keras builds with the mean of the replicas' batches.
        rows = take_rows(self.embeddings, ops.cast(ids, "int32"))
        rows = ops.cast(rows, self.compute_dtype)  # (batch, length, d_model)
        rows = rows * self.d_model**0.5 if self.scale else rows
        return self._with_mask(rows, ids)

    def _with_mask(self, rows, ids):
        """Attaches the mask of ids, since `compute_mask` takes ids given as floats for logits."""
        if self.mask_zero:
            set_padding_mask(rows, ops.not_equal(ids, 0))
        return rows

    def compute_mask(self, ids, previous_mask=None):
        """The padding mask of ids with `mask_zero`; else, as with `reverse`, the mask before it."""
        is_float = keras.backend.is_float_dtype(keras.backend.standardize_dtype(ids.dtype))
        return ops.not_equal(ids, 0) if self.mask_zero and not is_float else previous_mask

    def logits(self, x, kernel=None):
        """Projects onto the vocabulary, like a call with `reverse=True`.

        Args:
            x: (batch, length, d_model).
            kernel: result of `logits_kernel`, for many calls with few rows.
        """
        return self(x, reverse=True) if kernel is None else self._logits(x, kernel)

    def logits_kernel(self):
        """Copies the matrix of the logits: (d_model, vocab_size); None if it has 8-bit integers.

        TensorFlow multiplies a few rows by this copy several times as fast as by the transpose of
        the embeddings, which it lays out anew for each product.
        """
        if self.quantization_mode:
            return None
        return ops.transpose(ops.cast(self.embeddings, self.compute_dtype))

    def _logits(self, x, kernel=None, training=None):
        whole, x = x, ops.cast(flat(x), self.compute_dtype)  # (rows, d_model)
        if self.quantization_mode:
            logits = self._int8_logits(ops.stop_gradient(x))
            if training:  # integers have no gradient: this one is that of the exact product
                exact = ops.matmul(x, ops.transpose(ops.cast(self.embeddings, self.compute_dtype)))
                logits = exact + ops.stop_gradient(logits - exact)
        else:
            logits = ops.matmul(x, self.logits_kernel() if kernel is None else kernel)
        if self.logits_bias:
            bias = ops.cast(self.bias, self.compute_dtype)
            logits = add_bias(logits, bias) if training else ops.add(logits, bias)
        return unflat(logits, whole)

    def _int8_logits(self, x):
        x, x_scale = keras.quantizers.abs_max_quantize(x, axis=-1)
        products = ops.matmul(enough_rows(x), self.int8_kernel)
        products = ops.cast(products[: x.shape[0], : self.vocab_size], self.compute_dtype)
        return products / (x_scale * ops.cast(self.int8_scale, self.compute_dtype))

    def quantize(self, mode: str = "int8", **kwargs):
        """Makes the layer compute logits in 8-bit integers; called by `keras.Model.quantize`.

        Embeddings are unchanged, as there is nothing to gain in looking up rows, but no longer
        trained, as Keras does not train quantised matrices.
        """
        if mode != "int8":
            raise NotImplementedError(f"TokenEmbedding has no quantization mode {mode!r}, but int8")
        if hasattr(self, "int8_kernel"):
            raise ValueError(f"{self.path} is already quantized")
        if not self.quantization_mode:  # the new policy calls this method again
            self.dtype_policy = f"int8_from_{self.dtype_policy.name}"  # type: ignore[has-type]
            return
        matrix, scale = keras.quantizers.abs_max_quantize(self.embeddings.value, axis=-1)
        self._build_int8()
        columns = self.int8_kernel.shape[1] - self.vocab_size
        self.int8_kernel.assign(ops.pad(ops.transpose(matrix), [(0, 0), (0, columns)]))
        self.int8_scale.assign(scale[:, 0])

    def quantized_call(self, *args, **kwargs):
        """Calls the layer, whose `call` computes logits in 8-bit integers by itself."""
        return self.call(*args, **kwargs)

    def compute_output_shape(self, ids_shape):
        return (*ids_shape, self.d_model)

    def compute_output_spec(self, ids, reverse=False, mask=None, training=None):
        if reverse:
            return keras.KerasTensor((*ids.shape[:-1], self.vocab_size), self.compute_dtype)
        rows = keras.KerasTensor((*ids.shape, self.d_model), self.compute_dtype)
        return self._with_mask(rows, ids)
