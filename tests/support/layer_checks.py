"""One thorough test for every layer."""

import re
import warnings

import keras
import numpy as np
import pytest
from helpers import randomise
from keras import ops

BASE_CONFIG = {"name", "trainable", "dtype"}


def run_layer_test(layer_class, init_kwargs, inputs, output_shape, weights, any_width=False):
    """Checks everything that Keras and this package promise of a layer.

    Args:
        layer_class: the class of the layer.
        init_kwargs: function that makes the arguments of the class, with new layers among them.
        inputs: call arguments by name, as arrays; all dimensions except the last may vary.
        output_shape: shape of the output for `inputs`.
        weights: path of each weight within the layer, such as "query/kernel".
        any_width: whether the layer takes inputs of any width.
    """
    arguments = init_kwargs()
    layer = layer_class(**arguments, name="tested")
    _check_config(layer_class, layer, arguments)
    _check_build(layer, inputs, weights, output_shape)
    if not any_width:
        _check_other_widths_are_refused(layer, inputs)
    randomise(layer)
    output = _call(layer, inputs)
    assert output.shape == output_shape
    _check_serialisation(layer, inputs, output)
    _check_mixed_precision(layer_class, layer, init_kwargs, inputs, output)
    _check_attached_mask_travels_on(layer, inputs)
    _check_training(layer, inputs, output_shape)


def run_saving_test(layer_class, init_kwargs, inputs, folder):
    """Checks that a functional model with the layer is the same after saving and loading."""
    model = _functional(layer_class(**init_kwargs()), inputs)
    randomise(model)
    model.save(folder / "model.keras")
    loaded = keras.saving.load_model(folder / "model.keras")
    np.testing.assert_array_equal(loaded(inputs), model(inputs))


def _call(layer, inputs):
    """Passes the first argument by position and the others by name, like users."""
    first, *others = inputs
    return layer(inputs[first], **{name: inputs[name] for name in others})


def _functional(layer, inputs):
    symbols = {
        name: keras.Input((*[None] * (x.ndim - 2), x.shape[-1]), dtype=x.dtype.name, name=name)
        if x.dtype.kind == "f"
        else keras.Input((*x.shape[1:-1], None), dtype=x.dtype.name, name=name)
        for name, x in inputs.items()
    }
    return keras.Model(symbols, _call(layer, symbols))


def _check_config(layer_class, layer, init_kwargs):
    config = layer.get_config()
    for name in config.keys() - BASE_CONFIG:
        assert keras.saving.serialize_keras_object(getattr(layer, name)) == config[name], name
    for name, value in init_kwargs.items():
        assert config[name] == keras.saving.serialize_keras_object(value), name
    assert layer_class.from_config(config).get_config() == config


def _check_build(layer, inputs, weights, output_shape):
    shapes = {f"{name}_shape": x.shape for name, x in inputs.items() if "mask" not in name}
    layer.build(*shapes.values())
    assert layer.built
    assert layer.compute_output_shape(*shapes.values()) == output_shape
    assert layer.compute_output_shape(next(iter(shapes.values()))) == output_shape
    paths = [weight.path for weight in layer.weights]
    assert sorted(paths) == sorted(f"tested/{path}" for path in weights)
    assert all(re.fullmatch(r"([a-z_]|layer_\d+)+", part) for p in paths for part in p.split("/"))


def _check_other_widths_are_refused(layer, inputs):
    first = next(iter(inputs))
    x = inputs[first]
    if x.dtype.kind != "f":
        return
    for other in (np.concatenate([x, x], axis=-1), x[..., :1]):
        expected = rf"'tested' .* axis -1 .* {x.shape[-1]}, .*{re.escape(str(other.shape))}"
        with pytest.raises(ValueError, match=expected):
            _call(layer, {**inputs, first: other})


def _check_serialisation(layer, inputs, output):
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(layer))
    assert type(copy) is type(layer)
    assert copy.get_config() == layer.get_config()
    model = _functional(copy, inputs)
    assert model.output.shape == (*[None] * (output.ndim - 1), output.shape[-1])
    copy.set_weights(layer.get_weights())
    np.testing.assert_allclose(model(inputs), output, atol=1e-6)


def _check_mixed_precision(layer_class, layer, init_kwargs, inputs, output):
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        mixed = layer_class(**init_kwargs())
    finally:
        keras.config.set_dtype_policy("float32")
    mixed_output = _call(mixed, inputs)
    assert keras.backend.standardize_dtype(mixed_output.dtype) == "bfloat16"
    assert all(weight.dtype == "float32" for weight in mixed.weights)
    assert {part.dtype_policy.name for part in mixed._flatten_layers()} == {"mixed_bfloat16"}
    mixed.set_weights(layer.get_weights())
    mixed_output = ops.cast(_call(mixed, inputs), "float32")
    np.testing.assert_allclose(mixed_output, output, atol=0.05 * np.abs(output).max())


def _check_attached_mask_travels_on(layer, inputs):
    if not layer.supports_masking:
        return
    first = next(iter(inputs))
    masked = ops.convert_to_tensor(inputs[first])
    masked._keras_mask = mask = ops.convert_to_tensor(np.arange(masked.shape[1]) < [[3], [2]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Keras warns where a layer destroys a mask.
        output = _call(layer, {**inputs, first: masked})
    assert output._keras_mask is mask


def _check_training(layer, inputs, output_shape):
    if not layer.weights:
        return
    model = _functional(layer, inputs)
    model.compile(keras.optimizers.SGD(1.0), "mse")
    before = model.get_weights()
    target = np.random.default_rng(1).normal(size=output_shape)
    model.fit(inputs, target, batch_size=output_shape[0], verbose=0)
    check_weights_moved(model, before)


def check_weights_moved(model, before):
    """Checks that each weight is finite, and has changed unless nothing depends on it."""
    for weight, old in zip(model.weights, before, strict=True):
        value = ops.convert_to_numpy(weight)
        assert np.all(np.isfinite(value)), weight.path
        if weight.path.endswith("key/bias"):
            continue  # adds the same to all scores of a query, so that nothing depends on it
        assert np.any(value != old), f"{weight.path} is not trained"
