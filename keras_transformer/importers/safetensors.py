"""Reads `.safetensors` files: an 8-byte length, a JSON header, raw little-endian arrays."""

import json
import math
import os
from typing import Any

import numpy as np

from keras_transformer.errors import UserError

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "i1",
    "U8": "u1",
    "BOOL": "?",
}


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads the arrays of a `.safetensors` file by name; bfloat16 becomes float32.

    Raises:
        UserError: the file cannot be read, is incomplete, or has an array of another kind.
    """
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as error:
        raise UserError(f"{path}: expected a readable file: {error.strerror}") from error
    start = 8 + int.from_bytes(content[:8], "little")
    try:
        if not 8 < start <= len(content):
            raise ValueError(f"a header up to byte {start} of {len(content)}")
        header: Any = json.loads(content[8:start])
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        return {name: _array(entry, content, start) for name, entry in entries.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: expected a whole safetensors file: {error}") from error


def _array(entry, content, start):
    first, last = entry["data_offsets"]
    shape, dtype = entry["shape"], np.dtype(_DTYPES[entry["dtype"]])
    count = math.prod(shape)
    if not 0 <= first <= last <= len(content) - start or last - first != count * dtype.itemsize:
        raise ValueError(f"an array of shape {shape} at bytes {first} to {last}")
    array = np.frombuffer(content, dtype, count, start + first).reshape(shape)
    if entry["dtype"] == "BF16":  # the upper half of a float32
        return (array.astype("<u4") << 16).view("<f4")
    return array
