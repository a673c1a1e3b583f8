"""Small models with uneven weights, and Python in a fresh process."""

import io
import os
import subprocess
import sys
import unicodedata
from pathlib import Path

import keras
import numpy as np
from sentencepiece import SentencePieceTrainer

from keras_transformer import Transformer, TransformerConfig

ROOT = Path(__file__).resolve().parents[2]


def small_model(seed: int = 0, **fields) -> Transformer:
    """A built model with two small layers on each side; `fields` may include `dtype`."""
    model_options = {"dtype": fields.pop("dtype")} if "dtype" in fields else {}
    defaults = dict(vocab_size=13, d_model=16, d_ff=24, num_heads=2, dropout=0.0, max_positions=32)
    layers = dict(num_encoder_layers=2, num_decoder_layers=2)
    keras.utils.set_random_seed(seed)  # fixtures of a module come before the seed of a test
    model = Transformer(TransformerConfig(**{**defaults, **layers, **fields}), **model_options)
    randomise(model, seed)
    return model


def lively_model(seed: int, vocab_size: int) -> Transformer:
    """An untrained model for a subword vocabulary that translates every sentence differently.

    No two symbols are equally likely, so that no two ways to search differ by chance. The first
    feature of its last layer is 1, so that its weights act as biases of the symbols.
    """
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    model = small_model(seed, vocab_size=vocab_size, tie_output=False, **layers)
    norm = model.decoder.layers[-1].feed_forward_norm
    norm.gamma.assign([0.0, *norm.gamma[1:]])
    norm.beta.assign([1.0, *norm.beta[1:]])
    kernel = 3.0 * model.output_projection.kernel.numpy()
    # Invalid bytes would all become the same character. The end symbol comes now and then.
    kernel[0, : 4 + 256] = -30.0
    kernel[0, 2] = -2.0
    model.output_projection.kernel.assign(kernel)
    return model


def sentencepiece_model(sentences, **options) -> bytes:
    """A SentencePiece model as users make it, without byte pieces, with our ids of symbols."""
    model = io.BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(sentences),
        model_writer=model,
        hard_vocab_limit=False,
        pad_id=0,
        bos_id=1,
        eos_id=2,
        unk_id=3,
        minloglevel=2,
        **options,
    )
    return model.getvalue()


def randomise(layer, seed: int = 0):
    """Changes all weights at random: an unused bias of 0 or scale of 1 would go unnoticed."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(weight.numpy() + rng.normal(scale=0.2, size=weight.shape))


def users_environment() -> dict[str, str]:
    """The environment without what `conftest` sets so that XLA compiles faster."""
    return {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}


def run_python(script: str, *arguments, stdin: str = "", env: dict | None = None) -> str:
    """Runs a script in its own process, from the project's folder; returns what it printed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.run(
        command, cwd=ROOT, env=env, input=stdin, capture_output=True, text=True, timeout=600
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


# Marks of direction, word joiners and byte order marks.
DRAWING = set(map(chr, [0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), 0xFEFF]))
DRAWING |= set(map(chr, [*range(0x2060, 0x2065), *range(0x2066, 0x206A)]))


def as_read(line: str) -> str:
    """A line of a file as it should be read: characters that nobody sees, by their categories."""
    characters = []
    for character in line.removesuffix("\r"):
        category = unicodedata.category(character)
        if category in ("Cc", "Zl", "Zp") or character == "\u200b":  # zero-width space
            characters.append(" ")
        elif character not in DRAWING:
            characters.append(character)
    return "".join(characters).strip()
