"""Layer normalisation (paper, section 3.1)."""

import keras
from keras import ops

from keras_transformer.fast.dispatch import sum_dtype
from keras_transformer.fast.normalization import fused_normalized


def normalized(x, gamma, beta, epsilon: float):
    """Normalises the last axis: `gamma (x - mean) / sqrt(variance + epsilon) + beta`.

    Args:
        x: (..., width), of any float dtype; the sums are float32, or float64 if `x` is.
        gamma, beta: (width,), of the dtype of the sums.
        epsilon: keeps rows without variance finite.

    Returns:
        A tensor like `x`.
    """
    centred = ops.cast(x, sum_dtype(x))
    centred = centred - ops.mean(centred, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)  # (..., 1)
    return ops.cast(centred * ops.rsqrt(variance + epsilon) * gamma + beta, x.dtype)


@keras.saving.register_keras_serializable("keras_transformer")
class LayerNormalization(keras.layers.Layer):
    """Normalises the last axis: `gamma (x - mean) / sqrt(variance + epsilon) + beta`.

    The sums are float32, or float64 if `x` is. The result is that of
    `keras.layers.LayerNormalization`; training takes few passes over memory.

    Args:
        epsilon: keeps rows without variance finite.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (..., width).
        mask: padding mask of `x`, which travels on with the output; default: the one that Keras
            has attached to `x`.

    Returns:
        A tensor like `x`.

    Example:
        >>> LayerNormalization()(keras.random.normal((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.supports_masking = True

    def build(self, x_shape):
        self.input_spec = keras.InputSpec(axes={-1: x_shape[-1]})
        for name, initializer in (("gamma", "ones"), ("beta", "zeros")):
            weight = self.add_weight(
                name=name, shape=x_shape[-1:], initializer=initializer, autocast=False
            )
            setattr(self, name, weight)

    def call(self, x, mask=None, training=None):
        weights = [ops.cast(weight.value, sum_dtype(x)) for weight in (self.gamma, self.beta)]
        # Only in training: an exported model must not need XLA.
        return (fused_normalized if training else normalized)(x, *weights, self.epsilon)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}
