"""The record of a run, training.json: its options, its data, and each command that trained it."""

import dataclasses
from pathlib import Path

from keras_transformer.errors import UserError
from keras_transformer.json_files import parse_json
from keras_transformer.options.training import TrainingOptions
from keras_transformer.text.language_code import check_language_code

_FIELDS = {
    "options": dict,
    "data": dict,
    "vocab_type": str | None,
    "linearization": str | None,
    "preset": str | None,
    "source_lang": str | None,
    "target_lang": str | None,
    "config": str | None,
    "copies_parts": bool,
    "commands": list,
    "starts": list,
}
_COUNTS = {"kept", "source_tokens", "target_tokens"}
_LAST_TIME = 253_402_300_800  # the end of the year 9999; the report cannot show a later one


def _is_start(start):
    if not isinstance(start, dict) or not isinstance(time := start.get("time"), int | float):
        return False
    return 0 <= time < _LAST_TIME


_CHECKS = {
    "data": lambda record: all(
        isinstance(count, int) and count > 0
        for name, count in record["data"].items()
        if name in _COUNTS
    ),
    "commands": lambda record: all(isinstance(one, str) for one in record["commands"]),
    "starts": lambda record: (
        all(map(_is_start, record["starts"]))
        and len(record["starts"]) in (0, len(record["commands"]))  # none if it was imported
    ),
}


def read_record(text: str, path: Path) -> dict:
    """Reads a record; it may lack options of later versions, and have options unknown to this one.

    Args:
        text: content of the file.
        path: the file, to be named in messages.

    Raises:
        UserError: the text is not such a record.
    """
    record = parse_json(text, path)
    if isinstance(record, dict):
        # Earlier models of version 0.2.0 do not know these.
        record.setdefault("source_lang", None)
        record.setdefault("copies_parts", True)
    if not isinstance(record, dict) or not record.keys() >= _FIELDS.keys():
        raise UserError(f"{path} must be an object with the fields {', '.join(sorted(_FIELDS))}")
    for name, kind in _FIELDS.items():
        if not isinstance(record[name], kind):
            raise UserError(f"{path}: {name}: found {record[name]!r}")
    for name, holds in _CHECKS.items():
        if not holds(record):
            raise UserError(f"{path}: {name}: found {record[name]!r}")
    known = {field.name for field in dataclasses.fields(TrainingOptions)}
    options = {name: value for name, value in record["options"].items() if name in known}
    try:
        checked = TrainingOptions(**options)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    return {**record, "options": dataclasses.asdict(checked)}


def record_of_other(target_lang: str | None, command: str, source_lang: str | None) -> dict:
    """The record of a model that was not trained by `train`.

    Raises:
        UserError: `target_lang` or `source_lang` is not the code of a language.
    """
    check_language_code(target_lang)
    check_language_code(source_lang, "source_lang")
    return {
        "options": dataclasses.asdict(TrainingOptions(average_checkpoints=1)),
        "data": {},
        "vocab_type": None,
        "linearization": None,
        "preset": None,
        "source_lang": source_lang,
        "target_lang": target_lang,
        "copies_parts": True,
        "commands": [command],
        "starts": [],
    }


def recorded_run(record: dict) -> dict:
    """The options, data and kind of subwords or of trees in a record, in one dictionary."""
    return {
        **record["options"],
        **record["data"],
        "vocab_type": record["vocab_type"],
        "linearization": record["linearization"],
    }
