"""Residual connections around each part of a layer (paper, section 3.1)."""

import keras

from keras_transformer.errors import expect_at_least, expect_rate
from keras_transformer.layers.composite import CompositeLayer
from keras_transformer.layers.dropout import Dropout
from keras_transformer.layers.normalization import LayerNormalization


class ResidualLayer(CompositeLayer):
    """The base of encoder and decoder layers: a residual connection around each sub-layer, or part.

    `norm(x + dropout(part(x)))`, as in the paper; with `pre_norm`, `x + dropout(part(norm(x)))`.

    Args:
        d_model: width of input and output.
        dropout: dropout rate on the output of each part.
        pre_norm: whether to normalise the input of each part instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        **kwargs: arguments of `CompositeLayer`, such as `leaves`, and of `keras.layers.Layer`.
    """

    leaf_names = ("Dense", "Dropout", "LayerNormalization")

    def __init__(
        self, d_model: int, dropout: float, pre_norm: bool, layer_norm_epsilon: float, **kwargs
    ):
        super().__init__(**kwargs)
        expect_at_least(1, "d_model", d_model)
        expect_rate("dropout", dropout)
        self.d_model = d_model
        self.dropout = dropout
        self.pre_norm = pre_norm
        self.layer_norm_epsilon = layer_norm_epsilon
        self.supports_masking = True
        self.input_spec = keras.InputSpec(ndim=3, axes={-1: d_model})
        self.residual_dropout = self.new(Dropout, dropout, name="residual_dropout")

    def new_norm(self, name: str) -> LayerNormalization:
        """Creates the normalisation of one part."""
        return self.new(LayerNormalization, self.layer_norm_epsilon, name=name)

    def build_parts(self, *parts):
        """Builds the parts that are not built, for inputs of width `d_model`."""
        for part in parts:
            self.build_part(part, (None, None, self.d_model))

    def input_of_part(self, x, norm):
        """Computes what a part is applied to: `norm(x)` with `pre_norm`, else `x`."""
        return norm(x) if self.pre_norm else x

    def add(self, x, update, norm):
        """Adds the output of a part to the input `x` of the residual connection."""
        x = self.residual_dropout(update, residual=x)
        return x if self.pre_norm else norm(x)

    def apply_self_attention(self, x, attention_mask, mask):
        """Computes the first part, which is the same in encoder and decoder."""
        update = self.self_attention(
            self.input_of_part(x, self.self_attention_norm),
            attention_mask=attention_mask,
            mask=mask,
        )
        return self.add(x, update, self.self_attention_norm)

    def step_self_attention(self, x, past, cache):
        """Computes the first part for one position; returns its output and the new cache."""
        update, cache = self.self_attention.step(
            self.input_of_part(x, self.self_attention_norm), past, cache
        )
        return self.add(x, update, self.self_attention_norm), cache

    def apply_feed_forward(self, x):
        """Computes the last part, which is the same in encoder and decoder."""
        update = self.feed_forward(self.input_of_part(x, self.feed_forward_norm))
        return self.add(x, update, self.feed_forward_norm)

    def new_cache(self, batch, beam_size):
        """Creates an empty cache for `step`, of size 0.

        Raises:
            ValueError: self-attention is not causal, so later positions would change earlier ones.
        """
        if not getattr(self.self_attention, "causal", True):
            raise ValueError(f"{self.name} cannot take single steps: its attention is not causal")
        return self.self_attention.new_cache(batch, beam_size)

    def compute_output_shape(self, x_shape):
        return x_shape
