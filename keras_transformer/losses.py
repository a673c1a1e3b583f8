"""The training loss: label-smoothed cross-entropy over real tokens (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.fused import fused, fused_sum
from keras_transformer.replicas import sum_over_replicas

_LEAST = 1e-37  # near the smallest float32 and bfloat16


@keras.saving.register_keras_serializable("keras_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against a smoothed target (paper, section 5.4).

    The target is `1 - epsilon` at the right token and `epsilon / (vocab_size - 1)` at each other
    one. The loss is the sum over the real target tokens divided by their number over all replicas
    of a strategy, so that padding counts nothing and each token counts the same wherever it is.

    Args:
        epsilon: share of the target that goes to the wrong tokens, in [0, 1).
        pad_id: labels of this id do not count.

    Call arguments:
        y_true: integer labels (batch, length).
        y_pred: logits (batch, length, vocab_size), of any float dtype; the sums are float32.

    Returns:
        Scalar, in nats per token.

    Raises:
        ValueError: `epsilon` is out of range.

    Example:
        >>> loss = LabelSmoothedCrossEntropy(0.1)
        >>> float(loss([[5, 2, 0]], keras.ops.zeros((1, 3, 8))))  # log(8): all tokens alike
        2.0794415...
    """

    def __init__(
        self, epsilon: float = 0.1, pad_id: int = 0, name: str = "label_smoothed_cross_entropy"
    ):
        # "sum" is the one reduction that Keras does not rescale by the number of replicas.
        super().__init__(name=name, reduction="sum")
        if not 0 <= epsilon < 1:
            raise ValueError(f"epsilon must be in [0, 1): found {epsilon}")
        self.epsilon = epsilon
        self.pad_id = pad_id

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras's own would copy the logits to float32, and apply a mask that none asked for.
        losses = self.call(y_true, y_pred)
        if sample_weight is not None:
            losses = losses * per_token(sample_weight, losses)
        return ops.sum(losses)

    def call(self, y_true, y_pred):
        real = ops.cast(ops.not_equal(y_true, self.pad_id), "float32")
        tokens = ops.maximum(sum_over_replicas(ops.sum(real)), 1.0)
        return smoothed_cross_entropy(y_true, y_pred, self.epsilon) * real / tokens

    def get_config(self):
        return {"name": self.name, "epsilon": self.epsilon, "pad_id": self.pad_id}


def smoothed_cross_entropy(labels, logits, epsilon: float):
    """Loss of each token, (batch, length), with its gradient in closed form.

    With z the logits, p their softmax, y the label, V the vocabulary size and
    s = epsilon / (V - 1), the cross-entropy against the smoothed target is
    `log(sum(exp(z))) - (1 - epsilon - s) z_y - s sum(z)`, and its gradient `p - s`, less
    `1 - epsilon - s` at y. Nothing of the vocabulary's size is made but p and the gradient, both
    of the dtype of the logits. A label less likely than `_LEAST` counts as if it were not.
    """
    vocab_size = logits.shape[-1]
    share = epsilon / (vocab_size - 1)
    peak = 1.0 - epsilon - share

    @ops.custom_gradient
    def loss(logits):
        probabilities = ops.softmax(logits, axis=-1)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return _loss_gradient(probabilities, labels, upstream, peak, share)

        label_logits = _at_labels(logits, labels)
        log_sum_exp = label_logits - _log(_at_labels(probabilities, labels))
        # A product with ones is the fastest sum of a row.
        ones = ops.ones((vocab_size, 1), logits.dtype)
        total = ops.cast(ops.matmul(logits, ones), "float32")[..., 0]
        return log_sum_exp - peak * label_logits - share * total, gradient

    return loss(logits)


def symmetric_divergence(logits):
    """KL(p, q) + KL(q, p) of two distributions of each token, for R-Drop (Liang et al., 2021).

    With z the logits it is the sum of `(p - q) (z_p - z_q)` over the vocabulary; its gradient, for
    z_p, is `p (z_p - z_q - sum(p (z_p - z_q))) + p - q`.

    Args:
        logits: (2, ..., vocab_size), of any float dtype; the sums are float32.

    Returns:
        float32 (...), in nats.

    Example:
        >>> float(symmetric_divergence([[0.0, 0.0], [1.0, 0.0]]))  # of (1/2, 1/2), (0.731, 0.269)
        0.2310585...
    """

    @ops.custom_gradient
    def divergence(logits):
        probabilities = ops.softmax(logits, axis=-1)
        means = _mean_differences(probabilities, logits)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            return _divergence_gradient(probabilities, logits, means, upstream)

        return means[0] - means[1], gradient

    return divergence(ops.convert_to_tensor(logits))


@fused
def _mean_differences(probabilities, logits):
    """The mean of `z_p - z_q` by p, and by q: (2, ...)."""
    logits = ops.cast(logits, "float32")
    return fused_sum(ops.cast(probabilities, "float32") * (logits[0] - logits[1]), axis=-1)[..., 0]


@fused
def _divergence_gradient(probabilities, logits, means, upstream):
    p, q = (ops.cast(probabilities[i], "float32") for i in (0, 1))
    difference = ops.cast(logits[0], "float32") - ops.cast(logits[1], "float32")
    of_p = p * (difference - means[0][..., None]) + p - q
    of_q = q * (means[1][..., None] - difference) + q - p
    return ops.cast(ops.stack([of_p, of_q]) * upstream[..., None], logits.dtype)


def token_nll(labels, logits):
    """The negative log-likelihood of each token, (batch, length), without smoothing."""
    return -_log(_at_labels(ops.softmax(logits, axis=-1), labels))


def per_token(sample_weight, like):
    """Weights of sentences (batch,) or tokens (batch, length), as float32 to multiply `like`."""
    weight = ops.cast(sample_weight, "float32")
    return weight if len(weight.shape) == len(like.shape) else weight[:, None]


def _at_labels(x, labels):
    labels = ops.cast(labels, "int32")[..., None]
    return ops.cast(ops.take_along_axis(x, labels, axis=-1)[..., 0], "float32")


def _log(probability):
    return ops.log(ops.maximum(probability, _LEAST))


@fused
def _loss_gradient(probabilities, labels, upstream, peak, share):
    ids = ops.arange(probabilities.shape[-1], dtype="int32")
    is_label = ops.equal(ops.cast(labels, "int32")[..., None], ids)
    difference = ops.cast(probabilities, "float32") - ops.where(is_label, peak + share, share)
    return ops.cast(difference * upstream[..., None], probabilities.dtype)
