"""The attention weights of a whole model (paper, figures 3 to 5)."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.layers import recorded_attention
from keras_transformer.model import Transformer

Tensor = Any


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
    inputs = {"source_ids": source_ids, "target_ids": target_ids}
    inputs = {name: ops.convert_to_tensor(ids, "int32") for name, ids in inputs.items()}
    with recorded_attention() as weights:
        model(inputs, training=False)

    def maps(attentions):
        return [weights[attention.attention_weights] for attention in attentions]

    has_maps = model.config.layer_type == "attention"
    encoder, decoder = model.encoder.layers, model.decoder.layers
    return AttentionMaps(
        maps(layer.self_attention for layer in encoder if has_maps),
        maps(layer.self_attention for layer in decoder if has_maps),
        maps(layer.memory_attention for layer in decoder),
    )
