"""The folder that holds everything about a model: every command except `train` starts from it."""

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError, expect_named, is_integer
from keras_transformer.files import (
    expect_local,
    is_partial,
    open_lock,
    partial_folder,
    read_utf_8,
    read_whole,
    recover_folder,
    whole_file,
)
from keras_transformer.importers import COMMANDS
from keras_transformer.json_files import parse_json
from keras_transformer.options.training import TrainingOptions
from keras_transformer.training.checkpoints import (
    Checkpoints,
    mean_weights,
    read_weights,
    read_while_trained,
)
from keras_transformer.training.run_record import read_record, record_of_other

if TYPE_CHECKING:
    import numpy as np

    from keras_transformer.model import Transformer
    from keras_transformer.text import Tokenizer
    from keras_transformer.text.languages import Languages
    from keras_transformer.text.vocabulary import Vocabulary

T = TypeVar("T")

_VOCABULARY, _MARIAN = "vocabulary.model", "vocabulary.zip"
_OPENNMT, _MULTILINGUAL = "vocabulary.opennmt.zip", "vocabulary.languages.zip"
# The names of a model_dir's own files and folders, except the report.
_OWN = {".lock", "config.json", "training.json", "checkpoints", "best", "logs", "ctranslate2"}
_OWN |= {"weights.json", _VOCABULARY, _MARIAN, _OPENNMT, _MULTILINGUAL, "vocabulary.json"}
# The weights among which `train` chooses. Of equally good ones, it chooses the first.
CHOICES = ("mean", "ema", "best", "last")


def digest_of(content: bytes) -> str:
    """A hexadecimal digest that identifies a vocabulary file or a configuration."""
    return hashlib.sha256(content).hexdigest()[:16]


@functools.cache
def tokenizer_kinds() -> dict[str, type["Tokenizer"]]:
    """The kinds of vocabulary by the name of their file; the call imports TensorFlow."""
    from keras_transformer.parsing import ParsingTokenizer
    from keras_transformer.text import SubwordTokenizer
    from keras_transformer.text.marian import MarianTokenizer
    from keras_transformer.text.multilingual import MultilingualTokenizer
    from keras_transformer.text.opennmt import OpenNMTTokenizer

    kinds = (
        MarianTokenizer,
        MultilingualTokenizer,
        OpenNMTTokenizer,
        ParsingTokenizer,
        SubwordTokenizer,
    )
    return {kind.file_name: kind for kind in kinds}


class ModelDir:
    """A folder with a model's configuration, vocabulary, checkpoints and logs.

        config.json        the `TransformerConfig`
        vocabulary.model   the SentencePiece model; vocabulary.zip, vocabulary.opennmt.zip or
                           vocabulary.languages.zip for an imported model, vocabulary.json for a
                           parser
        training.json      the `TrainingOptions`, the data, and each command that trained the model
        checkpoints/       the last checkpoints
        best/              the weights of the best validation
        weights.json       the weights that `train` has chosen, and the figures that decided
        ctranslate2/       the model, converted for CTranslate2
        logs/              log.jsonl, and files for TensorBoard

    Args:
        path: the folder.

    Raises:
        UserError: the path is empty, or a URL.

    Example:
        >>> model_dir = ModelDir("runs/demo")
        >>> translator = Translator(model_dir.load_model(), model_dir.load_tokenizer())
    """

    def __init__(self, path: str | os.PathLike):
        expect_named("model_dir", os.fspath(path))  # `Path("")` is the current folder
        expect_local(path)
        self.path = Path(path)
        self.checkpoints = Checkpoints(self.path / "checkpoints")
        self.best = Checkpoints(self.path / "best")
        self.logs = self.path / "logs"
        self._lock = self.path / ".lock"
        self._config = self.path / "config.json"
        self._training = self.path / "training.json"
        self._choice = self.path / "weights.json"

    @property
    def name(self) -> str:
        """The name of the folder, for readers: bytes that are not UTF-8 become U+FFFD."""
        return os.fsencode(self.path.resolve().name).decode("utf-8", "replace")

    def exists(self) -> bool:
        """Whether the folder holds a model.

        Raises:
            UserError: it holds something else.
        """
        if self._config.exists():
            return True
        if not self.path.exists():
            return False
        if not self.path.is_dir():
            raise UserError(f"model_dir {self.path} is not a folder: choose one")
        if found := self._foreign_file():
            use_it = "; --vocabulary takes one to train with" if found == _VOCABULARY else ""
            raise UserError(
                f"model_dir {self.path} has {found} but no model: choose the folder of a model, or "
                f"an empty or new one{use_it}"
            )
        return False

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from training here; makes the folder if it is missing.

        The lock ends with the process, however the process ends. A new folder is removed if
        nothing was written to it.

        Raises:
            UserError: another process holds the lock, or the file system has no locks.
        """
        is_new = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        with open_lock(self._lock) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(f"model_dir {self.path}: another training writes to it") from None
            except OSError as error:  # some cluster file systems are mounted without locks
                raise UserError(
                    f"model_dir {self.path}: cannot lock the folder ({error.strerror}): choose one "
                    "on a file system with locks"
                ) from error
            self._locked = os.fstat(lock.fileno())
            try:
                yield
            finally:
                if is_new and self._is_locked() and list(self.path.iterdir()) == [self._lock]:
                    shutil.rmtree(self.path)

    def check_locked(self) -> None:
        """Raises `UserError` if the folder is not the one that `locked` has locked.

        It was removed or moved away; another training may have begun in its place.
        """
        if not self._is_locked():
            raise UserError(
                f"model_dir {self.path} was removed or moved away during the training: move it "
                "back, and run the command again"
            )

    def _is_locked(self):
        with contextlib.suppress(FileNotFoundError):
            return os.path.samestat(os.stat(self._lock), self._locked)
        return False

    def owns(self, path: str | os.PathLike) -> bool:
        """Whether a path is one of this folder's own files, or lies in one of its own folders."""
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(self.path))
        first = Path(inside).parts[:1]  # none for the folder itself
        return not _OWN.isdisjoint(first)

    def recover(self) -> list[str]:
        """Cleans the folder up after a process was killed; see `Checkpoints.recover`."""
        recover_folder(self.path)
        recover_folder(self.best.folder)
        return self.checkpoints.recover()

    def create(self, config: TransformerConfig, tokenizer: "Tokenizer", training: dict) -> None:
        """Writes the files of a new run; the configuration comes last, and makes it a model."""
        self.path.mkdir(parents=True, exist_ok=True)
        content = config.to_json().encode()
        # The digests tell the vocabulary from a user's file, and show a damaged configuration.
        self.save_training({**training, "config": digest_of(content)})
        tokenizer.save(self.path / tokenizer.file_name)
        with whole_file(self._config) as partial:
            partial.write_bytes(content)

    def check_new(self) -> None:
        """Raises `UserError` unless the folder is new or empty."""
        if self.exists():
            raise UserError(
                f"model_dir {self.path} has a model already: choose an empty or new folder"
            )

    def create_trained(
        self,
        model: "Transformer",
        tokenizer: "Tokenizer",
        target_lang: str | None,
        command: str,
        source_lang: str | None = None,
    ) -> None:
        """Writes a model that was trained elsewhere to a folder that is new or empty.

        A new folder appears whole. In an empty one, the configuration comes last.

        Args:
            model: a built model, such as one trained by `fit`.
            tokenizer: its vocabulary.
            target_lang: two-letter code of the target language, for `evaluate`; None if unknown.
            command: how the model was made, to record in the model_dir.
            source_lang: code of the source language, for `translate --split=sentences`.

        Raises:
            UserError: the folder is not empty, or a language is not the code of one.
        """
        self.check_new()
        path, is_new = self.path.absolute(), not self.path.exists()
        with partial_folder(path if is_new else path / path.name) as folder:
            partial = ModelDir(folder)
            partial.create(
                model.config, tokenizer, record_of_other(target_lang, command, source_lang)
            )
            partial.checkpoints.save(model, step=0)
            if is_new:
                folder.rename(path)
                return
            for name in tokenizer_kinds():  # removes what an earlier attempt left
                (path / name).unlink(missing_ok=True)
            # The folder stays: it may be a link or a mount, or we may not write to its parent.
            # The configuration comes last, since it makes the folder a model.
            for file in sorted(folder.iterdir(), key=partial._config.__eq__):
                file.rename(path / file.name)

    def load_config(self) -> TransformerConfig:
        """The model's configuration.

        Raises:
            UserError: the file is missing, or is not the configuration that the model was made
                with, unless the record has null in place of its digest.
        """
        text = self._read(self._config)
        self._expect_own(parse_json(text, self._config))
        config = TransformerConfig.from_json(text, self._config)
        if self._recorded("config") not in (None, digest_of(text.encode())):
            raise UserError(
                f"{self._config}: changed since the model was made, as its digest in "
                f'{self._training.name} shows: restore the file, or set "config" to null there if '
                "the change is meant"
            )
        return config

    def _expect_own(self, config):
        """Refuses the `config.json` of other programs, which say in it what the folder is."""
        if not isinstance(config, dict):
            return
        if "model_type" in config:
            command = COMMANDS.get(str(config["model_type"]))
            do = f"import it by {command}" if command else "models of its type cannot be imported"
            raise UserError(f"{self.path}: a model of Transformers, not a model_dir: {do}")
        if "add_source_bos" in config:
            raise UserError(
                f"{self.path}: a model for CTranslate2's own library, not a model_dir: choose the "
                "folder that it was made from"
            )

    def load_tokenizer(self) -> "Tokenizer":
        """The model's tokenizer.

        Raises:
            UserError: there is no vocabulary, or not the one that the model was trained with.
        """
        return self._read_vocabulary({n: k.from_bytes for n, k in tokenizer_kinds().items()})

    def load_vocabulary(self) -> "Vocabulary":
        """The vocabulary of a model for translation, without TensorFlow.

        Raises:
            UserError: as for `load_tokenizer`, or the vocabulary is of another kind.
        """
        from keras_transformer.text.vocabulary import Vocabulary  # here: most methods need none

        return self._read_vocabulary(
            {
                _MARIAN: Vocabulary.of_marian,
                _OPENNMT: Vocabulary.of_opennmt,
                _MULTILINGUAL: Vocabulary.of_multilingual,
                _VOCABULARY: Vocabulary.of_sentencepiece,
            }
        )

    def load_languages(self) -> "Languages | None":
        """The languages of a model for several of them; None for any other, or without a model.

        Raises:
            UserError: there is no vocabulary, or not the one that the model was trained with.
        """
        is_parser = (self.path / "vocabulary.json").exists()
        if is_parser or not self._config.exists():
            return None
        return self.load_vocabulary().languages

    def _read_vocabulary(self, kinds: Mapping[str, Callable[[bytes], T]]) -> T:
        """Reads the vocabulary by the function of its file's name."""
        from keras_transformer.text.vocabulary import naming

        found = [self.path / name for name in kinds if (self.path / name).exists()]
        if not found:
            self.load_config()  # refuses the folder of another program
        path = found[0] if found else self.path / _VOCABULARY
        with naming(path):
            content = read_whole(path)
            recorded = (self._recorded("data") or {}).get("vocabulary")
            if recorded not in (None, digest_of(content)):
                raise UserError(
                    "not the vocabulary that the model was trained with, or a damaged one: restore "
                    "the file"
                )
            return kinds[path.name](content)

    def vocabularies(self) -> list[bytes]:
        """The content of each vocabulary file, without TensorFlow."""
        return [_read_vocabulary(path) for path in sorted(self.path.glob("vocabulary.*"))]

    def load_training(self) -> dict:
        """Reads the record of `save_training`; an option that it lacks has its default value.

        Raises:
            UserError: the file is missing, or is not such a record.
        """
        return read_record(self._read(self._training), self._training)

    def save_training(self, training: dict) -> None:
        """Records how the model is trained."""
        with whole_file(self._training) as partial:
            partial.write_text(json.dumps(training, indent=2) + "\n")

    def load_model(self, average: int | None = None, weights: str | int = "auto") -> "Transformer":
        """The model with the weights that `train` has chosen, or with others.

        Args:
            average: number of checkpoints in the mean; default: the training's
                `average_checkpoints`, or all if there are fewer.
            weights: "auto", as `resolved_weights` says; "mean", of the last `average` checkpoints
                (paper, section 6.1); "ema", the moving average in the last checkpoint; "best", the
                weights of the best validation; "last", the last checkpoint; or the step of one
                checkpoint, as text or an integer.

        Raises:
            UserError: there are fewer checkpoints than asked for, one is damaged, or the weights
                do not exist or are not finite.
        """
        from keras_transformer.model import Transformer  # here: the other methods need no Keras

        config, weights = self.load_config(), self.resolved_weights(weights, average)

        def read(checkpoints, steps):
            for step in steps:
                checkpoints.check_fits(config, step)
            model = Transformer(config, name="transformer")
            read_weights(model, weights, checkpoints, steps)
            return model

        return read_while_trained(lambda: self.chosen_checkpoints(average, weights), read)

    def load_weights(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        average: int | None = None,
        weights: str | int = "auto",
    ) -> dict[str, "np.ndarray"]:
        """The weights that `load_model` would load, without Keras.

        Args:
            shapes: the shape of each weight, by its path without the model's name.
            average: as for `load_model`.
            weights: as for `load_model`.

        Returns:
            float32 arrays by path, as in `shapes`.

        Raises:
            UserError: as for `load_model`.
        """
        config, weights = self.load_config(), self.resolved_weights(weights, average)
        kind = "ema" if weights == "ema" else "weights"

        def read(checkpoints, steps):
            for step in steps:
                checkpoints.check_fits(config, step)
            return mean_weights(checkpoints.load_weights(shapes, step, kind) for step in steps)

        mean = read_while_trained(lambda: self.chosen_checkpoints(average, weights), read)
        return {path: array.astype("float32") for path, array in mean.items()}

    def chosen_checkpoints(
        self, average: int | None = None, weights: str | int = "auto"
    ) -> tuple[Checkpoints, list[int]]:
        """The checkpoints that `load_model` reads with the same arguments, and their steps."""
        weights = self.resolved_weights(weights, average)
        checkpoints = self.best if weights == "best" else self.checkpoints
        steps = checkpoints.steps()
        if not steps and weights == "best":
            raise UserError(f"{self.path} has no best checkpoint: {self._why_no_best()}")
        if not steps:
            raise UserError(f"{checkpoints.folder} has no checkpoint yet: train the model first")
        if weights == "mean":
            return checkpoints, steps[-self.number_averaged(average) :]
        if average is not None:
            raise UserError(f"weights={weights} takes one checkpoint: found average={average}")
        if weights == "ema" and not self.load_training()["options"]["ema_decay"]:
            raise UserError(f"{self.path}: weights=ema needs a model trained with ema_decay")
        if weights in ("ema", "best", "last"):
            return checkpoints, steps[-1:]
        if weights in map(str, steps):
            return checkpoints, [int(weights)]
        raise UserError(
            f"weights must be auto, {', '.join(CHOICES)}, or one of the steps "
            f"{', '.join(map(str, steps))}: found {weights}"
        )

    def save_choice(self, weights: str, by: str, figures: Mapping[str, float]) -> None:
        """Records the weights for "auto", until there is a later checkpoint.

        Args:
            weights: one of `CHOICES`.
            by: the figure that decided, such as "BLEU".
            figures: its value on the validation set for each of the weights.
        """
        [last_step] = self.chosen_checkpoints(weights="last")[1]
        step = self.chosen_checkpoints(weights=weights)[1][-1]
        choice = {"weights": weights, "step": step, "last_step": last_step}
        with whole_file(self._choice) as partial:
            content = {**choice, "by": by, "figures": dict(figures)}
            partial.write_text(json.dumps(content, indent=2) + "\n")

    def resolved_weights(self, weights: str | int = "auto", average: int | None = None) -> str:
        """The weights that "auto" stands for: those that `train` chose at its end; else "mean".

        A choice is void once there are later checkpoints: a run that goes on chooses again at its
        end. A given `average` asks for the mean.

        Raises:
            UserError: the file of the choice is damaged.
        """
        if weights != "auto":
            return str(weights)
        if average is not None or not self._choice.exists():
            return "mean"
        try:
            choice = parse_json(self._read(self._choice), self._choice)
        except UserError as error:
            raise self._damaged_choice(str(error)) from error
        if not isinstance(choice, dict) or choice.get("weights") not in CHOICES:
            names = ", ".join(CHOICES)
            raise self._damaged_choice(f'{self._choice}: "weights" must be one of {names}')
        for name in ("step", "last_step"):
            if not is_integer(choice.get(name)):
                raise self._damaged_choice(f'{self._choice}: "{name}" must be an integer')
        chosen = self.best if choice["weights"] == "best" else self.checkpoints
        last = self.checkpoints.steps()[-1:]  # none if a user has removed them
        if last not in ([], [choice["last_step"]]) or chosen.steps()[-1:] != [choice["step"]]:
            return "mean"
        if choice["weights"] == "ema" and not self.load_training()["options"]["ema_decay"]:
            raise self._damaged_choice(
                f'{self._choice}: "weights" is "ema", but the run had no ema_decay'
            )
        return choice["weights"]

    def _damaged_choice(self, damage):
        return UserError(
            f"{damage}: remove {self._choice.name}, and run `train` again to choose, or use the "
            "mean of the last checkpoints"
        )

    def _why_no_best(self):
        data = self.load_training()["data"]
        if not data:
            return "it was not trained by `train`"
        if data.get("validation") is None:
            return "its training had no --valid_source"
        return "no validation of its training has had a finite score yet"

    def number_averaged(self, average: int | None = None) -> int:
        """The number of checkpoints that `load_model` averages.

        Raises:
            UserError: there are fewer checkpoints than `average`.
        """
        steps = self.checkpoints.steps()
        if average is None:
            options = TrainingOptions(**self.load_training()["options"])
            return min(len(steps), options.average_checkpoints)
        if not is_integer(average) or not 1 <= average <= len(steps):
            raise UserError(
                f"average must be 1 to {len(steps)}, the number of checkpoints in "
                f"{self.checkpoints.folder}: found {average!r}"
            )
        return average

    def _recorded(self, field: str) -> Any:
        """A field of the record; None if there is no record yet, or not this field."""
        with contextlib.suppress(UserError):
            return self.load_training()[field]
        return None

    def _foreign_file(self) -> str | None:
        """A file that no run writes, or None. An interrupted `create` leaves none."""
        found = {path.name for path in self.path.iterdir() if not is_partial(path)}
        found -= {self._lock.name}
        with contextlib.suppress(UserError):
            recorded = self.load_training()["data"].get("vocabulary")
            found -= {self._training.name}
            for name in found & tokenizer_kinds().keys():
                if digest_of(_read_vocabulary(self.path / name)) == recorded:
                    found -= {name}
        return min(found, default=None)

    def _read(self, path: Path) -> str:
        try:
            return read_utf_8(path)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise UserError(
                f"{path}: {error.strerror}: choose the folder of a trained model"
            ) from error
        except OSError as error:
            raise UserError(f"{path}: {error.strerror}") from error


def _read_vocabulary(path):
    try:
        return read_whole(path)
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
