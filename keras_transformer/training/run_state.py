"""The state of a run besides its model's variables: totals, the best validation, patience."""

import copy
import dataclasses
import math
from typing import Any

from keras_transformer.data import BatchCount
from keras_transformer.errors import UserError
from keras_transformer.training.checkpoints import Checkpoints


def _check_like(values, example):
    """Checks fields that were read from a file: the same ones, with values of the same kinds.

    A number may take the place of None.

    Raises:
        ValueError: a field or a value is of another kind.
    """
    if not isinstance(example, dict):
        example = dataclasses.asdict(example)
    if not isinstance(values, dict) or values.keys() != example.keys():
        raise ValueError
    for name, value in values.items():
        like = example[name]
        if isinstance(like, dict | list):
            is_like = isinstance(value, type(like))
        elif value is None:
            is_like = like is None
        else:
            kind = int if isinstance(like, int) else int | float
            is_like = isinstance(value, kind) and abs(value) < 2**63  # neither NaN nor infinite
        if not is_like:
            raise ValueError


def validation_rank(value: float, loss: float | None, highest: bool) -> tuple[float, float]:
    """The rank of a validation, higher for a better one: of equal values, the loss decides.

    Scores are often equal: BLEU is 0 until a translation has four right words in a row. A loss that
    is unknown or not finite is the worst one.
    """
    if loss is None or not math.isfinite(loss):
        loss = math.inf
    return (value if highest else -value), -loss


@dataclasses.dataclass
class TrainingTotals:
    """Totals over the batches of a run, and the time they took.

    Attributes:
        seconds: training time, without validations and saving.
        pairs, source_tokens, target_tokens: counts without padding.
        rows_by_length: number of rows for each padded length.
    """

    seconds: float = 0.0
    pairs: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    rows_by_length: dict[int, int] = dataclasses.field(default_factory=dict)

    def add(self, batch: BatchCount) -> None:
        """Counts a batch."""
        self.pairs += batch.pairs
        self.source_tokens += batch.source_tokens
        self.target_tokens += batch.target_tokens
        rows = self.rows_by_length.get(batch.length, 0)
        self.rows_by_length[batch.length] = rows + batch.rows

    @property
    def positions(self) -> int:
        """The number of token positions on both sides, including padding."""
        return 2 * sum(length * rows for length, rows in self.rows_by_length.items())

    def padding_share(self, since: "TrainingTotals") -> float:
        """The share of padding in source and target ids since `since`, from 0 to 1."""
        tokens = self.source_tokens + self.target_tokens - since.source_tokens - since.target_tokens
        return 1 - tokens / max(1, self.positions - since.positions)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "TrainingTotals":
        """Reads the values of a JSON file, whose keys are text.

        Raises:
            ValueError: a value is of another kind, or is missing.
        """
        _check_like(values, cls())
        lengths = {int(length): rows for length, rows in values["rows_by_length"].items()}
        _check_like(lengths, dict.fromkeys(lengths, 0))
        return cls(**{**values, "rows_by_length": lengths})


@dataclasses.dataclass
class RunState:
    """The progress of a run over all its starts, saved in each checkpoint.

    Attributes:
        step: number of batches learnt from, including those with a skipped update.
        seen: totals over these batches.
        reported: the totals at the last report.
        metrics: the values of the metrics' variables, which are sums since the last report.
        validation_seconds, saving_seconds: time spent on validations and on saving.
        skipped_updates: number of updates whose gradient was not finite.
        validated: step of the last validation.
        best_step, best_value, best_loss: the best validation; None before the first.
        validations_since_best: number of validations since the best one.
        interim: steps of checkpoints that exist only because the run was stopped. The next
            checkpoint replaces them, so that the last checkpoints are those of an unstopped run.
    """

    step: int = 0
    seen: TrainingTotals = dataclasses.field(default_factory=TrainingTotals)
    reported: TrainingTotals = dataclasses.field(default_factory=TrainingTotals)
    metrics: list[Any] = dataclasses.field(default_factory=list)
    validation_seconds: float = 0.0
    saving_seconds: float = 0.0
    skipped_updates: int = 0
    validated: int = 0
    best_step: int | None = None
    best_value: float | None = None
    best_loss: float | None = None
    validations_since_best: int = 0
    interim: list[int] = dataclasses.field(default_factory=list)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> "RunState":
        """Restores the state from the result of `to_json`; raises as for `TrainingTotals`."""
        if isinstance(values, dict):
            values = {"best_loss": None, **values}  # earlier runs of version 0.2.0 have none
        _check_like(values, cls())
        parts = {name: TrainingTotals.from_json(values[name]) for name in ("seen", "reported")}
        return cls(**{**values, **parts})

    @classmethod
    def load(cls, checkpoints: Checkpoints, step: int) -> "RunState":
        """Reads the state of a checkpoint.

        Raises:
            UserError: the checkpoint is damaged, or another version has written it.
        """
        values = checkpoints.load_progress(step)
        try:
            return cls.from_json(values)
        except ValueError as error:
            raise UserError(
                f"{checkpoints.path(step)}: progress.json has other fields or values than this "
                "version writes: resume the run with the version that wrote them"
            ) from error

    def to_json(self) -> dict[str, Any]:
        """This state as values that JSON can hold."""
        return dataclasses.asdict(self)

    def report(self) -> None:
        """Marks the current totals as reported."""
        self.reported = copy.deepcopy(self.seen)

    def is_better(self, value: float, loss: float, highest: bool) -> bool:
        """Whether a validation is better than the best so far; never if it is not finite."""
        if not math.isfinite(value):
            return False
        if self.best_value is None:
            return True
        best = validation_rank(self.best_value, self.best_loss, highest)
        return validation_rank(value, loss, highest) > best

    def has_lost_patience(self, patience: int) -> bool:
        """Whether this many validations in a row brought no improvement; 0 never loses patience."""
        return 0 < patience <= self.validations_since_best
