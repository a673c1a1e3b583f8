"""Small models with uneven weights, and Python in a fresh process."""

import subprocess
import sys
from pathlib import Path

import keras
import numpy as np

from keras_transformer import Transformer, TransformerConfig

ROOT = Path(__file__).resolve().parent.parent


def small_model(seed: int = 0, **fields) -> Transformer:
    """A built model of two small layers a side; any field of the configuration, or `dtype`."""
    model_options = {"dtype": fields.pop("dtype")} if "dtype" in fields else {}
    defaults = dict(vocab_size=13, d_model=16, d_ff=24, num_heads=2, dropout=0.0, max_positions=32)
    layers = dict(num_encoder_layers=2, num_decoder_layers=2)
    keras.utils.set_random_seed(seed)  # fixtures of a module come before the seed of a test
    model = Transformer(TransformerConfig(**{**defaults, **layers, **fields}), **model_options)
    model.build()
    randomise(model, seed)
    return model


def lively_model(seed: int, vocab_size: int) -> Transformer:
    """An untrained model of a subword vocabulary, by which all sentences are translated apart."""
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    model = small_model(seed, vocab_size=vocab_size, tie_output=False, **layers)
    # Bytes that begin no character would all become the same sign.
    kernel = 3.0 * model.output_projection.kernel.numpy()
    kernel[:, : 4 + 256] = -1.0
    kernel[:, 2] = kernel[:, 300]
    model.output_projection.kernel.assign(kernel)
    return model


def randomise(layer, seed: int = 0):
    """Moves all weights: biases of 0 and scales of 1 would hide that they are not used."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        weight.assign(weight.numpy() + rng.normal(scale=0.2, size=weight.shape))


def run_python(script: str, *arguments) -> str:
    """Runs a script in a process of its own, from the project's folder; what it printed."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert process.returncode == 0, process.stderr
    return process.stdout
