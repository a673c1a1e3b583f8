"""Training metrics over real tokens: accuracy, perplexity and token count."""

import abc

import keras
from keras import ops

from keras_transformer.fast.dispatch import sum_dtype, value_of
from keras_transformer.fast.known_labels import known_labels
from keras_transformer.fast.losses import token_nll
from keras_transformer.losses import (
    checked_pad_id,
    in_vocabulary,
    labels_and_logits,
    token_weights,
)
from keras_transformer.machine.replicas import sum_over_replicas


class _TokenMean(keras.metrics.Metric, abc.ABC):
    """The mean over all real tokens seen, independent of batches."""

    def __init__(self, name, pad_id, dtype):
        super().__init__(name=name, dtype=dtype)
        self.pad_id = checked_pad_id(pad_id)
        # float16 ends at 65,504 tokens, less than some batches have.
        self.total = self.add_variable((), "zeros", sum_dtype(self), name="total")
        self.tokens = self.add_variable((), "zeros", sum_dtype(self), name="tokens")

    def update_state(self, y_true, y_pred, sample_weight=None):
        labels, logits = labels_and_logits(y_true, y_pred)
        weights = token_weights(labels, self.pad_id, sample_weight)
        values = self.token_values(in_vocabulary(labels, self.pad_id), logits)
        # Padding may have an infinite value, where its logit is -inf.
        weighted = values * ops.cast(weights, values.dtype)
        total = ops.sum(ops.where(ops.equal(weights, 0.0), 0.0, weighted))
        self.total.assign_add(ops.cast(total, self.total.dtype))
        self.tokens.assign_add(ops.cast(ops.sum(weights), self.tokens.dtype))

    @abc.abstractmethod
    def token_values(self, y_true, y_pred):
        """Computes the values to average: (batch, length); NaN for an unknown label."""

    def result(self):
        sums = ops.stack([value_of(self.total), value_of(self.tokens)])
        sums = sum_over_replicas(sums)
        return ops.divide_no_nan(sums[0], sums[1])

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "pad_id": self.pad_id}


@keras.saving.register_keras_serializable("keras_transformer")
class TokenAccuracy(_TokenMean):
    """Share of the real target tokens whose logit is the highest.

    Args:
        pad_id: labels of this id do not count; -1 if all count.

    Update arguments:
        y_true: integer labels (batch, length) or (batch, length, 1).
        y_pred: logits (batch, length, vocab_size).
        sample_weight: optional weights, (batch,) or (batch, length).

    Raises:
        ValueError: as `LabelSmoothedCrossEntropy` does, for labels of another shape or outside of
            the vocabulary.

    Example:
        >>> accuracy = TokenAccuracy()
        >>> accuracy.update_state([[1, 2, 0]], [[[0, 9, 0], [0, 9, 0], [0, 9, 0]]])
        >>> float(accuracy.result())
        0.5
    """

    def __init__(self, name: str = "token_accuracy", pad_id: int = 0, dtype=None):
        super().__init__(name, pad_id, dtype)
        self._direction = "up"  # is better: callbacks that monitor a metric ask

    def token_values(self, y_true, y_pred):
        labels, known = known_labels(y_true, y_pred)
        best = ops.argmax(y_pred, axis=-1)
        is_best = ops.cast(ops.equal(ops.cast(labels, best.dtype), best), known.dtype)
        return is_best + known - 1.0  # XLA takes 0 times NaN for 0


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(_TokenMean):
    """Perplexity per token: exp of the mean negative log-likelihood, without label smoothing.

    Args:
        pad_id: labels of this id do not count; -1 if all count.

    Update arguments are those of `TokenAccuracy`.

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state([[1, 2, 0]], keras.ops.zeros((1, 3, 8)))
        >>> float(perplexity.result())
        8.0
    """

    def __init__(self, name: str = "perplexity", pad_id: int = 0, dtype=None):
        super().__init__(name, pad_id, dtype)
        self._direction = "down"

    def token_values(self, y_true, y_pred):
        return token_nll(y_true, y_pred)

    def result(self):
        return ops.exp(super().result())


@keras.saving.register_keras_serializable("keras_transformer")
class TokenCount(keras.metrics.Metric):
    """The number of real target tokens seen.

    Args:
        pad_id: labels of this id do not count; -1 if all count.

    Update arguments are those of `TokenAccuracy`; `y_pred` is not read.

    Example:
        >>> count = TokenCount()
        >>> count.update_state([[1, 2, 0]], None)
        >>> float(count.result())
        2.0
    """

    def __init__(self, name: str = "target_tokens", pad_id: int = 0, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.pad_id = checked_pad_id(pad_id)
        self.tokens = self.add_variable((), "zeros", sum_dtype(self), name="tokens")

    def update_state(self, y_true, y_pred, sample_weight=None):
        tokens = ops.sum(token_weights(y_true, self.pad_id, sample_weight))
        self.tokens.assign_add(ops.cast(tokens, self.tokens.dtype))

    def result(self):
        return sum_over_replicas(value_of(self.tokens))

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "pad_id": self.pad_id}
