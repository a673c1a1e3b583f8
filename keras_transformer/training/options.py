"""How a model is trained: one frozen, validated record."""

import dataclasses
from typing import Any

from keras_transformer.errors import UserError


def _field(default: Any, description: str) -> Any:
    return dataclasses.field(default=default, metadata={"help": description})


@dataclasses.dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained (paper, section 5). Every field is a flag of `train.py`.

    Raises:
        UserError: a value is out of range.
    """

    steps: int = _field(6000, "updates in all")
    tokens_per_batch: int = _field(4096, "source tokens, and target tokens, of a batch at most")
    max_length: int = _field(256, "pairs with a side of more tokens are left out")
    learning_rate: float | None = _field(
        None, "the highest rate, at the end of the warm-up; default: the paper's, by d_model"
    )
    warmup_steps: int = _field(4000, "updates in which the rate rises, then it falls by the root")
    beta_1: float = _field(0.9, "Adam's decay of the mean of gradients")
    beta_2: float = _field(0.98, "Adam's decay of the mean of squared gradients")
    adam_epsilon: float = _field(1e-9, "Adam's epsilon")
    bpe_dropout: float = _field(0.0, "share of merges left out when training text is tokenised")
    seed: int = _field(1, "of the weights, the dropout and the order of the pairs")
    jit_compile: bool = _field(
        True, "compile the training step with XLA, once for each length of batch; on one device"
    )
    report_steps: int = _field(100, "updates between two lines of progress")
    validation_steps: int = _field(1000, "updates between two validations")
    checkpoint_steps: int = _field(1000, "updates between two checkpoints")
    checkpoint_minutes: float = _field(10.0, "minutes between two checkpoints; 0 for by steps only")
    keep_checkpoints: int = _field(20, "number of checkpoints kept, the last ones")
    average_checkpoints: int = _field(5, "number of last checkpoints averaged to judge and use")

    def __post_init__(self):
        at_least_one = (
            "steps tokens_per_batch warmup_steps report_steps validation_steps checkpoint_steps "
            "keep_checkpoints average_checkpoints"
        )
        for name in at_least_one.split():
            self._expect(name, getattr(self, name) >= 1, "at least 1")
        self._expect("max_length", self.max_length >= 2, "at least 2")
        self._expect(
            "learning_rate", self.learning_rate is None or self.learning_rate > 0, "positive"
        )
        self._expect("adam_epsilon", self.adam_epsilon > 0, "positive")
        for name in ("beta_1", "beta_2", "bpe_dropout"):
            self._expect(name, 0 <= getattr(self, name) < 1, "in [0, 1)")
        self._expect("checkpoint_minutes", self.checkpoint_minutes >= 0, "at least 0")
        self._expect(
            "average_checkpoints",
            self.average_checkpoints <= self.keep_checkpoints,
            f"at most keep_checkpoints={self.keep_checkpoints}",
        )

    def _expect(self, name: str, holds: bool, expected: str):
        if not holds:
            raise UserError(f"{name} must be {expected}: found {getattr(self, name)}")
