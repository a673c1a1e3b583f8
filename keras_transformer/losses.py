"""The training loss: label-smoothed cross-entropy over real tokens (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.backend.fused_losses import fused_smoothed_cross_entropy
from keras_transformer.backend.replicas import mean_over_replicas, sum_over_replicas


def smoothed_cross_entropy(labels, logits, epsilon: float):
    """Computes the cross-entropy of each token against its smoothed target (section 5.4).

    The target distribution is `1 - epsilon` at the label and `epsilon / (V - 1)` at each other
    entry of the vocabulary. This is the formula; training uses the faster
    `backend.fused_losses.fused_smoothed_cross_entropy`.

    Args:
        labels: integer (batch, length).
        logits: (batch, length, V), of any float dtype; the sums are float32.
        epsilon: share of the target that goes to the wrong tokens, in [0, 1).

    Returns:
        float32 (batch, length), in nats.
    """
    log_probs = ops.log_softmax(ops.cast(logits, "float32"))  # (batch, length, V)
    label = ops.cast(labels, "int32")[..., None]
    at_label = ops.take_along_axis(log_probs, label, axis=-1)[..., 0]  # (batch, length)
    elsewhere = ops.sum(log_probs, axis=-1) - at_label  # (batch, length)
    return -(1.0 - epsilon) * at_label - epsilon / (logits.shape[-1] - 1) * elsewhere


@keras.saving.register_keras_serializable("keras_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against a smoothed target (paper, section 5.4).

    The target is `1 - epsilon` at the right token and `epsilon / (vocab_size - 1)` at each other
    one. The loss is the sum over the real target tokens, divided by their number over all replicas
    of a strategy. So padding does not count, and each token counts the same on any replica. A
    `sample_weight` multiplies the losses of tokens; the divisor stays the number of real tokens.

    Args:
        epsilon: share of the target that goes to the wrong tokens, in [0, 1).
        pad_id: labels of this id do not count.

    Call arguments:
        y_true: integer labels (batch, length).
        y_pred: logits (batch, length, vocab_size), of any float dtype; the sums are float32.
        sample_weight: optional weights, (batch,) or (batch, length).

    Returns:
        Scalar, in nats per token. Each of several replicas returns the mean of their parts.

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
        super().__init__(name=name, reduction="sum")  # for users to read: `__call__` sums itself
        if not 0 <= epsilon < 1:
            raise ValueError(f"epsilon must be in [0, 1): found {epsilon}")
        self.epsilon = epsilon
        self.pad_id = pad_id

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras's own `__call__` would copy the logits to float32, and apply an unwanted mask.
        losses = self.call(y_true, y_pred)
        if sample_weight is not None:
            losses = losses * per_token(sample_weight, losses)
        # Equal on all replicas, as Keras averages them by rows, whose number may differ.
        return mean_over_replicas(ops.sum(losses))

    def call(self, y_true, y_pred):
        y_true, y_pred = labels_and_logits(y_true, y_pred)
        real = ops.cast(ops.not_equal(y_true, self.pad_id), "float32")  # (batch, length)
        tokens = ops.maximum(sum_over_replicas(ops.sum(real)), 1.0)
        labels = in_vocabulary(y_true, self.pad_id)
        return fused_smoothed_cross_entropy(labels, y_pred, self.epsilon) * real / tokens

    def get_config(self):
        return {"name": self.name, "epsilon": self.epsilon, "pad_id": self.pad_id}


def labels_and_logits(y_true, y_pred):
    """Converts labels and logits to tensors.

    Raises:
        ValueError: the labels do not have the shape of the logits without the last axis.
    """
    labels, logits = ops.convert_to_tensor(y_true), ops.convert_to_tensor(y_pred)
    found, expected = tuple(labels.shape), tuple(logits.shape[:-1])
    fits = len(found) == len(expected) and all(
        None in sizes or sizes[0] == sizes[1] for sizes in zip(found, expected, strict=True)
    )
    if not fits:
        raise ValueError(
            f"labels must be of shape {expected}, one for each row of logits: found {found}"
        )
    return labels, logits


def in_vocabulary(labels, pad_id):
    """Replaces padding by 0, as `pad_id` may be no row of logits: -100, for example."""
    return ops.where(ops.not_equal(labels, pad_id), labels, 0)


def per_token(sample_weight, like):
    """Casts weights (batch,) or (batch, length) to float32, in a shape that multiplies `like`."""
    weight = ops.cast(sample_weight, "float32")
    rank, missing = len(weight.shape), len(like.shape) - len(weight.shape)
    if rank not in (1, 2) or missing < 0:
        raise ValueError(
            "sample_weight must be of shape (batch,) or (batch, length): found "
            f"{tuple(weight.shape)} for labels of shape {tuple(like.shape)}"
        )
    return ops.reshape(weight, (*ops.shape(weight), *missing * [1]))
