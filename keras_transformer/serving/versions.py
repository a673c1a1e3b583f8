"""Chooses the version that answers: the only one of a model_dir, or the highest in a folder."""

import contextlib
import gc
import logging
import math
import stat
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse, ModelVersionStatus

from keras_transformer.errors import UserError
from keras_transformer.serving.servable import Servable
from keras_transformer.text.languages import Languages

_LOG = logging.getLogger("keras_transformer.serving")
_UNKNOWN = 2  # gRPC's code of errors without a code of their own
_NOT_LOADED = "this version cannot be loaded: the server's log says why"
# A score up to this is `NO_HYPOTHESIS`, or as bad.
_WORST_SCORE = -1e8


class UnfitVersion(UserError):
    """A version cannot be served; the message is fit for clients, for example without paths."""


class Model:
    """A named model, and the version of it that answers.

    `refresh` loads the highest version that can be loaded and warms it up. Meanwhile the previous
    version answers requests; it is freed after its last request. A version that cannot be loaded is
    tried again after its files have changed, since a copy may have been incomplete. Clients are
    told of it in a sentence; the log has the details.

    Args:
        name: NAME in `/v1/models/NAME`.
        find: returns the versions, each with a value that changes whenever its files do.
        load: loads a version.
        languages: codes of the source and target languages with which the model was trained, each
            None if it is unknown.
        multilingual: the languages of a model for several of them; None for any other.

    Attributes:
        loaded_at: when the current version was loaded, in seconds since 1970.
    """

    def __init__(
        self,
        name: str,
        find: Callable[[], Mapping[int, Hashable]],
        load: Callable[[int], Servable],
        languages: tuple[str | None, str | None] = (None, None),
        multilingual: Languages | None = None,
    ):
        self.name, self.languages, self.multilingual = name, languages, multilingual
        self.loaded_at = 0.0
        self._find, self._load = find, load
        self._current: tuple[int, Servable] | None = None
        self._failed: dict[int, tuple[Hashable, str]] = {}  # the files and the error
        self._states: dict[int, tuple[Any, str]] = {}

    @property
    def current(self) -> tuple[int, Servable] | None:
        """The number of the current version, and the version; None before one is loaded."""
        return self._current

    def status(self) -> GetModelStatusResponse:
        """The state of each version, the highest first, with the errors of loading."""
        response = GetModelStatusResponse()
        for version, (state, error) in sorted(self._states.copy().items(), reverse=True):
            one = response.model_version_status.add(version=version, state=state)
            one.status.error_code = _UNKNOWN if error else 0
            one.status.error_message = error
        return response

    def errors(self) -> list[str]:
        """The errors of the versions that could not be loaded, the highest version first."""
        return [error for _, (_, error) in sorted(self._failed.items(), reverse=True)]

    def refresh(self) -> None:
        """Finds versions, and makes the highest that can be loaded the current one."""
        if (ModelVersionStatus.UNLOADING, "") in self._states.values():
            gc.collect()  # requests and loaded models are in reference cycles
        found = self._find()
        for version in sorted(found, reverse=True):
            if self._current and self._current[0] == version:
                return
            is_new = version not in self._failed or self._failed[version][0] != found[version]
            if is_new and self._loads(version, found[version]):
                return

    def _loads(self, version, files):
        self._states[version] = ModelVersionStatus.LOADING, ""
        try:
            servable = self._load(version)
            warm_up(servable)
        except Exception as error:
            message = _described(error)
            self._failed[version] = files, message
            shown = message if isinstance(error, UnfitVersion) else _NOT_LOADED
            self._states[version] = ModelVersionStatus.END, shown
            if self._current:  # otherwise a lower version may load, or the server ends
                self._log(version)
            return False
        self._failed.pop(version, None)
        weakref.finalize(servable, self._has_ended, version)
        self.loaded_at = time.time()
        before, self._current = self._current, (version, servable)
        self._states[version] = ModelVersionStatus.AVAILABLE, ""
        if before:
            self._states[before[0]] = ModelVersionStatus.UNLOADING, ""
        else:
            for failed in self._failed:
                self._log(failed)
        return True

    def _log(self, failed):
        _, message = self._failed[failed]
        _LOG.error("version %d of model %s: %s", failed, self.name, message)

    def _has_ended(self, version):
        if self._current is None or self._current[0] != version:  # not loaded again
            self._states[version] = ModelVersionStatus.END, ""


def _described(error):
    """One line that explains why a version cannot be loaded."""
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    message = " ".join(str(error).split())
    return message if isinstance(error, UserError) else f"{type(error).__name__}: {message}"


def saved_model_folders(folder: Path) -> dict[int, Path]:
    """The versions that TensorFlow Serving sees in a folder: names that are 64-bit integers.

    Example:
        >>> Path("export/en-de/001").mkdir(parents=True)
        >>> saved_model_folders(Path("export/en-de"))
        {1: PosixPath('export/en-de/001')}
    """
    return {
        int(path.name): path
        for path in folder.iterdir()
        if path.name.isascii() and path.name.isdecimal() and int(path.name) < 2**63
        if path.is_dir()
    }


def saved_model_versions(folder: Path) -> dict[int, Hashable]:
    """The versions in a folder, each with the state of its files."""
    return {
        version: tuple(_state_of_files(path))
        for version, path in saved_model_folders(folder).items()
    }


def _state_of_files(path):
    for file in sorted(path.rglob("*")):
        with contextlib.suppress(OSError):  # a temporary file that has gone, or a dangling link
            about = file.stat()
            yield str(file), about.st_size, about.st_mtime_ns


def expect_regular_files(folder: Path) -> None:
    """Checks that a folder has no pipe or device, since reading one may never end.

    Raises:
        UnfitVersion: a file is neither a regular file nor a folder.
    """
    for file in sorted(folder.rglob("*")):
        with contextlib.suppress(OSError):  # as in `_state_of_files`
            mode = file.stat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                raise UnfitVersion(f"{file.relative_to(folder)} is not a regular file")


def warm_up(servable: Servable) -> None:
    """Computes each signature once, since TensorFlow prepares a graph at its first run.

    Raises:
        UnfitVersion: a score is not one that a model with sound weights gives.
    """
    if servable.languages is not None:  # any pair will do
        codes = list(servable.languages.symbols)
        in_target = servable.languages.in_target
        servable = servable.in_languages(codes[-1], codes[0] if in_target else None)
    values = {"text": "Hello, world!", "translation": "Hello, world!", "seed": 0}
    all_values = [values]
    if servable.glossary:  # the search with terms is another graph
        all_values.append(values | {"text": servable.glossary.any_term()})
    for name, signature in servable.signatures.items():
        if signature.inputs:  # a SavedModel's initialisation has none
            keys = sorted(signature.inputs)
            rows = [tuple(row[key] for key in keys) for row in all_values]
            outputs, *_ = servable.predict(name, rows)
            for key in {"score", "scores"} & outputs.keys():
                score = float(np.ravel(outputs[key])[0])  # the best one; others may be missing
                if not (math.isfinite(score) and score > _WORST_SCORE):
                    raise UnfitVersion(
                        f"the signature {name} gives a sentence the score {score:g}: the training "
                        "has diverged, or the search's options allow no translation"
                    )


class Watcher:
    """A thread that loads models, and then their new versions.

    Args:
        models: the models to load.
        period: seconds between checks for new versions.
        on_failure: called if no version of a model can be loaded at first.
    """

    def __init__(
        self, models: Iterable[Model], period: float, on_failure: Callable[[Exception], None]
    ):
        self._models, self._period, self._on_failure = list(models), period, on_failure
        self._errors: dict[str, str] = {}  # by model, each logged once
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watcher", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> bool:
        """Loads no more versions; returns whether one is still being loaded."""
        self._stop.set()
        self._thread.join(1)
        return self._thread.is_alive()

    def _watch(self):
        for model in self._models:
            self._refresh(model)
            if self._stop.is_set():
                return
            if model.current is None:
                message = "; ".join(model.errors()) or self._errors.get(
                    model.name, "no version found"
                )
                self._on_failure(UserError(f"model {model.name}: {message}"))
                return
        while not self._stop.wait(self._period):
            for model in self._models:
                self._refresh(model)

    def _refresh(self, model):
        try:
            model.refresh()
        except OSError as error:  # a folder that cannot be read at the moment
            message = _described(error)
            if self._errors.get(model.name) != message:
                self._errors[model.name] = message
                _LOG.error("model %s: %s", model.name, message)
        else:
            self._errors.pop(model.name, None)
