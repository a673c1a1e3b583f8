"""The weights of a model as arrays by their paths, from a checkpoint or from Keras."""

from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError

if TYPE_CHECKING:
    from keras_transformer.model import Transformer


def weight_shapes(config: TransformerConfig) -> dict[str, tuple[int, ...]]:
    """The shape of each weight of a model with attention layers, by its path.

    Paths leave the model's name out: "encoder/layer_0/feed_forward/hidden/kernel".
    """
    d, size = config.d_model, config.output_vocab_size
    shapes: dict[str, tuple[int, ...]] = {}

    def dense(path, inputs, outputs, bias=True):
        shapes[f"{path}/kernel"] = (inputs, outputs)
        if bias:
            shapes[f"{path}/bias"] = (outputs,)

    def norm(path):
        shapes[f"{path}/gamma"] = shapes[f"{path}/beta"] = (d,)

    def attention(path):
        keys, values = config.num_heads * config.d_k, config.num_heads * config.d_v
        for name, width in (("query", keys), ("key", keys), ("value", values)):
            dense(f"{path}/{name}", d, width, config.attention_bias)
        dense(f"{path}/output", values, d, config.attention_bias)
        norm(f"{path}_norm")

    def stack(path, num_layers, attentions):
        for number in range(num_layers):
            layer = f"{path}/layer_{number}"
            for name in attentions:
                attention(f"{layer}/{name}")
            dense(f"{layer}/feed_forward/hidden", d, config.d_ff)
            dense(f"{layer}/feed_forward/output", config.d_ff, d)
            norm(f"{layer}/feed_forward_norm")
        if config.pre_norm:
            norm(f"{path}/norm")

    target = target_embedding(config)
    shapes["source_embedding/embeddings"] = (config.vocab_size, d)
    shapes[f"{target}/embeddings"] = (size, d)
    if config.tie_output and config.output_bias:
        shapes[f"{target}/bias"] = (size,)
    if config.positions == "learned":
        for side in ("source", "target"):
            shapes[f"{side}_positions/table"] = (config.max_positions, d)
    stack("encoder", config.num_encoder_layers, ["self_attention"])
    stack("decoder", config.num_decoder_layers, ["self_attention", "memory_attention"])
    if not config.tie_output:
        dense("output_projection", d, size, config.output_bias)
    return shapes


def target_embedding(config: TransformerConfig) -> str:
    """The path of the layer that embeds targets."""
    return "source_embedding" if config.share_embeddings else "target_embedding"


def model_weights(model: "Transformer") -> dict[str, np.ndarray]:
    """The weights of a Keras model as float32 arrays of the shapes of `weight_shapes`.

    Weights in int8 are multiplied by their scales.

    Raises:
        UserError: a layer has weights in other integers than int8.
    """
    from keras import ops

    from keras_transformer.private_names import layers_within

    for layer in layers_within(model, recursive=True):
        if layer.quantization_mode not in (None, "int8"):
            raise UserError(
                f"{layer.path}: CTranslate2 supports weights as trained or in int8, not in "
                f"{layer.quantization_mode}"
            )
    arrays = {
        weight.path.partition("/")[2]: ops.convert_to_numpy(weight).astype("float32")
        for weight in model.weights
    }
    for path, scale in arrays.items():
        if path.endswith("/kernel_scale"):  # integers: weights times each output's scale
            arrays[path.removesuffix("_scale")] /= scale
    return arrays
