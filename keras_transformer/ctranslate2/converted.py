"""Converts a model_dir for CTranslate2 once, and keeps the result in the model_dir."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import ctranslate2

from keras_transformer import __version__
from keras_transformer.ctranslate2.subwords import Subwords
from keras_transformer.ctranslate2.support import check_config, check_model, check_tokenizer
from keras_transformer.errors import UserError
from keras_transformer.files import (
    checksum,
    open_lock,
    open_regular,
    recover_folder,
    remove_folder,
    whole_folder,
)
from keras_transformer.json_files import read_json
from keras_transformer.machine.cores import number_of_cores
from keras_transformer.training.checkpoints import read_while_trained
from keras_transformer.training.model_dir import ModelDir

if TYPE_CHECKING:
    from keras_transformer.model import Transformer
    from keras_transformer.text import Tokenizer

_MANIFEST = "manifest.json"
_FORMAT = 3  # of converted models; raised when the same model is converted differently
_ATTEMPTS = 3  # to convert checkpoints while a training replaces them


def precisions() -> set[str]:
    """The precisions that CTranslate2 computes in on this processor."""
    return ctranslate2.get_supported_compute_types("cpu")


class ConvertedModel:
    """The model of a model_dir in CTranslate2's format, converted on first use.

    `MODEL_DIR/ctranslate2` holds a folder for each choice of weights and precision. The folder's
    name ends in a digest of all that determines its content: the checkpoints (by their checksums,
    so that no weights are read), the configuration, the vocabulary, and the versions of this
    package and of CTranslate2. If any of these changes, a new folder replaces the old one. The
    folder holds the checksums of its files; a damaged model is converted again.

    Args:
        model_dir: folder of a trained model for translation.
        average: number of checkpoints, as for `ModelDir.load_model`.
        weights: the choice of weights, as for `ModelDir.load_model`.
        precision: the precision that CTranslate2 computes in, such as "float32"; weights are stored
            in int8 for "int8", and else in float32.

    Attributes:
        model_dir: the `ModelDir`.
        config: the model's configuration.
        path: the folder of the converted model, whether or not it exists; that of later checkpoints
            if a training replaces them during the conversion.

    Raises:
        Unsupported: CTranslate2 does not support the model.
        UserError: the model or the weights do not exist, or CTranslate2 does not support this
            precision on this processor.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike,
        average: int | None = None,
        weights: str | int = "auto",
        precision: str = "float32",
    ):
        if precision not in precisions():
            raise UserError(
                f"precision must be one of {', '.join(sorted(precisions()))}, which CTranslate2 "
                f"computes in on this processor: found {precision!r}"
            )
        self.model_dir = ModelDir(model_dir)
        check_model(self.model_dir)
        self.config = self.model_dir.load_config()
        self._average = average
        self._weights = self.model_dir.resolved_weights(weights, average)
        self._precision = precision
        self._quantization = "int8" if precision == "int8" else "float32"
        self.path = self._path()

    def load(self, workers: int) -> "tuple[ctranslate2.Translator, Subwords]":
        """Loads the model and its vocabulary; converts the model first if needed.

        If the converted model is damaged, a line on standard error says that it is converted again.
        If several processes call this at once, one converts the model, and the others wait. If the
        model_dir is read-only or its file system has no locks, each call converts the model to a
        temporary folder, so that read access is enough to translate.

        Args:
            workers: number of batches to translate in parallel.

        Raises:
            UserError: the model cannot be converted, or CTranslate2 cannot load it.
        """
        with self._folder() as folder:
            return _loaded(folder, self._precision, workers)

    def convert(self) -> None:
        """Converts the model unless that is done; the errors are those of `load`."""
        with self._folder():
            pass

    def load_tokenizer(self) -> "Tokenizer":
        """The vocabulary as TensorFlow operations."""
        return self.model_dir.load_tokenizer()

    @functools.cached_property
    def are_words(self) -> bool:
        """Whether each subword is a word, as `Tokenizer.are_words`."""
        return not self.model_dir.load_vocabulary().sentencepiece_models

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """The folder; no other process removes it while the block runs."""
        lock = self._open_lock()
        if lock is None and _damage(self.path) is None:
            yield self.path  # a read-only system may have no temporary folder either
            return
        if lock is None:
            with tempfile.TemporaryDirectory() as temporary:
                yield self._converted(Path(temporary))
            return
        with lock:
            if _damage(self.path):
                fcntl.flock(lock, fcntl.LOCK_EX)
                recover_folder(self.path.parent)
                self._converted(self.path.parent)  # by now another process may have done it
                self._remove_older()
            yield self.path

    def _open_lock(self):
        """Opens the file to lock, and shares the lock; None if the model_dir allows neither."""
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            self.path.parent.mkdir(exist_ok=True)
            lock = stack.enter_context(open_lock(self.path.parent / ".lock"))
            fcntl.flock(lock, fcntl.LOCK_SH)
            stack.pop_all()
            return lock
        return None

    def _converted(self, parent):
        """Returns the folder of the converted model; converts it to a folder in `parent` if needed.

        If a training replaces the checkpoints meanwhile, later ones are converted.
        """
        for _ in range(_ATTEMPTS):
            damage = _damage(self.path)
            if damage is None:
                return self.path
            if self.path.exists():
                print(f"{self.path}: converting the model again: {damage}", file=sys.stderr)
            weights = self._weights_now()
            if self._path() == self.path:
                folder = parent / self.path.name
                if folder.exists():
                    remove_folder(folder)
                return self._convert(weights, folder)
            self.path = self._path()
        raise UserError(
            f"{self.model_dir.path}: the checkpoints changed while they were read, {_ATTEMPTS} "
            "times: try again"
        )

    # NumPy is imported here: a model that is already converted does not need it.

    def _weights_now(self):
        from keras_transformer.ctranslate2.weights import weight_shapes

        shapes = weight_shapes(self.config)
        return self.model_dir.load_weights(shapes, self._average, self._weights)

    def _convert(self, weights, folder):
        from keras_transformer.ctranslate2.export import write_model

        vocabulary = self.model_dir.load_vocabulary()
        with whole_folder(folder) as partial:
            write_model(self.config, weights, vocabulary, partial, self._quantization)
            sums = {
                path.name: {"bytes": path.stat().st_size, "sha256": checksum(path)}
                for path in sorted(partial.iterdir())
            }
            (partial / _MANIFEST).write_text(json.dumps(sums, indent=2) + "\n")
        return folder

    def _remove_older(self):
        choice = self.path.name.rpartition("-")[0]
        for path in self.path.parent.glob(f"{choice}-*"):
            if path != self.path:
                remove_folder(path)

    def _path(self):
        model_dir = self.model_dir
        content = (
            _FORMAT,
            __version__,
            ctranslate2.__version__,
            self.config.to_json(),
            model_dir.vocabularies(),
            read_while_trained(
                lambda: model_dir.chosen_checkpoints(self._average, self._weights),
                lambda checkpoints, steps: [checkpoints.manifest(step) for step in steps],
            ),
        )
        digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
        average = [] if self._average is None else [str(self._average)]
        name = "-".join([self._weights, *average, self._quantization, digest])
        return model_dir.path / "ctranslate2" / name


class ModelInMemory:
    """A Keras model for CTranslate2, which gets its current weights each time it is loaded.

    Args:
        model: a built `Transformer`.
        tokenizer: its vocabulary.

    Attributes:
        config: the model's configuration.

    Raises:
        Unsupported: CTranslate2 does not support the model.

    Example:
        >>> translator = CTranslate2Translator(ModelInMemory(model, tokenizer))
    """

    def __init__(self, model: "Transformer", tokenizer: "Tokenizer"):
        check_tokenizer(tokenizer)
        check_config(model.config)
        self._model, self._tokenizer, self.config = model, tokenizer, model.config

    def load(self, workers: int) -> "tuple[ctranslate2.Translator, Subwords]":
        """Converts the model to a temporary folder, and loads it, as `ConvertedModel.load`."""
        from keras_transformer.ctranslate2.export import write_model
        from keras_transformer.ctranslate2.weights import model_weights

        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_model(self.config, model_weights(self._model), self._tokenizer, folder)
            return _loaded(folder, "float32", workers)

    def load_tokenizer(self) -> "Tokenizer":
        """The vocabulary as TensorFlow operations."""
        return self._tokenizer

    @property
    def are_words(self) -> bool:
        """Whether each subword is a word, as `Tokenizer.are_words`."""
        return self._tokenizer.are_words


def _loaded(
    folder: Path, precision: str, workers: int
) -> "tuple[ctranslate2.Translator, Subwords]":
    try:
        engine = ctranslate2.Translator(
            str(folder),
            compute_type=precision,
            inter_threads=workers,
            intra_threads=max(1, number_of_cores() // workers),
        )
        return engine, Subwords(folder)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{folder}: CTranslate2 cannot load it: {reason}") from error


def _damage(folder: Path) -> str | None:
    """Describes the damage to a converted model, or its absence; None if it is whole."""
    try:
        sums = read_json(folder / _MANIFEST)
        names = {path.name for path in folder.glob("[!.]*")} - {_MANIFEST}
        if not isinstance(sums, dict) or names != sums.keys():
            return f"its files are not those of {_MANIFEST}"
        for name, recorded in sums.items():
            with open_regular(folder / name, recorded["bytes"]) as file:
                has_size = os.fstat(file.fileno()).st_size == recorded["bytes"]
            if not has_size or checksum(folder / name) != recorded["sha256"]:
                return f"{name} is damaged"
        return None
    except UserError as error:
        return str(error)
    except (KeyError, TypeError):
        return f"{_MANIFEST} is damaged"
    except FileNotFoundError:
        return "it has no checksums"
    except OSError as error:
        return f"{Path(error.filename).name}: {error.strerror}"
