"""The loss: equal to smoothed one-hot targets, independent of padding and of replicas."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from keras_transformer import LabelSmoothedCrossEntropy, Perplexity, TokenAccuracy, TokenCount
from keras_transformer.fast.losses import (
    fused_smoothed_cross_entropy,
    symmetric_divergence,
    token_nll,
)
from keras_transformer.losses import smoothed_cross_entropy

rng = np.random.default_rng(0)
LOGITS = rng.normal(scale=3, size=(3, 4, 7)).astype("float32")
LABELS = np.array([[3, 5, 2, 0], [6, 2, 0, 0], [4, 4, 1, 2]], "int32")


def reference(labels, logits, epsilon):
    """Cross-entropy against an explicit target, mean over the tokens that are not padding."""
    vocab_size = logits.shape[-1]
    one_hot = tf.one_hot(labels, vocab_size, dtype=logits.dtype)
    target = one_hot * (1 - epsilon) + (1 - one_hot) * epsilon / (vocab_size - 1)
    losses = -tf.reduce_sum(target * tf.nn.log_softmax(logits), -1)
    return tf.reduce_mean(losses[labels != 0])


def value_and_gradient(loss, logits):
    logits = tf.constant(logits)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = loss(logits)
    return value.numpy(), tape.gradient(value, logits).numpy()


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.4])
def test_value_and_gradient_are_those_of_the_smoothed_target(epsilon, jit_compile):
    loss = LabelSmoothedCrossEntropy(epsilon)
    compiled = tf.function(
        lambda logits: loss(LABELS, logits), jit_compile=jit_compile, autograph=False
    )
    value, gradient = value_and_gradient(compiled, LOGITS)
    expected_value, expected_gradient = value_and_gradient(
        lambda logits: reference(LABELS, logits, epsilon), LOGITS.astype("float64")
    )
    np.testing.assert_allclose(value, expected_value, rtol=1e-6)
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-7)


@pytest.mark.parametrize("jit_compile", [False, True])
def test_the_divergence_is_that_of_both_directions(jit_compile):
    weights = np.random.default_rng(3).normal(size=LOGITS.shape[:-1]).astype("float32")

    def divergence(logits):
        return tf.reduce_sum(symmetric_divergence(logits) * tf.cast(weights, logits.dtype))

    def plain(logits):
        p, q = tf.unstack(tf.nn.softmax(logits))
        total = (p - q) * (tf.math.log(p) - tf.math.log(q))
        return tf.reduce_sum(total * weights[..., None])

    pair = np.stack([LOGITS, np.roll(LOGITS, 1, axis=-1)])
    value, gradient = value_and_gradient(tf.function(divergence, jit_compile=jit_compile), pair)
    expected_value, expected_gradient = value_and_gradient(plain, pair.astype("float64"))
    np.testing.assert_allclose(value, expected_value, rtol=1e-5)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-5, atol=1e-6)


def test_uniform_logits_cost_the_logarithm_of_the_vocabulary():
    loss = LabelSmoothedCrossEntropy(0.1)
    assert float(loss(LABELS, np.zeros((3, 4, 7)))) == pytest.approx(np.log(7))


def test_the_least_possible_loss_is_the_entropy_of_the_target():
    target = np.full((1, 1, 7), 0.1 / 6)
    target[..., 3] = 0.9
    value = LabelSmoothedCrossEntropy(0.1)([[3]], np.log(target))
    assert float(value) == pytest.approx(-np.sum(target * np.log(target)))


def test_padding_counts_nothing_and_has_no_gradient():
    loss = LabelSmoothedCrossEntropy(0.1)
    other = np.where((LABELS == 0)[..., None], 50.0, LOGITS).astype("float32")
    wider = np.pad(LABELS, ((0, 1), (0, 2))), np.pad(LOGITS, ((0, 1), (0, 2), (0, 0)))
    value, gradient = value_and_gradient(lambda logits: loss(LABELS, logits), LOGITS)
    assert np.all(gradient[LABELS == 0] == 0)
    assert np.all(np.abs(gradient[LABELS != 0]).max(-1) > 0)
    assert float(loss(LABELS, other)) == pytest.approx(float(value))
    assert float(loss(*wider)) == pytest.approx(float(value))


def test_another_padding_symbol_can_be_named():
    labels = np.where(LABELS == 0, 6, np.where(LABELS == 6, 5, LABELS))
    loss = LabelSmoothedCrossEntropy(0.1, pad_id=6)
    kept = labels != 6
    expected = LabelSmoothedCrossEntropy(0.1)(labels[kept][None], LOGITS[kept][None])
    assert float(loss(labels, LOGITS)) == pytest.approx(float(expected))


@pytest.mark.parametrize("pad_id", [-100, 255])
def test_the_padding_symbol_may_be_outside_of_the_vocabulary(pad_id):
    labels = np.where(LABELS == 0, pad_id, LABELS)
    loss = LabelSmoothedCrossEntropy(0.1, pad_id=pad_id)
    value, gradient = value_and_gradient(lambda logits: loss(labels, logits), LOGITS)
    expected = value_and_gradient(lambda x: LabelSmoothedCrossEntropy(0.1)(LABELS, x), LOGITS)
    assert value == expected[0]
    np.testing.assert_array_equal(gradient, expected[1])


def test_a_batch_of_padding_only_costs_zero_and_has_no_gradient():
    loss = LabelSmoothedCrossEntropy(0.1)
    value, gradient = value_and_gradient(lambda logits: loss(np.zeros((3, 4)), logits), LOGITS)
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("scale", [1e2, 1e4, 1e30])
def test_huge_logits_cost_what_float64_says(scale):
    loss = LabelSmoothedCrossEntropy(0.1)
    huge = LOGITS * np.float32(scale)
    value, gradient = value_and_gradient(lambda logits: loss(LABELS, logits), huge)
    expected, expected_gradient = numpy_loss(LABELS, huge, 0.1)
    real = LABELS != 0
    np.testing.assert_allclose(value, expected[real].mean(), rtol=1e-6)
    expected_gradient *= real[..., None] / real.sum()
    np.testing.assert_allclose(gradient, expected_gradient, atol=1e-7)


# A vocabulary of the paper's size. The mean of the logits is not zero, as in a trained model: from
# a mean of 1.8 on, their sum is too large for float16. The first labels are almost impossible:
# their probabilities are below the smallest float16, and below the smallest float32.
VOCAB_SIZE = 37_000
MEAN_LOGITS = [-5.0, 20.0]
ROUNDING = {"float32": 2**-22, "bfloat16": 2**-8, "float16": 2**-11}


def large_case(mean, dtype):
    """Labels (2, 3), and logits as a tensor and in float64."""
    rng = np.random.default_rng(5)
    labels = rng.integers(1, VOCAB_SIZE, size=(2, 3))
    logits = rng.normal(mean, 2.0, size=(2, 3, VOCAB_SIZE))
    logits[0, 0, labels[0, 0]] = mean - 20.0
    logits[0, 1, labels[0, 1]] = mean - 120.0
    logits[1, 0, labels[1, 0]] = mean + 30.0
    logits = ops.cast(logits.astype("float32"), dtype)
    return labels, logits, ops.convert_to_numpy(ops.cast(logits, "float32")).astype("float64")


def numpy_loss(labels, logits, epsilon):
    """Loss of each token and its gradient, by the definition, in float64."""
    logits = logits.astype("float64")
    vocab_size = logits.shape[-1]
    log_probs = logits - logits.max(-1, keepdims=True)
    log_probs -= np.log(np.exp(log_probs).sum(-1, keepdims=True))
    is_label = np.arange(vocab_size) == labels[..., None]
    target = np.where(is_label, 1 - epsilon, epsilon / (vocab_size - 1))
    return -(target * log_probs).sum(-1), np.exp(log_probs) - target


@pytest.mark.parametrize("mean", MEAN_LOGITS)
@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_real_vocabulary_has_the_loss_of_float64_whatever_the_dtype(dtype, mean):
    labels, logits, exact = large_case(mean, dtype)
    weights = np.arange(1.0, 7.0).reshape(2, 3).astype("float32")
    for epsilon in (0.0, 0.1):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            losses = fused_smoothed_cross_entropy(labels, logits, epsilon)
            total = tf.reduce_sum(losses * weights)
        expected, expected_gradient = numpy_loss(labels, exact, epsilon)
        assert losses.dtype == tf.float32
        np.testing.assert_allclose(losses, expected, rtol=1e-6, atol=1e-5)
        gradient = tape.gradient(total, logits)
        assert gradient.dtype == dtype
        np.testing.assert_allclose(
            ops.cast(gradient, "float32"),
            expected_gradient * weights[..., None],
            rtol=2 * ROUNDING[dtype],
            atol=5e-7,  # rounding of a float32 probability of 1, times a weight
        )


@pytest.mark.parametrize("mean", MEAN_LOGITS)
@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_real_vocabulary_has_the_perplexity_of_float64_whatever_the_dtype(dtype, mean):
    labels, logits, exact = large_case(mean, dtype)
    expected, _ = numpy_loss(labels, exact, 0.0)
    np.testing.assert_allclose(token_nll(labels, logits), expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_real_vocabulary_has_the_divergence_of_float64_whatever_the_dtype(dtype):
    _, logits, exact = large_case(3.0, dtype)
    exact[1] += 8.0  # changes no probability
    logits = ops.cast(exact.astype("float32"), dtype)
    exact = ops.convert_to_numpy(ops.cast(logits, "float32")).astype("float64")
    logs = exact - exact.max(-1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
    (log_p, log_q), (p, q) = logs, np.exp(logs)
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = symmetric_divergence(logits)
    assert value.dtype == tf.float32
    np.testing.assert_allclose(value, ((p - q) * (log_p - log_q)).sum(-1), rtol=1e-5)
    kl = (p * (log_p - log_q)).sum(-1, keepdims=True)
    np.testing.assert_allclose(
        ops.cast(tape.gradient(value, logits), "float32")[0],
        p * (log_p - log_q - kl) + p - q,
        rtol=2 * ROUNDING[dtype] + 1e-4,
        atol=1e-6,
    )


def test_bfloat16_logits_have_a_float32_loss_and_a_bfloat16_gradient():
    loss = LabelSmoothedCrossEntropy(0.1)
    rounded = ops.cast(LOGITS, "bfloat16")
    with tf.GradientTape() as tape:
        tape.watch(rounded)
        value = loss(LABELS, rounded)
    gradient = tape.gradient(value, rounded)
    expected, expected_gradient = value_and_gradient(
        lambda logits: reference(LABELS, logits, 0.1), ops.cast(rounded, "float32")
    )
    assert value.dtype == tf.float32 and gradient.dtype == tf.bfloat16
    assert float(value) == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(ops.cast(gradient, "float32"), expected_gradient, atol=1e-3)


def test_labels_of_a_large_vocabulary_are_exact():
    logits = np.zeros((1, 1, 50_000), "float32")
    logits[..., 49_999] = 50
    assert float(LabelSmoothedCrossEntropy(0)([[49_999]], logits)) == pytest.approx(0, abs=1e-6)
    assert float(LabelSmoothedCrossEntropy(0)([[49_998]], logits)) == pytest.approx(50)


def test_a_label_of_no_probability_has_its_loss_and_the_gradient_of_any():
    logits = ops.convert_to_tensor([[[1000.0, 0.0, 0.0]]])
    with tf.GradientTape() as tape:
        tape.watch(logits)
        value = LabelSmoothedCrossEntropy(0, pad_id=9)([[1]], logits)
    assert float(value) == 1000
    np.testing.assert_allclose(tape.gradient(value, logits), [[[1, -1, 0]]], atol=1e-6)


def test_configuration_gives_back_the_same_loss():
    loss = LabelSmoothedCrossEntropy(0.2, pad_id=3, name="mine", reduction="sum", dtype="float64")
    copy = keras.losses.deserialize(keras.losses.serialize(loss))
    assert isinstance(copy, LabelSmoothedCrossEntropy)
    assert copy.get_config() == loss.get_config()
    assert (copy.epsilon, copy.pad_id, copy.name) == (0.2, 3, "mine")
    assert (copy.reduction, copy.dtype) == ("sum", "float64")
    assert float(copy(LABELS, LOGITS)) == float(loss(LABELS, LOGITS))


@pytest.mark.parametrize(
    "reduction", ["sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none", None]
)
def test_reductions_are_those_of_keras_with_padding_masked(reduction):
    weights = np.random.default_rng(4).uniform(size=LABELS.shape).astype("float32")
    theirs = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=0, reduction=reduction
    )
    ours = LabelSmoothedCrossEntropy(0.0, reduction=reduction)
    for sample_weight in (None, weights):
        expected = theirs(LABELS, LOGITS, sample_weight)
        np.testing.assert_allclose(ours(LABELS, LOGITS, sample_weight), expected, rtol=1e-5)


@pytest.mark.parametrize("reduction", ["mean", "mean_with_sample_weight", "none"])
@pytest.mark.parametrize("weight", [np.inf, np.nan])
def test_padding_counts_nothing_whatever_its_weight(weight, reduction):
    loss = LabelSmoothedCrossEntropy(0.1, reduction=reduction)
    odd = np.where(LABELS == 0, weight, 2.0).astype("float32")
    found = value_and_gradient(lambda logits: ops.sum(loss(LABELS, logits, odd)), LOGITS)
    plain = np.full(LABELS.shape, 2.0, "float32")
    expected = value_and_gradient(lambda logits: ops.sum(loss(LABELS, logits, plain)), LOGITS)
    np.testing.assert_array_equal(found[0], expected[0])
    np.testing.assert_array_equal(found[1], expected[1])
    assert np.isfinite(found[0])
    wider = LABELS[..., None], LOGITS  # Keras's other form of labels
    np.testing.assert_array_equal(loss(*wider, odd), loss(LABELS, LOGITS, plain))


@pytest.mark.parametrize("logits, dtype", [("float64", None), ("float32", "float64")])
def test_sums_are_float64_if_logits_or_loss_are(logits, dtype):
    value = LabelSmoothedCrossEntropy(0.1, dtype=dtype)(LABELS, ops.cast(LOGITS, logits))
    assert value.dtype == tf.float64
    expected, _ = numpy_loss(LABELS, LOGITS, 0.1)
    assert float(value) == pytest.approx(expected[LABELS != 0].mean(), rel=1e-14)


# Labels and logits at the limits


def uses():
    """Functions of labels and logits that look up labels."""
    return {
        "loss": LabelSmoothedCrossEntropy(0.1, pad_id=-100),
        "perplexity": Perplexity(pad_id=-100).update_state,
        "accuracy": TokenAccuracy(pad_id=-100).update_state,
        "formula": lambda labels, logits: smoothed_cross_entropy(labels, logits, 0.1),
    }


@pytest.mark.parametrize("label", [-1, 7, 102])
@pytest.mark.parametrize("use", uses())
def test_a_label_outside_of_the_vocabulary_is_an_error(use, label):
    labels = np.where(LABELS == 6, label, LABELS)
    message = rf"labels must be ids in \[0, 7\), or pad_id where they do not count: found.*{label}"
    with pytest.raises(ValueError, match=message):
        uses()[use](labels, LOGITS)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        tf.function(uses()[use], autograph=False)(labels, LOGITS)


@pytest.mark.parametrize("label", [2.5, np.nan, 2**32 + 3])
@pytest.mark.parametrize("use", uses())
def test_a_label_that_is_no_id_is_an_error(use, label):
    labels = np.where(LABELS == 6, label, LABELS.astype(type(label)))
    with pytest.raises(ValueError, match=r"labels must be ids in \[0, 7\), or pad_id"):
        uses()[use](labels, LOGITS)


@pytest.mark.parametrize(("pad_id", "label"), [(-1, 255), (-100, 156)])
def test_unsigned_labels_do_not_equal_a_negative_pad_id(pad_id, label):
    logits = np.random.default_rng(0).normal(size=(1, 3, 300)).astype("float32")
    labels = np.array([[label, 3, 7]])
    loss = LabelSmoothedCrossEntropy(0.1, pad_id=pad_id)
    assert float(loss(labels.astype("uint8"), logits)) == float(loss(labels, logits))
    for kind in (TokenCount, Perplexity, TokenAccuracy):
        unsigned, signed = kind(pad_id=pad_id), kind(pad_id=pad_id)
        unsigned.update_state(labels.astype("uint8"), logits)
        signed.update_state(labels, logits)
        assert float(unsigned.result()) == float(signed.result())


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("shape", [(2, 1), (1, 6), (3, 4), (6, 2)])
@pytest.mark.parametrize("use", ["loss", "perplexity", "accuracy"])
def test_labels_of_another_size_are_refused_where_it_is_known_late(use, shape, jit_compile):
    specs = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None, 7])
    function = tf.function(
        uses()[use], input_signature=specs, jit_compile=jit_compile, autograph=False
    )
    logits = np.zeros((2, 6, 7), "float32")
    function(np.ones((2, 6), "int32"), logits)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?i)dimension"):
        function(np.ones(shape, "int32"), logits)


@pytest.mark.parametrize("label", [-1, 7])
def test_where_xla_compiles_the_loss_and_gradient_of_an_unknown_label_are_no_numbers(label):
    labels = np.where(LABELS == 6, label, LABELS)
    loss = tf.function(LabelSmoothedCrossEntropy(0.1), jit_compile=True, autograph=False)
    value, gradient = value_and_gradient(lambda logits: loss(labels, logits), LOGITS)
    assert np.isnan(value)
    np.testing.assert_array_equal(np.isnan(gradient).all(-1), labels == label)


@pytest.mark.parametrize("loss", [LabelSmoothedCrossEntropy(0.0), Perplexity()])
def test_a_logit_of_minus_infinity_excludes_its_token(loss):
    """The padding symbol is excluded too, and costs nothing as a label."""
    labels, logits = np.array([[1, 2, 0]]), np.array([[[-np.inf, 0.0, 0.0]] * 3], "float32")
    if isinstance(loss, Perplexity):
        loss.update_state(labels, logits)
        assert float(loss.result()) == pytest.approx(2)
        return
    value, gradient = value_and_gradient(lambda logits: loss(labels, logits), logits)
    assert value == pytest.approx(np.log(2))
    np.testing.assert_allclose(gradient[0], [[0, -0.25, 0.25], [0, 0.25, -0.25], [0, 0, 0]])
    assert LabelSmoothedCrossEntropy(0.1)(labels, logits) == np.inf
    plain = smoothed_cross_entropy(labels, ops.convert_to_tensor(logits), 0.0)
    assert float(plain[0, 0]) == pytest.approx(np.log(2))


@pytest.mark.filterwarnings("ignore:You are using a softmax over axis -1")
def test_a_vocabulary_of_one_entry_costs_nothing():
    loss, logits = LabelSmoothedCrossEntropy(0.1, pad_id=-1), np.ones((1, 2, 1), "float32")
    value, gradient = value_and_gradient(lambda logits: loss([[0, 0]], logits), logits)
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)


@pytest.mark.parametrize("epsilon", [-0.1, 1.0])
def test_an_impossible_epsilon_is_refused(epsilon):
    with pytest.raises(ValueError, match=rf"epsilon must be in \[0, 1\): found {epsilon}"):
        LabelSmoothedCrossEntropy(epsilon)


@pytest.mark.parametrize("kind", [LabelSmoothedCrossEntropy, TokenAccuracy, Perplexity, TokenCount])
def test_no_padding_is_a_pad_id_of_minus_one_and_not_none(kind):
    message = "pad_id must be an integer: found None; where every label counts, give -1"
    with pytest.raises(ValueError, match=message):
        kind(pad_id=None)


def test_every_label_counts_with_a_pad_id_of_minus_one():
    logits = np.random.default_rng(0).normal(size=(2, 3, 5))
    labels = np.array([[0, 0, 1], [2, 0, 4]])
    expected = float(np.mean(smoothed_cross_entropy(labels, logits, 0.1)))
    found = LabelSmoothedCrossEntropy(0.1, pad_id=-1)(labels, logits)
    assert float(found) == pytest.approx(expected, rel=1e-5)
