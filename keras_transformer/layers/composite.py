"""Layers made of other layers, down to the leaves."""

import inspect
import zlib
from collections.abc import Mapping
from typing import Any

import keras

from keras_transformer.layers.changed_parts import (
    expect_quantized,
    freeze,
    frozen_parts,
    quantized_parts,
    set_policies,
)
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
        if waiting and not _builds_itself(part):
            raise ValueError(
                f"{type(part).__name__} needs a method `build` that builds {', '.join(waiting)}, "
                "or a model with it could not be loaded"
            )

    def get_config(self):
        config = {**super().get_config(), **quantized_parts(self), **frozen_parts(self)}
        if self.built:
            # Keras would build a part before this layer, so its weights would have other paths.
            for name, value in config.items():
                parts = getattr(self, name, None)
                if not isinstance(parts, list):
                    parts, value = [parts], [value]
                for part, part_config in zip(parts, value, strict=True):
                    if isinstance(part, keras.layers.Layer) and _builds_itself(part):
                        _forget_builds(part_config)
        return config

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        policies, frozen = config.pop("quantized", {}), config.pop("frozen", [])
        layer = super().from_config(config)
        set_policies(layer, policies)
        expect_quantized(layer, policies)
        freeze(layer, frozen)
        return layer


def _builds_itself(layer):
    """Whether `build_part` can build a layer."""
    return type(layer).build is not keras.layers.Layer.build


def _forget_builds(config):
    """Removes the shapes by which Keras would build a layer, and those within it."""
    if isinstance(config, dict):
        config.pop("build_config", None)
        config = config.values()
    elif not isinstance(config, list):
        return
    for value in config:
        _forget_builds(value)
