"""Files that `torch.save` has written are read without PyTorch, and no others.

PyTorch 2.13 wrote pytorch_archive.bin and pytorch_stream.bin, in both of its formats.
"""

import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest

from keras_transformer.errors import UserError
from keras_transformer.importers.pytorch_file import read_pytorch

FILES = [Path(__file__).with_name(f"pytorch_{name}.bin") for name in ("archive", "stream")]
WHOLE = np.arange(12, dtype="float32").reshape(3, 4)
EXPECTED = {
    "whole": WHOLE,
    "turned": WHOLE.T,
    "part": WHOLE[1:, 2:],
    "half": np.array([1.5, -2.0], "float16"),
    "short": np.array([[1.0], [-3.0]], "float32"),  # bfloat16
    "whole_numbers": np.array([3, -4]),
    "one": np.array(0.1, "float32"),
    "none": np.zeros((0, 2), "float32"),
    "parameter": np.array([0.5], "float32"),
}


def message_of(path):
    with pytest.raises(UserError) as error:
        read_pytorch(path)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_tensors_of_pytorch_are_read(path):
    found = read_pytorch(path)
    assert list(found) == list(EXPECTED)
    for name, expected in EXPECTED.items():
        np.testing.assert_array_equal(found[name], expected, strict=True)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_cut_short_is_damaged(path, tmp_path):
    content = path.read_bytes()
    for length in range(0, len(content), 97):
        (tmp_path / "cut.bin").write_bytes(content[:length])
        assert message_of(tmp_path / "cut.bin").startswith(f"{tmp_path / 'cut.bin'}: no weights of")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_tensor_never_reaches_beyond_its_storage(path, tmp_path):
    """Where any one byte of the file is another, it is read within bounds, or refused."""
    content = path.read_bytes()
    for at in range(0, len(content), 13):
        changed = bytearray(content)
        changed[at] ^= 0x3F
        (tmp_path / "changed.bin").write_bytes(changed)
        try:
            found = read_pytorch(tmp_path / "changed.bin")
        except UserError:
            continue
        for array in found.values():
            assert array.size < 1000
            array.sum()


class RunsCode:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


@pytest.mark.parametrize("archive", [True, False])
def test_a_file_cannot_run_code(archive, tmp_path):
    pickled, path = pickle.dumps(RunsCode(str(tmp_path / "made"))), tmp_path / "code.bin"
    if archive:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", pickled)
    else:
        path.write_bytes(pickled)
    assert message_of(path).endswith(f"it holds {os.mkdir.__module__}.mkdir, which is no tensor")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("archive", [True, False])
def test_a_file_of_few_objects_cannot_ask_for_memory_of_many(archive, tmp_path):
    path = tmp_path / "numbers.bin"
    pickled = b"\x80\x02}r" + (2**32 - 1).to_bytes(4, "little") + b"."  # 64 GiB of numbers
    if archive:
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("archive/data.pkl", pickled)
    else:
        path.write_bytes(pickled)
    assert message_of(path).endswith("it numbers an object 4,294,967,295, and has fewer")


def test_compressed_archives_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "bomb.bin", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", bytes(10_000_000))
    assert message_of(tmp_path / "bomb.bin").endswith("is compressed, which PyTorch does not do")


def test_what_is_no_dictionary_of_tensors_is_refused(tmp_path):
    for content in ([1], {"a": 1}, {}, {1: 2}):
        with zipfile.ZipFile(tmp_path / "other.bin", "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps(content))
        if content == {}:
            assert read_pytorch(tmp_path / "other.bin") == {}
        else:
            assert message_of(tmp_path / "other.bin").endswith(
                "no dictionary of tensors by their names"
            )
