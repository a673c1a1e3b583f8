"""Set-up of every test: a quiet TensorFlow, a fixed seed, the optional corpora."""

import gc
import os
from pathlib import Path

import pytest

# Read by TensorFlow when it is first imported, so it is set before any test module is.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")


@pytest.fixture(scope="module", autouse=True)
def garbage_of_this_module():
    """Freezes a module's leftovers: collecting them again would take up to a minute each time."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fixed_seed():
    import keras

    keras.utils.set_random_seed(1)


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """The folder with Multi30k's `train`, `val` and `test_2016_flickr` as `.en`, `.de`, `.fr`."""
    root = os.environ.get("KERAS_TRANSFORMER_DATA")
    if not root:
        pytest.skip("KERAS_TRANSFORMER_DATA is not set: it names the folder that holds multi30k/")
    folder = Path(root) / "multi30k"
    if not folder.is_dir():
        pytest.skip(f"KERAS_TRANSFORMER_DATA is set, but there is no folder {folder}")
    return folder
