"""What training reports: each a sum over real tokens divided by their number."""

import keras
from keras import ops

from keras_transformer.losses import per_token, token_nll


class _TokenMean(keras.metrics.Metric):
    """The mean over all real tokens seen, whatever batches they came in."""

    def __init__(self, name, pad_id=0, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.pad_id = pad_id
        self.total = self.add_variable((), "zeros", name="total")
        self.tokens = self.add_variable((), "zeros", name="tokens")

    def update_state(self, y_true, y_pred, sample_weight=None):
        real = ops.cast(ops.not_equal(y_true, self.pad_id), "float32")
        if sample_weight is not None:
            real *= per_token(sample_weight, real)
        self.total.assign_add(ops.sum(self.token_values(y_true, y_pred) * real))
        self.tokens.assign_add(ops.sum(real))

    def token_values(self, y_true, y_pred):
        """What is averaged: a float32 value for each token, (batch, length)."""
        raise NotImplementedError

    def result(self):
        return self.total / ops.maximum(self.tokens, 1.0)

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "pad_id": self.pad_id}


@keras.saving.register_keras_serializable("keras_transformer")
class TokenAccuracy(_TokenMean):
    """Share of the real target tokens that have the highest logit.

    Args:
        pad_id: labels of this id do not count.

    Update arguments:
        y_true: integer labels (batch, length).
        y_pred: logits (batch, length, vocab_size).
        sample_weight: optional (batch,) or (batch, length), multiplies each token's count.

    Example:
        >>> accuracy = TokenAccuracy()
        >>> accuracy.update_state([[1, 2, 0]], [[[0, 9, 0], [0, 9, 0], [0, 9, 0]]])
        >>> float(accuracy.result())
        0.5
    """

    def __init__(self, name: str = "token_accuracy", pad_id: int = 0, dtype=None):
        super().__init__(name, pad_id, dtype)

    def token_values(self, y_true, y_pred):
        best = ops.argmax(y_pred, axis=-1)
        return ops.cast(ops.equal(ops.cast(y_true, best.dtype), best), "float32")


@keras.saving.register_keras_serializable("keras_transformer")
class Perplexity(_TokenMean):
    """Perplexity per token: exp of the mean negative log-likelihood, without label smoothing.

    Args:
        pad_id: labels of this id do not count.

    Update arguments are those of `TokenAccuracy`.

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state([[1, 2, 0]], keras.ops.zeros((1, 3, 8)))
        >>> float(perplexity.result())
        8.0
    """

    def __init__(self, name: str = "perplexity", pad_id: int = 0, dtype=None):
        super().__init__(name, pad_id, dtype)

    def token_values(self, y_true, y_pred):
        return token_nll(y_true, y_pred)

    def result(self):
        return ops.exp(super().result())


@keras.saving.register_keras_serializable("keras_transformer")
class TokenCount(keras.metrics.Metric):
    """The number of real target tokens seen.

    Args:
        pad_id: labels of this id do not count.

    Example:
        >>> count = TokenCount()
        >>> count.update_state([[1, 2, 0]], None)
        >>> float(count.result())
        2.0
    """

    def __init__(self, name: str = "target_tokens", pad_id: int = 0, dtype=None):
        super().__init__(name=name, dtype=dtype)
        self.pad_id = pad_id
        self.tokens = self.add_variable((), "zeros", name="tokens")

    def update_state(self, y_true, y_pred, sample_weight=None):
        real = ops.not_equal(y_true, self.pad_id)
        self.tokens.assign_add(ops.sum(ops.cast(real, "float32")))

    def result(self):
        return self.tokens.value

    def get_config(self):
        return {"name": self.name, "dtype": self.dtype, "pad_id": self.pad_id}
