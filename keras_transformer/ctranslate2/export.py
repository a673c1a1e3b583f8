"""Export to CTranslate2, a C++ engine that translates without TensorFlow."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from ctranslate2.converters.utils import fuse_linear
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation, LinearSpec
from ctranslate2.specs.model_spec import ACCEPTED_MODEL_TYPES

from keras_transformer.config import TransformerConfig
from keras_transformer.ctranslate2.support import ACTIVATIONS, POSITIONS, check_config
from keras_transformer.ctranslate2.weights import model_weights, target_embedding
from keras_transformer.errors import UserError
from keras_transformer.files import whole_folder
from keras_transformer.text.vocabulary import LANGUAGES, Vocabulary, expect_fits

if TYPE_CHECKING:
    from keras_transformer.model import Transformer
    from keras_transformer.text import Tokenizer


def export_ctranslate2(
    model: "Transformer",
    tokenizer: "Tokenizer",
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

        languages.json            of a model for several languages, the symbol of each

    An imported Marian model has source.spm and target.spm in place of the two SentencePiece models.
    An imported OpenNMT-tf model has none of them if other programs split its text.

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
    check_config(model.config)
    tokenizer.check_fits(model.config)
    with whole_folder(output) as partial:
        write_model(model.config, model_weights(model), tokenizer, partial, quantization)


def write_model(
    config: TransformerConfig,
    weights: Mapping[str, np.ndarray],
    vocabulary: "Vocabulary | Tokenizer",
    folder: Path,
    quantization: str | None = None,
) -> None:
    """Writes the files of `export_ctranslate2`, given the weights of a model by their paths.

    Args:
        config: the model's configuration.
        weights: arrays of the shapes of `weight_shapes`; they are not changed.
        vocabulary: the model's vocabulary.
        folder: an empty folder.
        quantization: type of the stored weights.

    Raises:
        UserError: as for `export_ctranslate2`.
    """
    # NumPy has no bfloat16; CTranslate2 would need PyTorch for it.
    known = [name for name in ACCEPTED_MODEL_TYPES if "bfloat16" not in name]
    if quantization is not None and quantization not in known:
        raise UserError(f"quantization must be one of {', '.join(known)}: found {quantization!r}")
    expect_fits(vocabulary, config)
    spec = model_spec(config, weights, vocabulary.pieces, vocabulary.unknown_id)
    spec.validate()
    spec.optimize(quantization)
    spec.save(folder)
    for name, content in vocabulary.sentencepiece_models.items():
        (folder / name).write_bytes(content)
    if vocabulary.languages is not None:
        (folder / LANGUAGES).write_text(vocabulary.languages.to_json(), "utf-8")


def model_spec(
    config: TransformerConfig,
    weights: Mapping[str, np.ndarray],
    pieces: Sequence[str],
    unknown_id: int,
) -> TransformerSpec:
    """The model as a specification that CTranslate2 can write.

    Args:
        config: the model's configuration.
        weights: arrays of the shapes of `weight_shapes`; they are not changed.
        pieces: the subword of each id.
        unknown_id: the id of unknown subwords.

    Raises:
        UserError: CTranslate2 does not support the model's configuration.
    """
    check_config(config)
    spec = TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.pre_norm,
        activation=getattr(Activation, ACTIVATIONS[config.activation]),
        # The attention that `alignment.align` reads: the mean over all heads of this layer.
        alignment_layer=config.alignment_layer,
        alignment_heads=config.num_heads,
    )
    spec.register_source_vocabulary(list(pieces))
    spec.register_target_vocabulary(list(pieces)[: config.output_vocab_size])
    spec.config.add_source_eos = config.source_end
    spec.config.unk_token = pieces[unknown_id]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[config.start_id]
    spec.config.eos_token = pieces[config.end_id]
    spec.config.layer_norm_epsilon = config.layer_norm_epsilon
    spec.encoder.scale_embeddings = spec.decoder.scale_embeddings = config.scale_embeddings
    filling = _Filling(config, weights)
    filling.embeddings(spec.encoder.embeddings[0], "source_embedding")
    filling.embeddings(spec.decoder.embeddings, target_embedding(config))
    filling.positions(spec.encoder, "source_positions")
    filling.positions(spec.decoder, "target_positions")
    filling.stack(spec.encoder, "encoder")
    filling.stack(spec.decoder, "decoder")
    if config.tie_output:
        filling.embeddings(spec.decoder.projection, target_embedding(config))
    else:
        filling.dense(spec.decoder.projection, "output_projection")
    return spec


class _Filling:
    """Fills the parts of a specification with the weights at a path."""

    def __init__(self, config, weights):
        self.config, self.weights = config, weights

    def array(self, path):
        return self.weights[path].copy()  # CTranslate2 quantizes arrays in place

    def embeddings(self, spec, path):
        spec.weight = self.array(f"{path}/embeddings")
        if hasattr(spec, "bias") and self.config.output_bias:
            spec.bias = self.array(f"{path}/bias")

    def positions(self, spec, path):
        """Sets the table of what the layer of positions adds: float32 (length, d_model)."""
        config = self.config
        length = max(POSITIONS + 1, config.max_positions)  # 1 for a language before a translation
        match config.positions:
            case "learned":  # positions after the last one use its vector
                rows = np.minimum(np.arange(length), config.max_positions - 1)
                table = self.array(f"{path}/table")[rows]
            case "sinusoidal":
                table = sinusoids(length, config.d_model)
            case "sinusoidal_split":
                table = sinusoids(length, config.d_model, interleave=False)
            case "sinusoidal_opennmt":
                table = sinusoids(length, config.d_model, interleave=False, inclusive=True, first=1)
            case "sinusoidal_fairseq":
                table = sinusoids(length, config.d_model, interleave=False, inclusive=True, first=2)
        spec.position_encodings.encodings = table

    def stack(self, spec, path):
        for number, layer_spec in enumerate(spec.layer):
            layer = f"{path}/layer_{number}"
            self.attention(layer_spec.self_attention, f"{layer}/self_attention")
            if path == "decoder":
                self.attention(layer_spec.attention, f"{layer}/memory_attention")
            self.dense(layer_spec.ffn.linear_0, f"{layer}/feed_forward/hidden")
            self.dense(layer_spec.ffn.linear_1, f"{layer}/feed_forward/output")
            self.norm(layer_spec.ffn.layer_norm, f"{layer}/feed_forward_norm")
        if self.config.pre_norm:
            self.norm(spec.layer_norm, f"{path}/norm")

    def attention(self, spec, path):
        query, key, value = (self.filled(f"{path}/{name}") for name in ("query", "key", "value"))
        *inputs, output = spec.linear
        fused = [[query, key, value]] if len(inputs) == 1 else [[query], [key, value]]
        for linear, layers in zip(inputs, fused, strict=True):
            fuse_linear(linear, layers)
        self.dense(output, f"{path}/output")
        output.weight = self.fill(output.weight)
        spec.queries_scale = self.config.d_k**-0.5
        self.norm(spec.layer_norm, f"{path}_norm")

    def fill(self, heads):
        """Pads queries and keys, or values, with zeros.

        CTranslate2 has one width for all heads. Zeros change neither products nor the output.
        """
        num_heads, width = self.config.num_heads, max(self.config.d_k, self.config.d_v)
        heads = heads.reshape(*heads.shape[:-1], num_heads, -1)
        missing = [(0, 0)] * (heads.ndim - 1) + [(0, width - heads.shape[-1])]
        return np.pad(heads, missing).reshape(*heads.shape[:-2], -1)

    def filled(self, path):
        spec = LinearSpec()
        self.dense(spec, path)
        spec.weight = self.fill(spec.weight.T).T
        if spec.has_bias():
            spec.bias = self.fill(spec.bias)
        return spec

    def dense(self, spec, path):
        spec.weight = self.array(f"{path}/kernel").T
        if f"{path}/bias" in self.weights:
            spec.bias = self.array(f"{path}/bias")

    def norm(self, spec, path):
        spec.gamma, spec.beta = self.array(f"{path}/gamma"), self.array(f"{path}/beta")


def sinusoids(
    length: int, d_model: int, interleave: bool = True, inclusive: bool = False, first: int = 0
) -> np.ndarray:
    """The sinusoids of positions `first`, `first` + 1 and so on, as `PositionalEncoding` adds them.

    Args:
        length: number of positions.
        d_model: width, even.
        interleave: as for `PositionalEncoding`.
        inclusive: as for `PositionalEncoding`.
        first: number of the first position.

    Returns:
        float32 (length, d_model).
    """
    frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / (d_model - 2 if inclusive else d_model))
    positions = np.arange(first, first + length, dtype="float32")[:, None]
    angles = positions * frequencies.astype("float32")
    pairs = np.stack([np.sin(angles), np.cos(angles)], axis=-1 if interleave else -2)
    return pairs.reshape(length, d_model)
