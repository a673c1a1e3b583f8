"""TensorFlow computes the same on a GPU as on the CPU.

These tests are skipped where TensorFlow sees no GPU. GPU_TESTS=cpu runs them with the CPU in the
GPU's place, which tries the tests themselves.
"""

import json
import os
import urllib.request

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import lively_model, run_python
from keras import ops

import keras_transformer as kt
from keras_transformer.data import BuiltinPairs
from keras_transformer.options import ServingOptions
from keras_transformer.search import SearchOptions, search

pytestmark = pytest.mark.gpu

KIND = os.environ.get("GPU_TESTS", "gpu").upper()
BASE = kt.TransformerConfig.from_preset("base", vocab_size=8000, dropout=0.0)
rng = np.random.default_rng(1)


@pytest.fixture(scope="module", autouse=True)
def device():
    """The name of the device; products of float32 are not rounded to TF32 on it."""
    if not tf.config.list_physical_devices(KIND):
        pytest.skip("TensorFlow sees no GPU")
    rounds = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(False)
    yield f"{KIND}:0"
    tf.config.experimental.enable_tensor_float_32_execution(rounds)


def test_a_product_is_computed_there(device):
    left, right = rng.normal(size=(2, 512, 512)).astype("float32")
    with tf.device(device):
        product = tf.matmul(left, right)
    assert product.device.endswith(device)
    np.testing.assert_allclose(product, left @ right, atol=1e-3)


# Training: `base` without dropout, a batch with padding, and the loss with label smoothing.


def padded_ids(rows, length):
    """Random ids of sentences of several lengths; each ends in the end symbol, 2."""
    ids = rng.integers(4, BASE.vocab_size, (rows, length)).astype("int32")
    lengths = rng.integers(length // 2, length, (rows, 1))
    ids = np.where(np.arange(length) < lengths, ids, BASE.pad_id)
    np.put_along_axis(ids, lengths, 2, axis=1)
    return ids


SOURCE, LABELS = padded_ids(12, 24), padded_ids(12, 20)
INPUTS = {
    "source_ids": SOURCE,
    "target_ids": np.pad(LABELS, ((0, 0), (1, 0)), constant_values=1)[:, :-1],
}


@pytest.fixture(scope="module")
def weights():
    with tf.device("CPU:0"):
        keras.utils.set_random_seed(1)
        return kt.Transformer(BASE).get_weights()


def step(device, weights, dtype="float32", training=True):
    """Logits, loss and all gradients on a device.

    In training, a graph has the functions that are compiled as a whole; else the plain formulas.
    """
    loss_of = kt.LabelSmoothedCrossEntropy(0.1)
    with tf.device(device):
        model = kt.Transformer(BASE, dtype=dtype)
        model.set_weights(weights)

        @tf.function(autograph=False)
        def run(inputs, labels):
            with tf.GradientTape() as tape:
                logits = model(inputs, training=training)
                loss = loss_of(labels, logits)
            variables = [weight.value for weight in model.trainable_weights]
            gradients = tape.gradient(loss, variables)
            return ops.cast(logits, "float32"), loss, [*map(tf.convert_to_tensor, gradients)]

        logits, loss, gradients = run(*tf.nest.map_structure(tf.constant, (INPUTS, LABELS)))
    assert logits.device.endswith(device)
    names = [weight.path.partition("/")[2] for weight in model.trainable_weights]
    return {"logits": logits, "loss": loss, **dict(zip(names, gradients, strict=True))}


def errors(found, expected):
    """The error of each figure as a share of its norm.

    A gradient that is zero but for rounding, such as that of a key's bias, is compared with the
    largest one.
    """
    norms = {name: np.linalg.norm(value) for name, value in expected.items()}
    largest = max(norm for name, norm in norms.items() if name not in ("logits", "loss"))
    return {
        name: np.linalg.norm(found[name] - value) / max(norms[name], 1e-3 * largest)
        for name, value in expected.items()
    }


@pytest.fixture(scope="module")
def on_the_cpu(weights):
    return step("CPU:0", weights)


def test_base_has_the_logits_loss_and_gradients_of_the_cpu(device, weights, on_the_cpu):
    found = errors(step(device, weights), on_the_cpu)
    assert max(found.values()) < 1e-4, max(found.items(), key=lambda item: item[1])


def test_what_is_compiled_as_a_whole_has_the_values_of_the_plain_formulas(device, weights):
    found = errors(step(device, weights), step(device, weights, training=False))
    assert max(found.values()) < 1e-4, max(found.items(), key=lambda item: item[1])


def test_bfloat16_is_as_exact_as_on_the_cpu(device, weights, on_the_cpu):
    found, expected = (
        errors(step(name, weights, "mixed_bfloat16"), on_the_cpu) for name in (device, "CPU:0")
    )
    for name, error in found.items():
        assert error < 2 * expected[name] + 1e-3, name


# Search and serving.


def test_a_search_finds_the_translations_of_the_cpu(device, weights):
    """Where two hypotheses are equally good but for rounding, either may be found."""
    source_ids = padded_ids(100, 12)
    options = SearchOptions(beam_size=4, max_length=16)
    results = []
    for name in (device, "CPU:0"):
        with tf.device(name):
            model = kt.Transformer(BASE)
            model.set_weights(weights)
            run = tf.function(lambda ids, m=model: search(m, ids, options), autograph=False)
            results.append([value.numpy() for value in run(tf.constant(source_ids))])
    (ids, scores), (expected_ids, expected_scores) = results
    np.testing.assert_allclose(scores, expected_scores, rtol=1e-4)
    assert (ids[:, 0] == expected_ids[:, 0]).all(axis=-1).mean() >= 0.98


SENTENCES = [
    "The girls sleep.",
    "A horse!",
    "",
    "He will not buy it, because it is dear.",
]


def lively_translator():
    tokenizer = kt.SubwordTokenizer.train_from_sentences(
        BuiltinPairs("train", 300).sentences(), 340
    )
    limits = {"max_source_length": 64, "extra_length": 5}
    return kt.Translator(lively_model(1, tokenizer.vocab_size), tokenizer, **limits)


@pytest.fixture(scope="module")
def translator(device):
    with tf.device(device):
        return lively_translator()


@pytest.fixture(scope="module")
def expected():
    with tf.device("CPU:0"):
        return lively_translator()(SENTENCES)


def test_a_saved_model_translates_as_the_cpu(translator, expected, tmp_path):
    serve = tf.saved_model.load(str(translator.export(tmp_path))).signatures["serving_default"]
    found = serve(tf.constant(SENTENCES))["translation"].numpy()
    assert [text.decode() for text in found] == expected


def test_a_server_translates_as_the_cpu(translator, expected):
    pytest.importorskip("starlette", reason="the server is not installed")
    from serving_world import only_version, running

    from keras_transformer.serving.servable import TranslatorServable
    from keras_transformer.serving.server import Server

    options = ServingOptions()
    server = Server([only_version("m", TranslatorServable(translator))], options)
    with running(server, options) as (_, port):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/models/m:predict",
            json.dumps({"instances": SENTENCES}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            predictions = json.load(answer)["predictions"]
    assert [prediction["translation"] for prediction in predictions] == expected


# Runs, in processes of their own: devices are set once, and so is determinism.

SETUP = """
import dataclasses, json, os, signal, sys
import tensorflow as tf

kind, devices = sys.argv[1], int(sys.argv[2])
physical = tf.config.list_physical_devices(kind)[0]
if devices > 1:
    limit = {"memory_limit": 4096} if kind == "GPU" else {}
    logical = [tf.config.LogicalDeviceConfiguration(**limit)] * devices
    tf.config.set_logical_device_configuration(physical, logical)
tf.config.experimental.enable_op_determinism()
tf.config.experimental.enable_tensor_float_32_execution(False)
import keras
import keras_transformer as kt
from keras_transformer.data import Batches, BuiltinPairs, Corpus
from keras_transformer.training import (
    TrainableTransformer, TrainingJob, TrainingOptions, make_strategy, train
)

config = kt.TransformerConfig.from_preset(
    "tiny", vocab_size=400, num_encoder_layers=2, num_decoder_layers=2, dropout=0.1
)
pairs = BuiltinPairs("train", 1000)
"""

RUN = """
from keras_transformer.training.callbacks import Progress

path, kill_at = sys.argv[3:]
after_batch = Progress.on_train_batch_end

def killed(self, batch, logs=None):
    after_batch(self, batch, logs)
    if self.state.step == int(kill_at):
        os.kill(os.getpid(), signal.SIGKILL)

Progress.on_train_batch_end = killed
options = TrainingOptions(
    steps=12, tokens_per_batch=2048, warmup_steps=10, checkpoint_steps=5, average_checkpoints=1,
    dtype_policy="float32",
)
job = TrainingJob(model_dir=path, train=pairs, config=config, options=options)
train(job, make_strategy("one_device"))
"""

FIT = """
strategy = make_strategy(sys.argv[3])
tokenizer = kt.SubwordTokenizer.train_from_sentences(pairs.sentences(), 400)
batches = Batches(Corpus.build(pairs, tokenizer), 2048, batch_multiple=2)
keras.utils.set_random_seed(1)
with strategy.scope():
    model = TrainableTransformer(dataclasses.replace(config, dropout=0.0))
    model.compile(keras.optimizers.Adam(1e-3))
losses = []
record = keras.callbacks.LambdaCallback(
    on_train_batch_end=lambda _, logs: losses.append(float(logs["loss"]))
)
model.fit(batches.dataset(), steps_per_epoch=12, callbacks=[record], verbose=0)
reduction = type(getattr(strategy.extended, "_cross_device_ops", None)).__name__
print(json.dumps({"losses": losses, "reduction": reduction}))
"""


def test_killed_and_resumed_a_run_ends_as_an_undisturbed_one(tmp_path):
    paths = tmp_path / "undisturbed", tmp_path / "killed"
    run_python(SETUP + RUN, KIND, 1, paths[0], 0)
    with pytest.raises(AssertionError):
        run_python(SETUP + RUN, KIND, 1, paths[1], 8)
    assert kt.ModelDir(paths[1]).checkpoints.steps() == [5]
    assert "Resuming from step 5" in run_python(SETUP + RUN, KIND, 1, paths[1], 0)
    expected, found = (kt.ModelDir(path).load_model().get_weights() for path in paths)
    for mine, weight in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, weight)


def losses_of(devices, strategy):
    result = json.loads(run_python(SETUP + FIT, KIND, devices, strategy).splitlines()[-1])
    print(f"{strategy}, {devices}: reduced by {result['reduction']}")
    return result["losses"]


def test_mirrored_devices_have_the_losses_of_one():
    expected = losses_of(1, "one_device")
    for devices in (1, 2):
        np.testing.assert_allclose(losses_of(devices, "mirrored"), expected, rtol=1e-4)
