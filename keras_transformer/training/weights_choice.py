"""Chooses the weights of a trained model by the validation set."""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from keras_transformer.training.checkpoints import read_weights
from keras_transformer.training.model_dir import CHOICES, ModelDir
from keras_transformer.training.run_state import validation_rank
from keras_transformer.training.step import TrainableTransformer


class Choice(NamedTuple):
    """The weights that validate best.

    Attributes:
        weights: one of `CHOICES`.
        by: the figure that decided, such as "BLEU".
        figures: its value for each of the weights.
    """

    weights: str
    by: str
    figures: dict[str, float]


def choose_weights(
    model: TrainableTransformer,
    model_dir: ModelDir,
    by: str,
    validate: Callable[[], tuple[float, float | None]],
    known: Mapping[int, tuple[float, float | None]],
) -> Choice | None:
    """Validates the mean, the moving average, the best and the last checkpoint of a run.

    A run may lack some of these, and some may be the same weights, which are validated once.

    Args:
        model: the model to validate with, whose weights change.
        model_dir: the run's folder.
        by: the figure that decides; the lowest loss is best, and the highest score. Of equal
            scores, the one with the lowest loss is best.
        validate: returns the figure and the loss for the model's current weights.
        known: the same of earlier validations, by the step of the checkpoint.

    Returns:
        The best weights; None if no figure is finite.

    Raises:
        UserError: a checkpoint is damaged.
    """
    # By the step of a checkpoint, or by the name of weights that are no checkpoint's.
    validated: dict[Any, tuple[float, float | None]] = {**known}
    figures, ranks = {}, {}
    for weights in _available(model_dir):
        checkpoints, steps = model_dir.chosen_checkpoints(weights=weights)
        key = weights if weights == "ema" or len(steps) > 1 else steps[0]
        if key not in validated:
            with model.distribute_strategy.scope():
                read_weights(model, weights, checkpoints, steps)
            validated[key] = validate()
        figure, loss = validated[key]
        if math.isfinite(figure):
            figures[weights] = figure
            ranks[weights] = validation_rank(figure, loss, highest=by != "loss")
    return Choice(max(ranks, key=ranks.__getitem__), by, figures) if ranks else None


def described(model_dir: ModelDir, weights: str) -> str:
    """The weights in words, such as "mean of the last 5 checkpoints"."""
    steps = model_dir.chosen_checkpoints(weights=weights)[1]
    if weights == "mean" and len(steps) > 1:
        return f"mean of the last {len(steps)} checkpoints"
    name = {"mean": "last checkpoint", "ema": "moving average"}.get(
        weights, f"{weights} checkpoint"
    )
    return f"{name} (step {steps[-1]:,})"


def _available(model_dir):
    has = {
        "ema": model_dir.load_training()["options"]["ema_decay"] > 0,
        "best": bool(model_dir.best.steps()),
    }
    return [weights for weights in CHOICES if has.get(weights, True)]
