"""The package on Keras's JAX backend, with several devices; skipped where there is no JAX."""

import os
import subprocess
import sys

import pytest
from helpers import ROOT

SCRIPT = """
import jax, keras, numpy as np
import keras_transformer as kt

rng = np.random.default_rng(0)
labels = rng.integers(3, 11, size=(160, 6)).astype("int32")
labels[np.arange(6) >= rng.integers(1, 7, size=(160, 1))] = 0
inputs = {"source_ids": labels[:, ::-1] + 1,
          "target_ids": np.pad(labels, ((0, 0), (1, 0)), constant_values=1)[:, :-1]}
config = kt.TransformerConfig(vocab_size=12, num_encoder_layers=1, num_decoder_layers=1, d_model=8,
                              d_ff=16, num_heads=2, dropout=0.0)

def trained():
    keras.utils.set_random_seed(1)
    model = kt.Transformer(config)
    model.build()
    model.compile(keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-9),
                  kt.LabelSmoothedCrossEntropy(0.1), metrics=[kt.TokenAccuracy()])
    history = model.fit(inputs, labels, batch_size=8, shuffle=False, verbose=0).history
    assert int(model.optimizer.iterations) == 20
    devices = len(model.weights[0].value.sharding.device_set)
    return model.get_weights(), history["token_accuracy"][0], devices

one, accuracy, devices = trained()
assert devices == 1
assert jax.device_count() == 2
keras.distribution.set_distribution(keras.distribution.DataParallel())
two, two_accuracy, devices = trained()
assert devices == 2
for a, b in zip(one, two, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
assert abs(accuracy - two_accuracy) < 1e-6
print("equal")
"""


def test_two_devices_take_the_steps_that_one_takes():
    """Of this Python, or of the one that JAX_PYTHON names, whose environment has JAX."""
    python = os.environ.get("JAX_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import jax"], capture_output=True).returncode:
        pytest.skip(f"{python} has no JAX; JAX_PYTHON may name one that has")
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": str(ROOT),
    }
    process = subprocess.run(
        [python, "-c", SCRIPT], env=environment, cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    assert process.stdout.strip().endswith("equal")
