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

    Args:
        d_model: width of the model.
        warmup_steps: number of updates during which the rate rises.
        factor: factor of the rate; 1 in the paper.

    Raises:
        ValueError: an argument is not positive, or not finite.

    Example:
        >>> schedule = InverseSquareRootSchedule(512, warmup_steps=4000)
        >>> float(schedule(3999))  # the 4,000th update: the peak, (512 * 4000)^-0.5
        0.00069877...
    """

    def __init__(self, d_model: int, warmup_steps: int = 4000, factor: float = 1.0):
        arguments = {"d_model": d_model, "warmup_steps": warmup_steps, "factor": factor}
        for name, value in arguments.items():
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite: found {value}")
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.factor = factor

    @classmethod
    def with_peak(
        cls, learning_rate: float, d_model: int, warmup_steps: int = 4000
    ) -> "InverseSquareRootSchedule":
        """Makes the schedule that peaks at `learning_rate`, after `warmup_steps` updates."""
        return cls(d_model, warmup_steps, learning_rate * (d_model * warmup_steps) ** 0.5)

    @classmethod
    def from_options(cls, options: TrainingOptions, d_model: int) -> "InverseSquareRootSchedule":
        """Makes the schedule of a training with these options."""
        if options.learning_rate is None:
            return cls(d_model, options.warmup_steps)
        return cls.with_peak(options.learning_rate, d_model, options.warmup_steps)

    def __call__(self, step):
        n = ops.cast(step, "float32") + 1.0
        rise = n * self.warmup_steps**-1.5
        return self.factor * self.d_model**-0.5 * ops.minimum(ops.rsqrt(n), rise)

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "factor": self.factor,
        }
