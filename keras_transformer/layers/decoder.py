"""The decoder: a stack of layers that also attend to the encoder's output (paper, section 3.1)."""

import keras
from keras import ops

from keras_transformer.layers.attention import causal_mask
from keras_transformer.layers.block import BlockStack, TransformerBlock


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(TransformerBlock):
    """Causal self-attention, attention to the memory, a feed-forward network (paper, section 3.1).

    The memory is the encoder's output. Arguments are those of `TransformerBlock`.

    Call arguments:
        x: (batch, target_length, d_model).
        memory: (batch, source_length, d_model).
        source_mask: boolean, broadcastable to (batch, num_heads, target_length, source_length),
            true where attention may look, as `padding_mask` makes it of the source.

    Returns:
        (batch, target_length, d_model).

    Example:
        >>> x, memory = keras.random.normal((2, 7, 64)), keras.random.normal((2, 9, 64))
        >>> DecoderLayer(d_model=64, num_heads=4, d_ff=256)(x, memory).shape
        TensorShape([2, 7, 64])
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.self_attention = self.new_attention("self_attention")
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
        mask = causal_mask(ops.shape(x)[1])

        def self_attention(x):
            return self.self_attention(x, x, attention_mask=mask, training=training)

        def memory_attention(x):
            return self.memory_attention(x, memory, attention_mask=source_mask, training=training)

        return self._sublayers(x, self_attention, memory_attention, training)

    def step(self, x, position, cache, memory, source_mask):
        """One position of every beam, given those before it.

        Args:
            x: (batch, beam_size, d_model), the beams' tokens at `position`.
            position: scalar integer tensor.
            cache: keys and values of the positions before, as `new_cache` makes it.
            memory: `memory_attention.keys_and_values` of the memory. They are not repeated for
                each beam: to them, beams are just more queries.
            source_mask: as in `call`.

        Returns:
            (batch, beam_size, d_model) and the cache with this position written.
        """
        batch, beam_size = ops.shape(x)[:2]
        written = {}

        def self_attention(x):
            row = ops.reshape(x, (batch * beam_size, 1, self.d_model))
            keys, values = self.self_attention.keys_and_values(row)
            written["keys"] = _write(cache["keys"], keys, position)
            written["values"] = _write(cache["values"], values, position)
            seen = ops.arange(ops.shape(cache["keys"])[3]) <= position
            row = self.self_attention.attend(
                row, _merge_beams(written["keys"]), _merge_beams(written["values"]), seen
            )
            return ops.reshape(row, (batch, beam_size, self.d_model))

        def memory_attention(x):
            return self.memory_attention.attend(x, *memory, source_mask)

        return self._sublayers(x, self_attention, memory_attention, training=False), written

    def new_cache(self, batch, beam_size, length):
        """Room for the keys and values of `length` positions: (batch, beam, head, position, d)."""
        shape = (batch, beam_size, self.num_heads, length)
        return {
            "keys": ops.zeros((*shape, self.d_k), self.compute_dtype),
            "values": ops.zeros((*shape, self.d_v), self.compute_dtype),
        }

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
        *args, **kwargs: the arguments of `TransformerBlock`.

    Call arguments and result are those of `DecoderLayer`.

    Example:
        >>> x, memory = keras.random.normal((2, 7, 64)), keras.random.normal((2, 9, 64))
        >>> Decoder(num_layers=2, d_model=64, num_heads=4, d_ff=256)(x, memory).shape
        TensorShape([2, 7, 64])
    """

    layer_class = DecoderLayer

    def build(self, x_shape, memory_shape=None):
        super().build(x_shape)

    def call(self, x, memory, source_mask=None, training=None):
        for layer in self.layers:
            x = layer(x, memory, source_mask=source_mask, training=training)
        return self.norm(x) if self.norm else x

    def memory_keys_and_values(self, memory):
        """What each layer's `step` takes as memory: computed once for a sentence."""
        return [layer.memory_attention.keys_and_values(memory) for layer in self.layers]

    def new_cache(self, batch, beam_size, length):
        """An empty cache for each layer's `step`."""
        return [layer.new_cache(batch, beam_size, length) for layer in self.layers]

    def step(self, x, position, cache, memory, source_mask):
        """`DecoderLayer.step` through the stack; `cache` and `memory` hold one entry a layer."""
        new_cache = []
        for layer, layer_cache, layer_memory in zip(self.layers, cache, memory, strict=True):
            x, layer_cache = layer.step(x, position, layer_cache, layer_memory, source_mask)
            new_cache.append(layer_cache)
        return (self.norm(x) if self.norm else x), new_cache


def _merge_beams(x):
    """(batch, beam, ...) to (batch * beam, ...)."""
    batch, beam_size, *rest = ops.shape(x)
    return ops.reshape(x, (batch * beam_size, *rest))


def _write(cache, new, position):
    """The cache (batch, beam, head, length, d) with `new` (batch * beam, head, 1, d) written."""
    here = ops.equal(ops.arange(ops.shape(cache)[3]), position)[:, None]
    batch, beam_size, num_heads, _, width = ops.shape(cache)
    return ops.where(here, ops.reshape(new, (batch, beam_size, num_heads, 1, width)), cache)
