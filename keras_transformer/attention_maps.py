"""The attention weights of a whole model (paper, figures 3 to 5)."""

import contextlib
import threading
from typing import Any, NamedTuple

from keras import ops

from keras_transformer.layers import MultiHeadAttention
from keras_transformer.model import Transformer

Tensor = Any

_RECORDING = threading.Lock()  # a layer is recorded for one caller at a time


class AttentionMaps(NamedTuple):
    """Attention weights, one tensor a layer: float (batch, num_heads, query_length, value_length).

    Self-attention has maps only if `layer_type` is "attention"; otherwise `encoder` and `decoder`
    are empty.

    Attributes:
        encoder: weights of encoder self-attention, source positions to source positions.
        decoder: weights of decoder self-attention, target positions to target positions.
        memory: weights of cross-attention, target positions to source positions.
    """

    encoder: list[Tensor]
    decoder: list[Tensor]
    memory: list[Tensor]


def attention_maps(model: Transformer, source_ids, target_ids) -> AttentionMaps:
    """Computes the attention weights of every head of every layer.

    Args:
        model: a built `Transformer`.
        source_ids: integer (batch, source_length), each row ending in the end symbol, padded.
        target_ids: integer (batch, target_length), each row from the start symbol on, padded.

    Example:
        >>> maps = attention_maps(model, [[17, 5, 2]], [[1, 8, 6]])
        >>> maps.memory[-1].shape  # of the last layer, to the source
        TensorShape([1, 4, 3, 3])
    """
    has_maps = model.config.layer_type == "attention"
    encoder, decoder = model.encoder.layers, model.decoder.layers
    with _RECORDING, contextlib.ExitStack() as stack:

        def recorded(attention: MultiHeadAttention):
            return stack.enter_context(_recorded(attention))

        maps = AttentionMaps(
            [recorded(layer.self_attention) for layer in encoder if has_maps],
            [recorded(layer.self_attention) for layer in decoder if has_maps],
            [recorded(layer.memory_attention) for layer in decoder],
        )
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        inputs = {name: ops.convert_to_tensor(ids, "int32") for name, ids in inputs.items()}
        model(inputs, training=False)
    return AttentionMaps(*([weights for [weights] in layers] for layers in maps))


@contextlib.contextmanager
def _recorded(attention):
    """Records the attention weights that the layer computes in this thread, as a list."""
    weights, compute, thread = [], attention.attention_weights, threading.get_ident()

    def compute_and_record(*args, **kwargs):
        computed = compute(*args, **kwargs)
        if threading.get_ident() == thread:  # others may translate with the model meanwhile
            weights.append(computed)
        return computed

    attention.attention_weights = compute_and_record
    try:
        yield weights
    finally:
        del attention.attention_weights  # the instance attribute, which hides the class's
