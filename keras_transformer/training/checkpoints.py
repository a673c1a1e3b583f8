"""Checkpoints: written whole, verified when read, averaged (paper, section 6.1)."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import keras
import numpy as np

from keras_transformer.errors import UserError
from keras_transformer.model import Transformer

_STATE, _MANIFEST = "state.npz", "manifest.json"


class Checkpoints:
    """The checkpoints of a run, one folder each: `step-00001000`.

    A folder holds `state.npz`, the arrays of all variables, and its checksum. It is written
    beside and renamed, so that a checkpoint which exists is whole.

    Args:
        folder: where they are; made when the first is saved.

    Example:
        >>> checkpoints = Checkpoints("runs/demo/checkpoints")
        >>> checkpoints.save(model, step=1000)
        >>> checkpoints.steps()
        [1000]
        >>> checkpoints.restore(model, step=1000)
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)

    def steps(self) -> list[int]:
        """The steps at which there are checkpoints, the first one first."""
        names = (re.fullmatch(r"step-(\d+)", path.name) for path in self.folder.glob("step-*"))
        return sorted(int(name[1]) for name in names if name)

    def path(self, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.folder / f"step-{step:08d}"

    def save(self, model: Transformer, step: int) -> None:
        """Writes weights and random state, and of a compiled model the optimizer's state."""
        variables = {**_weights(model), **_training_state(model)}
        partial = self.folder / f".partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            arrays = {name: keras.ops.convert_to_numpy(v) for name, v in variables.items()}
            np.savez(partial / _STATE, **arrays)
            manifest = {_STATE: _checksum(partial / _STATE)}
            (partial / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
            # An earlier one of this step can only be of a run that was started from before it.
            shutil.rmtree(self.path(step), ignore_errors=True)
            partial.rename(self.path(step))
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def restore(self, model: Transformer, step: int) -> None:
        """Reads what `save` wrote, into a model that is compiled as the saved one was.

        Raises:
            UserError: there is no such checkpoint, it is damaged, or of another model.
        """
        self._read(step, {**_weights(model), **_training_state(model)})

    def restore_weights(self, model: Transformer, step: int) -> None:
        """Reads the weights alone; raises what `restore` does."""
        self._read(step, _weights(model))

    def restore_average(self, model: Transformer, step: int) -> None:
        """Reads the moving average of the weights as the weights.

        Raises:
            UserError: it was trained without, or as `restore`.
        """
        weights = _weights(model)
        averages = {f"ema/{name.partition('/')[2]}": weight for name, weight in weights.items()}
        self._read(step, averages)

    def prune(self, keep: int) -> None:
        """Removes all but the last `keep` checkpoints."""
        for step in self.steps()[:-keep]:
            shutil.rmtree(self.path(step))

    def _read(self, step, variables):
        path = self.path(step) / _STATE
        try:
            manifest = json.loads((self.path(step) / _MANIFEST).read_text())
            is_whole = manifest[_STATE] == _checksum(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{self.path(step)}: expected a checkpoint: {error!r}") from error
        if not is_whole:
            raise UserError(
                f"{path}: the checkpoint is damaged: its checksum is not the one it was written "
                "with; remove its folder to go on from the checkpoint before"
            )
        with np.load(path) as state:
            arrays = {name: state[name] for name in state.files if name in variables}
            surplus = [name for name in state.files if name not in variables]
        _check_same_weights(path, variables, arrays, surplus)
        for name, variable in variables.items():
            variable.assign(arrays[name])


def average_weights(model: Transformer, checkpoints: Checkpoints, steps: Sequence[int]) -> None:
    """Sets the model's weights to the plain mean of those at `steps` (paper, section 6.1).

    Raises:
        UserError: as `Checkpoints.restore`.
    """
    weights = model.weights
    total = [np.zeros(weight.shape) for weight in weights]
    for step in steps:
        checkpoints.restore_weights(model, step)
        for index, weight in enumerate(weights):
            total[index] += keras.ops.convert_to_numpy(weight)
    for index, weight in enumerate(weights):
        weight.assign(total[index] / len(steps))


def _weights(model):
    """The model's weights by their path, without the name of the model."""
    return {f"weights/{weight.path.partition('/')[2]}": weight for weight in model.weights}


def _training_state(model):
    """What else a run needs to go on as if it had not stopped."""
    # Seed generators are numbered across the process, so their names are not the same everywhere.
    known = {id(weight) for weight in model.weights}
    random = [variable for variable in model.variables if id(variable) not in known]
    state = {f"random/{index}": variable for index, variable in enumerate(random)}
    if update_state := getattr(model, "update_state", None):
        state.update(update_state.variables)
    if optimizer := getattr(model, "optimizer", None):
        optimizer.build(model.trainable_variables)
        for index, variable in enumerate(optimizer.variables):
            state[f"optimizer/{index}"] = variable
    return state


def _check_same_weights(path, variables, arrays, surplus):
    for name, variable in variables.items():
        shape, found = tuple(variable.shape), arrays[name].shape if name in arrays else "nothing"
        if found != shape:
            raise UserError(
                f"{path}: state of another model: expected {shape} for {name}, found {found}"
            )
    kind = next(iter(variables)).partition("/")[0]  # weights, or their average
    if weights := [name for name in surplus if name.startswith(f"{kind}/")]:
        raise UserError(f"{path}: state of another model: expected no {weights[0]}")


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
