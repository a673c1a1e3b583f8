"""The model and the training options of a run: as it began, as another model, or as a preset."""

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.options.training import TrainingOptions
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.resumption import check_same_model


class Recipe(NamedTuple):
    """The model of a run, and how it is trained."""

    config: TransformerConfig
    options: TrainingOptions


def resumed(model_dir: ModelDir, model: Mapping[str, Any], training: Mapping[str, Any]) -> Recipe:
    """Returns the recipe of the run in a model_dir, with the given values.

    Args:
        model_dir: the run's folder.
        model: given fields of `TransformerConfig`.
        training: given fields of `TrainingOptions`.

    Raises:
        UserError: a phase of the run does not fit into the given number of steps.
    """
    options = model_dir.load_training()["options"]
    steps = training.get("steps")
    first, last = (
        0 if phase in training else options.get(phase, 0)
        for phase in ("bidirectional_steps", "cooldown_steps")
    )
    if steps and steps <= first:
        raise UserError(
            f"--steps must be above {first:,}, because the run in {model_dir.path} first trains "
            f"so many steps in both directions: found {steps:,}"
        )
    if steps and steps < last:
        raise UserError(
            f"--steps must be at least {last:,}, because the learning rate of the run in "
            f"{model_dir.path} falls over so many last steps: found {steps:,}; or give "
            "--cooldown_steps too"
        )
    config = dataclasses.replace(model_dir.load_config(), **model)
    return Recipe(config, TrainingOptions(**{**options, **training}))


def starting_from(
    path: str | os.PathLike, model: Mapping[str, Any], training: Mapping[str, Any]
) -> Recipe:
    """Returns the recipe of a run that starts from the model in `path`, with the given values."""
    config = dataclasses.replace(ModelDir(path).load_config(), **model)
    return Recipe(config, TrainingOptions(**{"dtype_policy": "auto", **training}))


def of_preset(preset: str, model: Mapping[str, Any], training: Mapping[str, Any]) -> Recipe:
    """Returns the recipe of a preset, with the given values."""
    options = TrainingOptions.from_preset(preset, **training)
    return Recipe(TransformerConfig.from_preset(preset, **model), options)


def expect_preset(model_dir: ModelDir, preset: str, model: Mapping[str, Any]) -> None:
    """Raises `UserError` if the run here began with another preset.

    A run that recorded no preset must have the preset's model, except for the vocabulary size and
    the given fields.
    """
    here, began_with = model_dir.load_config(), model_dir.load_training()["preset"]
    own = {name: getattr(here, name) for name in ("vocab_size", *model)}
    try:
        if began_with and began_with != preset:
            raise UserError(
                f"model_dir {model_dir.path} holds a run of preset {began_with} (now {preset})"
            )
        check_same_model(model_dir, TransformerConfig.from_preset(preset, **own))
    except UserError as error:
        raise UserError(f"{error}; leave out --preset to resume it as it is") from None
