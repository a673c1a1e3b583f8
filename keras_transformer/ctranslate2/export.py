"""Export to CTranslate2, a C++ engine that translates without TensorFlow (an optional extra)."""

import os
from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.errors import UserError, not_installed
from keras_transformer.files import whole_folder
from keras_transformer.model import Transformer
from keras_transformer.text import Tokenizer

try:
    from ctranslate2.converters.utils import fuse_linear
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation, LinearSpec
    from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES
except ImportError as error:
    raise not_installed("CTranslate2", "ctranslate2", error) from error

_ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "swish": Activation.SWISH,
}
CTRANSLATE2_CONFIG = (
    "vocab_size",
    "target_vocab_size",
    "pad_id",
    "start_id",
    "end_id",
    "num_encoder_layers",
    "num_decoder_layers",
    "d_model",
    "d_ff",
    "num_heads",
    "d_k",
    "d_v",
    "attention_bias",
    "pre_norm",
    "layer_norm_epsilon",
    "max_positions",
    "share_embeddings",
    "scale_embeddings",
    "tie_output",
    "output_bias",
    # These matter in training only.
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "label_smoothing",
)
"""The fields of `TransformerConfig` of which CTranslate2 supports every value."""
CTRANSLATE2_CHOICES = {
    "activation": tuple(_ACTIVATIONS),
    "layer_type": ("attention",),
    # Positions that a layer adds to embeddings. CTranslate2 gets a table of what it adds.
    "positions": ("sinusoidal", "sinusoidal_split", "learned"),
}
"""The values that CTranslate2 supports of other fields."""

# CTranslate2 fails beyond its table of positions. By default it reads 1,024 tokens and an end
# symbol; the length of its output is an option.
_POSITIONS = 2048


def export_ctranslate2(
    model: Transformer,
    tokenizer: Tokenizer,
    output: str | os.PathLike,
    quantization: str | None = None,
) -> None:
    """Writes a folder that `ctranslate2.Translator` loads.

    The exported model computes the same as `model`, except for the rounding of quantization. This
    holds for every `TransformerConfig` that `model_spec` accepts. The number of positions is
    2,048, or `max_positions` if that is larger.

        model.bin                 the weights
        config.json               special symbols, and epsilon of the layer normalisation
        shared_vocabulary.json    the subwords
        sentencepiece.model       the vocabulary for `sentencepiece`, which splits sources and joins
                                  translations
        sentencepiece.target.model  the same for splitting targets, if they are not normalised like
                                  sources

    An imported Marian model has source.spm and target.spm in place of the last two.

    Args:
        model: a built `Transformer`, of any precision; it is not changed.
        tokenizer: the model's tokenizer.
        output: the folder to make.
        quantization: type of the stored weights: "int8", "int8_float16", "int8_float32", "int16",
            "float16", or "float32", the default.

    Raises:
        UserError: `output` exists or cannot be made, the quantization is unknown, the vocabulary is
            not the model's, or CTranslate2 does not support the model's configuration.

    Example:
        >>> import ctranslate2
        >>> import sentencepiece
        >>> export_ctranslate2(model, tokenizer, "export", quantization="int8")
        >>> translator = ctranslate2.Translator("export")
        >>> pieces = sentencepiece.SentencePieceProcessor(model_file="export/sentencepiece.model")
        >>> [result] = translator.translate_batch(pieces.encode(["A man."], out_type=str))
        >>> german = pieces.decode(result.hypotheses[0])  # such as "Ein Mann."
    """
    # NumPy has no bfloat16; CTranslate2 would need PyTorch for it.
    known = [name for name in ACCEPTED_MODEL_TYPES if "bfloat16" not in name]
    if quantization is not None and quantization not in known:
        raise UserError(f"quantization must be one of {', '.join(known)}: found {quantization!r}")
    tokenizer.check_fits(model.config)
    with whole_folder(output) as partial:
        spec = model_spec(model, tokenizer.pieces, tokenizer.unknown_id)
        spec.validate()
        spec.optimize(quantization)
        spec.save(partial)
        for name, content in tokenizer.sentencepiece_models.items():
            (partial / name).write_bytes(content)


def model_spec(model: Transformer, pieces: Sequence[str], unknown_id: int) -> TransformerSpec:
    """The model as a specification that CTranslate2 can write.

    Args:
        model: a built `Transformer`.
        pieces: the subword of each id.
        unknown_id: the id of unknown subwords.

    Raises:
        UserError: CTranslate2 does not support the model's configuration.
    """
    config = model.config
    config.expect_only(
        CTRANSLATE2_CONFIG,
        "CTranslate2",
        "use TensorFlow for this model (--engine=tensorflow, --format=saved_model)",
        CTRANSLATE2_CHOICES,
    )
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.pre_norm,
        activation=_ACTIVATIONS[config.activation],
    )
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces)[: config.output_vocab_size])
    spec.config.add_source_eos = True
    spec.config.unk_token = pieces[unknown_id]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[config.start_id]
    spec.config.eos_token = pieces[config.end_id]
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.scale_embeddings
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.embeddings)
    spec.decoder.embeddings.weight = _array(model.target_embedding.embeddings)
    _set_positions(spec.encoder, model.source_positions, config)
    _set_positions(spec.decoder, model.target_positions, config)
    _set_stack(spec.encoder, model.encoder)
    _set_stack(spec.decoder, model.decoder)
    if model.output_projection is None:
        spec.decoder.projection.weight = _array(model.target_embedding.embeddings)
        if config.output_bias:
            spec.decoder.projection.bias = _array(model.target_embedding.bias)
    else:
        _set_dense(spec.decoder.projection, model.output_projection)
    return spec


def _set_positions(spec, positions, config):
    length = max(_POSITIONS, config.max_positions)
    [table] = _array(positions(ops.zeros((1, length, config.d_model))))
    spec.position_encodings.encodings = table


def _set_stack(spec, stack):
    for layer_spec, layer in zip(spec.layer, stack.layers, strict=True):
        _set_attention(layer_spec.self_attention, layer.self_attention, layer.self_attention_norm)
        if hasattr(layer, "memory_attention"):
            _set_attention(
                layer_spec.attention, layer.memory_attention, layer.memory_attention_norm
            )
        _set_dense(layer_spec.ffn.linear_0, layer.feed_forward.hidden)
        _set_dense(layer_spec.ffn.linear_1, layer.feed_forward.output_projection)
        _set_norm(layer_spec.ffn.layer_norm, layer.feed_forward_norm)
    if stack.norm:
        _set_norm(spec.layer_norm, stack.norm)


def _set_attention(spec, attention, norm):
    # CTranslate2 has one width for all heads: queries and keys, or values, are padded with zeros,
    # which change neither their products nor the output.
    width = max(attention.d_k, attention.d_v)

    def fill(heads):
        heads = heads.reshape(*heads.shape[:-1], attention.num_heads, -1)
        missing = [(0, 0)] * (heads.ndim - 1) + [(0, width - heads.shape[-1])]
        return np.pad(heads, missing).reshape(*heads.shape[:-2], -1)

    query, key, value = (
        _filled(layer, fill) for layer in (attention.query, attention.key, attention.value)
    )
    *inputs, output = spec.linear
    fused = [[query, key, value]] if len(inputs) == 1 else [[query], [key, value]]
    for linear, layers in zip(inputs, fused, strict=True):
        fuse_linear(linear, layers)
    _set_dense(output, attention.output_projection)
    output.weight = fill(output.weight)
    spec.queries_scale = attention.d_k**-0.5
    _set_norm(spec.layer_norm, norm)


def _filled(dense, fill):
    spec = LinearSpec()
    _set_dense(spec, dense)
    spec.weight = fill(spec.weight.T).T
    if spec.has_bias():
        spec.bias = fill(spec.bias)
    return spec


def _set_dense(spec, dense):
    kernel = _array(dense.kernel)
    if dense.quantization_mode not in (None, "int8"):
        raise UserError(
            f"{dense.path}: CTranslate2 supports weights as trained or in int8, not in "
            f"{dense.quantization_mode}"
        )
    if dense.quantization_mode == "int8":  # integers: weights times each output's scale
        kernel /= _array(dense.kernel_scale)
    spec.weight = kernel.T
    if dense.use_bias:
        spec.bias = _array(dense.bias)


def _set_norm(spec, norm):
    spec.gamma = _array(norm.gamma)
    spec.beta = _array(norm.beta)


def _array(tensor):
    # A copy: CTranslate2 quantizes arrays in place, and a backend may share their memory.
    return np.array(ops.convert_to_numpy(tensor), "float32")
