"""Reads JSON; a mistake in it is one line that names the file."""

import json
import os
import sys
from typing import Any

from keras_transformer.errors import UserError
from keras_transformer.files import read_utf_8


def read_json(path: str | os.PathLike) -> Any:
    """Reads a JSON file.

    Raises:
        OSError: the file cannot be read.
        UserError: its content is not JSON; the message names the file.
    """
    return parse_json(read_utf_8(path), path)


def parse_json(text: str, where: str | os.PathLike) -> Any:
    """Parses JSON whose objects have each name once.

    Raises:
        UserError: the text is not JSON; the message names `where`, and the line.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        message = error.msg.removesuffix(" at")  # the column, which only `str(error)` gives
        raise UserError(f"{where}:{error.lineno}: not JSON: {message}") from None
    except RecursionError:
        raise UserError(f"{where}: this JSON is nested too deeply") from None
    except _Repetition as error:
        raise UserError(f"{where}: {json.dumps(error.name)[:80]} occurs more than once") from None
    except ValueError:
        digits = sys.get_int_max_str_digits()
        raise UserError(
            f"{where}: this JSON has an integer of more than {digits:,} digits"
        ) from None


class _Repetition(Exception):
    def __init__(self, name):
        self.name = name


def _without_repetition(pairs):
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise _Repetition(name)
        fields[name] = value
    return fields
