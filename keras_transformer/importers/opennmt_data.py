"""Reads what OpenNMT-tf's configuration says of text: vocabularies and tokenization."""

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

from keras_transformer.errors import UserError, not_installed
from keras_transformer.files import read_utf_8, read_whole
from keras_transformer.text.vocabulary import OPENNMT_SPECIAL, UNKNOWN, load_processor

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # marks spaces in SentencePiece's pieces


@dataclasses.dataclass(frozen=True)
class OpenNMTData:
    """The vocabularies and the tokenization that the `data` of a configuration names.

    Attributes:
        source_tokens, target_tokens: the tokens of each vocabulary by id; that of `<unk>`, which
            follows them, is left out.
        source_model, target_model: the serialised SentencePiece model that splits each side; empty
            if text is split at spaces.
        source_end: whether the encoder reads an end symbol; None if the configuration does not say.
    """

    source_tokens: list[str]
    target_tokens: list[str]
    source_model: bytes
    target_model: bytes
    source_end: bool | None


def read_data(path: str | os.PathLike) -> OpenNMTData:
    """Reads a YAML configuration as `onmt-main --config` takes it, and the files that it names.

    Relative paths in it start from its own folder or, if there is no such file, from the current
    one.

    Raises:
        UserError: a file is missing or damaged, or text is split in a way that is not supported.
    """
    try:
        return _read_data(Path(path))
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}") from error


def _read_data(path):
    config = _parsed_yaml(read_utf_8(path), path)
    data = config.get("data") if isinstance(config, dict) else None
    if not isinstance(data, dict):
        raise UserError(f"{path}: there is no data, which names the vocabularies")
    tokens, models = [], []
    for side in ("source", "target"):
        name = data.get(f"{side}_vocabulary")
        if not isinstance(name, str):
            raise UserError(f"{path}: data: {side}_vocabulary must name a vocabulary file")
        tokens.append(_tokens(_found(name, path)))
        where = f"{path}: data: {side}_tokenization"
        models.append(_model(data.get(f"{side}_tokenization"), path, where))
    if not all(models):
        _check_spaces(path, tokens, models)
    return OpenNMTData(*tokens, *models, _source_end(data, path))


def _parsed_yaml(text, where) -> Any:
    try:
        import yaml
    except ImportError as error:
        raise not_installed("PyYAML", "opennmt", error) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f":{mark.line + 1}"
        reason = getattr(error, "problem", None) or "it cannot be parsed"
        raise UserError(f"{where}{line}: not YAML: {reason}") from None
    except RecursionError:
        raise UserError(f"{where}: not YAML: it is nested too deeply") from None
    except ValueError as error:  # of a date or a number
        raise UserError(f"{where}: not YAML: {error}") from None


def _found(name, config) -> Path:
    beside = config.parent / name
    return beside if beside.exists() else Path(name)


def _tokens(path):
    tokens = [line.rstrip("\r") for line in read_utf_8(path).split("\n")]
    if tokens[-1] == "":
        tokens.pop()
    if tuple(tokens[: len(OPENNMT_SPECIAL)]) != OPENNMT_SPECIAL:
        raise UserError(
            f"{path}: the first lines of OpenNMT-tf's vocabulary must be "
            f"{', '.join(OPENNMT_SPECIAL)}: found {', '.join(tokens[: len(OPENNMT_SPECIAL)])}"
        )
    numbers: dict[str, int] = {}
    for number, token in enumerate(tokens, 1):
        if numbers.setdefault(token, number) != number:
            raise UserError(
                f"{path}:{number}: the token {token!r} is also in line {numbers[token]}"
            )
    if UNKNOWN in numbers:  # text never has it, and the id after all tokens takes its name
        tokens[numbers[UNKNOWN] - 1] = f"{UNKNOWN} in line {numbers[UNKNOWN]}"
    return tokens


def _model(tokenization, config, where) -> bytes:
    """The SentencePiece model of a tokenization; empty if text is split at spaces."""
    if isinstance(tokenization, str):
        file = _found(tokenization, config)
        text = read_utf_8(file) if file.exists() else tokenization  # or JSON, which is YAML too
        tokenization = _parsed_yaml(text, file if file.exists() else where)
    if not tokenization:
        return b""
    if not isinstance(tokenization, dict):
        raise UserError(f"{where}: there is no such file: {tokenization}")
    kind = tokenization.get("type", "OpenNMTTokenizer")
    params = tokenization.get("params", {}) if "type" in tokenization else tokenization
    match kind, params:
        case "SpaceTokenizer", _:
            return b""
        case "SentencePieceTokenizer", {"model": str(name)}:
            pass  # its other parameters sample in training alone
        case "OpenNMTTokenizer", {"mode": "none", "sp_model_path": str(name)} if params.keys() <= {
            "mode",
            "sp_model_path",
            "sp_nbest_size",
            "sp_alpha",
        }:
            pass  # the same pieces as SentencePiece's own
        case _:
            raise UserError(
                f"{where}: {kind} with {json.dumps(params, default=str)} is not supported: leave "
                "the tokenization of both sides out, and translate text that it has split, with "
                "spaces between tokens"
            )
    file = _found(name, config)
    model = read_whole(file)
    try:
        load_processor(model)
    except UserError as error:
        raise UserError(f"{file}: {error}") from error
    return model


def _check_spaces(path, tokens, models):
    if any(models):
        raise UserError(
            f"{path}: data: source_tokenization and target_tokenization must both be given, or "
            "neither"
        )
    if any(_SPACE in token for side in tokens for token in side):
        raise UserError(
            f"{path}: data: the vocabularies have pieces of SentencePiece: add source_tokenization "
            "and target_tokenization, each {type: SentencePieceTokenizer, params: {model: FILE}}"
        )


def _source_end(data, path):
    for side, expected in (("source", {"start": False}), ("target", {"start": True, "end": True})):
        controls = data.get(f"{side}_sequence_controls") or {}
        if not isinstance(controls, dict):
            raise UserError(
                f"{path}: data: {side}_sequence_controls must be such as {{end: true}}: "
                f"found {controls}"
            )
        for name, value in expected.items():
            if controls.get(name, value) != value:
                raise UserError(
                    f"{path}: data: {side}_sequence_controls: {name} must be "
                    f"{json.dumps(value)}: found {json.dumps(controls[name])}"
                )
    controls = data.get("source_sequence_controls")
    return bool(controls.get("end")) if controls else None
