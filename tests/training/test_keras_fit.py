"""Our model, loss and metrics in plain Keras: every mode of `fit`, on one device and on two."""

import csv
import itertools
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import ROOT, run_python

import keras_transformer as kt
import keras_transformer.saving
from keras_transformer.layers import EncoderLayer, PositionalEncoding, TokenEmbedding
from keras_transformer.training import TrainableTransformer

CONFIG = kt.TransformerConfig(
    vocab_size=20,
    num_encoder_layers=1,
    num_decoder_layers=1,
    d_model=8,
    d_ff=16,
    num_heads=2,
    dropout=0.0,
)
RNG = np.random.default_rng(0)
LABELS = RNG.integers(3, 20, size=(7, 6)).astype("int32")
LABELS[np.arange(6) >= np.array([6, 5, 6, 1, 2, 1, 4])[:, None]] = 0
IDS = {
    "source_ids": LABELS[:, ::-1] + 1 - (LABELS[:, ::-1] == 19),
    "target_ids": np.pad(LABELS, ((0, 0), (1, 0)), constant_values=1)[:, :-1],
}
STATES = RNG.normal(size=(7, 6, 4)).astype("float32")
WEIGHTS = {
    "sentences": RNG.uniform(0.1, 2, size=7).astype("float32"),
    "tokens": RNG.uniform(0, 2, size=(7, 6)).astype("float32"),
}
ONE_DEVICE = tf.distribute.get_strategy()


def optimizer():
    return keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-4)


def compiled(model_class=kt.Transformer, build=False, **options):
    keras.utils.set_random_seed(1)
    model = model_class(CONFIG)
    if build:
        model.build()
    if model_class is TrainableTransformer:
        model.compile(optimizer(), **options)
    else:
        metrics = [kt.TokenAccuracy(), kt.Perplexity(), kt.TokenCount()]
        model.compile(optimizer(), kt.LabelSmoothedCrossEntropy(0.1), metrics=metrics, **options)
    return model


# Values by NumPy


def log_softmax(logits):
    logits = logits.astype("float64")
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def expected_values(logits, labels, weights=None, epsilon=0.1):
    """Loss, accuracy, perplexity and number of tokens; only the loss weights tokens."""
    log_p, real = log_softmax(logits), labels != 0
    share = epsilon / (logits.shape[-1] - 1)
    picked = np.take_along_axis(log_p, labels[..., None], -1)[..., 0]
    losses = -(1 - epsilon - share) * picked - share * log_p.sum(-1)
    weights = np.ones(labels.shape) if weights is None else weights
    weights = weights if weights.ndim == 2 else weights[:, None]
    return {
        "loss": np.sum(losses * weights * real) / real.sum(),
        "token_accuracy": np.mean((logits.argmax(-1) == labels)[real]),
        "perplexity": np.exp(-np.mean(picked[real])),
        "target_tokens": real.sum(),
    }


# Metrics in every mode


def linear_model(**options):
    """Logits of `STATES`, which training does not change, and all our metrics."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((None, 4)), keras.layers.Dense(20)])
    model.compile(
        keras.optimizers.SGD(0.0),
        kt.LabelSmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity(), kt.TokenCount()],
        **options,
    )
    return model


def reported(strategy, folder, **options):
    """Values of each way of reporting, {place: values}, and the trained kernel and bias."""
    steps = []

    def batches():
        """Batches of 4 rows and of 2: Keras needs numbers that replicas share evenly."""
        data = tf.data.Dataset.from_tensor_slices((STATES[:6], LABELS[:6])).batch(4)
        return data.apply(tf.data.experimental.assert_cardinality(2))

    class Steps(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            steps.append({name: float(value) for name, value in logs.items()})

    with strategy.scope():
        model = linear_model(**options)
    callbacks = [
        Steps(),
        keras.callbacks.CSVLogger(f"{folder}/log.csv"),
        keras.callbacks.TensorBoard(f"{folder}/logs", update_freq="batch"),
    ]
    history = model.fit(
        batches(), epochs=2, validation_data=batches(), callbacks=callbacks, verbose=1
    ).history
    with open(f"{folder}/log.csv") as file:
        last_line = list(csv.DictReader(file))[-1]
    found = {"history": {k: v[-1] for k, v in history.items() if not k.startswith("val_")}}
    found["validation"] = {k[4:]: v[-1] for k, v in history.items() if k.startswith("val_")}
    found["csv"] = {name: float(last_line[name]) for name in found["history"]}
    found["first step"], found["last step"] = steps[0], steps[-1]
    found["evaluate"] = model.evaluate(batches(), verbose=1, return_dict=True)
    if strategy is ONE_DEVICE:  # on two devices, Keras gives each the whole batch
        model.reset_metrics()  # which Keras does by itself only since 3.15
        found["test_on_batch"] = model.test_on_batch(STATES[:4], LABELS[:4], return_dict=True)
    return found, [w.numpy() for w in model.weights]


def assert_values(reports, replicas=1):
    found, (kernel, bias) = reports
    logits = STATES @ kernel + bias

    def loss(first, last):
        """Keras weights batches by rows, and so it does the parts of a batch on its replicas."""
        starts = np.linspace(first, last, replicas + 1, dtype=int)
        parts = [slice(*pair) for pair in itertools.pairwise(starts)]
        return np.mean([expected_values(logits[rows], LABELS[rows])["loss"] for rows in parts])

    losses = [loss(0, 4), loss(4, 6)]
    for place, values in found.items():
        if place in ("first step", "test_on_batch"):
            expected = expected_values(logits[:4], LABELS[:4]) | {"loss": losses[0]}
        else:
            expected = expected_values(logits[:6], LABELS[:6])
            expected["loss"] = np.average(losses, weights=[4, 2])
        assert values == pytest.approx(expected, rel=1e-5), place


@pytest.mark.parametrize("options", [{}, {"run_eagerly": True}, {"jit_compile": True}])
def test_metrics_report_the_same_in_every_mode(options, tmp_path):
    assert_values(reported(ONE_DEVICE, tmp_path, **options))


# Weights of sentences and tokens


@pytest.mark.parametrize("kind", ["sentences", "tokens"])
@pytest.mark.parametrize("from_dataset", [False, True])
def test_weights_multiply_the_loss_and_the_gradient_of_tokens(kind, from_dataset):
    """The result in NumPy: divided by the number of real tokens, as in Keras's masked losses."""
    weights = WEIGHTS[kind]
    model = linear_model(weighted_metrics=[kt.Perplexity(name="weighted"), kt.TokenCount(name="n")])
    model.optimizer.learning_rate = 0.5
    kernel, bias = (w.numpy() for w in model.weights)
    logits = STATES @ kernel + bias
    data = STATES, LABELS, weights
    if from_dataset:
        data = (tf.data.Dataset.from_tensor_slices(data).batch(7),)
        found = model.fit(*data, verbose=0).history
    else:
        found = model.fit(*data[:2], sample_weight=weights, batch_size=7, verbose=0).history
    expected = expected_values(logits, LABELS, weights)
    assert found["loss"][0] == pytest.approx(expected["loss"], rel=1e-5)
    # Keras passes no weights to `metrics`.
    assert found["perplexity"][0] == pytest.approx(expected["perplexity"], rel=1e-5)

    counted = (weights if weights.ndim == 2 else weights[:, None]) * (LABELS != 0)
    log_p = log_softmax(logits)
    nll = -np.take_along_axis(log_p, LABELS[..., None], -1)[..., 0]
    assert found["n"][0] == pytest.approx(counted.sum(), rel=1e-5)
    assert found["weighted"][0] == pytest.approx(np.exp(np.average(nll, weights=counted)), rel=1e-5)

    target = np.full(logits.shape, 0.1 / 19)
    np.put_along_axis(target, LABELS[..., None], 0.9, -1)
    gradient = (np.exp(log_p) - target) * counted[..., None] / np.sum(LABELS != 0)
    expected_kernel = kernel - 0.5 * np.einsum("bld,blv->dv", STATES, gradient)
    np.testing.assert_allclose(model.weights[0].numpy(), expected_kernel, atol=1e-6)


def test_light_weights_are_not_rounded_up():
    """A mean is divided by the sum of the weights, however small."""
    metric = kt.Perplexity()
    metric.update_state([[1, 2]], np.zeros((1, 2, 8)), sample_weight=[0.01])
    assert float(metric.result()) == pytest.approx(8)


@pytest.mark.parametrize("weights", [(2,), (2, 3)])
def test_weights_belong_to_the_first_axes_of_labels_of_three(weights):
    """The other axes have as many rows, so that weights along them would go unnoticed."""
    labels = np.arange(1, 13).reshape(2, 3, 2)
    logits = RNG.normal(size=(2, 3, 2, 20)).astype("float32")
    weight = RNG.uniform(size=weights).astype("float32")
    nll = -np.take_along_axis(log_softmax(logits), labels[..., None], -1)[..., 0]
    expected = np.sum(nll * weight.reshape(*weights, *[1] * (3 - len(weights)))) / 12
    loss = kt.LabelSmoothedCrossEntropy(0.0)(labels, logits, sample_weight=weight)
    assert float(loss) == pytest.approx(expected, rel=1e-5)


def test_weights_of_more_axes_than_the_labels_are_refused():
    labels, logits = np.array([1, 2, 3]), np.zeros((3, 20), "float32")
    for use in (kt.LabelSmoothedCrossEntropy(), kt.Perplexity().update_state):
        with pytest.raises(ValueError, match=r"found \(3, 1\) for labels of shape \(3,\)"):
            use(labels, logits, sample_weight=np.ones((3, 1)))


@pytest.mark.parametrize("shape", [(), (7, 6, 1)])
def test_weights_of_another_rank_are_refused(shape):
    for use in (kt.LabelSmoothedCrossEntropy(), kt.Perplexity().update_state):
        with pytest.raises(ValueError, match=r"of shape \(batch,\) or \(batch, length\): found \("):
            use(LABELS, np.zeros((7, 6, 20), "float32"), sample_weight=np.ones(shape))


@pytest.mark.parametrize("shape", [(7, 1), (1, 6), (7, 5), (6,), (7, 6, 2), (7, 5, 1)])
def test_labels_of_another_shape_are_refused(shape):
    """Keras's own loss refuses them too; a row of labels would be taken for that of each row."""
    uses = kt.LabelSmoothedCrossEntropy(), kt.Perplexity(), kt.TokenAccuracy()
    for use in uses:
        with pytest.raises(ValueError, match=r"labels must be of shape \(7, 6\).*: found \("):
            use(np.ones(shape), np.zeros((7, 6, 20), "float32"))


@pytest.mark.parametrize("model_class", [kt.Transformer, TrainableTransformer])
@pytest.mark.parametrize("method", ["fit", "train_on_batch"])
def test_class_weight_is_refused(model_class, method):
    """Keras would use the position of the largest id as the class of a sentence."""
    with pytest.raises(ValueError, match=r"class_weight must be None.*as sample_weight instead"):
        getattr(compiled(model_class), method)(IDS, LABELS, class_weight={3: 2.0})


def test_a_dataset_weights_classes_rightly_if_labels_have_an_axis_of_one():
    """Keras would take labels (batch, length) for one-hot classes."""
    weights = np.where(LABELS == 3, 2.0, 1.0).astype("float32")
    data = tf.data.Dataset.from_tensor_slices((STATES, LABELS[..., None])).batch(7)
    classes = {n: 2.0 if n == 3 else 1.0 for n in range(20)}
    found = linear_model().fit(data, class_weight=classes, verbose=0).history
    model = linear_model()
    logits = model.predict(STATES, verbose=0)
    assert found["loss"][0] == pytest.approx(
        expected_values(logits, LABELS, weights)["loss"], rel=1e-5
    )


def test_labels_may_have_an_axis_of_one_in_some_calls():
    model = linear_model()
    logits = model.predict(STATES, verbose=0)
    for labels in (LABELS, LABELS[..., None], LABELS):
        found = model.train_on_batch(STATES, labels, return_dict=True)
        model.reset_metrics()
        assert found == pytest.approx(expected_values(logits, LABELS), rel=1e-5)


def test_missing_labels_are_named():
    with pytest.raises(ValueError, match="labels are missing: give the ids to predict"):
        compiled().fit(IDS, verbose=0)


# Methods that Keras users call


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model_class", "run_eagerly"),
    [(kt.Transformer, False), (TrainableTransformer, False), (TrainableTransformer, True)],
)
def test_every_method_of_a_model_does_what_it_does_in_keras(model_class, run_eagerly, tmp_path):
    model = compiled(model_class, run_eagerly=run_eagerly)
    model.summary(print_fn=lambda *args, **kwargs: None)
    logits = model.predict_on_batch(IDS)
    expected = expected_values(logits, LABELS)
    if model_class is TrainableTransformer:
        del expected["token_accuracy"]

    def assert_expected(values, names=expected):
        assert {n: values[n] for n in names} == pytest.approx(dict(expected), rel=1e-5)

    np.testing.assert_allclose(model.predict(IDS, verbose=0), logits, atol=1e-6)
    np.testing.assert_allclose(model(IDS), logits, atol=1e-6)
    assert_expected(model.test_on_batch(IDS, LABELS, return_dict=True))
    assert_expected(model.evaluate(IDS, LABELS, batch_size=7, verbose=0, return_dict=True))

    copy = type(model).from_config(model.get_config())
    copy.build()
    model.save_weights(tmp_path / "a.weights.h5")
    copy.load_weights(tmp_path / "a.weights.h5")
    np.testing.assert_array_equal(copy(IDS), model(IDS))
    assert keras.models.clone_model(model).config == CONFIG

    assert_expected(model.train_on_batch(IDS, LABELS, return_dict=True))  # before its update
    after = model.test_on_batch(IDS, LABELS, return_dict=True)
    assert after["loss"] < expected["loss"]
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    data = dict(x=IDS, y=LABELS, batch_size=4, shuffle=False, validation_data=(IDS, LABELS))
    ours, theirs = (each.fit(**data, verbose=0).history for each in (model, loaded))
    assert ours == theirs
    assert ours["val_loss"][0] < after["loss"]
    for ours, theirs in zip(loaded.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_model_may_be_built_twice():
    model = compiled(build=True)
    weights = model.get_weights()
    model.build()
    for weight, value in zip(model.weights, weights, strict=True):
        np.testing.assert_array_equal(weight.numpy(), value)


# Export


@pytest.mark.slow
def test_an_exported_model_takes_ids_of_any_batch_and_lengths(tmp_path):
    model = compiled()  # neither built nor called
    model.export(str(tmp_path / "model"), verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    for rows, source, target in ((7, 6, 6), (2, 4, 3), (1, 1, 5)):
        ids = {
            "source_ids": tf.constant(IDS["source_ids"][:rows, :source]),
            "target_ids": tf.constant(IDS["target_ids"][:rows, :target]),
        }
        np.testing.assert_allclose(loaded.serve(ids), model(ids), atol=1e-6)


@pytest.mark.slow
def test_models_of_our_layers_are_exported_with_the_inputs_they_declare(tmp_path):
    def layers():
        return TokenEmbedding(20, 8), PositionalEncoding(8), EncoderLayer(8, 2, 16)

    ids = tf.constant(LABELS)
    symbols = x = keras.Input((None,), dtype="int32")
    for layer in layers():
        x = layer(x)
    functional = keras.Model(symbols, x)
    sequential = keras.Sequential([keras.Input((None,), dtype="int32"), *layers()])
    for name, model in (("functional", functional), ("sequential", sequential)):
        model.export(str(tmp_path / name), verbose=False)
        loaded = tf.saved_model.load(str(tmp_path / name))
        np.testing.assert_allclose(loaded.serve(ids), model(ids), atol=1e-6)


# Two devices, in their own process, because logical devices can be set only once


def mode(strategy, with_xla):
    """How `fit` runs; on one device eagerly, since tracing would take longer."""
    if strategy is ONE_DEVICE:
        return {"run_eagerly": True}
    return {"jit_compile": "auto" if with_xla else False}


def fitted(strategy, model_class, build, kind, rows, from_arrays):
    """Weights and history after two epochs over batches of `rows` rows, the last one smaller."""
    with strategy.scope():
        model = compiled(model_class, build, **mode(strategy, from_arrays))
    options = dict(epochs=2, shuffle=False, verbose=1)
    if from_arrays:
        data = dict(x=IDS, y=LABELS, sample_weight=WEIGHTS[kind], batch_size=rows)
        data["validation_data"] = IDS, LABELS, WEIGHTS[kind]
    else:
        data = tf.data.Dataset.from_tensor_slices((IDS, LABELS, WEIGHTS[kind])).batch(rows)
        data = dict(x=data, validation_data=data)
    history = model.fit(**data, **options).history
    return model.get_weights(), history


def fitted_to_text(strategy, folder):
    """Fits an unbuilt model to text files, as a user would."""
    tokenizer = kt.SubwordTokenizer.load(f"{folder}/vocabulary")
    with strategy.scope():
        keras.utils.set_random_seed(1)
        fields = {**CONFIG.to_dict(), "vocab_size": tokenizer.vocab_size}
        model = kt.Transformer(kt.TransformerConfig.from_dict(fields))
        metrics = [kt.TokenAccuracy(), kt.Perplexity(), kt.TokenCount()]
        loss = kt.LabelSmoothedCrossEntropy(0.1)
        # XLA would compile the step for each shape of a batch.
        model.compile(optimizer(), loss, metrics=metrics, **mode(strategy, with_xla=False))
    batches = kt.data.translation_dataset(
        f"{folder}/en", f"{folder}/de", tokenizer, tokens_per_batch=60
    )
    assert any(len(labels) % 2 for _, labels in batches)
    history = model.fit(batches, epochs=3, verbose=1).history
    return model.get_weights(), history


CASES = {
    "arrays, a replica without a row": (kt.Transformer, True, "tokens", 6, True),
    "trainable, a dataset, odd rows": (TrainableTransformer, False, "sentences", 4, False),
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    words = " ".join("abcdefghij")
    kt.SubwordTokenizer.train_from_sentences([words] * 5, 280).save(folder / "vocabulary")
    for name, step in (("en", 1), ("de", 3)):
        lines = [
            " ".join("abcdefghij"[(n * step + i) % 10] for i in range(n % 7)) for n in range(1, 30)
        ]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def on_two_devices(text, tmp_path_factory):
    folder = tmp_path_factory.mktemp("two")
    script = """
import pickle, sys
sys.path.insert(0, "tests/support")
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import tests.support.untuned
from tests.training.test_keras_fit import CASES, fitted, fitted_to_text, reported
folder, text = sys.argv[1:]
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
found = {name: fitted(strategy, *case) for name, case in CASES.items()}
found["text"] = fitted_to_text(strategy, text)
found["graph"] = reported(strategy, folder)
found["eager"] = reported(strategy, folder, run_eagerly=True)
with open(folder + "/found.pickle", "wb") as file:
    pickle.dump(found, file)
"""
    run_python(script, folder, text)
    return pickle.loads((folder / "found.pickle").read_bytes())


def assert_same_fit(found, expected):
    for left, right in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-5)
    assert found[1].keys() == expected[1].keys()
    for name, values in expected[1].items():
        assert found[1][name] == pytest.approx(values, rel=1e-4), name


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_devices_make_the_updates_of_one_and_report_the_same(on_two_devices, name):
    assert_same_fit(on_two_devices[name], fitted(ONE_DEVICE, *CASES[name]))


@pytest.mark.slow
def test_two_devices_learn_text_files_in_the_order_of_one(on_two_devices, text):
    assert_same_fit(on_two_devices["text"], fitted_to_text(ONE_DEVICE, text))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["graph", "eager"])
def test_metrics_of_two_devices_are_those_of_one(on_two_devices, mode):
    """The loss of a functional model is the replicas' mean."""
    assert_values(on_two_devices[mode], replicas=2)


@pytest.mark.slow
def test_the_example_trains_on_two_devices(tmp_path):
    script = """
import functools, runpy, sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import tests.support.untuned
tf.distribute.MirroredStrategy = functools.partial(
    tf.distribute.MirroredStrategy, ["CPU:0", "CPU:1"]
)
import keras_transformer as kt
kt.PRESETS["tiny"].model.update(num_encoder_layers=1, num_decoder_layers=1)  # for speed
runpy.run_path(sys.argv.pop(1), run_name="__main__")
"""
    for name in ("en", "de"):  # batches of one shape, for each of which XLA compiles the step
        (tmp_path / name).write_text("a b c d e f g h i j\n" * 8)
    example = ROOT / "examples" / "fit_mirrored.py"
    assert len(example.read_text().splitlines()) <= 45
    files = (tmp_path / name for name in ("en", "de", "model.keras"))
    output = run_python(script, example, *files, 280, 2)
    assert "2 devices" in output and "target_tokens" in output
    model = keras.saving.load_model(tmp_path / "model.keras")
    assert model.optimizer.iterations > 0
