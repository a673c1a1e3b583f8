"""The perplexity of reference translations under a model."""

import math

import numpy as np
import tensorflow as tf
from keras import ops

from keras_transformer.errors import UserError, expect_tensorflow
from keras_transformer.fast.losses import fused_smoothed_cross_entropy
from keras_transformer.model import Transformer


class ReferenceLoss:
    """Loss and perplexity of reference translations under a model, per token.

    Args:
        model: a built `Transformer`.
        batches: a finite dataset, such as `data.Batches.epoch` returns.

    Example:
        >>> ReferenceLoss(model, Batches(corpus, shuffle=False).epoch())()
        {'loss': ..., 'perplexity': ...}
    """

    def __init__(self, model: Transformer, batches: tf.data.Dataset):
        expect_tensorflow("ReferenceLoss")
        self.model = model
        self.batches = batches
        ids = tf.TensorSpec([None, None], tf.int32)
        signature = [{"source_ids": ids, "target_ids": ids}, ids]
        self._sums = tf.function(self._batch_sums, signature, autograph=False)

    def __call__(self) -> dict[str, float]:
        """The current model's label-smoothed `loss` in nats, and `perplexity` without smoothing.

        Raises:
            UserError: there are no pairs.
        """
        sums = [self._sums(inputs, labels).numpy() for inputs, labels in self.batches]
        if not sums:
            raise UserError("no reference translation has a token to score")
        loss, negative_log_likelihood, tokens = np.sum(sums, axis=0, dtype="float64").tolist()
        return {
            "loss": loss / tokens,
            "perplexity": math.exp(min(negative_log_likelihood / tokens, 700.0)),
        }

    def _batch_sums(self, inputs, labels):
        config = self.model.config
        logits = self.model(inputs, training=False)
        smoothed = fused_smoothed_cross_entropy(labels, logits, config.label_smoothing)
        exact = fused_smoothed_cross_entropy(labels, logits, 0.0)
        real = ops.cast(ops.not_equal(labels, config.pad_id), exact.dtype)
        return ops.stack([ops.sum(smoothed * real), ops.sum(exact * real), ops.sum(real)])
