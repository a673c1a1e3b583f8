"""Keras loads files of models with our classes, whatever a program imports first."""

import keras
import pytest
from helpers import run_python

import keras_transformer as kt

ORDERS = {
    "the package, then Keras": "import keras_transformer\nfrom keras.saving import load_model",
    "the package, then TensorFlow": "import keras_transformer\nimport tensorflow as tf\n"
    "load_model = tf.keras.models.load_model",
    "TensorFlow, then the package": "import tensorflow\nimport keras_transformer\n"
    "from keras.saving import load_model",
    "a module of the package": "from keras_transformer.layers import FeedForward\n"
    "from keras.saving import load_model",
    "a name of the package": "import keras_transformer as kt\nkt.Transformer\n"
    "from keras.saving import load_model",
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A functional model with a layer, a schedule, a loss and a metric of ours."""
    ids = keras.Input((None,), dtype="int32")
    model = keras.Model(ids, kt.layers.TokenEmbedding(11, 8)(ids))
    schedule = kt.InverseSquareRootSchedule(8, warmup_steps=100)
    loss, metrics = kt.LabelSmoothedCrossEntropy(0.1), [kt.Perplexity()]
    model.compile(keras.optimizers.Adam(schedule), loss, metrics)
    path = tmp_path_factory.mktemp("saved") / "model.keras"
    model.save(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
def test_a_model_is_loaded(order, saved):
    loads = "import sys\nprint(load_model(sys.argv[1]).loss.name)"
    assert run_python(f"{ORDERS[order]}\n{loads}", saved) == "label_smoothed_cross_entropy\n"


@pytest.mark.slow
def test_nothing_is_watched_once_keras_is_there():
    script = (
        "import sys\nimport keras_transformer\nimport keras\n"
        "print([finder for finder in sys.meta_path if 'Until' in type(finder).__name__])"
    )
    assert run_python(script) == "[]\n"
