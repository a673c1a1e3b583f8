"""Layers whose configuration is made of the arguments of their constructors."""

import inspect

import keras


class ConfiguredLayer(keras.layers.Layer):
    """A layer that has an attribute for each argument of its constructor.

    `get_config` returns these attributes, so that an argument is declared in the signature alone. A
    subclass that has no attribute for an argument of its own overrides `get_config`, as in Keras.
    """

    def get_config(self):
        names = {
            name: None
            for layer_class in reversed(type(self).__mro__)
            if issubclass(layer_class, ConfiguredLayer)
            for name, parameter in inspect.signature(layer_class.__init__).parameters.items()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD and name != "self"
        }
        arguments = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return {**super().get_config(), **keras.saving.serialize_keras_object(arguments)}

    @classmethod
    def from_config(cls, config):
        return cls(**keras.saving.deserialize_keras_object(config))
