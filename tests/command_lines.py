"""The command lines, run in this process, for speed, or in one of their own, as a person does."""

import runpy
import subprocess
import sys

import pytest
from absl import flags
from helpers import ROOT

from keras_transformer.errors import UserError

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
    "steps": 2,
    "tokens_per_batch": 256,
    "max_length": 60,
    "checkpoint_steps": 1,
    "jit_compile": False,
}


def arguments(options):
    return [f"--{name}={value}" for name, value in options.items()]


def run(script, **options):
    """Runs a command line in this process; what its `main` raises passes."""
    known = set(flags.FLAGS)
    try:
        main = runpy.run_path(str(ROOT / script))["main"]
        flags.FLAGS([script, *arguments(options)])
        main()
    finally:
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)


def run_process(script, *extra, stdin=b"", **options):
    """Runs a command line in a process of its own, as a person does."""
    command = [sys.executable, ROOT / script, *arguments(options), *extra]
    return subprocess.run(command, input=stdin, capture_output=True, timeout=600)


def refused(script, **options):
    """The one line with which a command line refuses its flags."""
    with pytest.raises(UserError) as error:
        run(script, **options)
    message = str(error.value)
    assert "\n" not in message
    return message
