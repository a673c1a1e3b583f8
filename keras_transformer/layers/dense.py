"""The linear map that all projections are: `activation(x W + b)`."""

import keras

from keras_transformer.fast.dense import fused_dense
from keras_transformer.fast.int8 import enough_rows
from keras_transformer.layers.shapes import flat, unflat


@keras.saving.register_keras_serializable("keras_transformer")
class Dense(keras.layers.Dense):
    """Computes `activation(x W + b)` over the last axis, as `keras.layers.Dense` does.

    In training, the gradient of `b` is summed in float32, also where `x` is bfloat16. All axes but
    the last are flattened first, so that TensorFlow multiplies, adds and rectifies in one pass.

    Its arguments are those of `keras.layers.Dense`.

    Call arguments:
        inputs: (..., width).

    Returns:
        (..., units).

    Example:
        >>> Dense(8, activation="relu")(keras.random.normal((2, 7, 64))).shape
        TensorShape([2, 7, 8])
    """

    def call(self, inputs, training=None):
        rows = flat(inputs)  # (rows, width)
        if training:
            outputs = fused_dense(rows, self.kernel, self.bias, self.activation)
        else:
            outputs = super().call(rows)
        return unflat(outputs, inputs)

    def quantized_call(self, inputs, training=None):
        """Computes the result of `call` with a quantised matrix; called by Keras."""
        rows = flat(inputs)
        outputs = super().quantized_call(enough_rows(rows), training=training)[: rows.shape[0]]
        return unflat(outputs, inputs)

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantises the matrix; called by `keras.Model.quantize`."""
        super().quantize(mode, type_check=False, config=config)
