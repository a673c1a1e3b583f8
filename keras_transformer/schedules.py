"""The learning rate over the course of training (paper, section 5.3)."""

import math

import keras
from keras import ops

from keras_transformer.options import TrainingOptions


@keras.saving.register_keras_serializable("keras_transformer")
class InverseSquareRootSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Linear warm-up, then decay with the inverse square root of the step (paper, equation 3).

    The rate is `factor * d_model^-0.5 * min(n^-0.5, n * warmup_steps^-1.5)` at the n-th update.
    Keras passes the number of updates already made, so `schedule(0)` is the first rate: n = 1.

    With `cooldown_steps`, which the paper does not have, this rate is multiplied by a factor that
    falls linearly from 1 towards 0 over the last updates.

    Args:
        d_model: width of the model.
        warmup_steps: number of updates during which the rate rises.
        factor: factor of the rate; 1 in the paper.
        steps: number of all updates, which a cool-down needs; after it, the rate is 0.
        cooldown_steps: number of last updates during which the rate falls to 0.

    Raises:
        ValueError: an argument is not positive, or not finite, or there is a cool-down of more
            updates than there are.

    Example:
        >>> schedule = InverseSquareRootSchedule(512, warmup_steps=4000)
        >>> float(schedule(3999))  # the 4,000th update: the peak, (512 * 4000)^-0.5
        0.00069877...
    """

    def __init__(
        self,
        d_model: int,
        warmup_steps: int = 4000,
        factor: float = 1.0,
        steps: int | None = None,
        cooldown_steps: int = 0,
    ):
        arguments = {"d_model": d_model, "warmup_steps": warmup_steps, "factor": factor}
        for name, value in arguments.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite: found {value}")
        if not 0 <= cooldown_steps <= (steps or 0):
            raise ValueError(
                f"cooldown_steps must be at least 0 and at most steps={steps}: found "
                f"{cooldown_steps}"
            )
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.factor = factor
        self.steps = steps
        self.cooldown_steps = cooldown_steps

    @classmethod
    def with_peak(
        cls,
        learning_rate: float,
        d_model: int,
        warmup_steps: int = 4000,
        steps: int | None = None,
        cooldown_steps: int = 0,
    ) -> "InverseSquareRootSchedule":
        """Makes the schedule that peaks at `learning_rate`, after `warmup_steps` updates.

        Args:
            learning_rate: the peak.
            d_model: width of the model.
            warmup_steps: number of updates during which the rate rises.
            steps: as for the class.
            cooldown_steps: as for the class.
        """
        factor = learning_rate * (d_model * warmup_steps) ** 0.5
        return cls(d_model, warmup_steps, factor, steps, cooldown_steps)

    @classmethod
    def from_options(cls, options: TrainingOptions, d_model: int) -> "InverseSquareRootSchedule":
        """Makes the schedule of a training with these options."""
        phases = {
            "warmup_steps": options.warmup_steps,
            "steps": options.steps,
            "cooldown_steps": options.cooldown_steps,
        }
        if options.learning_rate is None:
            return cls(d_model, **phases)
        return cls.with_peak(options.learning_rate, d_model, **phases)

    def __call__(self, step):
        n = ops.cast(step, "float32") + 1.0
        rise = n * self.warmup_steps**-1.5
        rate = self.factor * self.d_model**-0.5 * ops.minimum(ops.rsqrt(n), rise)
        if not self.cooldown_steps:
            return rate
        return rate * ops.clip((self.steps + 1 - n) / (self.cooldown_steps + 1), 0, 1)

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "factor": self.factor,
            "steps": self.steps,
            "cooldown_steps": self.cooldown_steps,
        }
