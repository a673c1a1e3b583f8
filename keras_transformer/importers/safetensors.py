"""Reads `.safetensors` files: an 8-byte length, a JSON header, raw little-endian arrays."""

import math
import os

import numpy as np

from keras_transformer.errors import UserError
from keras_transformer.files import open_regular
from keras_transformer.json_files import parse_json

_OTHER = "__metadata__"  # the entry of a header that is no array
_LARGEST_HEADER = 100_000_000  # bytes, as in Hugging Face's own reader

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
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            start = 8 + int.from_bytes(file.read(8), "little")
            if not 8 < start <= min(size, 8 + _LARGEST_HEADER):
                raise _damaged(path, f"its header ends at byte {start:,} of {size:,}")
            header = _parsed(file.read(start - 8), path)
            _check_header(header, size - start, path)
            content = file.read()
    except OSError as error:
        raise UserError(f"{path}: cannot read the file: {error.strerror}") from error
    return {name: _array(entry, content) for name, entry in header.items() if name != _OTHER}


def _parsed(header, path):
    try:
        return parse_json(header.decode("utf-8"), path)
    except ValueError as error:
        raise _damaged(path, "its header is not JSON") from error


def _check_header(header, size, path):
    """Checks that the header describes the following `size` bytes, before they are read."""
    if not isinstance(header, dict):
        raise _damaged(path, "its header does not name arrays")
    end = 0
    for name, entry in header.items():
        if name == _OTHER:
            continue
        try:
            (first, last), shape = entry["data_offsets"], entry["shape"]
            length = math.prod(shape) * np.dtype(_DTYPES[entry["dtype"]]).itemsize
            is_right = all(type(n) is int and n >= 0 for n in (first, *shape))
            is_right = is_right and first + length == last <= size
            np.broadcast_to(0, shape)  # raises ValueError for a shape that no array can have
        except (ValueError, KeyError, TypeError):
            is_right = False
        if not is_right:
            raise _damaged(path, f"its header does not describe {name} as an array in it")
        end = max(end, last)
    if end != size:
        raise _damaged(path, f"its arrays have {end:,} bytes of {size:,}")


def _damaged(path, reason):
    return UserError(f"{path}: the safetensors file is damaged: {reason}")


def _array(entry, content):
    shape, (first, _) = entry["shape"], entry["data_offsets"]
    array = np.frombuffer(content, _DTYPES[entry["dtype"]], math.prod(shape), first).reshape(shape)
    return from_bfloat16(array) if entry["dtype"] == "BF16" else array


def from_bfloat16(numbers: np.ndarray) -> np.ndarray:
    """The float32 numbers of which these uint16 are the upper halves."""
    return (numbers.astype("<u4") << 16).view("<f4")
