"""The linear map that all projections are: `activation(x W + b)`."""

import keras

from keras_transformer.fast.dense import fused_dense
from keras_transformer.fast.int8 import enough_rows
from keras_transformer.layers.shapes import flat, unflat


@keras.saving.register_keras_serializable("keras_transformer")
class Dense(keras.layers.Dense):
    """Computes `activation(x W + b)` over the last axis, as `keras.layers.Dense` does.

    In training, the gradient of `b` is summed in float32, also where `x` is bfloat16. All axes but
    the last are flattened first, so that TensorFlow multiplies, adds and rectifies in one pass. A
    layer as `activation`, such as `keras.layers.PReLU`, gets these rows, (rows, units).

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
        if self._is_of_rows() and training:
            return unflat(fused_dense(rows, self.kernel, self.bias, self.activation), inputs)
        if self._is_of_rows():
            return unflat(super().call(rows), inputs)
        if training:
            outputs = fused_dense(rows, self.kernel, self.bias, keras.activations.linear)
            return self.activation(unflat(outputs, inputs))
        return super().call(inputs)

    def _is_of_rows(self):
        """Whether the activation treats each row alone: Keras's functions do, and layers should.

        A function of the user's own may be a softmax over the length.
        """
        is_layer = isinstance(self.activation, keras.layers.Layer)
        return is_layer or self.activation in vars(keras.activations).values()

    def quantized_call(self, inputs, training=None):
        """Computes the result of `call` with a quantised matrix; called by Keras."""
        if not self._is_of_rows():
            return super().quantized_call(inputs, training=training)
        rows = flat(inputs)
        outputs = super().quantized_call(enough_rows(rows), training=training)[: rows.shape[0]]
        return unflat(outputs, inputs)

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantises the matrix; called by `keras.Model.quantize`."""
        super().quantize(mode, type_check=False, config=config)
