"""Dropout whose mask is computed, not stored (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.backend.hashed_dropout import dropped, dropped_sum, hashed
from keras_transformer.backend.replicas import replica_id


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(keras.layers.Layer):
    """Drops elements in training, in one pass over memory, forwards and backwards.

    Whether an element is kept is a hash of its index and of a random key, so that the gradient
    computes the mask again instead of reading it. Each call has a key of its own, and so has each
    replica of a strategy.

    Args:
        rate: share of the elements that become 0; the others are divided by `1 - rate`.
        seed: of the masks; default: from Keras's global seed.
        **kwargs: those of `keras.layers.Layer`.

    Call arguments:
        x: a float tensor of any shape.
        training: nothing is dropped unless it is true.
        residual: None, or a tensor like `x` that is added to the result in the same pass.

    Returns:
        A tensor like `x`.

    Raises:
        ValueError: `rate` is not in [0, 1).

    Example:
        >>> Dropout(0.5, seed=1)(keras.ops.ones((2, 3)), training=True).shape
        TensorShape([2, 3])
    """

    def __init__(self, rate: float, seed: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be in [0, 1): found {rate}")
        self.rate = rate
        self.seed = seed
        self.supports_masking = True
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, x, training=False, residual=None):
        if not self.drops(training):
            return x if residual is None else residual + x
        if residual is None:
            return dropped(x, self.new_key(), self.rate)
        return dropped_sum(residual, x, self.new_key(), self.rate)

    def drops(self, training) -> bool:
        """Whether anything is dropped at all."""
        return bool(training) and self.rate > 0

    def new_key(self):
        """Two random int32, from which one mask is made."""
        seed = ops.cast(self.seed_generator.next(), "int32")
        return hashed(ops.arange(2, dtype="int32") + 2 * replica_id(), seed)

    def compute_output_shape(self, x_shape, residual_shape=None):
        return x_shape

    def get_config(self):
        return {**super().get_config(), "rate": self.rate, "seed": self.seed}
