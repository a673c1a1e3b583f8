"""Layers made of other layers, down to the leaves, which Keras may have quantised."""

import inspect
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras

from keras_transformer.layers.configured import ConfiguredLayer
from keras_transformer.private_names import layers_within

_OF_LEAVES = ("_initializer", "_regularizer", "_constraint", "seed")  # ends of their names


class CompositeLayer(ConfiguredLayer):
    """A layer made of others; the innermost ones are its leaves.

    `leaves` sets arguments of the leaves that it creates. Its configuration records which parts
    are frozen, and which leaves are quantised, and how, because `trainable` and
    `keras.Model.quantize` change them without telling the layers around them.

    Args:
        leaves: initializers, regularizers, constraints and seeds of the leaves that the layer
            creates, by the name of their class: "Dense", "Dropout" or "LayerNormalization". Each
            dropout derives a seed of its own from a given one.
        **kwargs: arguments of `keras.layers.Layer`.

    Example:
        >>> dense = {"kernel_initializer": "he_normal", "kernel_regularizer": "l2"}
        >>> layer = FeedForward(64, 256, leaves={"Dense": dense, "Dropout": {"seed": 1}})
        >>> type(layer.hidden.kernel_regularizer).__name__
        'L2'
    """

    leaf_names: tuple[str, ...] = ()  # of the leaves that the layer and its parts may have

    def __init__(self, leaves: Mapping[str, Mapping[str, Any]] | None = None, **kwargs):
        super().__init__(**kwargs)
        self.leaves = dict(leaves or {})
        if unknown := self.leaves.keys() - set(self.leaf_names):
            raise ValueError(
                f"{type(self).__name__} has no leaves of the class {', '.join(sorted(unknown))}: "
                f"the names in `leaves` may be {', '.join(self.leaf_names)}"
            )
        names = {name for options in self.leaves.values() for name in options}
        if wrong := sorted(name for name in names if not name.endswith(_OF_LEAVES)):
            raise ValueError(
                f"leaves cannot set {', '.join(wrong)}, which the layer sets itself: give "
                "initializers, regularizers, constraints or a seed"
            )

    def new(self, layer_class: type[keras.layers.Layer], *args, name: str, **kwargs):
        """Creates a part of this layer, with its dtype policy and the arguments in `leaves`."""
        leaves = dict(self.leaves)
        if (seed := leaves.get("Dropout", {}).get("seed")) is not None:
            own_seed = zlib.crc32(f"{seed} {name}".encode())
            leaves["Dropout"] = {**leaves["Dropout"], "seed": own_seed}
        if issubclass(layer_class, CompositeLayer):
            kwargs["leaves"] = {
                name: leaves[name] for name in layer_class.leaf_names if name in leaves
            }
        else:
            # A copy of each initializer: one instance would give all leaves the same weights.
            options = keras.saving.serialize_keras_object(leaves.get(layer_class.__name__, {}))
            kwargs.update(keras.saving.deserialize_keras_object(options))
        return layer_class(
            *args, **kwargs, dtype=self.dtype_policy, name=name, trainable=self.trainable
        )

    def build_part(self, part: keras.layers.Layer, *shapes: tuple) -> None:
        """Builds a layer within this one, unless it is built, and freezes it if this one is frozen.

        Args:
            part: the layer, which may have been handed in.
            *shapes: shapes of the inputs, of which it gets as many as its `build` takes.

        Raises:
            ValueError: the part has layers that are not built, and no `build` that builds them.
        """
        if not self.trainable:
            part.trainable = False
        if part.built:
            return
        part.build(*shapes[: len(inspect.signature(part.build).parameters)])
        waiting = [inner.name for inner in layers_within(part) if not inner.built]
        if waiting and type(part).build is keras.layers.Layer.build:
            raise ValueError(
                f"{type(part).__name__} needs a method `build` that builds {', '.join(waiting)}, "
                "or a model with it could not be loaded"
            )

    def get_config(self):
        return {**super().get_config(), **quantized_parts(self), **frozen_parts(self)}

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        policies, frozen = config.pop("quantized", {}), config.pop("frozen", [])
        layer = super().from_config(config)
        set_policies(layer, policies)
        expect_quantized(layer, policies)
        freeze(layer, frozen)
        return layer


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
