"""A stack of layers, the base of encoder and decoder (paper, section 3.1)."""

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.layers.composite import CompositeLayer
from keras_transformer.layers.normalization import LayerNormalization


class Stack(CompositeLayer):
    """A stack of layers; after layers with `pre_norm`, a normalisation follows.

    Args:
        layers: the layers, in the order in which they run.
        **kwargs: arguments of `keras.layers.Layer`.
    """

    leaf_names = ("LayerNormalization",)  # of the last normalisation

    def __init__(self, layers: Sequence[keras.layers.Layer] = (), **kwargs):
        name = type(self).__name__
        is_list = isinstance(layers, Sequence) and bool(layers)
        if not is_list or not all(isinstance(layer, keras.layers.Layer) for layer in layers):
            raise TypeError(
                f"{name} takes a list of layers, such as {name}([{name}Layer(512, 8, 2048) for _ in"
                f" range(6)]): found {layers!r}"
            )
        super().__init__(**kwargs)
        self.layers = list(layers)
        last = self.layers[-1]
        self.norm = (
            self.new(LayerNormalization, getattr(last, "layer_norm_epsilon", 1e-6), name="norm")
            if getattr(last, "pre_norm", False)  # a layer of a user's own may have no such option
            else None
        )
        self.supports_masking = True
        self.input_spec = self.layers[0].input_spec

    def build_layers(self, *shapes):
        """Builds the layers that are not built, for inputs of these shapes."""
        for layer in self.layers:
            self.build_part(layer, *shapes)
        if self.norm is not None:
            self.build_part(self.norm, *shapes)

    def normalized(self, x):
        """Applies the normalisation that follows layers with `pre_norm`."""
        return x if self.norm is None else self.norm(x)

    def compute_output_shape(self, x_shape):
        return x_shape

    def new_cache(self, batch, beam_size):
        """Creates an empty cache for each layer's `step`."""
        return [layer.new_cache(batch, beam_size) for layer in self.layers]

    def grow_cache(self, cache, size):
        """Pads each cache to `size` entries: the number of positions times that of beams."""

        def with_room(x):
            room = [(0, 0)] * len(x.shape)
            room[-2] = (0, size - ops.shape(x)[-2])
            return ops.pad(x, room)

        return keras.tree.map_structure(with_room, cache)
