"""Training losses over the whole vocabulary: float32 sums, gradients in closed form.

The sums are float64 if the logits are. The gradient, and the probabilities that it is made from,
are the only arrays of the vocabulary's size; automatic differentiation makes several more.
"""

import keras
from keras import ops

from keras_transformer.fast.dispatch import custom_gradient, fused, sum_dtype
from keras_transformer.fast.known_labels import known_labels
from keras_transformer.fast.reductions import fused_max, fused_sum


def fused_smoothed_cross_entropy(labels, logits, epsilon: float):
    """Computes `losses.smoothed_cross_entropy` faster; arguments and result are the same.

    Let d be the logits minus the largest of their row, y the label, V the vocabulary size and
    s = epsilon / (V - 1). The cross-entropy against the smoothed target is
    `log(sum(exp(d))) - (1 - epsilon - s) d_y - s sum(d)`, in float32. Its gradient is
    `softmax(d) - s`, minus `1 - epsilon - s` at y, in the dtype of the logits.
    """
    share, peak = target_shares(epsilon, logits.shape[-1])
    labels, known = known_labels(labels, logits)

    @custom_gradient
    def loss(logits, labels):
        largest, log_sum_exp, total = _row_sums(logits)

        def gradient(upstream):
            if keras.backend.standardize_dtype(logits.dtype) == "float16":
                # TensorFlow's softmax adds in float16 on some processors, with errors of 0.3%.
                probabilities = _probabilities(logits, largest, log_sum_exp)
            else:
                # Outside a compiled function: TensorFlow's own softmax is faster than XLA's.
                probabilities = ops.softmax(logits, axis=-1)
            return _loss_gradient(probabilities, labels, upstream, peak, share), None

        losses = log_sum_exp - peak * (_at_labels(logits, labels) - largest)
        # A logit of -inf makes the sum infinite, and 0 times infinity is no number.
        return losses - share * total if share else losses, gradient

    return loss(logits, labels) * known


def target_shares(epsilon: float, vocab_size: int) -> tuple[float, float]:
    """The share of the target at each token, and what the label has in addition to it."""
    if vocab_size == 1:
        return 0.0, 1.0  # there is no wrong token
    share = epsilon / (vocab_size - 1)
    return share, 1.0 - epsilon - share


def symmetric_divergence(logits):
    """Computes KL(p, q) + KL(q, p) of each token's two distributions (R-Drop; Liang et al., 2021).

    It is the sum of `(p - q) (log p - log q)` over the vocabulary. Its gradient with respect to
    the logits of p is `p (log p - log q - KL(p, q)) + p - q`.

    Args:
        logits: (2, ..., vocab_size), of any float dtype; the sums are float32.

    Returns:
        float32 (...), in nats.

    Example:
        >>> float(symmetric_divergence([[0.0, 0.0], [1.0, 0.0]]))  # of (1/2, 1/2), (0.731, 0.269)
        0.2310585...
    """

    @custom_gradient
    def divergence(logits):
        largest, log_sum_exp, _ = _row_sums(logits)
        divergences = _divergences(logits, largest, log_sum_exp)

        def gradient(upstream):
            return _divergence_gradient(logits, largest, log_sum_exp, divergences, upstream)

        return divergences[0] + divergences[1], gradient

    return divergence(ops.convert_to_tensor(logits))


def token_nll(labels, logits):
    """Computes the negative log-likelihood of each token, (batch, length), without smoothing."""
    labels, known = known_labels(labels, logits)
    largest, log_sum_exp, _ = _row_sums(logits)
    return (log_sum_exp - (_at_labels(logits, labels) - largest)) * known


def _at_labels(logits, labels):
    at_labels = ops.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return ops.cast(at_labels, sum_dtype(logits))


@fused
def _row_sums(logits):
    """Returns each row's largest logit, and log-sum-exp and sum of the logits minus it."""
    largest = fused_max(ops.cast(logits, sum_dtype(logits)), axis=-1)[..., 0]
    below = _below(logits, largest)  # (..., vocab_size)
    log_sum_exp = ops.log(fused_sum(ops.exp(below), axis=-1)[..., 0])
    return largest, log_sum_exp, fused_sum(below, axis=-1)[..., 0]


def _below(logits, largest):
    return ops.cast(logits, sum_dtype(logits)) - largest[..., None]


def _logs(logits, largest, log_sum_exp):
    """Logarithms of the probabilities: (..., vocab_size)."""
    return _below(logits, largest) - log_sum_exp[..., None]


@fused
def _probabilities(logits, largest, log_sum_exp):
    return ops.cast(ops.exp(_logs(logits, largest, log_sum_exp)), logits.dtype)


@fused
def _loss_gradient(probabilities, labels, upstream, peak, share):
    ids = ops.arange(probabilities.shape[-1], dtype="int32")
    is_label = ops.equal(labels[..., None], ids)  # (..., vocab_size)
    dtype = sum_dtype(probabilities)
    at_label = ops.convert_to_tensor(peak + share, dtype)
    difference = ops.cast(probabilities, dtype) - ops.where(is_label, at_label, share)
    return ops.cast(difference * upstream[..., None], probabilities.dtype)


@fused
def _divergences(logits, largest, log_sum_exp):
    """Computes KL(p, q) and KL(q, p): (2, ...)."""
    logs = _logs(logits, largest, log_sum_exp)  # (2, ..., vocab_size)
    return fused_sum(ops.exp(logs) * (logs - ops.flip(logs, axis=0)), axis=-1)[..., 0]


@fused
def _divergence_gradient(logits, largest, log_sum_exp, divergences, upstream):
    logs = _logs(logits, largest, log_sum_exp)  # (2, ..., vocab_size)
    p, difference = ops.exp(logs), logs - ops.flip(logs, axis=0)
    gradient = p * (difference - divergences[..., None]) + p - ops.flip(p, axis=0)
    return ops.cast(gradient * upstream[..., None], logits.dtype)
