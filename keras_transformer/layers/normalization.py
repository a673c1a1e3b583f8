"""Layer normalisation, with its gradient in closed form (paper, section 3.1)."""

import keras
from keras import ops

from keras_transformer.fused import fused


@keras.saving.register_keras_serializable("keras_transformer")
class LayerNormalization(keras.layers.Layer):
    """`gamma (x - mean) / sqrt(variance + epsilon) + beta` over the last axis, in float32.

    What `keras.layers.LayerNormalization` computes; in training in few passes over memory.

    Args:
        epsilon: keeps rows without variance finite.

    Call arguments:
        x: (..., width).

    Returns:
        A tensor like `x`.

    Example:
        >>> LayerNormalization()(keras.random.normal((2, 7, 64))).shape
        TensorShape([2, 7, 64])
    """

    def __init__(self, epsilon: float = 1e-6, **kwargs):
        super().__init__(**kwargs)
        self.epsilon = epsilon

    def build(self, x_shape):
        for name, initializer in (("gamma", "ones"), ("beta", "zeros")):
            weight = self.add_weight(
                name=name, shape=x_shape[-1:], initializer=initializer, autocast=False
            )
            setattr(self, name, weight)

    def call(self, x, training=False):
        weights = [ops.cast(weight.value, "float32") for weight in (self.gamma, self.beta)]
        # Only in training: what is exported must not need XLA.
        if training:
            return _normalized_in_training(x, *weights, self.epsilon)
        return _normalized(*_standardized(x, self.epsilon), *weights, x.dtype)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


def _standardized(x, epsilon):
    """Rows less their mean, and one over their standard deviation."""
    deviation = ops.cast(x, "float32")
    deviation = deviation - ops.mean(deviation, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(deviation), axis=-1, keepdims=True)
    return deviation, ops.rsqrt(variance + epsilon)


def _normalized(deviation, scale, gamma, beta, dtype):
    return ops.cast(deviation * scale * gamma + beta, dtype)


@fused
def _normalized_in_training(x, gamma, beta, epsilon):
    @ops.custom_gradient
    def normalized(x, gamma, beta):
        deviation, scale = _standardized(x, epsilon)

        def gradient(*args, upstream=None):
            upstream = ops.cast(args[0] if upstream is None else upstream, "float32")
            standard = deviation * scale
            g = upstream * gamma
            g = g - ops.mean(g, axis=-1, keepdims=True)
            g = g - standard * ops.mean(g * standard, axis=-1, keepdims=True)
            rows = tuple(range(len(x.shape) - 1))
            return (
                ops.cast(g * scale, x.dtype),
                ops.sum(upstream * standard, axis=rows),
                ops.sum(upstream, axis=rows),
            )

        return _normalized(deviation, scale, gamma, beta, x.dtype), gradient

    return normalized(x, gamma, beta)
