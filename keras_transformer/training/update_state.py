"""The state of updates besides weights and optimizer: counts, loss scale, averages."""

import keras
import tensorflow as tf

# Loss scaling for float16, whose small gradients would be zero: NVIDIA's recipe.
_FIRST_LOSS_SCALE, UPDATES_UNTIL_GROWTH = 2.0**15, 2000


class UpdateState:
    """Variables that updates change, besides weights and optimizer state; saved in checkpoints.

    This is not a layer, so that its variables are not among a model's weights.

    Args:
        weights: the weights of a built model, trainable or not: a user may freeze some later.
        has_average: whether to keep a moving average of the weights.
        scales_loss: whether the loss is scaled, for gradients in float16.

    Attributes:
        weights: the weights given.
        skipped_updates: number of updates whose gradient was not finite.
        loss_scale: factor of the loss when gradients are computed.
        average: the moving average of each weight, in order; empty without averaging.
    """

    def __init__(self, weights: list[keras.Variable], has_average: bool, scales_loss: bool):
        self.scales_loss = scales_loss
        self.weights = weights
        self.skipped_updates = _scalar("skipped_updates", 0, "int64")
        self.loss_scale = _scalar("loss_scale", _FIRST_LOSS_SCALE if scales_loss else 1.0)
        self._finite_updates = _scalar("finite_updates", 0, "int64")
        self._names = [weight.path.partition("/")[2] for weight in weights]
        self.average = [
            keras.Variable(
                keras.ops.convert_to_numpy(weight),
                trainable=False,
                aggregation="mean",
                name="average",
            )
            for weight in (weights if has_average else ())
        ]

    @property
    def variables(self) -> dict[str, keras.Variable]:
        """All variables, by their names in a checkpoint."""
        scalars = (self.skipped_updates, self.loss_scale, self._finite_updates)
        averages = zip(self._names, self.average, strict=False)
        return {
            **{f"update/{variable.name}": variable for variable in scalars},
            **{f"ema/{name}": variable for name, variable in averages},
        }

    def begin_average(self) -> None:
        """Sets the moving average, if there is one, to weights that were set after `build`."""
        for average, weight in zip(self.average, self.weights, strict=False):
            average.assign(weight)

    def adapt_loss_scale(self, is_finite) -> None:
        """Halves the scale after a gradient that is not finite; doubles it after many that are."""
        if not self.scales_loss:
            return
        updates = tf.where(is_finite, self._finite_updates.value + 1, 0)
        is_due = updates == UPDATES_UNTIL_GROWTH
        scale = self.loss_scale.value * tf.where(is_finite, tf.where(is_due, 2.0, 1.0), 0.5)
        self.loss_scale.assign(tf.maximum(scale, 1.0))
        self._finite_updates.assign(tf.where(is_due, tf.zeros_like(updates), updates))


def _scalar(name, value, dtype="float32"):
    return keras.Variable(
        value, dtype=dtype, trainable=False, aggregation="only_first_replica", name=name
    )
