"""The decoder: layers of self-attention and cross-attention (paper, section 3.1)."""

import keras
from keras import ops

from keras_transformer.layers.attention import MultiHeadAttention
from keras_transformer.layers.feed_forward import FeedForward
from keras_transformer.layers.given_parts import expect_size, given_part
from keras_transformer.layers.inputs import expect_sequence
from keras_transformer.layers.masks import combined_mask, first_given
from keras_transformer.layers.residual import ResidualLayer
from keras_transformer.layers.self_attention import SelfAttention
from keras_transformer.layers.stack import Stack


@keras.saving.register_keras_serializable("keras_transformer")
class DecoderLayer(ResidualLayer):
    """A decoder layer: causal self-attention, cross-attention, feed-forward network (section 3.1).

    Cross-attention attends to the memory, the encoder's output. Its layer is named
    `memory_attention`, and so are its weights in checkpoints.

    Args:
        d_model: width of input and output.
        num_heads: number of heads of the attention that the layer creates; needed unless
            `self_attention` and `memory_attention` are given.
        d_ff: width of the hidden layer of the network that the layer creates; needed unless
            `feed_forward` is given.
        dropout: dropout rate on the output of each part, before it is added to its input.
        pre_norm: whether to normalise the input of each part instead of the sum after it.
        layer_norm_epsilon: epsilon of the layer normalisation.
        self_attention: the layer that relates positions to each other, which must be causal for
            `step`; default: `SelfAttention(d_model, num_heads, causal=True)`.
        memory_attention: the cross-attention; default: `MultiHeadAttention(d_model, num_heads)`.
        feed_forward: the layer that follows; default: `FeedForward(d_model, d_ff)`.
        **kwargs: arguments of `CompositeLayer`, such as `leaves`, and of `keras.layers.Layer`.

    Call arguments:
        x: (batch, target_length, d_model).
        memory: (batch, source_length, width), the encoder's output, of any width.
        source_mask: true where cross-attention may look: a padding mask (batch, source_length), an
            attention mask (batch, target_length, source_length), or one for each head
            (batch, num_heads or 1, target_length, source_length); None: no mask.
        attention_mask: true where self-attention may look, in the same shapes, with target_length
            for source_length; None: no mask but the causal one.
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

    def __init__(
        self,
        d_model: int,
        num_heads: int | None = None,
        d_ff: int | None = None,
        dropout: float = 0.1,
        pre_norm: bool = False,
        layer_norm_epsilon: float = 1e-6,
        self_attention: keras.layers.Layer | None = None,
        memory_attention: MultiHeadAttention | None = None,
        feed_forward: keras.layers.Layer | None = None,
        **kwargs,
    ):
        super().__init__(d_model, dropout, pre_norm, layer_norm_epsilon, **kwargs)
        both_given = self_attention is not None and memory_attention is not None
        self.num_heads = expect_size(
            "num_heads", num_heads, "self_attention and memory_attention", both_given
        )
        self.d_ff = expect_size("d_ff", d_ff, "feed_forward", feed_forward is not None)
        self.self_attention = (
            self.new(SelfAttention, d_model, num_heads, causal=True, name="self_attention")
            if self_attention is None
            else given_part("self_attention", self_attention)
        )
        self.self_attention_norm = self.new_norm("self_attention_norm")
        self.memory_attention = (
            self.new(MultiHeadAttention, d_model, num_heads, name="memory_attention")
            if memory_attention is None
            else given_part("memory_attention", memory_attention, MultiHeadAttention)
        )
        self.memory_attention_norm = self.new_norm("memory_attention_norm")
        self.feed_forward = (
            self.new(FeedForward, d_model, d_ff, name="feed_forward")
            if feed_forward is None
            else given_part("feed_forward", feed_forward)
        )
        self.feed_forward_norm = self.new_norm("feed_forward_norm")

    def build(self, x_shape, memory_shape=None):
        self.build_part(self.memory_attention, (None, None, self.d_model), memory_shape)
        self.build_parts(
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
        attention_mask=None,
        mask=None,
        x_mask=None,
        memory_mask=None,
    ):
        expect_sequence("x", x, self.d_model)
        expect_sequence("memory", memory, self.memory_attention.value_width, batch=x.shape[0])
        x = self.apply_self_attention(x, attention_mask, first_given(mask, x_mask))
        source_mask = combined_mask(
            source_mask, [memory_mask], x, memory, self.memory_attention.num_heads, "source_mask"
        )
        update = self.memory_attention(
            self.input_of_part(x, self.memory_attention_norm),
            memory,
            value_mask=memory_mask,  # else Keras fills it in from the memory
            attention_mask=source_mask,
        )
        return self.apply_feed_forward(self.add(x, update, self.memory_attention_norm))

    def prepare(self, memory):
        """Computes the keys and values of cross-attention, once per sentence."""
        # As columns, because XLA would turn them in each step.
        return {
            "memory_keys": ops.swapaxes(self.memory_attention.keys(memory), 2, 3),
            "memory_values": self.memory_attention.values(memory),
        }

    def step(self, x, past, cache, prepared, source_mask):
        """Computes one position of every beam, given the positions before it.

        Args:
            x: (batch * beam_size, d_model), the inputs of all beams at this position.
            past: a `Past`, the position and what each beam sees of the earlier ones.
            cache: self-attention's cache of the earlier positions, as `new_cache` makes it, with
                room for this one.
            prepared: the result of `prepare`. The memory's keys and values are not repeated for
                each beam: in cross-attention, beams are just more queries.
            source_mask: boolean (batch, 1, 1, source_length), true at real tokens; None: no mask.

        Returns:
            (batch * beam_size, d_model) and the cache with this position written.
        """
        x, cache = self.step_self_attention(x, past, cache)
        query = self.input_of_part(x, self.memory_attention_norm)
        update = self.memory_attention.attend(
            self.memory_attention.queries(query, past.beam_size),
            ops.swapaxes(prepared["memory_keys"], 2, 3),
            prepared["memory_values"],
            source_mask,
        )
        return self.apply_feed_forward(self.add(x, update, self.memory_attention_norm)), cache


@keras.saving.register_keras_serializable("keras_transformer")
class Decoder(Stack):
    """A stack of decoder layers; after layers with `pre_norm`, a normalisation follows.

    Args:
        layers: the layers, one `DecoderLayer` for each of the N of the paper.
        **kwargs: arguments of `keras.layers.Layer`.

    Call arguments:
        x: (batch, target_length, d_model).
        memory: (batch, source_length, width), the encoder's output, of any width.
        source_mask, attention_mask, mask, x_mask, memory_mask: as in `DecoderLayer`.

    Returns:
        (batch, target_length, d_model).

    Example:
        >>> decoder = Decoder([DecoderLayer(64, num_heads=4, d_ff=256) for _ in range(2)])
        >>> x, memory = keras.random.normal((2, 7, 64)), keras.random.normal((2, 9, 64))
        >>> decoder(x, memory).shape
        TensorShape([2, 7, 64])
    """

    def build(self, x_shape, memory_shape=None):
        self.build_layers(x_shape, memory_shape)

    def compute_output_shape(self, x_shape, memory_shape=None):
        return x_shape

    def call(
        self,
        x,
        memory,
        source_mask=None,
        attention_mask=None,
        mask=None,
        x_mask=None,
        memory_mask=None,
    ):
        masks = {
            "source_mask": source_mask,
            "attention_mask": attention_mask,
            "mask": first_given(mask, x_mask),
            "memory_mask": memory_mask,
        }
        for layer in self.layers:
            x = layer(x, memory, **masks)
        return self.normalized(x)

    def prepare(self, memory):
        """Computes the keys and values of each layer's cross-attention, once per sentence."""
        return [layer.prepare(memory) for layer in self.layers]

    def step(self, x, past, cache, prepared, source_mask):
        """Runs `DecoderLayer.step` in each layer; `cache`, `prepared`: one entry per layer."""
        new_cache = []
        for layer, layer_cache, layer_prepared in zip(self.layers, cache, prepared, strict=True):
            x, layer_cache = layer.step(x, past, layer_cache, layer_prepared, source_mask)
            new_cache.append(layer_cache)
        return self.normalized(x), new_cache
