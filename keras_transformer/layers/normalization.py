"""Layer normalisation with its gradient in closed form (paper, section 3.1)."""

import keras
from keras import ops

from keras_transformer.fused import fused


@keras.saving.register_keras_serializable("keras_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """`keras.layers.LayerNormalization` of the last axis, in training in few passes over memory.

    Arguments are those of Keras's layer.

    Example:
        >>> LayerNormalization(epsilon=1e-6)(keras.ops.ones((2, 3, 4)), training=True).shape
        TensorShape([2, 3, 4])
    """

    def call(self, inputs, training=False):
        if not training:
            return super().call(inputs)
        return _normalized(inputs, self.gamma.value, self.beta.value, self.epsilon)


@fused
def _normalized(x, gamma, beta, epsilon):
    @ops.custom_gradient
    def normalized(x, gamma, beta):
        deviation = ops.cast(x, "float32")
        deviation = deviation - ops.mean(deviation, axis=-1, keepdims=True)
        scale = ops.rsqrt(ops.mean(ops.square(deviation), axis=-1, keepdims=True) + epsilon)

        def gradient(*args, upstream=None):
            upstream = ops.cast(args[0] if upstream is None else upstream, "float32")
            standard = deviation * scale
            rows = tuple(range(len(x.shape) - 1))
            g = upstream * gamma
            g = g - ops.mean(g, axis=-1, keepdims=True)
            g = g - standard * ops.mean(g * standard, axis=-1, keepdims=True)
            return (
                ops.cast(g * scale, x.dtype),
                ops.sum(upstream * standard, axis=rows),
                ops.sum(upstream, axis=rows),
            )

        return ops.cast(deviation * scale * gamma + beta, x.dtype), gradient

    return normalized(x, gamma, beta)
