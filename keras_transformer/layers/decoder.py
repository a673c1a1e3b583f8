"""The decoder: layers of self-attention and cross-attention (paper, section 3.1)."""

import keras
from keras import ops, tree

from keras_transformer.layers.block import BlockStack, TransformerBlock
from keras_transformer.layers.inputs import expect_sequence
from keras_transformer.layers.masks import combined_mask


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(TransformerBlock):
    """A decoder layer: causal self-attention, cross-attention, feed-forward network (section 3.1).

    Cross-attention attends to the memory, the encoder's output. Its layer is named
    `memory_attention`, and so are its weights in checkpoints.

    Args:
        d_model: width of the residual stream.
        num_heads: number of attention heads.
        d_ff: width of the feed-forward network's hidden layer.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        attention_bias: whether the projections of attention have biases.
        activation: activation of the feed-forward network's hidden layer.
        dropout: dropout rate on the output of each sub-layer, before the residual sum.
        attention_dropout: dropout rate on the attention weights.
        activation_dropout: dropout rate on the feed-forward network's hidden layer.
        pre_norm: whether to normalise the input of each sub-layer instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        layer_type: how positions relate to each other (paper, Table 1): "attention",
            "restricted", "recurrent", "convolutional" or "separable".
        radius: number of positions on either side that restricted attention reaches.
        kernel_size: width of the convolution kernel, in positions.
        causal: whether each position attends only to itself and earlier positions; default:
            True, as `step` requires.
        rotary: whether the queries and keys of self-attention are rotated by their position
            (Su et al., 2021).
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, target_length, d_model).
        memory: (batch, source_length, d_model), the encoder's output.
        source_mask: true where cross-attention may look: a padding mask (batch, source_length), an
            attention mask (batch, target_length, source_length), or one for each head
            (batch, num_heads or 1, target_length, source_length); None: no mask.
        mask: padding mask of `x`, (batch, target_length), true at real tokens; default: `x_mask`.
        x_mask: the same as `mask`, under the name by which Keras passes the mask that it has
            attached to `x`.
        memory_mask: padding mask of `memory`, (batch, source_length), true at real tokens;
            default: the one that Keras has attached to `memory`.

    Returns:
        (batch, target_length, d_model).

    Example:
        >>> x, memory = keras.random.normal((2, 7, 64)), keras.random.normal((2, 9, 64))
        >>> DecoderLayer(d_model=64, num_heads=4, d_ff=256)(x, memory).shape
        TensorShape([2, 7, 64])
    """

    is_causal = True

    def add_sublayers(self):
        super().add_sublayers()
        self.self_attention = self.new_self_attention("self_attention")
        self.self_attention_norm = self.new_norm("self_attention_norm")
        self.memory_attention = self.new_attention("memory_attention")
        self.memory_attention_norm = self.new_norm("memory_attention_norm")
        self.feed_forward = self.new_feed_forward("feed_forward")
        self.feed_forward_norm = self.new_norm("feed_forward_norm")

    def build(self, x_shape, memory_shape=None):
        self.build_sublayers(
            self.self_attention,
            self.self_attention_norm,
            self.memory_attention,
            self.memory_attention_norm,
            self.feed_forward,
            self.feed_forward_norm,
        )

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape

    def call(
        self,
        x,
        memory,
        source_mask=None,
        mask=None,
        x_mask=None,
        memory_mask=None,
        training=None,
    ):
        expect_sequence("x", x, self.d_model)
        expect_sequence("memory", memory, self.d_model, batch=x.shape[0])
        mask = x_mask if mask is None else mask
        source_mask = combined_mask(
            source_mask, memory_mask, x, memory, self.num_heads, name="source_mask"
        )

        def self_attention(x):
            return self.self_attention(x, mask=mask, training=training)

        def memory_attention(x):
            return self.memory_attention(x, memory, attention_mask=source_mask, training=training)

        return self._sublayers(x, self_attention, memory_attention, training)

    def prepare(self, memory):
        """Computes the keys and values of cross-attention, once per sentence."""
        keys, values = self.memory_attention.keys_and_values(memory)
        # As columns, because XLA would turn them in each step.
        return {"memory_keys": ops.swapaxes(keys, 2, 3), "memory_values": values}

    def step(self, x, position, cache, visible, prepared, source_mask):
        """Computes one position of every beam, given the positions before it.

        Args:
            x: (batch, beam_size, d_model), the beams' inputs at `position`.
            position: int32 (batch,), the position of `x` in each sentence.
            cache: self-attention's cache of the earlier positions, as `new_cache` makes it.
            visible: boolean (batch, 1, beam_size, size * beam_size), true where a cached entry, of
                one position and beam, belongs to the past of the query's beam.
            prepared: the result of `prepare`. The memory's keys and values are not repeated for
                each beam: in cross-attention, beams are just more queries.
            source_mask: as in `call`.

        Returns:
            (batch, beam_size, d_model) and the cache with this position written.
        """
        written = []

        def self_attention(x):
            x, new_cache = self.self_attention.step(x, position, cache, visible)
            written.append(new_cache)
            return x

        def memory_attention(x):
            return self.memory_attention.attend(
                self.memory_attention.queries(x),
                ops.swapaxes(prepared["memory_keys"], 2, 3),
                prepared["memory_values"],
                source_mask,
            )

        return self._sublayers(x, self_attention, memory_attention, training=False), written[0]

    def new_cache(self, batch, beam_size):
        """Creates an empty cache for `step`, of size 0."""
        return self.self_attention.new_cache(batch, beam_size)

    def _sublayers(self, x, self_attention, memory_attention, training):
        def feed_forward(x):
            return self.feed_forward(x, training=training)

        x = self.residual(x, self_attention, self.self_attention_norm, training)
        x = self.residual(x, memory_attention, self.memory_attention_norm, training)
        return self.residual(x, feed_forward, self.feed_forward_norm, training)


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(BlockStack):
    """A stack of decoder layers; with pre-norm, a normalisation follows the last one.

    Args:
        num_layers: number of layers, N.
        d_model: width of the residual stream.
        num_heads: number of attention heads.
        d_ff: width of the feed-forward network's hidden layer.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        attention_bias: whether the projections of attention have biases.
        activation: activation of the feed-forward network's hidden layer.
        dropout: dropout rate on the output of each sub-layer, before the residual sum.
        attention_dropout: dropout rate on the attention weights.
        activation_dropout: dropout rate on the feed-forward network's hidden layer.
        pre_norm: whether to normalise the input of each sub-layer instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        layer_type: how positions relate to each other (paper, Table 1): "attention",
            "restricted", "recurrent", "convolutional" or "separable".
        radius: number of positions on either side that restricted attention reaches.
        kernel_size: width of the convolution kernel, in positions.
        causal: whether each position attends only to itself and earlier positions; default:
            True, as `step` requires.
        rotary: whether the queries and keys of self-attention are rotated by their position
            (Su et al., 2021).
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, target_length, d_model).
        memory: (batch, source_length, d_model), the encoder's output.
        source_mask: true where cross-attention may look: a padding mask (batch, source_length), an
            attention mask (batch, target_length, source_length), or one for each head
            (batch, num_heads or 1, target_length, source_length); None: no mask.
        mask: padding mask of `x`, (batch, target_length), true at real tokens; default: `x_mask`.
        x_mask: the same as `mask`, under the name by which Keras passes the mask that it has
            attached to `x`.
        memory_mask: padding mask of `memory`, (batch, source_length), true at real tokens;
            default: the one that Keras has attached to `memory`.

    Returns:
        (batch, target_length, d_model).

    Example:
        >>> x, memory = keras.random.normal((2, 7, 64)), keras.random.normal((2, 9, 64))
        >>> Decoder(num_layers=2, d_model=64, num_heads=4, d_ff=256)(x, memory).shape
        TensorShape([2, 7, 64])
    """

    layer_class = DecoderLayer
    is_causal = True

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape)

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape

    def call(
        self,
        x,
        memory,
        source_mask=None,
        mask=None,
        x_mask=None,
        memory_mask=None,
        training=None,
    ):
        expect_sequence("x", x, self.d_model)
        expect_sequence("memory", memory, self.d_model, batch=x.shape[0])
        masks = {
            "source_mask": source_mask,
            "mask": x_mask if mask is None else mask,
            "memory_mask": memory_mask,
        }
        for layer in self.layers:
            x = layer(x, memory, **masks, training=training)
        return self.norm(x, training=training) if self.norm else x

    def prepare(self, memory):
        """Computes the keys and values of each layer's cross-attention, once per sentence."""
        return [layer.prepare(memory) for layer in self.layers]

    def new_cache(self, batch, beam_size):
        """Creates an empty cache for each layer's `step`."""
        return [layer.new_cache(batch, beam_size) for layer in self.layers]

    def grow_cache(self, cache, size):
        """Pads the cache so that it has room for `size` positions."""

        def with_room(x):
            room = [(0, 0)] * len(x.shape)
            room[-2] = (0, size - ops.shape(x)[-2])
            return ops.pad(x, room)

        return tree.map_structure(with_room, cache)

    def step(self, x, position, cache, visible, prepared, source_mask):
        """Runs `DecoderLayer.step` in each layer; `cache`, `prepared`: one entry per layer."""
        new_cache = []
        for layer, layer_cache, layer_prepared in zip(self.layers, cache, prepared, strict=True):
            x, layer_cache = layer.step(
                x, position, layer_cache, visible, layer_prepared, source_mask
            )
            new_cache.append(layer_cache)
        return (self.norm(x) if self.norm else x), new_cache
