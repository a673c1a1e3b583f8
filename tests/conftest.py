"""Sets up every test: a quiet TensorFlow, a fixed seed, optional corpora, a browser."""

import gc
import os
import shutil
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

# A loaded machine may take long for an example.
settings.register_profile("loaded", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("loaded")

BROWSER_SECONDS = 120  # maximum wait for the page

# Set before any test module is imported, since TensorFlow reads it at its first import.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# XLA compiles in half the time when LLVM leaves its code as it is, and in a tenth less when it is
# not split into 32 parts. The tests of the installed wheel run without this, as users do.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1",
)
# Measurements of the processor are kept here, and not among the user's.
os.environ["XDG_CACHE_HOME"] = str(Path(__file__).parents[1] / "build/cache")


def pytest_collectstart():
    """Collects no garbage while tests are imported: what Python allocates then stays."""
    gc.disable()


def pytest_collection_modifyitems(items):
    """Starts the longest tests first: at the end, one worker would wait for them alone."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def no_collection_for_each_weight():
    """Keras collects garbage for each weight that a layer gives up: 30 times to quantise a model.

    That frees memory of a GPU at once. In a process of many tests, each time takes half a second.
    """
    import keras

    give_up = keras.layers.Layer.__delattr__

    def without_collection(layer, name):
        with mock.patch.object(gc, "collect"):
            give_up(layer, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.layers.Layer, "__delattr__", without_collection)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_tuning_of_data_sets():
    import keras

    if keras.backend.backend() == "tensorflow":
        import untuned  # noqa: F401


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


@pytest.fixture(scope="module")
def browser():
    """Headless Chromium: an installed one, or the program in the variable CHROMIUM."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if path is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is in PATH, nor is CHROMIUM set")
    api = pytest.importorskip("playwright.sync_api", exc_type=ImportError)
    with api.sync_playwright() as playwright:
        # A container that runs tests as root allows no sandbox, and has little shared memory.
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(
            executable_path=path, args=arguments, timeout=BROWSER_SECONDS * 1000
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser):
    """A new page; checks that none of its scripts fails, and that it breaks no policy."""
    from playwright.sync_api import expect

    expect.set_options(timeout=BROWSER_SECONDS * 1000)
    page = browser.new_page()
    page.set_default_timeout(BROWSER_SECONDS * 1000)
    complaints = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.on("console", lambda message: complaints.append(message.text))
    yield page
    page.close()
    # The page may request what the server refuses.
    assert not [one for one in complaints if not one.startswith("Failed to load resource")]


@pytest.fixture
def addresses(page):
    """Every address that the page requests."""
    found = []
    page.on("request", lambda request: found.append(request.url))
    return found
