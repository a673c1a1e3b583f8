"""Layer normalisation (paper, section 3.1)."""

import keras
from keras import ops

from keras_transformer.fast.dispatch import sum_dtype
from keras_transformer.fast.normalization import fused_normalized
from keras_transformer.layers.configured import ConfiguredLayer
from keras_transformer.layers.inputs import as_floats


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
class LayerNormalization(ConfiguredLayer):
    """Normalises the last axis: `gamma (x - mean) / sqrt(variance + epsilon) + beta`.

    The sums are float32, or float64 if `x` is. The result is that of
    `keras.layers.LayerNormalization`; training takes few passes over memory.

    Args:
        epsilon: keeps rows without variance finite.
        gamma_initializer: initializer of gamma.
        beta_initializer: initializer of beta.
        gamma_regularizer: regularizer of gamma.
        beta_regularizer: regularizer of beta.
        gamma_constraint: constraint of gamma.
        beta_constraint: constraint of beta.
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

    def __init__(
        self,
        epsilon: float = 1e-6,
        gamma_initializer="ones",
        beta_initializer="zeros",
        gamma_regularizer=None,
        beta_regularizer=None,
        gamma_constraint=None,
        beta_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.epsilon = epsilon
        self.gamma_initializer = keras.initializers.get(gamma_initializer)
        self.beta_initializer = keras.initializers.get(beta_initializer)
        self.gamma_regularizer = keras.regularizers.get(gamma_regularizer)
        self.beta_regularizer = keras.regularizers.get(beta_regularizer)
        self.gamma_constraint = keras.constraints.get(gamma_constraint)
        self.beta_constraint = keras.constraints.get(beta_constraint)
        self.supports_masking = True

    def build(self, x_shape):
        self.input_spec = keras.InputSpec(axes={-1: x_shape[-1]})
        self.gamma, self.beta = (
            self.add_weight(
                name=name,
                shape=x_shape[-1:],
                initializer=getattr(self, f"{name}_initializer"),
                regularizer=getattr(self, f"{name}_regularizer"),
                constraint=getattr(self, f"{name}_constraint"),
                autocast=False,
            )
            for name in ("gamma", "beta")
        )

    def call(self, x, mask=None, training=None):
        x = as_floats(x, self.compute_dtype)
        weights = [ops.cast(weight.value, sum_dtype(x)) for weight in (self.gamma, self.beta)]
        # The fast twin is compiled by XLA, which an exported model must not need.
        return (fused_normalized if training else normalized)(x, *weights, self.epsilon)

    def compute_output_shape(self, x_shape):
        return x_shape
