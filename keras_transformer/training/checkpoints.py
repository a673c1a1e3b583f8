"""Checkpoints: written whole, verified when read, averaged (paper, section 6.1)."""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from keras_transformer.errors import UserError
from keras_transformer.model import Transformer

_WEIGHTS, _MANIFEST = "model.weights.h5", "manifest.json"


class Checkpoints:
    """The checkpoints of a run, one folder each: `step-00001000`.

    A folder holds weights and optimizer state as `keras.Model.save_weights` writes them, and their
    checksum. It is written beside and renamed, so that one which exists is whole.

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
        names = (path.name for path in self.folder.glob("step-*"))
        return sorted(int(name.removeprefix("step-")) for name in names)

    def path(self, step: int) -> Path:
        """The folder of one checkpoint."""
        return self.folder / f"step-{step:08d}"

    def save(self, model: Transformer, step: int) -> None:
        """Writes the weights and, of a compiled model, the optimizer's state."""
        partial = self.folder / f".partial-{os.getpid()}"
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        try:
            model.save_weights(partial / _WEIGHTS)
            checksums = {path.name: _checksum(path) for path in partial.iterdir()}
            (partial / _MANIFEST).write_text(json.dumps(checksums, indent=2) + "\n")
            # An earlier one of this step can only be a run's that was started from before it.
            shutil.rmtree(self.path(step), ignore_errors=True)
            partial.rename(self.path(step))
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def restore(self, model: Transformer, step: int) -> None:
        """Reads the weights and, into a compiled model, the optimizer's state.

        Raises:
            UserError: there is no such checkpoint, it is damaged, or of another model.
        """
        self._verify(step)
        if optimizer := getattr(model, "optimizer", None):
            optimizer.build(model.trainable_variables)
        try:
            model.load_weights(self.path(step) / _WEIGHTS)
        except ValueError as error:
            reason = str(error).partition("\n")[0]
            raise UserError(f"{self.path(step)}: weights of another model: {reason}") from error

    def prune(self, keep: int) -> None:
        """Removes all but the last `keep` checkpoints."""
        for step in self.steps()[:-keep]:
            shutil.rmtree(self.path(step))

    def _verify(self, step: int) -> None:
        folder = self.path(step)
        try:
            checksums = json.loads((folder / _MANIFEST).read_text())
            damaged = [name for name in checksums if _checksum(folder / name) != checksums[name]]
        except (OSError, ValueError, AttributeError) as error:
            raise UserError(f"{folder}: expected a checkpoint, found: {error}") from error
        if damaged:
            raise UserError(
                f"{folder / damaged[0]}: the checkpoint is damaged: its checksum is not the one it "
                "was written with; remove the folder to go on from the checkpoint before"
            )


def average_weights(model: Transformer, checkpoints: Checkpoints, steps: Sequence[int]) -> None:
    """Sets the model's weights to the plain mean of those at `steps` (paper, section 6.1).

    Raises:
        UserError: as `Checkpoints.restore`.
    """
    weights = model.trainable_variables
    total = [np.zeros(weight.shape) for weight in weights]
    for step in steps:
        checkpoints.restore(model, step)
        for index, weight in enumerate(weights):
            total[index] += weight.numpy()
    for index, weight in enumerate(weights):
        weight.assign(total[index] / len(steps))


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
