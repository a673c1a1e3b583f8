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
            if issubclass(layer_class, ConfiguredLayer) and "__init__" in vars(layer_class)
            for name, parameter in inspect.signature(layer_class.__init__).parameters.items()
            if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
            and name != "self"
        }
        arguments = {name: getattr(self, name) for name in names if hasattr(self, name)}
        # The name and the dtype of Keras's own configuration, which a subclass may name too, win.
        return {**keras.saving.serialize_keras_object(arguments), **super().get_config()}

    def stateless_call(
        self,
        trainable_variables,
        non_trainable_variables,
        *args,
        return_losses=False,
        **kwargs,
    ):
        """Computes as Keras's method does, but calls the layer instead of its `call`.

        So `training` reaches the leaves, although `call` need not take it.
        """
        mapping = [
            *zip(self.trainable_variables, trainable_variables, strict=True),
            *zip(self.non_trainable_variables, non_trainable_variables, strict=True),
        ]
        with keras.StatelessScope(mapping, collect_losses=return_losses) as scope:
            outputs = self(*args, **kwargs)
            losses = self.losses if return_losses else None
        updated = [scope.get_current_value(each) for each in self.non_trainable_variables]
        return (outputs, updated, losses) if return_losses else (outputs, updated)

    @classmethod
    def from_config(cls, config):
        return cls(**keras.saving.deserialize_keras_object(config))
