"""Reads the arrays that `torch.save` has written, such as `pytorch_model.bin`, without PyTorch.

Such a file is a pickle, in which each tensor is a call: a part of a storage, with a shape and
strides. The bytes of the storages come after the pickle, or stand beside it in a zip archive (since
PyTorch 1.6). Only the calls of tensors are allowed, so a file cannot run code of its own.
"""

import collections
import io
import math
import os
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.errors import UserError
from keras_transformer.files import open_regular
from keras_transformer.importers.safetensors import from_bfloat16

_DTYPES = {
    "DoubleStorage": "<f8",
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "BFloat16Storage": "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}
_ARCHIVE = b"PK"  # how a zip archive begins
_MAGIC, _PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # how a file before PyTorch 1.6 begins


class _Storage(NamedTuple):
    kind: str
    key: str
    size: int  # in elements


class _Tensor(NamedTuple):
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in elements, as the offset


def read_pytorch(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads the arrays of a dictionary of tensors by name; bfloat16 becomes float32.

    Raises:
        UserError: the file cannot be read, is incomplete, or holds anything but such a dictionary.
    """
    try:
        with open_regular(path) as file:
            is_archive = file.read(len(_ARCHIVE)) == _ARCHIVE
            file.seek(0)
            return _read_archive(file) if is_archive else _read_stream(file)
    except OSError as error:
        raise UserError(f"{path}: cannot read the file: {error.strerror or error}") from error
    except UserError as error:
        raise UserError(f"{path}: no weights of PyTorch: {error}") from None
    except Exception as error:  # a damaged pickle or archive may raise anything
        kind = type(error).__name__
        raise UserError(f"{path}: no weights of PyTorch, or damaged ({kind}: {error})") from error


def _read_archive(file):
    with zipfile.ZipFile(file) as archive:
        [pickled] = [name for name in archive.namelist() if name.endswith("/data.pkl")]
        folder = pickled.removesuffix("data.pkl")
        order = f"{folder}byteorder"  # of newer versions
        if order in archive.namelist() and _stored(archive, order) != b"little":
            raise UserError("its numbers are big-endian")
        tensors = _checked(_load(io.BytesIO(_stored(archive, pickled))))
        return _arrays(tensors, lambda storage: _stored(archive, f"{folder}data/{storage.key}"))


def _stored(archive, name):
    """The bytes of a file in the archive; one that is compressed might need all memory."""
    if archive.getinfo(name).compress_type != zipfile.ZIP_STORED:
        raise UserError(f"{name} is compressed, which PyTorch does not do")
    return archive.read(name)


def _read_stream(file):
    if (_load(file), _load(file)) != (_MAGIC, _PROTOCOL):
        raise UserError("it does not begin as such a file does")
    if not _load(file)["little_endian"]:
        raise UserError("its numbers are big-endian")
    tensors = _checked(_load(file))
    sizes = {one.storage.key: one.storage for one in tensors.values()}
    contents = {}
    for key in _load(file):
        size = int.from_bytes(file.read(8), "little")
        if key not in sizes or size != sizes[key].size:
            raise UserError(f"storage {key} has {size:,} elements, and no tensor of that size")
        contents[key] = file.read(size * np.dtype(_DTYPES[sizes[key].kind]).itemsize)
    return _arrays(tensors, lambda storage: contents[storage.key])


def _load(file):
    """Reads one pickle, unless it asks for the memory of objects that it does not have."""
    begin = file.tell()
    for opcode, argument, position in pickletools.genops(file):
        if opcode.name in ("PUT", "LONG_BINPUT") and argument > position - begin:
            raise UserError(f"it numbers an object {argument:,}, and has fewer")
    file.seek(begin)
    return _Unpickler(file).load()


def _checked(loaded: Any) -> dict[str, _Tensor]:
    if isinstance(loaded, dict) and all(
        isinstance(name, str) and isinstance(one, _Tensor) for name, one in loaded.items()
    ):
        return loaded
    raise UserError("it is no dictionary of tensors by their names")


def _arrays(
    tensors: dict[str, _Tensor], content_of: Callable[[_Storage], bytes]
) -> dict[str, np.ndarray]:
    storages: dict[str, np.ndarray] = {}
    arrays = {}
    for name, (storage, offset, shape, strides) in tensors.items():
        if storage.key not in storages:
            storages[storage.key] = _elements(storage, content_of(storage))
        elements = storages[storage.key]
        numbers = (offset, *shape, *strides)
        last = offset + sum((n - 1) * by for n, by in zip(shape, strides, strict=True))
        is_within = last < len(elements) and math.prod(shape) <= len(elements)
        if min(numbers) < 0 or (all(shape) and not is_within):
            raise UserError(f"{name} is larger than its storage")
        by_bytes = [by * elements.itemsize for by in strides]
        arrays[name] = np.lib.stride_tricks.as_strided(
            elements[offset:], shape, by_bytes, writeable=False
        )
    return arrays


def _elements(storage, content):
    elements = np.frombuffer(content, _DTYPES[storage.kind])
    if len(elements) != storage.size:
        raise UserError(f"storage {storage.key} has {len(elements):,} of {storage.size:,} elements")
    return from_bfloat16(elements) if storage.kind == "BFloat16Storage" else elements


class _Unpickler(pickle.Unpickler):
    """Reads a pickle of tensors; refuses every other class and function."""

    def find_class(self, module: str, name: str) -> Any:
        match module, name:
            case "collections", "OrderedDict":
                return collections.OrderedDict
            case "torch._utils", "_rebuild_tensor_v2":
                return _tensor
            case "torch._utils", "_rebuild_parameter":
                return lambda tensor, *_: tensor
            case "torch", _ if name in _DTYPES:
                return name
        raise UserError(f"it holds {module}.{name}, which is no tensor")

    def persistent_load(self, pid: Any) -> _Storage:
        what, kind, key, _, size, *view = pid
        if what != "storage" or kind not in _DTYPES or any(part is not None for part in view):
            raise UserError(f"it holds {what}, which is no storage of numbers")
        return _Storage(kind, key, size)


def _tensor(storage, offset, shape, strides, *_):
    return _Tensor(storage, offset, tuple(shape), tuple(strides))
