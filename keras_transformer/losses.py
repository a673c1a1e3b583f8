"""The training loss: label-smoothed cross-entropy over real tokens (paper, section 5.4)."""

import keras
from keras import ops

from keras_transformer.replicas import sum_over_replicas


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

    def call(self, y_true, y_pred):
        real = ops.cast(ops.not_equal(y_true, self.pad_id), "float32")
        tokens = ops.maximum(sum_over_replicas(ops.sum(real)), 1.0)
        return smoothed_cross_entropy(y_true, y_pred, self.epsilon) * real / tokens

    def get_config(self):
        return {"name": self.name, "epsilon": self.epsilon, "pad_id": self.pad_id}


def smoothed_cross_entropy(labels, logits, epsilon: float):
    """Loss of each token, (batch, length), with its gradient in closed form.

    With `lse` the log-sum-exp of the logits z, y the label, V the vocabulary size and
    s = epsilon / (V - 1), the cross-entropy against the smoothed target is
    `lse - (1 - epsilon - s) z_y - s sum(z)`, and its gradient `softmax(z) - s`, less
    `1 - epsilon - s` at y. Nothing of the vocabulary's size is made but the exponentials, which
    the gradient uses again.
    """
    vocab_size = logits.shape[-1]
    share = epsilon / (vocab_size - 1)
    peak = 1.0 - epsilon - share
    labels_shape = ops.shape(labels)
    labels = ops.reshape(ops.cast(labels, "int32"), (-1,))

    @ops.custom_gradient
    def loss(logits):
        dtype = logits.dtype
        logits = ops.cast(logits, "float32")
        highest = ops.max(logits, axis=-1, keepdims=True)
        exponentials = ops.exp(logits - highest)
        total = ops.sum(exponentials, axis=-1, keepdims=True)
        label_logits = ops.take_along_axis(logits, labels[:, None], axis=-1)
        log_sum_exp = highest + ops.log(total)
        losses = log_sum_exp - peak * label_logits - share * ops.sum(logits, -1, keepdims=True)

        def gradient(*args, upstream=None):
            upstream = args[0] if upstream is None else upstream
            gradients = exponentials * (upstream / total) - share * upstream
            at_labels = ops.stack([ops.arange(ops.shape(labels)[0]), labels], axis=1)
            gradients = ops.scatter_update(
                gradients, at_labels, -peak * upstream[:, 0], reduction="add"
            )
            return ops.cast(gradients, dtype)

        return losses, gradient

    return ops.reshape(loss(ops.reshape(logits, (-1, vocab_size))), labels_shape)
