"""The decoder: layers of self-attention and cross-attention (paper, section 3.1)."""

import keras
from keras import ops, tree

from keras_transformer.layers.block import BlockStack, TransformerBlock


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(TransformerBlock):
    """Causal self-attention, cross-attention, a feed-forward network (paper, section 3.1).

    Cross-attention looks at the memory, the encoder's output. Its layer is `memory_attention`, by
    which its weights are named in checkpoints.

    Args:
        d_model: width of the residual stream.
        num_heads: attention heads.
        d_ff: width of the feed-forward network's hidden layer.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        attention_bias: whether the projections of attention have biases.
        activation: activation of the feed-forward network's hidden layer.
        dropout: rate on the output of every sub-layer, before it is added.
        attention_dropout: rate on the attention weights.
        activation_dropout: rate inside the feed-forward network.
        pre_norm: whether to normalise the input of each sub-layer instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        layer_type: how positions relate to each other (paper, Table 1): "attention",
            "restricted", "recurrent", "convolutional" or "separable".
        radius: the farthest that restricted attention looks to either side.
        kernel_size: positions that a convolution takes together.
        causal: whether self-attention looks only at a position and those before it; default:
            True, as `step` requires.
        rotary: whether the queries and keys of self-attention are rotated by their position
            (Su et al., 2021).
        **kwargs: those of `keras.layers.Layer`.

    Call arguments:
        x: (batch, target_length, d_model). A padding mask that Keras has attached to it is
            honoured in self-attention.
        memory: (batch, source_length, d_model), the encoder's output. A padding mask attached to
            it is honoured in cross-attention.
        source_mask: boolean or integer, true where cross-attention may look: a padding mask
            (batch, source_length), an attention mask (batch, target_length, source_length), or
            one for each head (batch, num_heads or 1, target_length, source_length); None for
            everywhere.

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

    def call(self, x, memory, source_mask=None, training=None):
        def self_attention(x):
            return self.self_attention(x, training=training)

        def memory_attention(x):
            return self.memory_attention(x, memory, attention_mask=source_mask, training=training)

        return self._sublayers(x, self_attention, memory_attention, training)

    def prepare(self, memory):
        """Computes keys and values of the cross-attention, once for a sentence."""
        keys, values = self.memory_attention.keys_and_values(memory)
        return {"memory_keys": keys, "memory_values": values}

    def step(self, x, position, cache, visible, prepared, source_mask):
        """Computes one position of every beam, given the positions before it.

        Args:
            x: (batch, beam_size, d_model), the beams' tokens at `position`.
            position: int32 (batch,), how far each sentence is.
            cache: what self-attention needs of the positions before, as `new_cache` makes it.
            visible: boolean (batch, 1, beam_size, size * beam_size), which cached positions of
                which beams each beam goes back to.
            prepared: what `prepare` returns. The memory's keys and values are not repeated for
                each beam: to them, beams are just more queries.
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
                prepared["memory_keys"],
                prepared["memory_values"],
                source_mask,
            )

        return self._sublayers(x, self_attention, memory_attention, training=False), written[0]

    def new_cache(self, batch, beam_size):
        """An empty cache for `step`, of size 0."""
        return self.self_attention.new_cache(batch, beam_size)

    def _sublayers(self, x, self_attention, memory_attention, training):
        def feed_forward(x):
            return self.feed_forward(x, training=training)

        x = self.residual(x, self_attention, self.self_attention_norm, training)
        x = self.residual(x, memory_attention, self.memory_attention_norm, training)
        return self.residual(x, feed_forward, self.feed_forward_norm, training)


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(BlockStack):
    """A stack of decoder layers, and with pre-norm a last normalisation.

    Args:
        num_layers: number of layers, N.
        d_model: width of the residual stream.
        num_heads: attention heads.
        d_ff: width of the feed-forward network's hidden layer.
        d_k: width of one head's queries and keys; default `d_model // num_heads`.
        d_v: width of one head's values; default `d_model // num_heads`.
        attention_bias: whether the projections of attention have biases.
        activation: activation of the feed-forward network's hidden layer.
        dropout: rate on the output of every sub-layer, before it is added.
        attention_dropout: rate on the attention weights.
        activation_dropout: rate inside the feed-forward network.
        pre_norm: whether to normalise the input of each sub-layer instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        layer_type: how positions relate to each other (paper, Table 1): "attention",
            "restricted", "recurrent", "convolutional" or "separable".
        radius: the farthest that restricted attention looks to either side.
        kernel_size: positions that a convolution takes together.
        causal: whether self-attention looks only at a position and those before it; default:
            True, as `step` requires.
        rotary: whether the queries and keys of self-attention are rotated by their position
            (Su et al., 2021).
        **kwargs: those of `keras.layers.Layer`.

    Call arguments:
        x: (batch, target_length, d_model). A padding mask that Keras has attached to it is
            honoured in self-attention.
        memory: (batch, source_length, d_model), the encoder's output. A padding mask attached to
            it is honoured in cross-attention.
        source_mask: boolean or integer, true where cross-attention may look: a padding mask
            (batch, source_length), an attention mask (batch, target_length, source_length), or
            one for each head (batch, num_heads or 1, target_length, source_length); None for
            everywhere.

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

    def call(self, x, memory, source_mask=None, training=None):
        for layer in self.layers:
            x = layer(x, memory, source_mask=source_mask, training=training)
        return self.norm(x, training=training) if self.norm else x

    def prepare(self, memory):
        """Computes keys and values of each layer's cross-attention, once for a sentence."""
        return [layer.prepare(memory) for layer in self.layers]

    def new_cache(self, batch, beam_size):
        """An empty cache for each layer's `step`."""
        return [layer.new_cache(batch, beam_size) for layer in self.layers]

    def grow_cache(self, cache, size):
        """The cache with room for `size` positions."""

        def with_room(x):
            room = [(0, 0)] * len(x.shape)
            room[-2] = (0, size - ops.shape(x)[-2])
            return ops.pad(x, room)

        return tree.map_structure(with_room, cache)

    def step(self, x, position, cache, visible, prepared, source_mask):
        """`DecoderLayer.step` through the stack; `cache` and `prepared` hold one entry a layer."""
        new_cache = []
        for layer, layer_cache, layer_prepared in zip(self.layers, cache, prepared, strict=True):
            x, layer_cache = layer.step(
                x, position, layer_cache, visible, layer_prepared, source_mask
            )
            new_cache.append(layer_cache)
        return (self.norm(x) if self.norm else x), new_cache
