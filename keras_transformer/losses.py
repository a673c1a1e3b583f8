"""The training loss: label-smoothed cross-entropy over real tokens (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.errors import is_integer
from keras_transformer.fast.dispatch import sum_dtype
from keras_transformer.fast.known_labels import known_labels
from keras_transformer.fast.losses import fused_smoothed_cross_entropy, target_shares
from keras_transformer.machine.replicas import mean_of_parts, part_of_mean


def smoothed_cross_entropy(labels, logits, epsilon: float):
    """Computes the cross-entropy of each token against its smoothed target (section 5.4).

    The target distribution is `1 - epsilon` at the label and `epsilon / (V - 1)` at each other
    entry of the vocabulary. This is the formula; training uses the faster
    `fast.losses.fused_smoothed_cross_entropy`.

    Args:
        labels: integer (batch, length).
        logits: (batch, length, V), of any float dtype; the sums are float32, or float64 like them.
        epsilon: share of the target that goes to the wrong tokens, in [0, 1).

    Returns:
        (batch, length), in nats, in the dtype of the sums.

    Raises:
        ValueError: a label is not in [0, V). Where XLA compiles, or a GPU runs a graph, its loss is
            NaN instead.
    """
    share, peak = target_shares(epsilon, logits.shape[-1])
    labels, known = known_labels(labels, logits)
    log_probs = ops.log_softmax(ops.cast(logits, sum_dtype(logits)))  # (batch, length, V)
    at_label = ops.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
    losses = -peak * at_label  # (batch, length)
    if share > 0:  # 0 times the logarithm of no probability, -inf, is no number
        losses -= share * ops.sum(log_probs, axis=-1)
    return losses * known


@keras.saving.register_keras_serializable("keras_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against a smoothed target (paper, section 5.4).

    The target is `1 - epsilon` at the right token and `epsilon / (vocab_size - 1)` at each other
    one. The loss is the sum over the real target tokens, divided by their number. So padding does
    not count. A `sample_weight` multiplies the losses of tokens; the divisor stays the number of
    real tokens.

    On several replicas of a TensorFlow strategy, gradients are those of the sum over all real
    tokens divided by their number, so that each token counts the same on any replica. A replica
    returns the mean over its own tokens, divided by the number of replicas as Keras's losses are.
    So if replicas have different numbers of tokens, `fit` reports the mean of the replicas' losses
    weighted by rows. A `Transformer` reports the loss over all tokens, and so does `Perplexity`.

    Do not use `class_weight`, which Keras turns into weights of rows: it takes labels (batch,
    length) for one-hot classes. Give weights of tokens as `sample_weight` instead.

    Args:
        epsilon: share of the target that goes to the wrong tokens, in [0, 1).
        pad_id: labels of this id do not count. It may be outside of the vocabulary, such as -100.
            Where every label counts, give -1.
        reduction: what to return, as in every Keras loss. "sum_over_batch_size" or "mean": the loss
            above; "mean_with_sample_weight": the sum divided by the sum of the weights;
            "sum": the sum over the real tokens; "none" or None: the loss of each token.
        dtype: dtype of the sums and of the result, at least float32; default: Keras's `floatx`.
            Logits of float64 have float64 sums.

    Call arguments:
        y_true: integer labels (batch, length) or (batch, length, 1).
        y_pred: logits (batch, length, vocab_size), of any float dtype.
        sample_weight: optional weights, (batch,) or (batch, length).

    Returns:
        Scalar, in nats per token; (batch, length) without a reduction.

    Raises:
        ValueError: `epsilon` is out of range, `pad_id` is no integer, or the labels have another
            shape. A label is neither in [0, vocab_size) nor `pad_id`: in TensorFlow's graphs on a
            CPU this is an `InvalidArgumentError`, in graphs for XLA or a GPU the loss is NaN.

    Example:
        >>> loss = LabelSmoothedCrossEntropy(0.1)
        >>> float(loss([[5, 2, 0]], keras.ops.zeros((1, 3, 8))))  # log(8): all tokens alike
        2.0794415...
    """

    def __init__(
        self,
        epsilon: float = 0.1,
        pad_id: int = 0,
        name: str = "label_smoothed_cross_entropy",
        reduction: str | None = "sum_over_batch_size",
        dtype=None,
    ):
        super().__init__(name=name, reduction=reduction, dtype=dtype)
        if not 0 <= epsilon < 1:
            raise ValueError(f"epsilon must be in [0, 1): found {epsilon}")
        self.epsilon = epsilon
        self.pad_id = checked_pad_id(pad_id)

    def __call__(self, y_true, y_pred, sample_weight=None):
        # Keras's own `__call__` would copy the logits to float32, and apply an unwanted mask.
        losses = self.call(y_true, y_pred)
        if sample_weight is not None:
            labels = ops.reshape(y_true, ops.shape(losses))
            losses = losses * token_weights(labels, self.pad_id, sample_weight, losses.dtype)
        if self.reduction in ("none", None):
            return losses
        total = ops.sum(losses)
        if self.reduction == "sum":
            return total
        return part_of_mean(total, self._divisor(y_true, sample_weight, total.dtype))

    def over_replicas(self, value, y_true, sample_weight=None):
        """Replaces this replica's value by that over the tokens of all; the gradient stays.

        It waits for all replicas, so call it only after `model.losses` has been read.

        Args:
            value: what the loss returned, or a multiple of it.
            y_true: labels that it was called with.
            sample_weight: weights that it was called with.
        """
        if self.reduction in ("sum", "none", None):
            return value
        return mean_of_parts(value, self._divisor(y_true, sample_weight, value.dtype))

    def _divisor(self, y_true, sample_weight, dtype):
        if self.reduction != "mean_with_sample_weight":
            sample_weight = None
        return ops.cast(ops.sum(token_weights(y_true, self.pad_id, sample_weight)), dtype)

    def call(self, y_true, y_pred):
        """Computes the loss of each token, (batch, length): 0 at padding."""
        labels, logits = labels_and_logits(y_true, y_pred)
        if self.dtype == "float64":
            logits = ops.cast(logits, "float64")
        real = ops.not_equal(labels, self.pad_id)
        losses = fused_smoothed_cross_entropy(
            in_vocabulary(labels, self.pad_id), logits, self.epsilon
        )
        return ops.where(real, losses, 0.0)

    def get_config(self):
        return {
            "name": self.name,
            "epsilon": self.epsilon,
            "pad_id": self.pad_id,
            "reduction": self.reduction,
            "dtype": self.dtype,
        }


def checked_pad_id(pad_id: int) -> int:
    """Returns a padding id; raises `ValueError` unless it is an integer."""
    if not is_integer(pad_id):
        raise ValueError(
            f"pad_id must be an integer: found {pad_id!r}; where every label counts, give -1"
        )
    return pad_id


def labels_and_logits(y_true, y_pred):
    """Converts labels and logits to tensors; labels (batch, length, 1) lose the last axis.

    Raises:
        ValueError: there are no labels, or they do not have the shape of the logits without the
            last axis.
    """
    if y_true is None:
        raise ValueError(
            "labels are missing: give the ids to predict, (batch, length), as the second argument "
            "of `fit`, or in each batch of a dataset"
        )
    labels, logits = signed(y_true), ops.convert_to_tensor(y_pred)
    if getattr(labels.shape, "rank", 0) is None:  # a graph of TensorFlow for labels of either rank
        labels = ops.reshape(labels, ops.shape(logits)[:-1])
    found, expected = tuple(labels.shape), tuple(logits.shape[:-1])
    if found[-1:] == (1,) and len(found) == len(logits.shape):
        labels = ops.squeeze(labels, axis=-1)
        found = found[:-1]
    fits = len(found) == len(expected) and all(
        None in sizes or sizes[0] == sizes[1] for sizes in zip(found, expected, strict=True)
    )
    if not fits:
        raise ValueError(
            f"labels must be of shape {expected}, one for each row of logits: found "
            f"{tuple(labels.shape)}"
        )
    if None in (*found, *expected):
        # Sizes that are known at run time alone: (batch, 1) would be repeated. To be put together
        # with these zeros, labels must have the size of the logits on each axis.
        zeros = ops.zeros(ops.shape(logits)[:-1], labels.dtype)
        labels = ops.concatenate([labels[None], zeros[None]])[0]
    return labels, logits


def signed(labels):
    """Converts labels to a tensor, in which a negative `pad_id` equals no unsigned label.

    Short integers become int32, which can hold the size of a vocabulary.
    """
    labels = ops.convert_to_tensor(labels)
    dtype = keras.backend.standardize_dtype(labels.dtype)
    is_short = dtype.startswith("uint") or dtype in ("int8", "int16")
    return ops.cast(labels, "int32") if is_short else labels


def in_vocabulary(labels, pad_id):
    """Replaces padding by 0, as `pad_id` may be no row of logits: -100, for example."""
    return ops.where(ops.not_equal(labels, pad_id), labels, 0)


def token_weights(labels, pad_id, sample_weight=None, dtype="float32"):
    """The weight of each token: its sample weight, or 0 for padding.

    Padding may have an infinite sample weight, such as 1 / frequency.
    """
    is_real = ops.not_equal(signed(labels), pad_id)
    real = ops.cast(is_real, dtype)
    if sample_weight is None:
        return real
    return ops.where(is_real, per_token(sample_weight, real), 0.0)


def per_token(sample_weight, like):
    """Casts weights (batch,) or (batch, length) for `like`, in a shape and dtype to multiply it."""
    weight = ops.cast(sample_weight, like.dtype)
    rank, missing = len(weight.shape), len(like.shape) - len(weight.shape)
    if rank not in (1, 2) or missing < 0:
        raise ValueError(
            "sample_weight must be of shape (batch,) or (batch, length): found "
            f"{tuple(weight.shape)} for labels of shape {tuple(like.shape)}"
        )
    return ops.reshape(weight, (*ops.shape(weight), *missing * [1]))
