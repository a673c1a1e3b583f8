"""The update of training: micro-batches, clipping, averages, mixed precision, skipped updates."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import run_python

from keras_transformer import LabelSmoothedCrossEntropy, Transformer, TransformerConfig
from keras_transformer.training import Checkpoints, TrainableTransformer
from keras_transformer.training.strategies import split_rows

CONFIG = TransformerConfig(
    vocab_size=20,
    num_encoder_layers=1,
    num_decoder_layers=1,
    d_model=8,
    d_ff=16,
    num_heads=2,
    dropout=0.0,
)


def ragged_batches(count, seed=0, rows=7):
    """Batches of different lengths, whose rows differ in their number of tokens."""
    rng = np.random.default_rng(seed)
    batches = []
    for index in range(count):
        length = (6, 9)[index % 2]
        sides = rng.integers(3, 20, size=(2, rows, length)).astype("int32")
        sides[np.arange(length) >= rng.integers(1, length + 1, size=(2, rows, 1))] = 0
        source_ids, labels = sides
        target_ids = np.pad(labels, ((0, 0), (1, 0)), constant_values=1)[:, :-1]
        batches.append(({"source_ids": source_ids, "target_ids": target_ids}, labels))
    return batches


def dataset(batches):
    ids = tf.TensorSpec((None, None), tf.int32)
    signature = ({"source_ids": ids, "target_ids": ids}, ids)
    return tf.data.Dataset.from_generator(lambda: iter(batches), output_signature=signature)


def adam():
    return keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-9)


def new_model(optimizer=None, jit_compile=False, run_eagerly=False, config=CONFIG, **options):
    """A new model; tracing its step takes longer than a few steps that are run eagerly."""
    keras.utils.set_random_seed(1)
    model = TrainableTransformer(config, name="transformer", **options)
    model.build()
    model.compile(optimizer or adam(), jit_compile=jit_compile, run_eagerly=run_eagerly)
    return model


class Logs(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.steps = []

    def on_train_batch_end(self, batch, logs=None):
        self.steps.append({name: float(value) for name, value in logs.items()})


def fit(model, batches):
    """Trains on the batches, and returns the logs of each step."""
    logs = Logs()
    data = dataset(batches)
    model.fit(data, steps_per_epoch=len(batches), callbacks=[logs], shuffle=False, verbose=0)
    return logs.steps


def assert_same(found, expected, atol=1e-5):
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_allclose(left, right, rtol=0, atol=atol)


@pytest.fixture(scope="module")
def plain():
    """A model after twelve updates without options, and their logs."""
    model = new_model()
    return model, fit(model, ragged_batches(12))


def test_updates_are_those_of_plain_keras(plain):
    keras.utils.set_random_seed(1)
    model = Transformer(CONFIG)
    model.build()
    loss = LabelSmoothedCrossEntropy(CONFIG.label_smoothing)
    model.compile(adam(), loss=loss, run_eagerly=True)  # tracing would take longer
    model.fit(dataset(ragged_batches(12)), shuffle=False, verbose=0)
    assert_same(plain[0].get_weights(), model.get_weights())


def test_a_weight_that_the_loss_does_not_use_stays():
    class WithUnused(TrainableTransformer):
        def build(self, input_shape=None):
            super().build(input_shape)
            self.unused = self.add_weight(name="unused", shape=(3,), initializer="ones")

    model = WithUnused(CONFIG)
    model.compile(adam(), run_eagerly=True)
    before = model.get_weights()
    fit(model, ragged_batches(1))
    np.testing.assert_array_equal(model.unused, np.ones(3))
    assert any((old != new).any() for old, new in zip(before, model.get_weights(), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_microbatches", "parallel_parts", "jit_compile"),
    [(3, 1, True), (1, 2, False), (2, 3, False)],
)
def test_parts_of_any_number_of_tokens_make_the_update_of_their_batch(
    plain, num_microbatches, parallel_parts, jit_compile
):
    """Seven rows: some parts get rows of padding."""
    expected, expected_logs = plain
    model = new_model(
        num_microbatches=num_microbatches, parallel_parts=parallel_parts, jit_compile=jit_compile
    )
    announced = []
    model.announce = announced.append
    logs = fit(model, ragged_batches(12))
    assert_same(model.get_weights(), expected.get_weights())
    assert int(model.optimizer.iterations) == 12
    for found, reported in zip(logs, expected_logs, strict=True):
        assert found == pytest.approx(reported, rel=1e-4)
    shapes = ["Compiling for batches of 7 x 6", "Compiling for batches of 7 x 9"]
    assert announced == (shapes if jit_compile else [])


def test_loss_and_gradient_norm_are_those_of_the_batch(plain):
    (batch,) = ragged_batches(1)
    model = new_model()
    with tf.GradientTape() as tape:
        logits = model(batch[0], training=True)
        loss = LabelSmoothedCrossEntropy(CONFIG.label_smoothing)(batch[1], logits)
    gradients = tape.gradient(loss, model.trainable_weights)
    squares = sum(np.sum(np.square(tf.convert_to_tensor(gradient))) for gradient in gradients)
    logs = plain[1][0]
    assert logs["loss"] == pytest.approx(float(loss), rel=1e-5)
    assert logs["gradient_norm"] == pytest.approx(np.sqrt(squares), rel=1e-5)
    assert logs["target_tokens"] == np.count_nonzero(batch[1])


@pytest.mark.slow
def test_two_passes_without_dropout_make_the_update_of_one(plain):
    expected, expected_logs = plain
    model = new_model(r_drop=3.0)
    logs = fit(model, ragged_batches(12))
    assert_same(model.get_weights(), expected.get_weights())
    for found, reported in zip(logs, expected_logs, strict=True):
        assert found == pytest.approx(reported, rel=1e-4)


@pytest.mark.slow
def test_what_two_passes_differ_by_is_part_of_the_loss():
    (batch,) = ragged_batches(1)
    config = dataclasses.replace(CONFIG, dropout=0.5)
    losses = {}
    for weight in (1e-9, 2.0, 4.0):
        (logs,) = fit(new_model(config=config, r_drop=weight, run_eagerly=True), [batch])
        losses[weight] = logs["loss"]
    divergence = (losses[2.0] - losses[1e-9]) / 2
    assert divergence > 0.01
    assert losses[4.0] == pytest.approx(losses[1e-9] + 4 * divergence, rel=1e-4)


@pytest.mark.slow
def test_a_gradient_is_clipped_as_a_whole():
    batches = ragged_batches(1)
    free, clipped, rarely = (
        new_model(keras.optimizers.SGD(1.0), clip_norm=norm, run_eagerly=True)
        for norm in (0.0, 0.25, 100.0)
    )
    before = free.get_weights()
    (logs,) = fit(free, batches)
    (clipped_logs,) = fit(clipped, batches)
    assert clipped_logs["gradient_norm"] == pytest.approx(logs["gradient_norm"], rel=1e-5)
    assert logs["gradient_norm"] > 0.5
    share = 0.25 / logs["gradient_norm"]
    expected = [b + share * (w - b) for b, w in zip(before, free.get_weights(), strict=True)]
    assert_same(clipped.get_weights(), expected, atol=1e-6)
    fit(rarely, batches)
    assert_same(rarely.get_weights(), free.get_weights(), atol=1e-6)


@pytest.mark.slow
def test_the_average_follows_the_weights():
    model = new_model(ema_decay=0.3, run_eagerly=True)
    expected = model.get_weights()
    for n, batch in enumerate(ragged_batches(5), start=1):
        fit(model, [batch])
        decay = min(0.3, (1 + n) / (10 + n))
        expected = [
            decay * e + (1 - decay) * w for e, w in zip(expected, model.get_weights(), strict=True)
        ]
    averages = [average.numpy() for average in model.update_state.average]
    assert_same(averages, expected, atol=1e-6)


@pytest.mark.slow
def test_a_layer_that_is_frozen_after_the_first_updates_keeps_its_average():
    model = new_model(ema_decay=0.3)
    first, second = ragged_batches(2)
    fit(model, [first])
    model.encoder.trainable = False
    model.compile(adam())
    weights, averages = model.weights, model.update_state.average
    before = [
        (weight.numpy(), average.numpy()) for weight, average in zip(weights, averages, strict=True)
    ]
    fit(model, [second])
    frozen = {weight.path for weight in model.encoder.weights}
    decay = 2 / 11  # the count of updates is the new optimizer's
    for weight, average, (old_weight, old_average) in zip(weights, averages, before, strict=True):
        assert np.array_equal(weight, old_weight) == (weight.path in frozen), weight.path
        expected = decay * old_average + (1 - decay) * weight.numpy()
        np.testing.assert_allclose(average, expected, atol=1e-6)


def poison(model):
    """Makes gradients infinite or NaN; calling the result restores the model."""
    weight = model.trainable_weights[-1]
    healthy = weight.numpy()
    weight.assign(np.full_like(healthy, np.nan))
    return lambda: weight.assign(healthy)


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_update_that_is_not_finite_changes_nothing_but_the_step(jit_compile):
    model = new_model(ema_decay=0.9, jit_compile=jit_compile)
    first, second, third = ragged_batches(3)
    fit(model, [first])
    heal = poison(model)
    state = [*model.weights, *model.optimizer.variables[2:], *model.update_state.average]
    before = [variable.numpy() for variable in state]
    (logs,) = fit(model, [second])
    assert not np.isfinite(logs["gradient_norm"])
    assert logs["skipped_updates"] == 1
    for variable, value in zip(state, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)
    assert int(model.optimizer.iterations) == 2
    heal()
    (logs,) = fit(model, [third])
    assert np.isfinite(logs["gradient_norm"]) and logs["skipped_updates"] == 1
    assert any(np.any(variable.numpy() != v) for variable, v in zip(state, before, strict=True))


@pytest.mark.slow
def test_what_updates_leave_behind_is_in_checkpoints(tmp_path):
    batches = ragged_batches(4)
    options = dict(ema_decay=0.9, dtype="mixed_float16", run_eagerly=True)
    whole, resumed = new_model(**options), new_model(**options)
    fit(whole, batches[:2])
    checkpoints = Checkpoints(tmp_path)
    whole.update_state.skipped_updates.assign(5)
    checkpoints.save(whole, step=2)
    saved_average = [average.numpy() for average in whole.update_state.average]
    fit(whole, batches[2:])
    checkpoints.restore(resumed, step=2)
    (*_, logs) = fit(resumed, batches[2:])
    assert logs["skipped_updates"] == 5
    assert_same(resumed.get_weights(), whole.get_weights(), atol=0)
    for found, expected in zip(
        resumed.update_state.average, whole.update_state.average, strict=True
    ):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())

    averaged = Transformer(CONFIG, name="transformer")
    averaged.build()
    checkpoints.restore_average(averaged, step=2)
    assert_same(averaged.get_weights(), saved_average, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_keeps_float32_weights_and_trains_as_float32_does(plain, policy):
    _, expected = plain
    model = new_model(dtype=policy)
    logs = fit(model, ragged_batches(12))
    assert {weight.dtype for weight in model.weights} == {"float32"}
    assert {v.dtype for v in model.optimizer.variables[2:]} == {"float32"}
    assert model(ragged_batches(1)[0][0]).dtype == policy.removeprefix("mixed_")
    assert logs[0]["gradient_norm"] == pytest.approx(expected[0]["gradient_norm"], rel=0.02)
    assert logs[-1]["loss"] == pytest.approx(expected[-1]["loss"], rel=0.02)
    assert logs[-1]["skipped_updates"] == 0


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_reports_the_loss_of_a_real_vocabulary(policy):
    config = dataclasses.replace(CONFIG, vocab_size=37_000, output_bias=True)
    model = new_model(config=config, dtype=policy, run_eagerly=True)
    bias = model.source_embedding.bias
    bias.assign(np.random.default_rng(0).normal(3.0, 1.0, size=bias.shape))
    ((inputs, labels),) = batches = ragged_batches(1)
    logits = keras.ops.convert_to_numpy(keras.ops.cast(model(inputs), "float32")).astype("float64")
    logits -= logits.max(-1, keepdims=True)
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    nll = -np.take_along_axis(log_probs, labels[..., None], -1)[..., 0]
    share = 0.1 / (37_000 - 1)
    smoothed = (0.9 - share) * nll - share * log_probs.sum(-1)
    (logs,) = fit(model, batches)
    assert logs["loss"] == pytest.approx(smoothed[labels > 0].mean(), rel=2e-3)
    assert np.log(logs["perplexity"]) == pytest.approx(nll[labels > 0].mean(), rel=2e-3)
    assert logs["skipped_updates"] == 0


@pytest.mark.slow
def test_the_loss_scale_falls_until_gradients_are_finite_and_rises_again(monkeypatch):
    monkeypatch.setattr("keras_transformer.training.update_state.UPDATES_UNTIL_GROWTH", 3)
    model = new_model(dtype="mixed_float16")
    scale = model.update_state.loss_scale
    scale.assign(2.0**30)  # too large for float16
    (batch,) = ragged_batches(1)
    before = model.get_weights()
    (logs,) = fit(model, [batch])
    assert not np.isfinite(logs["gradient_norm"]) and logs["skipped_updates"] == 1
    assert float(scale) == 2.0**29
    assert_same(model.get_weights(), before, atol=0)
    scale.assign(2.0**10)
    fit(model, [batch] * 2)
    assert float(scale) == 2.0**10
    fit(model, [batch])
    assert float(scale) == 2.0**11


def test_an_optimizer_that_does_more_than_its_update_step_is_refused():
    with pytest.raises(ValueError, match="optimizer must not set global_clipnorm: found Adam"):
        new_model(keras.optimizers.Adam(0.1, global_clipnorm=1.0))


@pytest.mark.parametrize(
    "optimizer",
    [keras.optimizers.Nadam(), keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam())],
)
def test_an_optimizer_with_an_update_of_its_own_is_refused(optimizer):
    """Keras's Nadam counts its steps there; without that, the second update is NaN."""
    found = type(optimizer).__name__
    with pytest.raises(ValueError, match=f"update is its update_step, such as Adam: found {found}"):
        new_model(optimizer)


def test_rows_are_filled_up_with_padding():
    batch = tf.constant([[3, 4], [5, 6], [7, 8]]), tf.constant([0.5, 0.6, 0.7])
    ids, weights = split_rows(batch, 2, pad_id=9)
    assert ids.numpy().tolist() == [[[3, 4], [5, 6]], [[7, 8], [9, 9]]]
    np.testing.assert_array_equal(weights, np.float32([[0.5, 0.6], [0.7, 9.0]]))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(7,), (7, 6)])
def test_weights_make_the_updates_of_plain_keras(shape):
    ((inputs, labels),) = ragged_batches(1)
    weights = np.random.default_rng(0).uniform(0, 2, shape).astype("float32")
    model = new_model(num_microbatches=2, parallel_parts=2)
    plain = Transformer(CONFIG)
    plain.build()
    plain.set_weights(model.get_weights())
    loss = LabelSmoothedCrossEntropy(CONFIG.label_smoothing)
    plain.compile(adam(), loss=loss, run_eagerly=True)
    for each in (model, plain):
        each.fit(inputs, labels, sample_weight=weights, batch_size=7, epochs=3, verbose=0)
    assert_same(model.get_weights(), plain.get_weights())
    losses = [
        each.evaluate(inputs, labels, sample_weight=weights, verbose=0, return_dict=True)["loss"]
        for each in (model, plain)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)


@pytest.mark.slow
def test_a_model_goes_on_from_its_file_as_it_would_have(tmp_path):
    """A `.keras` file holds the average of the weights and the count of skipped updates too."""
    first, second = ragged_batches(2)
    keras.utils.set_random_seed(1)
    model = TrainableTransformer(CONFIG, ema_decay=0.9)
    model.compile(adam(), run_eagerly=True)  # builds it
    fit(model, [first])
    model.update_state.skipped_updates.assign(5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for each in (model, loaded):
        (logs,) = fit(each, [second])
        assert logs["skipped_updates"] == 5
    assert_same(loaded.get_weights(), model.get_weights(), atol=0)
    averages = ([a.numpy() for a in m.update_state.average] for m in (loaded, model))
    assert_same(*averages, atol=0)

    plain = Transformer(CONFIG)
    plain.build()
    model.save_weights(tmp_path / "model.weights.h5")
    plain.load_weights(tmp_path / "model.weights.h5")
    assert_same(plain.get_weights(), model.get_weights(), atol=0)
    plain.save_weights(tmp_path / "plain.weights.h5")
    loaded.load_weights(tmp_path / "plain.weights.h5")


def test_configuration_gives_back_the_same_model():
    options = {
        "num_microbatches": 2,
        "parallel_parts": 3,
        "r_drop": 2.0,
        "clip_norm": 1.0,
        "ema_decay": 0.9,
    }
    model = TrainableTransformer(CONFIG, **options)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(model))
    assert isinstance(copy, TrainableTransformer)
    assert copy.config == CONFIG
    assert {name: getattr(copy, name) for name in options} == options


# Under a strategy in a process of its own, since logical devices are set once. Its arguments: the
# number of replicas; then, for each training, its file, num_microbatches, jit_compile, not_finite.
ON_REPLICAS = """
import sys
sys.path.insert(0, "tests/support")
replicas = int(sys.argv[1])
import numpy as np, tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * replicas
)
import tests.support.untuned
from keras_transformer.training import make_strategy, replica_batches
from tests.training.test_step import adam, dataset, new_model, ragged_batches, Logs

strategy = make_strategy("mirrored")
assert strategy.num_replicas_in_sync == replicas

def train(path, num_microbatches, jit_compile, not_finite):
    with strategy.scope():
        model = new_model(num_microbatches=num_microbatches, jit_compile=bool(jit_compile),
                          clip_norm=1.0, ema_decay=0.9)
    batches = ragged_batches(20)
    if not_finite:  # on the last replica alone
        model.target_positions.call = lambda x, start=0, mask=None: tf.where(
            tf.distribute.get_replica_context().replica_id_in_sync_group == replicas - 1, np.nan, x)
    logs = Logs()
    model.fit(replica_batches(dataset(batches), strategy, 0), steps_per_epoch=20, callbacks=[logs],
              shuffle=False, verbose=0)
    logs = [[step[name] for name in sorted(step)] for step in logs.steps]
    averages = [average.numpy() for average in model.update_state.average]
    np.savez(path, *model.get_weights(), *averages, logs)

for number in range(2, len(sys.argv), 4):
    path, *options = sys.argv[number : number + 4]
    train(path, *map(int, options))
"""
ON_TWO = {"xla": (2, 1, 0), "not finite": (1, 0, 1)}


@pytest.fixture(scope="module")
def on_two(tmp_path_factory):
    """Weights, averages and logs of each training in `ON_TWO`, all of one process."""
    paths = {name: tmp_path_factory.mktemp("two") / "arrays.npz" for name in ON_TWO}
    trainings = [argument for name in ON_TWO for argument in (paths[name], *ON_TWO[name])]
    run_python(ON_REPLICAS, 2, *trainings)
    return {name: list(np.load(path).values()) for name, path in paths.items()}


@pytest.fixture(scope="module")
def one_replica():
    model = new_model(clip_norm=1.0, ema_decay=0.9)
    logs = fit(model, ragged_batches(20))
    averages = [average.numpy() for average in model.update_state.average]
    logs = np.array([[step[name] for name in sorted(step)] for step in logs])
    return [*model.get_weights(), *averages], logs


@pytest.mark.slow
def test_two_replicas_compiled_by_xla_make_the_updates_of_one(one_replica, on_two):
    assert_same_training(on_two["xla"], one_replica)


@pytest.mark.slow
def test_three_replicas_make_the_updates_of_one(one_replica, tmp_path):
    """In two micro-batches: of seven rows, the last replica gets one, and a part of padding."""
    path = tmp_path / "arrays.npz"
    run_python(ON_REPLICAS, 3, path, 2, 0, 0)
    assert_same_training(np.load(path).values(), one_replica)


def assert_same_training(found, one_replica):
    *weights, logs = found
    assert_same(weights, one_replica[0])
    np.testing.assert_allclose(logs, one_replica[1], rtol=1e-4)


@pytest.mark.slow
def test_no_replica_makes_an_update_that_is_not_finite_on_one(on_two):
    *weights, logs = on_two["not finite"]
    half = len(weights) // 2
    assert_same(weights[:half], new_model().get_weights(), atol=0)
    assert_same(weights[half:], weights[:half], atol=0)
    _, _, _, skipped_updates, _ = logs[-1]  # by name
    assert skipped_updates == 20
