"""Imports Marian models, such as OPUS-MT, from a folder that Hugging Face's Transformers saved."""

import dataclasses
import json
import os
import re
from pathlib import Path

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.files import open_regular, read_whole
from keras_transformer.importers.safetensors import read_safetensors
from keras_transformer.json_files import read_json
from keras_transformer.model import Transformer
from keras_transformer.parameter_count import parameter_count
from keras_transformer.text.marian import MarianTokenizer

_FILES = ("config.json", "source.spm", "target.spm", "vocab.json")
_TARGET_VOCABULARY = "target_vocab.json"
_SAFETENSORS, _PYTORCH = "model.safetensors", "pytorch_model.bin"
_POINTER = b"version https://git-lfs"  # how a file begins that Git LFS has not fetched

# Added to the logit of padding, which begins a translation but never occurs in one. Its probability
# is then 0 in float32, and label smoothing over the vocabulary still works.
_NEVER = -1000.0

_FIELDS = {
    "vocab_size": "vocab_size",
    "num_encoder_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "d_model": "d_model",
    "d_ff": "encoder_ffn_dim",
    "num_heads": "encoder_attention_heads",
    "activation": "activation_function",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "scale_embeddings": "scale_embedding",
    "share_embeddings": "share_encoder_decoder_embeddings",
    "tie_output": "tie_word_embeddings",
    "pad_id": "pad_token_id",
    "start_id": "decoder_start_token_id",
    "end_id": "eos_token_id",
}
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
_ATTENTION = {"self_attention": "self_attn", "memory_attention": "encoder_attn"}
_PROJECTIONS = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
_SUBLAYERS = {
    **{f"{a}/{p}": f"{_ATTENTION[a]}.{_PROJECTIONS[p]}" for a in _ATTENTION for p in _PROJECTIONS},
    **{f"{a}_norm": f"{_ATTENTION[a]}_layer_norm" for a in _ATTENTION},
    "feed_forward/hidden": "fc1",
    "feed_forward/output": "fc2",
    "feed_forward_norm": "final_layer_norm",
}
_WEIGHTS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_SHARED, _BIAS, _OUTPUT = "model.shared.weight", "final_logits_bias", "lm_head.weight"
_SOURCE, _TARGET = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
_POSITIONS = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]


def import_marian(folder: str | os.PathLike) -> tuple[Transformer, MarianTokenizer]:
    """Reads a Marian model that Hugging Face's Transformers saved.

    The folder holds `config.json`, the weights in `model.safetensors` or `pytorch_model.bin` (which
    needs PyTorch), `source.spm`, `target.spm` and `vocab.json`. Generation settings are not read:
    the search options belong to `Translator`.

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
    _check_files(folder)
    _check_one_vocabulary(folder)
    marian = read_json(folder / "config.json")
    try:
        tokenizer = MarianTokenizer(
            read_whole(folder / "source.spm"),
            read_whole(folder / "target.spm"),
            read_json(folder / "vocab.json"),
        )
    except UserError as error:
        raise UserError(f"{folder}: source.spm, target.spm or vocab.json: {error}") from error
    config = _configuration(marian, tokenizer, folder)
    arrays = _read_weights(folder)
    if not config.tie_output and _are_apart(arrays):
        config = dataclasses.replace(config, share_embeddings=False)
    _check_size(config, arrays, folder)
    model = Transformer(config, name="transformer")
    _set_weights(model, arrays, folder)
    return model, tokenizer


def _check_files(folder):
    missing = [name for name in _FILES if not (folder / name).is_file()]
    if not any((folder / name).is_file() for name in (_SAFETENSORS, _PYTORCH)):
        missing.append(f"{_SAFETENSORS} or {_PYTORCH}")
    if missing:
        raise UserError(f"{folder}: files of a Marian model are missing: {', '.join(missing)}")
    for name in (*_FILES, _SAFETENSORS, _PYTORCH):
        if (folder / name).is_file() and _begins(folder / name, _POINTER):
            raise UserError(
                f"{folder / name}: only a pointer of Git LFS: fetch the file with `git lfs pull` "
                "in the clone"
            )


def _begins(path, start):
    with open_regular(path) as file:
        return file.read(len(start)) == start


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


def _configuration(marian, tokenizer, folder) -> TransformerConfig:
    """Converts their configuration to ours; raises `UserError` with every reason against it."""
    if not isinstance(marian, dict):
        raise UserError(
            f"{folder}/config.json must be a JSON object: found {type(marian).__name__}"
        )
    marian = {**_DEFAULTS, **marian}
    reasons = [f"{name} is missing" for name in _FIELDS.values() if name not in marian]
    same = {
        "decoder_ffn_dim": marian.get("encoder_ffn_dim"),
        "decoder_attention_heads": marian.get("encoder_attention_heads"),
        "decoder_vocab_size": marian.get("vocab_size"),
        "decoder_start_token_id": marian.get("pad_token_id"),
    }
    for name, expected in {**_EXPECTED, **same}.items():
        found = marian.get(name)
        if found is not None and found != expected:
            reasons.append(f"{name} must be {json.dumps(expected)}: found {json.dumps(found)}")
    config = None
    if not reasons:
        fields = {ours: marian[theirs] for ours, theirs in _FIELDS.items()}
        if fields["activation"] == "silu":
            fields["activation"] = "swish"
        try:
            config = TransformerConfig(
                **fields,
                attention_bias=True,
                output_bias=True,
                positions="sinusoidal_split",
                layer_norm_epsilon=1e-5,
            )
            tokenizer.check_fits(config)
        except UserError as error:
            reasons.append(str(error))
    if config is None or reasons:
        raise UserError(f"{folder}/config.json: cannot import this model: {'; '.join(reasons)}")
    return config


def _check_size(config, arrays, folder):
    """Refuses a configuration of a model far larger than the weights, before it is made."""
    expected, found = parameter_count(config), sum(array.size for array in arrays.values())
    if expected > 2 * found:  # some weights may be missing, which `_set_weights` then names
        raise UserError(
            f"{folder}: cannot import these weights: config.json describes {expected:,} "
            f"parameters, and the weights have {found:,}"
        )


def _are_apart(arrays) -> bool:
    """Whether source and target have different matrices, whatever the configuration says.

    If `tie_word_embeddings` is false, Transformers 5 ties nothing, but Transformers 4 still shared.
    """
    names = (_SOURCE, _TARGET)
    return all(name in arrays for name in names) and not np.array_equal(*map(arrays.get, names))


def _read_weights(folder) -> dict[str, np.ndarray]:
    if (folder / _SAFETENSORS).is_file():
        return read_safetensors(folder / _SAFETENSORS)
    path = folder / _PYTORCH
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"{path}: reading this file needs PyTorch: pip install torch, or convert it to "
            f"{_SAFETENSORS}"
        ) from error
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
        return {name: tensor.float().numpy() for name, tensor in tensors.items()}
    except Exception as error:  # torch.load may raise anything, depending on the file
        kind = type(error).__name__
        raise UserError(f"{path}: PyTorch cannot read the weights: {kind}") from error


def _set_weights(model, arrays, folder):
    """Assigns every weight; raises `UserError` with every reason against it."""
    config = model.config
    known = {_BIAS, *_POSITIONS}
    if not config.tie_output:
        known.add(_SHARED)  # Transformers 5 then saves it besides the matrices in use
    values, missing, reasons = {}, [], []
    for weight in model.weights:
        path = weight.path.partition("/")[2]
        names = _their_names(path, config)
        known.update(names)
        found = [name for name in names if name in arrays]
        if names == [_BIAS]:
            array = arrays[_BIAS].reshape(-1).copy() if found else np.zeros(config.vocab_size)
        elif found:
            array = arrays[found[0]]
        else:
            missing.append(names[0])
            continue
        for other in found[1:]:
            if not np.array_equal(array, arrays[other], equal_nan=True):
                reasons.append(f"{other} must be {found[0]}, as config.json says: found another")
        if path.endswith("/kernel"):
            array = array.T
        if array.shape != tuple(weight.shape):
            reasons.append(
                f"{names[0]} must have {tuple(weight.shape)} values: found {array.shape}"
            )
            continue
        with np.errstate(over="ignore"):
            array = array.astype("float32")
        if names == [_BIAS]:
            array[config.pad_id] = _NEVER
        if not np.isfinite(array).all():
            first = array[~np.isfinite(array)][0]
            reasons.append(f"{names[0]} must be finite numbers of float32: found {first}")
        values[path] = array
    reasons += [f"positions that are no sinusoids: {name}" for name in _other_positions(arrays)]
    surplus = [name for name in arrays if name not in known]
    for names, what in ((missing, "missing"), (surplus, "unknown")):
        if names:
            shown = ", ".join(names[:5]) + (", ..." if names[5:] else "")
            reasons.append(f"{len(names)} {what} weights: {shown}")
    if reasons:
        raise UserError(f"{folder}: cannot import these weights: {'; '.join(reasons)}")
    for weight in model.weights:
        weight.assign(values[weight.path.partition("/")[2]])


def _their_names(path: str, config: TransformerConfig) -> list[str]:
    """The names that one of our weights has in their files; tied weights have several."""
    if layer := re.fullmatch(r"(encoder|decoder)/layer_(\d+)/(.+)/(\w+)", path):
        side, index, sublayer, weight = layer.groups()
        return [f"model.{side}.layers.{index}.{_SUBLAYERS[sublayer]}.{_WEIGHTS[weight]}"]
    if path.endswith("/bias"):
        return [_BIAS]
    if path == "output_projection/kernel":
        return [_OUTPUT]
    tied = [_OUTPUT] if config.tie_output else []
    if config.share_embeddings:
        return [_SHARED, _SOURCE, _TARGET, *tied]
    return [_SOURCE] if path.startswith("source") else [_TARGET, *tied]


def _other_positions(arrays) -> list[str]:
    """The names of position tables that differ from the sinusoids of our model."""
    other = []
    for name in _POSITIONS:
        if name not in arrays:
            continue
        table = np.atleast_2d(arrays[name])
        pairs = table.shape[-1] // 2
        angles = np.arange(len(table))[:, None] / 10000 ** (np.arange(pairs) / pairs)
        sinusoids = np.concatenate([np.sin(angles), np.cos(angles)], axis=-1)
        if table.shape != sinusoids.shape or not np.allclose(table, sinusoids, atol=0.01):
            other.append(name)
    return other
