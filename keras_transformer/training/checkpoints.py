"""Checkpoints: written atomically, verified when read, averaged (paper, section 6.1)."""

import hashlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from keras_transformer.errors import UserError, expect_at_least
from keras_transformer.files import recover_folder, remove_folder, whole_folder

# Keras and NumPy are imported where arrays are read or written. A command that decodes with
# CTranslate2 only lists the checkpoints, and these imports would slow it down.
if TYPE_CHECKING:
    from keras_transformer.model import Transformer

_STATE, _PROGRESS, _MANIFEST = "state.npz", "progress.json", "manifest.json"
# What NumPy raises for a file that is no archive of arrays.
_NO_ARRAYS = (ValueError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error)


class Checkpoints:
    """The checkpoints of a run, one folder each: `step-00001000`.

    A folder holds `state.npz` (the arrays of all variables), `progress.json` (the run's progress)
    and their checksums. It is written under another name, flushed to disk and then renamed, so
    that every checkpoint is whole. A checkpoint to be removed is renamed first.

    Args:
        folder: the folder of the checkpoints; made when the first one is saved.

    Example:
        >>> checkpoints = Checkpoints("runs/new/checkpoints")
        >>> checkpoints.save(model, step=1000)
        >>> checkpoints.steps()
        [1000]
        >>> checkpoints.restore(model, step=1000)
    """

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)

    def steps(self) -> list[int]:
        """The steps of the checkpoints, in ascending order.

        Raises:
            OSError: the folder cannot be read.
        """
        try:
            names = os.listdir(self.folder)  # `glob` would take a folder of others for empty
        except FileNotFoundError:
            return []
        found = (re.fullmatch(r"step-(\d+)", name) for name in names)
        return sorted(int(name[1]) for name in found if name)

    def path(self, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.folder / f"step-{step:08d}"

    def save(
        self, model: "Transformer", step: int, progress: Mapping[str, Any] | None = None
    ) -> None:
        """Writes weights, random state and, for a compiled model, the optimizer's state.

        Args:
            model: a built model.
            step: the number of batches that it has learnt from.
            progress: the value for `load_progress` to return, such as JSON can hold.

        Raises:
            UserError: the checkpoint cannot be written; earlier checkpoints are untouched.
        """
        self._write(step, {**_weights(model), **_training_state(model)}, progress or {})

    def save_weights(self, model: "Transformer", step: int) -> None:
        """Writes only the weights, for `restore_weights`; raises what `save` does."""
        self._write(step, _weights(model), {})

    def restore(self, model: "Transformer", step: int) -> None:
        """Reads a checkpoint of `save` into a model that is compiled as the saved one was.

        Raises:
            UserError: the checkpoint is missing, is damaged, or is of another model.
        """
        self._read(step, {**_weights(model), **_training_state(model)})

    def restore_weights(self, model: "Transformer", step: int) -> None:
        """Reads only the weights; raises what `restore` does."""
        self._read(step, _weights(model))

    def restore_average(self, model: "Transformer", step: int) -> None:
        """Sets the weights to their moving average.

        Raises:
            UserError: the model was trained without one, or as for `restore`.
        """
        weights = _weights(model)
        averages = {f"ema/{name.partition('/')[2]}": weight for name, weight in weights.items()}
        self._read(step, averages)

    def load_progress(self, step: int) -> dict[str, Any]:
        """Reads the progress of a checkpoint; raises `UserError` if the checkpoint is damaged."""
        self._check_whole(step)
        return json.loads((self.path(step) / _PROGRESS).read_text())

    def manifest(self, step: int) -> bytes:
        """The checksums of a checkpoint's files, unique to this checkpoint.

        Raises:
            UserError: there is no such checkpoint.
        """
        try:
            return (self.path(step) / _MANIFEST).read_bytes()
        except OSError as error:
            raise UserError(f"{self.path(step)}: expected a checkpoint: {error!r}") from error

    def prune(self, keep: int) -> None:
        """Removes all but the last `keep` checkpoints, at least one."""
        expect_at_least(1, "keep", keep)
        self.remove(*self.steps()[:-keep])

    def remove(self, *steps: int) -> None:
        """Removes the checkpoints of these steps that exist."""
        for step in {*steps}.intersection(self.steps()):
            remove_folder(self.path(step))

    def recover(self) -> list[str]:
        """Cleans this folder up after a process was killed, or a disk has failed.

        Removes partly written checkpoints. Renames damaged checkpoints after the last whole one,
        for example to `step-00001000.damaged`.

        Returns:
            One line for each damaged checkpoint, saying what is wrong.

        Raises:
            UserError: there are checkpoints, but none of them is whole; nothing was renamed.
        """
        recover_folder(self.folder)
        problems = {}
        for step in reversed(self.steps()):
            try:
                self._check_whole(step)
                break
            except UserError as error:
                problems[step] = str(error)
        else:
            if problems:
                raise UserError(
                    f"{self.folder}: expected a whole checkpoint, found {len(problems)} damaged: "
                    f"{next(iter(problems.values()))}"
                )
        for step in problems:
            damaged = self.path(step).with_suffix(".damaged")
            if damaged.exists():
                remove_folder(damaged)
            self.path(step).rename(damaged)
        return list(problems.values())

    def _write(self, step, variables, progress):
        import keras
        import numpy as np

        expect_at_least(0, "step", step)
        path = self.path(step)
        try:
            with whole_folder(path, replace=True) as partial:
                arrays = {name: keras.ops.convert_to_numpy(v) for name, v in variables.items()}
                np.savez(partial / _STATE, **arrays)
                (partial / _PROGRESS).write_text(json.dumps(progress) + "\n")
                manifest = {name: _checksum(partial / name) for name in (_STATE, _PROGRESS)}
                (partial / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        except OSError as error:
            raise UserError(
                f"{path}: the checkpoint cannot be written: {error.strerror or error}; "
                "those before it are untouched"
            ) from error

    def _check_whole(self, step):
        path = self.path(step)
        try:
            manifest = json.loads(self.manifest(step))
            damaged = [n for n in (_STATE, _PROGRESS) if manifest[n] != _checksum(path / n)]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: expected a checkpoint: {error!r}") from error
        if damaged:
            raise UserError(
                f"{path / damaged[0]}: the checkpoint is damaged: its checksum is not the one it "
                "was written with"
            )

    def _read(self, step, variables):
        import numpy as np

        self._check_whole(step)
        path = self.path(step) / _STATE
        try:
            with np.load(path) as state:
                arrays = {n: np.asarray(state[n]) for n in state.files if n in variables}
                surplus = [n for n in state.files if n not in variables]
        except _NO_ARRAYS as error:
            raise UserError(f"{path}: expected arrays of numbers: {error}") from error
        _check_same_weights(path, variables, arrays, surplus)
        for name, variable in variables.items():
            variable.assign(arrays[name])


def average_weights(model: "Transformer", checkpoints: Checkpoints, steps: Sequence[int]) -> None:
    """Sets the model's weights to their mean over the checkpoints at `steps` (paper, section 6.1).

    Raises:
        UserError: there are no steps, or as for `Checkpoints.restore`.
    """
    import keras
    import numpy as np

    if len(steps) == 0:
        raise UserError(f"{checkpoints.folder}: expected checkpoints to average, found no steps")
    weights = model.weights
    total = [np.zeros(weight.shape) for weight in weights]
    for step in steps:
        checkpoints.restore_weights(model, step)
        for index, weight in enumerate(weights):
            total[index] += keras.ops.convert_to_numpy(weight)
    for index, weight in enumerate(weights):
        weight.assign(total[index] / len(steps))


def _weights(model):
    """The model's weights by their paths, without the model's name."""
    return {f"weights/{weight.path.partition('/')[2]}": weight for weight in model.weights}


def _training_state(model):
    """The state, besides the weights, that a run needs to resume as if it had never stopped."""
    # Keras numbers seed generators per process, so their names differ between runs.
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
        if arrays[name].dtype.kind not in "fiu":
            raise UserError(f"{path}: expected numbers for {name}, found {arrays[name].dtype}")
    kind = next(iter(variables)).partition("/")[0]  # "weights", or "ema" for their average
    if weights := [name for name in surplus if name.startswith(f"{kind}/")]:
        raise UserError(f"{path}: state of another model: expected no {weights[0]}")


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
