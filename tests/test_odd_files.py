"""What is in the place of a file of a model_dir: one line that names it, soon, and no traceback."""

import contextlib
import functools
import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from command_lines import FEW_STEPS, TINY_MODEL, ended, run
from helpers import lively_model

import keras_transformer as kt
from keras_transformer.data import BuiltinPairs
from keras_transformer.data.builtin import builtin_pairs
from keras_transformer.errors import UserError
from keras_transformer.files import LARGEST_WHOLE
from keras_transformer.training import ModelDir

SECONDS = 60  # until a test counts as hanging: each part needs a few on a busy machine
READ_BY_ALL = (
    "config.json",
    "training.json",
    "vocabulary.model",
    "checkpoints/step-00000002/manifest.json",
    "checkpoints/step-00000002/state.npz",
    "checkpoints/step-00000002/progress.json",
)
READ_BY_TRAIN = ("logs/log.jsonl",)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for name, side in zip(("en", "de"), zip(*builtin_pairs("train", 40), strict=True), strict=True):
        (folder / f"train.{name}").write_text("".join(f"{line}\n" for line in side))
    return folder


def training(corpus, model_dir):
    options = {**TINY_MODEL, **FEW_STEPS, "keep_checkpoints": 1, "average_checkpoints": 1}
    files = {"train_source": corpus / "train.en", "train_target": corpus / "train.de"}
    return {**options, **files, "report": False, "model_dir": model_dir}


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "trained"
    run("train", **training(corpus, path))
    return path


@pytest.fixture
def model_dir(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "model"))


class NoEnd(BaseException):
    """A block has not ended in time; no command catches it."""


@contextlib.contextmanager
def soon():
    """Ends a block that waits for ever with an error."""

    def fail(number, frame):
        raise NoEnd(f"after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def put_link(path):
    path.symlink_to("/dev/zero")


def put_huge_file(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # it takes no space on the disk


ODD_FILES = {
    "a pipe": os.mkfifo,
    "an endless device": put_link,
    "a folder": Path.mkdir,
    "an empty file": Path.touch,
    "a huge file": put_huge_file,
}


def serve(path):
    """Loads a model as a server does; the state of its version says why it cannot."""
    from keras_transformer.serving import sources

    try:
        model = sources.trained_model(
            "demo", [str(path)], lambda paths: kt.Translator(load(paths[0]), tokenizer(paths[0]))
        )
    except UserError as error:
        return 2, str(error)
    model.refresh()
    [version] = model.status().model_version_status
    return (0 if model.current else 2), version.status.error_message


def load(path):
    return ModelDir(path).load_model()


def tokenizer(path):
    return ModelDir(path).load_tokenizer()


def all_commands(model_dir, corpus, monkeypatch, capfd):
    """The status and the message of each command that reads a model_dir, by its name."""
    pair = {"source": corpus / "train.en", "reference": corpus / "train.de"}
    of_command = {
        "translate": {"model_dir": model_dir},
        "evaluate": {"model_dir": model_dir, **pair},
        "train": {**training(corpus, model_dir), "steps": 3},
    }
    for command, options in of_command.items():
        with soon():
            yield command, *ended(command, options, monkeypatch, capfd)
    with soon():
        yield "serve", *serve(model_dir)


@pytest.mark.parametrize("kind", ODD_FILES)
@pytest.mark.parametrize("name", READ_BY_ALL)
def test_no_command_waits_for_or_reads_without_end_what_is_no_file_of_a_model_dir(
    name, kind, model_dir, corpus, monkeypatch, capfd
):
    path = model_dir / name
    path.unlink()
    ODD_FILES[kind](path)
    for command, status, said in all_commands(model_dir, corpus, monkeypatch, capfd):
        assert (command, status, said.count("\n") <= 1) == (command, 2, True), said
        assert str(path) in said, said


@pytest.mark.parametrize("kind", ["a pipe", "an endless device", "a folder", "a huge file"])
@pytest.mark.parametrize("name", READ_BY_TRAIN)
def test_a_training_is_not_resumed_with_a_log_that_is_no_file(
    name, kind, model_dir, corpus, monkeypatch, capfd
):
    path = model_dir / name
    path.unlink()
    ODD_FILES[kind](path)
    with soon():
        options = {**training(corpus, model_dir), "steps": 3}
        status, said = ended("train", options, monkeypatch, capfd)
    assert status == 2 and f"{path}: the log cannot be written: " in said


def test_what_is_in_the_place_of_a_file_is_said(model_dir):
    path = model_dir / "config.json"
    for kind, said in {
        "a pipe": "is a pipe, not a regular file",
        "an endless device": "is a device, not a regular file",
        "a folder": "is a folder, not a regular file",
        "a huge file": rf"has 1,099,511,627,776 bytes, more than the {LARGEST_WHOLE:,} that it",
    }.items():
        path.rmdir() if path.is_dir() else path.unlink()
        ODD_FILES[kind](path)
        with pytest.raises(UserError, match=f"^{path}: {said}"):
            ModelDir(model_dir).load_config()


def test_a_lock_that_is_a_pipe_is_refused(model_dir, corpus, monkeypatch, capfd):
    (model_dir / ".lock").unlink()
    os.mkfifo(model_dir / ".lock")
    with soon():
        status, said = ended("train", training(corpus, model_dir), monkeypatch, capfd)
    assert status == 2 and "/.lock: " in said


# Corpora and flags.

FIRST_LINE = b"(S (NNS Dogs))\n"


@pytest.mark.parametrize("kind", ["a pipe", "an endless device"])
def test_a_corpus_that_is_no_file_is_refused(kind, corpus, tmp_path, monkeypatch, capfd):
    path = tmp_path / "source"
    ODD_FILES[kind](path)
    with soon():
        options = {**training(corpus, tmp_path / "new"), "train_source": path}
        status, said = ended("train", options, monkeypatch, capfd)
    assert status == 2 and f"{path}: expected a file, which is read more than once, found" in said


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize("command", ["train", "evaluate", "translate", "parse"])
def test_a_text_without_line_feeds_is_not_read_into_one_line(
    command, name, trained, corpus, tmp_path, monkeypatch, capfd
):
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(FIRST_LINE + bytes(1 << 25), 1))
    else:
        with open(path, "wb") as file:
            file.write(FIRST_LINE)
            file.truncate(1 << 40)
    options = {
        "train": {**training(corpus, tmp_path / "new"), "train_source": path},
        "evaluate": {"model_dir": trained, "source": path, "reference": corpus / "train.de"},
        "translate": {"model_dir": trained, "score": path},
        "parse": {"task": "parsing", "model_dir": trained, "source": path},
    }[command]
    stdin = b"A horse!\n" * 3
    with soon():
        name = "evaluate" if command == "parse" else command
        status, said = ended(name, options, monkeypatch, capfd, stdin)
    assert status == 2 and f"{path}:2: expected lines of text, found one of more than 16," in said


def test_a_pipe_that_is_read_once_may_be_a_file_of_translations(
    trained, tmp_path, monkeypatch, capfd
):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("Ja.\n",))
    writer.start()
    with soon():
        options = {"model_dir": trained, "score": path}
        assert ended("translate", options, monkeypatch, capfd)[0] == 0
    writer.join()


@pytest.mark.parametrize("kind", ["an endless device", "a huge file", "a folder"])
def test_flags_are_not_read_from_what_never_ends(kind, tmp_path, capfd):
    from keras_transformer.cli.main import main

    path = tmp_path / "flags"
    ODD_FILES[kind](path)
    for given in ([f"--flagfile={path}"], ["--flagfile", str(path)]):
        with soon(), pytest.raises(SystemExit) as end, unchanged_flags():
            main(["cost", *given])
        assert end.value.code == 2
        assert str(path) in capfd.readouterr().err


@contextlib.contextmanager
def unchanged_flags():
    from absl import flags

    from keras_transformer.cli.flags import GROUPS

    known, headings = set(flags.FLAGS), dict(GROUPS)
    try:
        yield
    finally:
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)
        GROUPS.clear()
        GROUPS.update(headings)
