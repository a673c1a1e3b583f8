"""Parts that a user has quantised or frozen after their layer was made.

The configurations of composite layers and of `Transformer` record them, so that a saved model is
loaded as it was.
"""

from collections.abc import Iterator, Mapping, Sequence

import keras

from keras_transformer.private_names import layers_within


def quantized_parts(layer: keras.layers.Layer) -> dict[str, dict[str, str]]:
    """Returns the entry `quantized` of a layer's configuration; nothing if no part is quantised.

    Raises:
        ValueError: a part has quantizers of its own, which the name of its dtype policy does not
            tell.
    """
    parts = {path: part for path, part in _parts(layer) if part.quantization_mode}
    for part in parts.values():
        if _has_own_quantizers(part):
            raise ValueError(
                f"{part.path} has quantizers of its own, and could not be loaded as it is: save "
                "the model before you quantize it, or quantize it by a mode alone, such as int8"
            )
    if not parts:
        return {}
    return {"quantized": {path: part.dtype_policy.name for path, part in parts.items()}}


def set_policies(layer: keras.layers.Layer, policies: Mapping[str, str]) -> None:
    """Sets the dtype policies of `quantized_parts`, in parts that are there and not built."""
    for path, part in _parts(layer):
        if path in policies and not part.built:
            part.dtype_policy = policies[path]


def expect_quantized(layer: keras.layers.Layer, policies: Mapping[str, str]) -> None:
    """Raises `ValueError` if `set_policies` has not found a part."""
    parts = dict(_parts(layer))
    missing = [path for path in policies if path not in parts or not parts[path].quantization_mode]
    if missing:
        raise ValueError(
            f"{type(layer).__name__} has not made all of its quantised parts when it is "
            f"constructed ({', '.join(missing)} are missing): make them in __init__, or save the "
            "model before you quantize it"
        )


def frozen_parts(layer: keras.layers.Layer) -> dict[str, list[str]]:
    """Returns the entry `frozen` of a layer's configuration; nothing if all parts are trainable."""
    paths = [path for path, part in _parts(layer) if not part.trainable]
    return {"frozen": paths} if paths else {}


def freeze(layer: keras.layers.Layer, paths: Sequence[str]) -> None:
    """Freezes the parts of `frozen_parts`."""
    for path, part in _parts(layer):
        if path in paths:
            part.trainable = False


def _parts(layer: keras.layers.Layer, prefix: str = "") -> Iterator[tuple[str, keras.layers.Layer]]:
    """Lists the layers within a layer by their indices, such as `2/0`: names may be automatic."""
    for index, part in enumerate(layers_within(layer)):
        yield f"{prefix}{index}", part
        yield from _parts(part, f"{prefix}{index}/")


def _has_own_quantizers(layer):
    def quantizers(config):
        both = (config.weight_quantizer, config.activation_quantizer)
        return [quantizer and quantizer.get_config() for quantizer in both]

    config = getattr(layer, "quantization_config", None)
    modes = keras.quantizers.Int8QuantizationConfig, keras.quantizers.Int4QuantizationConfig
    return isinstance(config, modes) and quantizers(config) != quantizers(type(config)())
