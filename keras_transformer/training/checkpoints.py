"""Checkpoints: written atomically, verified when read, averaged (paper, section 6.1)."""

import contextlib
import json
import math
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError, expect_at_least
from keras_transformer.files import (
    LARGEST_WHOLE,
    checksum,
    open_regular,
    read_whole,
    recover_folder,
    remove_folder,
    whole_folder,
)
from keras_transformer.json_files import read_json
from keras_transformer.parameter_count import parameter_count

# Keras and NumPy are imported where arrays are read or written. A command that decodes with
# CTranslate2 only lists the checkpoints, and these imports would slow it down.
if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.model import Transformer

T = TypeVar("T")

_STATE, _PROGRESS, _MANIFEST = "state.npz", "progress.json", "manifest.json"
_ATTEMPTS = 10  # to read checkpoints while a training replaces them


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
            names = os.listdir(self.folder)  # `glob` finds nothing if we may not read it
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
            UserError: a weight is not finite, or the checkpoint cannot be written; earlier
                checkpoints are untouched.
        """
        self._write(step, {**_weights(model), **_training_state(model)}, progress or {})

    def save_weights(self, model: "Transformer", step: int) -> None:
        """Writes only the weights, for `load_weights`; raises what `save` does."""
        self._write(step, _weights(model), {})

    def restore(self, model: "Transformer", step: int) -> None:
        """Reads a checkpoint of `save` into a model that is compiled as the saved one was.

        Raises:
            UserError: the checkpoint is missing, is damaged, is of another model, or has a weight
                that is not finite.
        """
        self._read(step, {**_weights(model), **_training_state(model)})

    def restore_average(self, model: "Transformer", step: int) -> None:
        """Sets the weights to their moving average.

        Raises:
            UserError: the model was trained without one, or as for `restore`.
        """
        weights = _weights(model)
        averages = {f"ema/{name.partition('/')[2]}": weight for name, weight in weights.items()}
        self._read(step, averages)

    def load_weights(
        self, shapes: Mapping[str, tuple[int, ...]], step: int, kind: str = "weights"
    ) -> dict[str, "np.ndarray"]:
        """Reads the weights, or their moving average, without Keras.

        Args:
            shapes: the shape of each weight of the model, by its path without the model's name.
            step: the step of the checkpoint.
            kind: "weights", or "ema" for their moving average.

        Returns:
            Arrays by path, as in `shapes`, in float32 or the model's other type of floats.

        Raises:
            UserError: as for `restore`.
        """
        like = {f"{kind}/{name}": (shape, "float32") for name, shape in shapes.items()}
        return {name.partition("/")[2]: array for name, array in self._arrays(step, like).items()}

    def check_fits(self, config: TransformerConfig, step: int) -> None:
        """Checks that a checkpoint may be of a model of this configuration, before it is made.

        Only the headers of the arrays are read. A model that passes is no larger than the file,
        whatever a damaged configuration says.

        Raises:
            UserError: the checkpoint is missing, is damaged, or is of another model.
        """
        path = self.path(step) / _STATE
        with self._explained(step):
            headers = _headers(path)
        layers = re.compile(r"weights/(encoder|decoder)/(layer_\d+)/")
        found = {match.groups() for match in map(layers.match, headers) if match}
        for side in ("encoder", "decoder"):
            number = sum(layer[0] == side for layer in found)
            expected = getattr(config, f"num_{side}_layers")
            if number != expected:
                raise UserError(
                    f"{path}: state of another model: it has {number} {side} layers, the "
                    f"configuration {expected}"
                )
        weights = (math.prod(h.shape) for name, h in headers.items() if name.startswith("weights/"))
        expected, number = parameter_count(config), sum(weights)
        if number != expected:
            raise UserError(
                f"{path}: state of another model: it has {number:,} parameters, the configuration "
                f"{expected:,}"
            )

    def load_progress(self, step: int) -> dict[str, Any]:
        """Reads the progress of a checkpoint; raises `UserError` if the checkpoint is damaged."""
        self._check_whole(step)
        with self._explained(step):
            return read_json(self.path(step) / _PROGRESS)

    def manifest(self, step: int) -> bytes:
        """The checksums of a checkpoint's files, unique to this checkpoint.

        Raises:
            UserError: there is no such checkpoint.
        """
        with self._explained(step):
            return read_whole(self.path(step) / _MANIFEST)

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
                    f"{self.folder}: no checkpoint is whole, {len(problems)} damaged: "
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
        arrays = {name: keras.ops.convert_to_numpy(v) for name, v in variables.items()}
        if name := _not_finite(arrays):
            raise UserError(
                f"step {step:,}: the training has diverged: {name} is not finite (NaN or "
                f"infinity), so no checkpoint is written; those in {self.folder} are untouched"
            )
        try:
            with whole_folder(path, replace=True) as partial:
                np.savez(partial / _STATE, **arrays)
                (partial / _PROGRESS).write_text(json.dumps(progress) + "\n")
                manifest = {name: checksum(partial / name) for name in (_STATE, _PROGRESS)}
                (partial / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
        except OSError as error:
            raise UserError(
                f"{path}: the checkpoint cannot be written: {error.strerror or error}; "
                "those before it are untouched"
            ) from error

    def _check_whole(self, step):
        """Raises `UserError` if a checkpoint is damaged; returns the headers of its arrays."""
        path = self.path(step)
        with self._explained(step):
            manifest = read_json(path / _MANIFEST)
            if not isinstance(manifest, dict) or not manifest.keys() >= {_STATE, _PROGRESS}:
                raise UserError(
                    f"{path / _MANIFEST}: the checkpoint is damaged: the checksums of {_STATE} and "
                    f"{_PROGRESS} are missing"
                )
            headers = _headers(path / _STATE)  # fails early for a huge file of another kind
            for name, largest in ((_STATE, None), (_PROGRESS, LARGEST_WHOLE)):
                if manifest[name] != checksum(path / name, largest):
                    raise UserError(
                        f"{path / name}: the checkpoint is damaged: its checksum is not the one it "
                        "was written with"
                    )
            return headers

    @contextlib.contextmanager
    def _explained(self, step) -> Iterator[None]:
        """Names the file of a checkpoint that cannot be read."""
        try:
            yield
        except OSError as error:
            if not self.path(step).exists():
                raise UserError(f"{self.path(step)}: there is no such checkpoint") from error
            raise UserError(f"{error.filename}: {error.strerror}") from error

    def _read(self, step, variables):
        like = {n: (tuple(v.shape), str(v.dtype)) for n, v in variables.items()}
        for name, array in self._arrays(step, like).items():
            variables[name].assign(array)

    def _arrays(self, step, like):
        """Reads the arrays that have a shape and a dtype in `like`, once they are checked."""
        import numpy as np

        path, headers = self.path(step) / _STATE, self._check_whole(step)
        _check_same_state(path, like, headers)
        with self._explained(step):
            try:
                with open_regular(path) as file, np.load(file) as state:
                    arrays = {name: state[name] for name in like}
            except (ValueError, zipfile.BadZipFile) as error:
                raise _damaged(path) from error
        if name := _not_finite(arrays):
            raise UserError(
                f"{path}: {name} is not finite (NaN or infinity): the training had diverged; "
                "an earlier checkpoint may be of use"
            )
        return arrays


def read_while_trained(
    choose: Callable[[], tuple[Checkpoints, Sequence[int]]],
    read: Callable[[Checkpoints, Sequence[int]], T],
) -> T:
    """Reads checkpoints, and chooses others if a training removes one of them meanwhile.

    Args:
        choose: returns checkpoints and the steps to read.
        read: reads them.

    Raises:
        UserError: as `choose` and `read` do, or the training is faster each time.
    """
    for _ in range(_ATTEMPTS):
        checkpoints, steps = choose()
        try:
            return read(checkpoints, steps)
        except UserError:
            if all(checkpoints.path(step).exists() for step in steps):
                raise
    raise UserError(
        f"{checkpoints.folder}: a training replaced these checkpoints {_ATTEMPTS} times while they "
        "were read: try again, or let it keep more checkpoints"
    )


def mean_weights(several: Iterable[Mapping[str, "np.ndarray"]]) -> dict[str, "np.ndarray"]:
    """The mean of the weights of checkpoints (paper, section 6.1), in float64.

    Args:
        several: the weights of each checkpoint, by their paths.
    """
    total: dict[str, Any] = {}
    number = 0
    for weights in several:
        number += 1
        for name, array in weights.items():
            total[name] = total.get(name, 0.0) + array.astype("float64")
    for name in total:
        total[name] /= number  # in place: models may be large
    return total


def read_weights(
    model: "Transformer", weights: str, checkpoints: Checkpoints, steps: Sequence[int]
) -> None:
    """Sets the model's weights to those that `ModelDir.chosen_checkpoints` has chosen.

    Args:
        model: a built model.
        weights: "ema" for the moving average in one checkpoint; else the mean over the steps.
        checkpoints: the checkpoints.
        steps: their steps.

    Raises:
        UserError: as for `Checkpoints.restore`.
    """
    if weights == "ema":
        checkpoints.restore_average(model, *steps)
    else:
        average_weights(model, checkpoints, steps)


def average_weights(model: "Transformer", checkpoints: Checkpoints, steps: Sequence[int]) -> None:
    """Sets the model's weights to their mean over the checkpoints at `steps` (paper, section 6.1).

    Raises:
        UserError: there are no steps, or as for `Checkpoints.restore`.
    """
    if len(steps) == 0:
        raise UserError(
            f"{checkpoints.folder}: steps must name a checkpoint to average: found none"
        )
    weights = _by_path(model)
    shapes = {path: tuple(weight.shape) for path, weight in weights.items()}
    mean = mean_weights(checkpoints.load_weights(shapes, step) for step in steps)
    for path, weight in weights.items():
        weight.assign(mean[path])


def _by_path(model):
    """The model's weights by their paths, without the model's name."""
    return {weight.path.partition("/")[2]: weight for weight in model.weights}


def _weights(model):
    """The model's weights by their names in a checkpoint."""
    return {f"weights/{path}": weight for path, weight in _by_path(model).items()}


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


class _Header(NamedTuple):
    """The dtype and shape in the header of an array."""

    shape: tuple[int, ...]
    dtype: "np.dtype"


def _headers(path: Path) -> dict[str, _Header]:
    """Reads the headers of the arrays in a file of `np.savez`.

    Raises:
        OSError: the file cannot be read.
        UserError: it is another file, or an array has another size than its header says, as
            compressed ones have.
    """
    import numpy as np

    headers, total = {}, 0
    with open_regular(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    with archive.open(member) as content:
                        version = np.lib.format.read_magic(content)
                        shape, _, dtype = np.lib.format.read_array_header_1_0(content)
                        size = content.tell() + math.prod(shape) * dtype.itemsize
                    if version != (1, 0) or not member.compress_size == member.file_size == size:
                        raise _damaged(path)
                    headers[member.filename.removesuffix(".npy")] = _Header(shape, dtype)
                    total += size
        except Exception as error:  # zipfile and NumPy raise many kinds
            raise _damaged(path) from error
        if total > os.fstat(file.fileno()).st_size:  # arrays overlap
            raise _damaged(path)
    return headers


def _damaged(path):
    return UserError(
        f"{path}: the checkpoint is damaged: it is not an archive of arrays of numbers, each as "
        "large as its header says"
    )


def _check_same_state(path, like, headers):
    """Checks names, shapes and kinds of numbers of the arrays to read, before they are read."""
    for name, (shape, dtype) in like.items():
        found = headers[name].shape if name in headers else "missing"
        if found != shape:
            raise UserError(
                f"{path}: state of another model: {name} is {found} here, {shape} in the model"
            )
        kinds = "f" if "float" in dtype else "iu"
        if headers[name].dtype.kind not in kinds:
            raise UserError(
                f"{path}: {name} has numbers of type {headers[name].dtype} here, {dtype} "
                "in the model"
            )
    kind = next(iter(like)).partition("/")[0]  # "weights", or "ema" for their average
    if surplus := [n for n in headers if n.startswith(f"{kind}/") and n not in like]:
        raise UserError(f"{path}: state of another model, which has no {surplus[0]}")


def _not_finite(arrays) -> str | None:
    """The name of a weight, or of its moving average, that is not finite; else None."""
    import numpy as np

    return next(
        (
            name
            for name, array in arrays.items()
            if name.startswith(("weights/", "ema/")) and not np.isfinite(array).all()
        ),
        None,
    )
