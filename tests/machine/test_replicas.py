"""Models under MirroredStrategy: updates are those of one device, whatever layers add to the loss.

Two devices are in their own process, because logical devices can be set only once.
"""

import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import run_python
from keras import ops

import keras_transformer as kt
from keras_transformer.layers import EncoderLayer

ONE_DEVICE = tf.distribute.get_strategy()
RNG = np.random.default_rng(0)
# Each half of a batch of two or of four rows has another number of tokens.
LABELS = RNG.integers(1, 12, size=(8, 6)).astype("int32")
LABELS[np.arange(6) >= np.array([6, 5, 6, 1, 2, 1, 4, 3])[:, None]] = 0
IDS = {
    "source_ids": LABELS[:, ::-1] + (LABELS[:, ::-1] == 0),
    "target_ids": np.pad(LABELS, ((0, 0), (1, 0)), constant_values=1)[:, :-1],
}
STATES = RNG.normal(size=(8, 6, 4)).astype("float32")
L2 = keras.regularizers.L2(1e-2)


class AddsItsMean(keras.layers.Layer):
    def call(self, x):
        self.add_loss(ops.mean(x))
        return x


class ZLoss(kt.Transformer):
    """Adds a loss of its own, which keeps the logits small."""

    def call(self, inputs, training=None):
        logits = super().call(inputs, training=training)
        self.add_loss(0.1 * ops.mean(ops.square(ops.logsumexp(logits, axis=-1))))
        return logits


def logits_model(*layers):
    outputs = keras.layers.Dense(12, kernel_regularizer=L2)
    return keras.Sequential([keras.Input((None, 4), name="states"), *layers, outputs])


def transformer(model_class=kt.Transformer, **fields):
    layers = dict(num_encoder_layers=1, num_decoder_layers=1, d_model=8, d_ff=16, num_heads=2)
    return model_class(kt.TransformerConfig(vocab_size=12, dropout=0.0, **layers, **fields))


def regularized():
    """A model whose layers add losses in all ways."""
    return logits_model(
        keras.layers.Dense(8, activity_regularizer=L2),
        AddsItsMean(),
        EncoderLayer(8, 2, 8, dropout=0.0, activity_regularizer=L2),
    )


def fitted(strategy, make_model, rows=8, batch_size=4, **options):
    """Weights and history after three epochs over the first rows of the data."""
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, loss = make_model(), kt.LabelSmoothedCrossEntropy(0.1)
        model.compile(keras.optimizers.SGD(0.3), loss, metrics=[kt.Perplexity()], **options)
    x = IDS if isinstance(model, kt.Transformer) else {"states": STATES}
    x = {name: values[:rows] for name, values in x.items()}
    data = dict(x=x, y=LABELS[:rows], batch_size=batch_size, shuffle=False)
    history = model.fit(**data, epochs=3, verbose=0).history
    return model.get_weights(), history


def trained_by_hand(strategy):
    """Weights and losses after eight steps of a loop as in TensorFlow's guide."""
    replicas = strategy.num_replicas_in_sync
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, optimizer = regularized(), keras.optimizers.SGD(0.3)
        optimizer.build(model.trainable_variables)
        loss = kt.LabelSmoothedCrossEntropy(0.1)

    def step(rows):
        with tf.GradientTape() as tape:
            value = loss(tf.gather(LABELS, rows), model(tf.gather(STATES, rows)))
            value += tf.add_n(model.losses) / replicas
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(value, variables), variables, strict=True))
        return value

    run = tf.function(lambda rows: strategy.reduce("SUM", strategy.run(step, [rows]), axis=None))
    rows = tf.data.Dataset.range(8).repeat(4).batch(4)
    if replicas > 1:
        rows = strategy.experimental_distribute_dataset(rows)
    values = [float(run(batch)) for batch in rows]
    return model.get_weights(), {"values": values}


# Keras divides what a layer adds by the rows of a replica, so these cases have even rows.
CASES = {
    "layers that add losses": lambda s: fitted(s, regularized),
    "layers that add losses, run eagerly": lambda s: fitted(s, regularized, run_eagerly=True),
    "a loop of one's own": trained_by_hand,
    "a Transformer that adds a loss": lambda s: fitted(s, lambda: transformer(ZLoss)),
    "a Transformer, uneven rows": lambda s: fitted(s, transformer, rows=7, batch_size=5),
}
LAYER_TYPES = {"convolutional": {"kernel_size": 3}, "recurrent": {}}
# The last batch has one row.
NO_ROW = {
    name: lambda s, options={"layer_type": name, **fields}: fitted(
        s, lambda: transformer(**options), rows=7, batch_size=6
    )
    for name, fields in LAYER_TYPES.items()
}


def evaluated(strategy):
    """What a layer adds to the loss, in `evaluate`."""
    x = np.stack([np.full((6, 4), i, "float32") for i in range(8)])
    with strategy.scope():
        model = keras.Sequential(
            [keras.Input((6, 4)), AddsItsMean(), keras.layers.Dense(12, kernel_initializer="zeros")]
        )
        model.compile("sgd", kt.LabelSmoothedCrossEntropy(0.1))
    return model.evaluate(x, np.ones((8, 6), "int32"), batch_size=8, verbose=0) - np.log(12)


@pytest.fixture(scope="module")
def on_two_devices(tmp_path_factory):
    path = tmp_path_factory.mktemp("two") / "found.pickle"
    script = """
import pickle, sys
sys.path.insert(0, "tests/support")
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import tests.support.untuned
from tests.machine.test_replicas import CASES, NO_ROW, evaluated
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
found = {name: case(strategy) for name, case in {**CASES, **NO_ROW}.items()}
found["evaluate"] = evaluated(strategy)
with open(sys.argv[1], "wb") as file:
    pickle.dump(found, file)
"""
    run_python(script, path)
    return pickle.loads(path.read_bytes())


def assert_same(found, expected, names):
    for left, right in zip(found[0], expected[0], strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=1e-5)
    for name in names:
        assert found[1][name] == pytest.approx(expected[1][name], rel=1e-5), name


@pytest.mark.slow
def test_two_devices_report_the_mean_of_what_a_layer_adds_to_the_loss(on_two_devices):
    """The rows are 0, ..., 7: each replica has its own list of added losses."""
    assert evaluated(ONE_DEVICE) == pytest.approx(3.5)
    assert on_two_devices["evaluate"] == pytest.approx(3.5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_devices_make_the_updates_of_one(on_two_devices, name):
    expected = CASES[name](ONE_DEVICE)
    reported = {"loss", "perplexity"} if "Transformer" in name else {"perplexity"}
    assert_same(on_two_devices[name], expected, reported & set(expected[1]))


@pytest.mark.slow
@pytest.mark.parametrize("layer_type", NO_ROW)
def test_a_replica_without_a_row_changes_nothing(on_two_devices, layer_type):
    assert_same(on_two_devices[layer_type], NO_ROW[layer_type](ONE_DEVICE), ["loss", "perplexity"])
