"""The linear map that all projections are: `activation(x W + b)`."""

import keras
from keras import ops

from keras_transformer.fast.dense import fused_dense
from keras_transformer.fast.int8 import enough_rows
from keras_transformer.layers.shapes import flat, reshape


@keras.saving.register_keras_serializable("keras_transformer")
class Dense(keras.layers.Dense):
    """Computes `activation(x W + b)` over the last axis, as `keras.layers.Dense` does.

    In training, the gradient of `b` is summed in float32, also where `x` is bfloat16. All axes but
    the last are flattened first, so that TensorFlow multiplies, adds and rectifies in one pass.

    Args:
        units: width of the output.
        activation: activation function, or its name in Keras; None for none.
        use_bias: whether `b` is added.
        kernel_initializer: initializer of `W`.
        bias_initializer: initializer of `b`.
        kernel_regularizer: regularizer of `W`.
        bias_regularizer: regularizer of `b`.
        activity_regularizer: regularizer of the output.
        kernel_constraint: constraint of `W`.
        bias_constraint: constraint of `b`.
        lora_rank: rank of a trainable LoRA update of `W`, which is frozen; None for none.
        lora_alpha: scale of the LoRA update; default: `lora_rank`.
        quantization_config: how `W` is quantised, as in Keras.
        **kwargs: arguments of `keras.layers.Layer`.

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
        return reshape(outputs, (*ops.shape(inputs)[:-1], self.units))

    def quantized_call(self, inputs, training=None):
        """Computes the result of `call` with a quantised matrix; called by Keras."""
        rows = flat(inputs)
        outputs = super().quantized_call(enough_rows(rows))[: rows.shape[0]]
        return reshape(outputs, (*ops.shape(inputs)[:-1], self.units))

    def quantize(self, mode=None, type_check=True, config=None):
        """Quantises the matrix; called by `keras.Model.quantize`."""
        super().quantize(mode, type_check=False, config=config)
