"""Scores of given targets, as a search computes them (paper, section 6.1)."""

import math
from collections.abc import Sequence

from keras import ops

from keras_transformer.model import Transformer
from keras_transformer.options.search import SearchOptions
from keras_transformer.search.beam import finite, length_penalty
from keras_transformer.search.constraints import CONSTRAINTS

# All but the length penalty choose among hypotheses, and change the score of none.
SCORING_OPTIONS = (
    "alpha",
    "length_penalty",
    *CONSTRAINTS,
    "beam_size",
    "n_best",
    "patience",
    "extra_length",
    "max_length",
    "sample",
    "temperature",
    "top_k",
    "top_p",
    "seed",
)
"""The fields of `SearchOptions` that `score` accepts."""


def score(
    model: Transformer | Sequence[Transformer],
    source_ids,
    target_ids,
    options: SearchOptions = SearchOptions(),
    first_id: int | None = None,
):
    """Computes log-probability / length penalty of given targets, in natural logarithm.

    A hypothesis that `search` found with the same options gets the score it had there.

    Args:
        model: a built `Transformer`, or several of one vocabulary, whose probabilities are
            averaged.
        source_ids: integer (batch, source_length), each row ending in the end symbol, padded.
        target_ids: integer (batch, target_length), one target for each source, without the start
            symbol, each row ending in the end symbol, padded.
        options: options of the search, of which the length penalty is used.
        first_id: a symbol to begin each target with, see `Required`.

    Returns:
        float32 (batch,); -1e9 (`NO_HYPOTHESIS`) where a target has no finite log-probability.

    Raises:
        UserError: an option is not among `SCORING_OPTIONS`.

    Example:
        >>> found = search(model, [[17, 5, 2]])
        >>> np.allclose(score(model, [[17, 5, 2]], found.ids[:, 0]), found.scores[:, 0], atol=1e-4)
        True
    """
    options.expect_only(SCORING_OPTIONS, "scoring", "leave it out")
    models = model if isinstance(model, Sequence) else [model]
    config = models[0].config
    source_ids = ops.convert_to_tensor(source_ids, "int32")
    target_ids = ops.convert_to_tensor(target_ids, "int32")
    rows = ops.shape(target_ids)[0]
    start = ops.full((rows, 1), config.start_id, dtype="int32")
    if first_id is not None:
        first = ops.full((rows, 1), first_id, dtype="int32")
        target_ids = ops.concatenate([first, target_ids], axis=1)
    inputs = {
        "source_ids": source_ids,
        "target_ids": ops.concatenate([start, target_ids[:, :-1]], axis=1),
    }
    log_probs = [_log_probs(model(inputs, training=False), target_ids) for model in models]
    log_probs = ops.logsumexp(ops.stack(log_probs), axis=0) - math.log(len(models))
    # Only trailing pad ids are padding: an untrained model may also produce them earlier.
    symbols = ops.cast(ops.not_equal(target_ids, config.pad_id), "int32")
    real = ops.flip(ops.cumsum(ops.flip(symbols, axis=1), axis=1), axis=1) > 0
    length = ops.sum(ops.cast(real, "int32"), axis=1)
    log_probs = ops.where(real, log_probs, 0.0)
    log_prob = ops.sum(log_probs if first_id is None else log_probs[:, 1:], axis=1)
    return finite(log_prob / length_penalty(length, options))


def _log_probs(logits, ids):
    """The log-probability (batch, length) of each id under the logits of its position."""
    logits = ops.cast(logits, "float32")
    of_ids = ops.take_along_axis(logits, ids[:, :, None], axis=-1)[:, :, 0]
    return of_ids - ops.logsumexp(logits, axis=-1)
