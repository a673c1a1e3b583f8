"""Dropout whose mask is computed, not stored (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.errors import expect_rate
from keras_transformer.fast.dropout import dropped, dropped_sum
from keras_transformer.fast.integer_hash import hashed
from keras_transformer.layers.configured import ConfiguredLayer
from keras_transformer.layers.inputs import as_floats
from keras_transformer.machine.replicas import replica_id


@keras.saving.register_keras_serializable("keras_transformer")
class Dropout(ConfiguredLayer):
    """Drops elements in training, in one pass over memory, forwards and backwards.

    A hash of its index and of a random key decides whether an element is kept. The gradient
    computes the mask again instead of reading it. Each call has its own key, and so does each
    replica of a strategy.

    Args:
        rate: probability that an element becomes 0; the others are divided by `1 - rate`.
        seed: seed of the masks; default: drawn from Keras's global seed.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: a float tensor of any shape.
        training: whether to drop elements at all.
        residual: tensor like `x` that is added to the result in the same pass; None for none.
        mask: padding mask of `x`, which travels on with the output; default: the one that Keras
            has attached to `x`.

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
        expect_rate("rate", rate)
        self.rate = rate
        self.seed = seed
        self.supports_masking = True
        if rate > 0:
            self.seed_generator = keras.random.SeedGenerator(seed)
        self.built = True

    def call(self, x, training=None, residual=None, mask=None):
        x = as_floats(x, self.compute_dtype)
        residual = None if residual is None else as_floats(residual, self.compute_dtype)
        if not self.drops(training):
            return x if residual is None else residual + x
        if residual is None:
            return dropped(x, self.new_key(), self.rate)
        return dropped_sum(residual, x, self.new_key(), self.rate)

    def drops(self, training) -> bool:
        """Whether this call drops elements."""
        return bool(training) and self.rate > 0

    def new_key(self):
        """Draws the key of one mask: two random int32."""
        seed = ops.cast(self.seed_generator.next(), "int32")
        return hashed(ops.arange(2, dtype="int32") + 2 * replica_id(), (seed[0], seed[1], seed[0]))

    def compute_output_shape(self, x_shape, residual_shape=None):
        return x_shape
