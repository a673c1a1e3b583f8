"""Runs commands in this process, for speed, or in their own process, like a user."""

import contextlib
import importlib
import io
import runpy
import subprocess
import sys

import pytest
from absl import flags
from absl.testing import flagsaver
from helpers import ROOT

from keras_transformer.cli import main as cli
from keras_transformer.cli.flags import GROUPS
from keras_transformer.errors import UserError
from keras_transformer.training.preparation import prepare
from keras_transformer.training.trainer import record_start

TINY_MODEL = {
    "preset": "tiny",
    "vocab_size": 340,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "d_model": 16,
    "d_ff": 16,
    "num_heads": 2,
}
FEW_STEPS = {
    "dtype_policy": "float32",  # the same on every machine
    "steps": 2,
    "tokens_per_batch": 256,
    "max_length": 60,
    "checkpoint_steps": 1,
    "jit_compile": False,
}


def arguments(options):
    return [f"--{name}={value}" for name, value in options.items()]


def run(command, **options):
    """Runs a command in this process; exceptions of its `main` pass."""
    run_arguments(command, arguments(options))


def run_arguments(command, given):
    """Runs a command in this process, with flags as typed."""
    with own_flags():
        if command.endswith(".py"):
            main, parse = runpy.run_path(str(ROOT / command))["main"], flags.FLAGS
        else:
            module = module_of(command)
            module.define_flags()
            main, parse = module.COMMAND.main, module.COMMAND.parse
        parse([command, *given])
        main()


def module_of(command):
    return importlib.import_module(f"keras_transformer.cli.{command.replace('-', '_')}")


@contextlib.contextmanager
def own_flags():
    """Forgets the flags that the block defines."""
    known, headings = set(flags.FLAGS), dict(GROUPS)
    try:
        yield
    finally:
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)
        GROUPS.clear()
        GROUPS.update(headings)


def begin(job, strategy):
    """Begins or resumes a run as `keras_transformer.training.train` does, and trains nothing."""
    with contextlib.ExitStack() as until_begun:
        record_start(prepare(job, strategy, until_begun))


def run_process(command, *extra, stdin=b"", **options):
    """Runs a command in its own process, like a user."""
    program = [ROOT / command] if command.endswith(".py") else ["-m", "keras_transformer", command]
    return subprocess.run(
        [sys.executable, *program, *arguments(options), *extra],
        input=stdin,
        capture_output=True,
        timeout=600,
    )


def refused(command, **options):
    """Checks that a command refuses its flags in one line, and returns that line."""
    with pytest.raises(UserError) as error:
        run(command, **options)
    message = str(error.value)
    assert "\n" not in message
    return message


def ended(command, options, monkeypatch, capfd, stdin=b"Yes.\n"):
    """Runs a command in this process; returns its exit status and its error message."""
    with own_flags():
        module_of(command).define_flags()
        return ended_with_flags(command, options, monkeypatch, capfd, stdin)


def ended_with_flags(command, options, monkeypatch, capfd, stdin=b"Yes.\n"):
    """As `ended`, for a command whose flags are defined; they keep no value."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    capfd.readouterr()
    with flagsaver.flagsaver():
        try:
            others = flags.FLAGS([command, *arguments(options)])[1:]
        except flags.Error as error:
            return 2, " ".join(cli._explained(error, command).split())
        try:
            cli._run(module_of(command).COMMAND, command, others)
        except SystemExit as exit_:
            return exit_.code, capfd.readouterr().err
        return 0, ""
