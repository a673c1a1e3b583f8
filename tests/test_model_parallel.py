"""`Transformer.get_layout_map` splits a model over devices, on JAX."""

import os

import keras
import pytest
from helpers import run_python, small_model

from keras_transformer import Transformer

ROWS, COLUMNS, BIAS = ("model", None), (None, "model"), ("model",)
LAYOUTS = {  # by the end of a weight's path; None: replicated
    "source_embedding/embeddings": ROWS,
    "target_embedding/embeddings": ROWS,
    "target_embedding/bias": BIAS,
    "query/kernel": COLUMNS,
    "query/bias": BIAS,
    "key/kernel": COLUMNS,
    "key/bias": BIAS,
    "value/kernel": COLUMNS,
    "value/bias": BIAS,
    "attention/output/kernel": ROWS,
    "attention/output/bias": None,
    "hidden/kernel": COLUMNS,
    "hidden/bias": BIAS,
    "feed_forward/output/kernel": ROWS,
    "feed_forward/output/bias": None,
    "output_projection/kernel": COLUMNS,
    "output_projection/bias": BIAS,
    "norm/gamma": None,
    "norm/beta": None,
    "positions/table": None,
    "convolution/kernel": None,
    "convolution/bias": None,
    "gru_cell/kernel": None,
    "gru_cell/recurrent_kernel": None,
    "gru_cell/bias": None,
}
MODELS = [
    {"attention_bias": True, "share_embeddings": False, "output_bias": True},
    {"tie_output": False, "output_bias": True, "positions": "learned", "pre_norm": True},
    {"layer_type": "recurrent"},
    {"layer_type": "convolutional", "kernel_size": 3},
]


def device_mesh():
    devices = [f"cpu:{i}" for i in range(4)]
    return keras.distribution.DeviceMesh((2, 2), ["batch", "model"], devices)


def test_each_weight_is_split_or_replicated_on_purpose():
    layout_map = Transformer.get_layout_map(device_mesh())
    seen = set()
    for fields in MODELS:
        for weight in small_model(**fields).weights:
            [end] = [end for end in LAYOUTS if weight.path.endswith((f"/{end}", f"_{end}"))]
            layout = layout_map[weight.path]
            assert (layout and tuple(layout.axes)) == LAYOUTS[end], weight.path
            seen.add(end)
    assert seen == set(LAYOUTS)


def test_the_names_of_the_axes_may_be_others():
    mesh = keras.distribution.DeviceMesh((1, 2), ["data", "parts"], ["cpu:0", "cpu:1"])
    layout_map = Transformer.get_layout_map(mesh, "parts", "data")
    assert layout_map["transformer/source_embedding/embeddings"].axes == ("parts", None)


def test_an_axis_that_the_mesh_does_not_have_is_an_error():
    with pytest.raises(ValueError, match="no axis 'modle': its axes are batch, model"):
        Transformer.get_layout_map(device_mesh(), model_parallel_dim_name="modle")
    with pytest.raises(ValueError, match="no axis 'data': its axes are batch, model"):
        Transformer.get_layout_map(device_mesh(), data_parallel_dim_name="data")


ON_FOUR_DEVICES = """
import sys
sys.modules["tensorflow"] = None
import jax, keras, numpy as np
import keras_transformer as kt

rng = np.random.default_rng(0)
labels = rng.integers(3, 12, size=(8, 6)).astype("int32")
labels[np.arange(6) >= rng.integers(1, 7, size=(8, 1))] = 0
inputs = {"source_ids": labels[:, ::-1].copy(),
          "target_ids": np.pad(labels, ((0, 0), (1, 0)), constant_values=1)[:, :-1]}
config = kt.TransformerConfig(vocab_size=12, num_encoder_layers=1, num_decoder_layers=1, d_model=8,
                              d_ff=16, num_heads=2, dropout=0.0, attention_bias=True)

def trained():
    keras.utils.set_random_seed(1)
    model = kt.Transformer(config)
    model.compile(keras.optimizers.Adam(0.01, epsilon=1e-3), kt.LabelSmoothedCrossEntropy(0.1))
    losses = model.fit(inputs, labels, batch_size=8, epochs=2, verbose=0).history["loss"]
    return model, model.get_weights(), losses

_, one, one_losses = trained()
assert jax.device_count() == 4
mesh = keras.distribution.DeviceMesh(
    (2, 2), ["batch", "model"], keras.distribution.list_devices())
layout_map = kt.Transformer.get_layout_map(mesh)
keras.distribution.set_distribution(
    keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch"))
model, four, four_losses = trained()
np.testing.assert_allclose(four_losses, one_losses, rtol=0, atol=1e-5)
assert one_losses[1] < one_losses[0]
for a, b in zip(one, four, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
for weight in model.trainable_weights:
    value, is_split = weight.value, layout_map[weight.path] is not None
    assert len(value.sharding.device_set) == 4
    part = value.addressable_shards[0].data
    assert part.size * (2 if is_split else 1) == value.size, weight.path
print("equal")
"""


@pytest.mark.slow
def test_four_devices_take_the_steps_that_one_takes():
    flags = "--xla_force_host_platform_device_count=4"
    environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_FLAGS": flags}
    assert run_python(ON_FOUR_DEVICES, env=environment).strip().endswith("equal")
