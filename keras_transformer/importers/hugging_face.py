"""Reads what Hugging Face's Transformers saves: files of a folder, and weights by their names."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.files import open_regular
from keras_transformer.importers import COMMANDS
from keras_transformer.importers.assignment import against_names, assign, path_of
from keras_transformer.importers.pytorch_file import read_pytorch
from keras_transformer.importers.safetensors import read_safetensors
from keras_transformer.json_files import read_json
from keras_transformer.model import Transformer
from keras_transformer.parameter_count import parameter_count
from keras_transformer.text import Tokenizer

# The weights in one file, or in several that an index names.
_WEIGHTS_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_INDEX = ".index.json"
_POINTER = b"version https://git-lfs"  # how a file begins that Git LFS has not fetched

FIELDS = {
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
    "tie_output": "tie_word_embeddings",
    "pad_id": "pad_token_id",
    "start_id": "decoder_start_token_id",
    "end_id": "eos_token_id",
}
"""The fields of `TransformerConfig`, and their names in `config.json`."""
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
SHARED, OUTPUT = "model.shared.weight", "lm_head.weight"
SOURCE, TARGET = (f"model.{side}.embed_tokens.weight" for side in ("encoder", "decoder"))
POSITIONS = [f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")]


def check_files(folder: Path, kind: str, family: str, names: Iterable[str]) -> None:
    """Raises `UserError` unless the folder has these files and weights, fetched by Git LFS.

    Args:
        folder: the folder of the model.
        kind: the model's `model_type`.
        family: what the model is, such as "a Marian model".
        names: the names of the files beside the weights.
    """
    if not folder.is_dir():
        raise UserError(
            f"{folder}: there is no such folder: download the model first, for example by "
            "git clone https://huggingface.co/NAME"
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if not any((folder / name).is_file() for name in _WEIGHTS_FILES):
        missing.append("model.safetensors or pytorch_model.bin")
    if missing:
        config = read_json(folder / "config.json") if "config.json" not in missing else {}
        found = str(config.get("model_type")) if isinstance(config, dict) else ""
        if found in COMMANDS and found != kind:
            raise UserError(f"{folder}: model_type is {found}: import it by {COMMANDS[found]}")
        raise UserError(f"{folder}: files of {family} are missing: {', '.join(missing)}")
    for name in (*names, *_WEIGHTS_FILES):
        if (folder / name).is_file():
            _check_fetched(folder / name)


def _check_fetched(path):
    with open_regular(path) as file:
        if file.read(len(_POINTER)) == _POINTER:
            raise UserError(
                f"{path}: only a pointer of Git LFS: fetch the file with `git lfs pull` in the "
                "clone"
            )


def read_configuration(folder: Path, defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Reads `config.json`, with defaults for what it lacks; raises `UserError` if it is damaged."""
    found = read_json(folder / "config.json")
    if not isinstance(found, dict):
        raise UserError(f"{folder}/config.json must be a JSON object: found {type(found).__name__}")
    return {**defaults, **found}


def converted(
    found: Mapping[str, Any], expected: Mapping[str, Any], tokenizer: Tokenizer, **fields: Any
) -> TransformerConfig:
    """Converts their configuration to ours.

    Args:
        found: the content of `config.json`.
        expected: values that it must have, where it has any.
        tokenizer: the model's vocabulary.
        **fields: fields of `TransformerConfig` besides those of `FIELDS`.

    Raises:
        UserError: with every reason against the configuration.
    """
    reasons = [f"{name} is missing" for name in FIELDS.values() if name not in found]
    same = {
        "decoder_ffn_dim": found.get("encoder_ffn_dim"),
        "decoder_attention_heads": found.get("encoder_attention_heads"),
    }
    for name, value in {**expected, **same}.items():
        if found.get(name) not in (None, value):
            reasons.append(
                f"{name} must be {json.dumps(value)}: found {json.dumps(found.get(name))}"
            )
    if not reasons:
        fields |= {ours: found[theirs] for ours, theirs in FIELDS.items()}
        if fields["activation"] == "silu":
            fields["activation"] = "swish"
        try:
            config = TransformerConfig(**fields, attention_bias=True, layer_norm_epsilon=1e-5)
            tokenizer.check_fits(config)
            return config
        except UserError as error:
            reasons.append(str(error))
    raise UserError(f"cannot import this model: {'; '.join(reasons)}")


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """Reads all weights by name; raises `UserError` if a file is damaged."""
    name = next(name for name in _WEIGHTS_FILES if (folder / name).is_file())
    if not name.endswith(_INDEX):
        return _read_file(folder / name)
    index = read_json(folder / name)
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not all(
        isinstance(file, str) and file == Path(file).name for file in files.values()
    ):
        raise UserError(f"{folder / name}: weight_map must name the file of each weight")
    arrays: dict[str, np.ndarray] = {}
    for file in sorted(set(files.values())):
        if not (folder / file).is_file():
            raise UserError(f"{folder / name}: the file {file} is missing")
        _check_fetched(folder / file)
        arrays |= _read_file(folder / file)
    return arrays


def _read_file(path):
    return read_safetensors(path) if path.suffix == ".safetensors" else read_pytorch(path)


def check_size(config: TransformerConfig, arrays: Mapping[str, np.ndarray], folder: Path) -> None:
    """Refuses a configuration of a model far larger than the weights, before it is made."""
    expected, found = parameter_count(config), sum(array.size for array in arrays.values())
    if expected > 2 * found:  # some weights may be missing, which `set_weights` then names
        raise UserError(
            f"{folder}: cannot import these weights: config.json describes {expected:,} "
            f"parameters, and the weights have {found:,}"
        )


def set_weights(
    model: Transformer,
    arrays: Mapping[str, np.ndarray],
    names_of: Callable[[str], list[str]],
    known: Iterable[str],
    reasons: Iterable[str] = (),
) -> None:
    """Assigns every weight.

    Args:
        model: a built model.
        arrays: their weights by name.
        names_of: the names that the weight at a path of ours has in their files; tied weights have
            several.
        known: names that need no weight of ours.
        reasons: reasons against these weights that the caller has found.

    Raises:
        UserError: with every reason against the weights.
    """
    values, missing, reasons, known = {}, [], list(reasons), set(known)
    for weight in model.weights:
        path = path_of(weight)
        names = names_of(path)
        known.update(names)
        found = [name for name in names if name in arrays]
        if not found:
            missing.append(names[0])
            continue
        array = arrays[found[0]]
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
        if not np.isfinite(array).all():
            first = array[~np.isfinite(array)][0]
            reasons.append(f"{names[0]} must be finite numbers of float32: found {first}")
        values[path] = array
    reasons += against_names(missing, [name for name in arrays if name not in known])
    if reasons:
        raise UserError(f"cannot import these weights: {'; '.join(reasons)}")
    assign(model, values)


def names_in_layers(path: str) -> list[str]:
    """The name of one of our weights within a layer of encoder or decoder; empty for others."""
    layer = re.fullmatch(r"(encoder|decoder)/layer_(\d+)/(.+)/(\w+)", path)
    if layer is None:
        return []
    side, index, sublayer, weight = layer.groups()
    return [f"model.{side}.layers.{index}.{_SUBLAYERS[sublayer]}.{_WEIGHTS[weight]}"]


def names_of_embeddings(path: str, config: TransformerConfig) -> list[str]:
    """The names of our matrices of embeddings and of the output, in their files."""
    if path == "output_projection/kernel":
        return [OUTPUT]
    tied = [OUTPUT] if config.tie_output else []
    if config.share_embeddings:
        return [SHARED, SOURCE, TARGET, *tied]
    return [SOURCE] if path.startswith("source") else [TARGET, *tied]
