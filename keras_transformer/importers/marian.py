"""Imports Marian models, such as OPUS-MT, from a folder that Hugging Face's Transformers saved."""

import dataclasses
import os
from pathlib import Path

import numpy as np

from keras_transformer.errors import UserError
from keras_transformer.files import read_whole
from keras_transformer.importers.hugging_face import (
    POSITIONS,
    SHARED,
    SOURCE,
    TARGET,
    check_files,
    check_size,
    converted,
    names_in_layers,
    names_of_embeddings,
    read_configuration,
    read_weights,
    set_weights,
)
from keras_transformer.json_files import read_json
from keras_transformer.model import Transformer
from keras_transformer.text.marian import MarianTokenizer

_FILES = ("config.json", "source.spm", "target.spm", "vocab.json")
_TARGET_VOCABULARY = "target_vocab.json"

# The bias of padding's logit, which begins a translation but never occurs in one. Its probability
# is then 0 in float32, and label smoothing over the vocabulary still works.
_NEVER = -1000.0

_DEFAULTS = {
    "dropout": 0.1,
    "attention_dropout": 0.0,
    "activation_dropout": 0.0,
    "scale_embedding": False,
    "share_encoder_decoder_embeddings": True,
    "tie_word_embeddings": True,
}
# Values that Transformers' own Marian model, or ours, requires.
_EXPECTED = {
    "model_type": "marian",
    "normalize_before": False,
    "normalize_embedding": False,
    "add_final_layer_norm": False,
    "static_position_embeddings": True,
}
_BIAS = "final_logits_bias"


def import_marian(folder: str | os.PathLike) -> tuple[Transformer, MarianTokenizer]:
    """Reads a Marian model that Hugging Face's Transformers saved.

    The folder holds `config.json`, the weights in `model.safetensors` or `pytorch_model.bin`,
    `source.spm`, `target.spm` and `vocab.json`. Generation settings are not read: the search
    options belong to `Translator`.

    Args:
        folder: a folder that `git clone` or `save_pretrained` made.

    Returns:
        The model, in float32, and its tokenizer.

    Raises:
        UserError: a file is missing or damaged, or the model is of another kind; the message gives
            all reasons that can be found at once.

    Example:
        >>> model, tokenizer = import_marian("opus-mt-en-fr")
        >>> [french] = Translator(model, tokenizer)(["A man rides a horse."])
    """
    folder = Path(folder)
    check_files(folder, "marian", "a Marian model", _FILES)
    _check_one_vocabulary(folder)
    marian = read_configuration(folder, _DEFAULTS)
    try:
        tokenizer = MarianTokenizer(
            read_whole(folder / "source.spm"),
            read_whole(folder / "target.spm"),
            read_json(folder / "vocab.json"),
        )
    except UserError as error:
        raise UserError(f"{folder}: source.spm, target.spm or vocab.json: {error}") from error
    same = {"decoder_vocab_size": "vocab_size", "decoder_start_token_id": "pad_token_id"}
    expected = _EXPECTED | {name: marian.get(other) for name, other in same.items()}
    try:
        config = converted(
            marian,
            expected,
            tokenizer,
            share_embeddings=marian["share_encoder_decoder_embeddings"],
            output_bias=True,
            positions="sinusoidal_split",
        )
    except UserError as error:
        raise UserError(f"{folder}/config.json: {error}") from error
    arrays = read_weights(folder)
    if not config.tie_output and _are_apart(arrays):
        config = dataclasses.replace(config, share_embeddings=False)
    check_size(config, arrays, folder)
    model = Transformer(config, name="transformer")
    _set_weights(model, arrays, folder)
    return model, tokenizer


def _check_one_vocabulary(folder):
    """Raises `UserError` if the target side has its own ids, since ours are shared."""
    other = folder / _TARGET_VOCABULARY
    if other.is_file():
        if read_json(other) != read_json(folder / "vocab.json"):
            raise UserError(
                f"{other} must have the ids of vocab.json, as both sides share them: found others"
            )
        return
    settings = folder / "tokenizer_config.json"
    tokenizer = read_json(settings) if settings.is_file() else {}
    if isinstance(tokenizer, dict) and tokenizer.get("separate_vocabs"):
        raise UserError(
            f"{settings}: separate_vocabs must be false, as both sides share vocab.json: found true"
        )


def _are_apart(arrays) -> bool:
    """Whether source and target have different matrices, whatever the configuration says.

    If `tie_word_embeddings` is false, Transformers 5 ties nothing, but Transformers 4 still shared.
    """
    names = (SOURCE, TARGET)
    return all(name in arrays for name in names) and not np.array_equal(*map(arrays.get, names))


def _set_weights(model, arrays, folder):
    config = model.config

    def names_of(path):
        if names := names_in_layers(path):
            return names
        return [_BIAS] if path.endswith("/bias") else names_of_embeddings(path, config)

    bias = np.array(arrays.get(_BIAS, np.zeros(config.vocab_size))).reshape(-1)
    if len(bias) == config.vocab_size:
        bias[config.pad_id] = _NEVER
    known = [*POSITIONS]
    if not config.tie_output:
        known.append(SHARED)  # Transformers 5 then saves it besides the matrices in use
    reasons = [f"positions that are no sinusoids: {name}" for name in _other_positions(arrays)]
    try:
        set_weights(model, {**arrays, _BIAS: bias}, names_of, known, reasons)
    except UserError as error:
        raise UserError(f"{folder}: {error}") from error


def _other_positions(arrays) -> list[str]:
    """The names of position tables that differ from the sinusoids of our model."""
    other = []
    for name in POSITIONS:
        if name not in arrays:
            continue
        table = np.atleast_2d(arrays[name])
        pairs = table.shape[-1] // 2
        angles = np.arange(len(table))[:, None] / 10000 ** (np.arange(pairs) / pairs)
        sinusoids = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
        if table.shape != sinusoids.shape or not np.allclose(table, sinusoids, atol=0.01):
            other.append(name)
    return other
