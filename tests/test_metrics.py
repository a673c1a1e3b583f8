"""The metrics: means over real tokens, however they were batched."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import LabelSmoothedCrossEntropy, Perplexity, TokenAccuracy
from keras_transformer.metrics import TokenCount

rng = np.random.default_rng(0)
LOGITS = rng.normal(size=(6, 5, 7)).astype("float32")
LABELS = rng.integers(1, 7, size=(6, 5)).astype("int32")
LABELS[np.arange(5) >= np.array([5, 1, 3, 2, 5, 4])[:, None]] = 0
REAL = LABELS != 0


def updated(metric, *batches):
    for rows in batches:
        metric.update_state(LABELS[rows], LOGITS[rows])
    return float(metric.result())


def log_likelihoods():
    logits = LOGITS.astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return np.take_along_axis(log_probs, LABELS[..., None], -1)[..., 0]


EXPECTED = {
    TokenAccuracy: np.mean((LOGITS.argmax(-1) == LABELS)[REAL]),
    Perplexity: np.exp(-np.mean(log_likelihoods()[REAL])),
}
each_metric = pytest.mark.parametrize("metric_class", EXPECTED)


@each_metric
def test_value_is_the_mean_over_real_tokens(metric_class):
    assert updated(metric_class(), slice(None)) == pytest.approx(EXPECTED[metric_class], rel=1e-5)


@each_metric
def test_tokens_count_the_same_in_whatever_batch_they_come(metric_class):
    value = updated(metric_class(), slice(0, 1), slice(1, 4), slice(4, 6))
    assert value == pytest.approx(EXPECTED[metric_class], rel=1e-5)


@each_metric
def test_a_row_of_weight_zero_does_not_count(metric_class):
    metric, other = metric_class(), metric_class()
    metric.update_state(LABELS, LOGITS, sample_weight=np.array([1, 1, 1, 0, 0, 0]))
    assert float(metric.result()) == pytest.approx(updated(other, slice(0, 3)), rel=1e-6)


@each_metric
def test_padding_does_not_count_whatever_its_weight(metric_class):
    metric = metric_class()
    metric.update_state(LABELS, LOGITS, sample_weight=np.where(REAL, 1.0, np.inf))
    assert float(metric.result()) == pytest.approx(EXPECTED[metric_class], rel=1e-5)


@each_metric
def test_weights_may_be_given_by_token(metric_class):
    metric, other = metric_class(), metric_class()
    metric.update_state(LABELS, LOGITS, sample_weight=np.arange(5) < 2 * np.ones((6, 1)))
    other.update_state(LABELS[:, :2], LOGITS[:, :2])
    assert float(metric.result()) == pytest.approx(float(other.result()), rel=1e-6)


@each_metric
def test_another_padding_symbol_can_be_named(metric_class):
    metric = metric_class(pad_id=9)
    metric.update_state(
        np.where(REAL, LABELS, 9), np.pad(LOGITS, ((0, 0), (0, 0), (0, 3)), constant_values=-99)
    )
    assert float(metric.result()) == pytest.approx(EXPECTED[metric_class], rel=1e-5)


@each_metric
def test_the_padding_symbol_may_be_outside_of_the_vocabulary(metric_class):
    metric = metric_class(pad_id=-100)
    metric.update_state(np.where(REAL, LABELS, -100), LOGITS)
    assert float(metric.result()) == pytest.approx(EXPECTED[metric_class], rel=1e-5)


@each_metric
def test_bfloat16_logits_will_do(metric_class):
    metric, expected = metric_class(), metric_class()
    rounded = ops.cast(LOGITS, "bfloat16")
    metric.update_state(LABELS, rounded)
    expected.update_state(LABELS, ops.cast(rounded, "float32"))
    assert float(metric.result()) == pytest.approx(float(expected.result()), rel=2**-9)


@each_metric
def test_reset_forgets(metric_class):
    metric = metric_class()
    updated(metric, slice(0, 1))
    metric.reset_state()
    assert updated(metric, slice(None)) == pytest.approx(EXPECTED[metric_class], rel=1e-5)


@each_metric
def test_configuration_gives_back_the_same_metric(metric_class):
    metric = metric_class(name="mine", pad_id=3)
    copy = keras.metrics.deserialize(keras.metrics.serialize(metric))
    assert type(copy) is metric_class
    assert (copy.name, copy.pad_id) == ("mine", 3)


@each_metric
def test_evaluate_reports_the_same(metric_class):
    model = keras.Sequential([keras.Input((None, 7)), keras.layers.Identity()])
    model.compile(loss=LabelSmoothedCrossEntropy(), metrics=[metric_class()])
    name = metric_class().name
    result = model.evaluate(LOGITS, LABELS, batch_size=4, verbose=0, return_dict=True)
    assert result[name] == pytest.approx(EXPECTED[metric_class], rel=1e-5)


@pytest.mark.parametrize("floatx", ["float16", "bfloat16"])
def test_many_tokens_are_summed_exactly_in_any_default_dtype(floatx):
    keras.config.set_floatx(floatx)
    try:
        metrics = [TokenAccuracy(), Perplexity(), TokenCount()]
        for metric in metrics:
            metric.update_state(np.tile(LABELS, (100, 100)), np.tile(LOGITS, (100, 100, 1)))
        expected = [EXPECTED[TokenAccuracy], EXPECTED[Perplexity], 10_000 * REAL.sum()]
        assert [float(metric.result()) for metric in metrics] == pytest.approx(expected, rel=1e-4)
    finally:
        keras.config.set_floatx("float32")


def test_callbacks_know_which_way_a_metric_is_better():
    model = keras.Sequential([keras.Input((None, 7)), keras.layers.Dense(7)])
    metrics = [TokenAccuracy(), Perplexity()]
    model.compile("sgd", LabelSmoothedCrossEntropy(), metrics=metrics)
    callbacks = [keras.callbacks.EarlyStopping(metric.name) for metric in metrics]
    model.fit(LOGITS, LABELS, callbacks=callbacks, verbose=0)
    assert [callback.monitor_op for callback in callbacks] == [ops.greater, ops.less]


def test_uniform_logits_have_the_perplexity_of_the_vocabulary():
    perplexity = Perplexity()
    perplexity.update_state(LABELS, np.zeros((6, 5, 7)))
    assert float(perplexity.result()) == pytest.approx(7)


@pytest.mark.parametrize(("metric", "value"), [(TokenAccuracy(), 0.0), (Perplexity(), 1.0)])
def test_with_no_real_token_the_value_is_finite(metric, value):
    metric.update_state(np.zeros((2, 3)), np.ones((2, 3, 7)))
    assert float(metric.result()) == value


def test_token_count_is_the_number_of_real_tokens_over_all_batches():
    count = TokenCount()
    assert updated(count, slice(0, 1), slice(1, 6)) == REAL.sum()
    copy = keras.metrics.deserialize(keras.metrics.serialize(TokenCount(name="mine", pad_id=3)))
    assert (copy.name, copy.pad_id) == ("mine", 3)
