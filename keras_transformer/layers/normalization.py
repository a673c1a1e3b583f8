"""Layer normalisation, with its gradient in closed form (paper, section 3.1)."""

import functools

import keras
from keras import ops

from keras_transformer.fused import fused, fused_sum


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
        plain_sum = functools.partial(ops.sum, keepdims=True)
        return _normalized(x, *_statistics(x, self.epsilon, plain_sum), *weights)

    def compute_output_shape(self, x_shape):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "epsilon": self.epsilon}


def _standardized(x, mean, scale):
    return (ops.cast(x, "float32") - mean) * scale


def _statistics(x, epsilon, total):
    """The mean of each row, and one over its standard deviation; `total` sums over an axis."""
    x = ops.cast(x, "float32")
    mean = total(x, axis=-1) / x.shape[-1]
    variance = total(ops.square(x - mean), axis=-1) / x.shape[-1]
    return mean, ops.rsqrt(variance + epsilon)


def _normalized(x, mean, scale, gamma, beta):
    return ops.cast(_standardized(x, mean, scale) * gamma + beta, x.dtype)


@fused
def _normalized_in_training(x, gamma, beta, epsilon):
    @ops.custom_gradient
    def normalized(x, gamma, beta):
        mean, scale = _statistics(x, epsilon, fused_sum)

        def gradient(*args, upstream=None):
            upstream = ops.cast(args[0] if upstream is None else upstream, "float32")
            standard = _standardized(x, mean, scale)
            g = upstream * gamma
            mean_g = fused_sum(g, axis=-1) / x.shape[-1]
            share = fused_sum(g * standard, axis=-1) / x.shape[-1]
            return (
                ops.cast((g - mean_g - standard * share) * scale, x.dtype),
                _sum_of_rows(upstream * standard),
                _sum_of_rows(upstream),
            )

        return _normalized(x, mean, scale, gamma, beta), gradient

    return normalized(x, gamma, beta)


def _sum_of_rows(x):
    return fused_sum(ops.reshape(x, (-1, x.shape[-1])), axis=0)[0]
