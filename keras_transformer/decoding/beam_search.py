"""Beam search with the GNMT length penalty (paper section 6.1), in core Keras operations only."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops, tree

from keras_transformer.errors import UserError

Tensor = Any
NO_HYPOTHESIS = float("-inf")


class BeamSearchResult(NamedTuple):
    """The best hypotheses of each sentence.

    Hypotheses that end in the end symbol come first; where the limit left fewer than `n_best` of
    them, unfinished ones (no end symbol) follow. Each of the two groups is sorted by falling score.

    Attributes:
        ids: int32 (batch, n_best, buffer_length), without the start symbol, padded at the right.
        scores: float32 (batch, n_best), log-probability / length penalty, natural logarithm. A
            slot that no hypothesis fills scores minus infinity and holds padding only.
    """

    ids: Tensor
    scores: Tensor


def beam_search(
    step: Callable[[Tensor, Tensor, Any], tuple[Tensor, Any]],
    cache: Any,
    start_ids: Tensor,
    *,
    beam_size: int,
    alpha: float,
    max_lengths: Tensor,
    n_best: int | None = None,
    buffer_length: int | None = None,
    end_id: int = 2,
    pad_id: int = 0,
) -> BeamSearchResult:
    """Finds the target sequences of highest score (paper section 6.1; Wu et al., 2016, section 7).

    The score of a hypothesis Y is `log P(Y) / ((5 + |Y|) / 6) ** alpha`; |Y| counts the end symbol.

    Each step ranks the 2 * `beam_size` best continuations of a sentence's live beams. Of the first
    `beam_size`, those that end are finished and never extended. The best that do not end live on:
    as each beam has just one continuation that ends, `beam_size` of them always remain.

    A sentence is done at its limit, or as soon as no live beam can still enter its `n_best`
    finished hypotheses: searching on to the limit would return the same. With `n_best=1` this is
    the paper's rule, and the fastest. One beam is greedy decoding: its first end symbol stops it.

    A sentence's result does not depend on the other sentences in the batch.

    Args:
        step: `(ids, position, cache) -> (logits, cache)`, one step of the decoder. `ids`: int32
            (batch, beam_size), the last symbol of each beam; `position`: int32 scalar, from 0 (the
            start symbol); `logits`: any float dtype, (batch, beam_size, vocab_size). What is the
            same for all beams, such as the encoder's output, belongs in its closure.
        cache: nested structure of tensors (batch, beam_size, ...), reordered along with the beams.
            `step` must keep structure, shapes and dtypes.
        start_ids: int32 (batch,), the symbol each sentence starts with.
        beam_size: number of live beams; 1 is greedy decoding.
        alpha: exponent of the length penalty; 0 ranks by log-probability.
        max_lengths: int32 (batch,), the limit of each sentence in symbols, end symbol included
            (in the paper the length of the source plus 50).
        n_best: number of hypotheses to return, at most (and by default) `beam_size`.
        buffer_length: length of the returned ids, at which all limits are cut; by default
            `max(max_lengths)`. Compilers that need static shapes (XLA) need it as an integer.
        end_id: the symbol that ends a sequence.
        pad_id: the symbol that fills the ids after the end.

    Returns:
        A `BeamSearchResult`.

    Raises:
        UserError: if `beam_size`, `alpha` or `n_best` is out of range.

    Example:
        >>> def step(ids, position, cache):  # 3 is always followed by 2, the end
        ...     return 9.0 * ops.one_hot(5 - ids, 4), cache
        >>> result = beam_search(step, {}, ops.array([2]), beam_size=1, alpha=0.6, max_lengths=[4])
        >>> ops.convert_to_numpy(result.ids).tolist()
        [[[3, 2, 0, 0]]]
    """
    n_best = beam_size if n_best is None else n_best
    check_search_options(beam_size, alpha, n_best)

    start_ids = ops.cast(start_ids, "int32")
    max_lengths = ops.cast(max_lengths, "int32")
    if buffer_length is None:
        buffer_length = ops.max(max_lengths, initial=0)
    limits = ops.clip(max_lengths, 0, buffer_length)
    batch_size = ops.shape(start_ids)[0]

    def is_searching(position, cache, live_ids, live_log_probs, ended_ids, ended_scores, done):
        return ops.logical_not(ops.all(done))

    def search_step(position, cache, live_ids, live_log_probs, ended_ids, ended_scores, done):
        logits, cache = step(ops.take(live_ids, position, axis=2), position, cache)
        log_probs, beams, tokens = _top_continuations(logits, live_log_probs)
        is_end = ops.equal(tokens, end_id)
        length = position + 1

        is_finished = is_end[:, :beam_size]
        scores = log_probs[:, :beam_size] / _length_penalty(length, alpha)
        scores = ops.where(is_finished, scores, NO_HYPOTHESIS)
        ids = _write(_gather(live_ids, beams[:, :beam_size]), length, tokens[:, :beam_size])
        # The old ones come first, so that of equal scores the shorter hypothesis is kept.
        scores = ops.concatenate([ended_scores, scores], axis=1)
        new_ended_scores, best = ops.top_k(scores, n_best)
        new_ended_ids = _gather(ops.concatenate([ended_ids, ids], axis=1), best)

        log_probs = ops.where(is_end, NO_HYPOTHESIS, log_probs)
        new_live_log_probs, best = ops.top_k(log_probs, beam_size)
        beams, tokens = _gather(beams, best), _gather(tokens, best)
        new_live_ids = _write(_gather(live_ids, beams), length, tokens)
        cache = tree.map_structure(lambda x: _gather(x, beams), cache)

        # Log-probabilities only fall and penalties only grow, so this bounds all a beam can become.
        live_bound = new_live_log_probs[:, 0] / _length_penalty(limits, alpha)
        new_done = (new_ended_scores[:, -1] >= live_bound) | (length >= limits)
        if beam_size == 1:
            new_done = new_done | is_finished[:, 0]

        return (
            length,
            cache,
            _where(done, live_ids, new_live_ids),
            _where(done, live_log_probs, new_live_log_probs),
            _where(done, ended_ids, new_ended_ids),
            _where(done, ended_scores, new_ended_scores),
            done | new_done,
        )

    empty_ids = ops.full((batch_size, beam_size, buffer_length + 1), pad_id, dtype="int32")
    # All beams are equal at the start: only the first may have continuations.
    first_beam = ops.broadcast_to(ops.arange(beam_size) == 0, (batch_size, beam_size))
    _, _, live_ids, live_log_probs, ended_ids, ended_scores, _ = ops.while_loop(
        is_searching,
        search_step,
        (
            ops.zeros((), dtype="int32"),
            cache,
            _write(empty_ids, 0, start_ids[:, None]),
            ops.where(first_beam, ops.zeros((), dtype="float32"), NO_HYPOTHESIS),
            empty_ids[:, :n_best],
            ops.full((batch_size, n_best), NO_HYPOTHESIS, dtype="float32"),
            limits <= 0,
        ),
    )

    # Beams still live at the limit fill the slots that finished hypotheses left empty: of equal
    # precedence, the first is taken.
    live_scores = live_log_probs / _length_penalty(limits, alpha)[:, None]
    is_ended = ops.cast(ended_scores > NO_HYPOTHESIS, "int32")
    precedence = ops.concatenate([is_ended, ops.ones_like(live_scores, dtype="int32")], axis=1)
    _, best = ops.top_k(precedence, n_best)
    scores = _gather(ops.concatenate([ended_scores, live_scores], axis=1), best)
    ids = _gather(ops.concatenate([ended_ids, live_ids], axis=1), best)
    ids = ops.where((scores > NO_HYPOTHESIS)[:, :, None], ids, pad_id)
    return BeamSearchResult(ids[:, :, 1:], scores)


def check_search_options(beam_size: int, alpha: float, n_best: int = 1) -> None:
    """Raises `UserError` if an option of `beam_search` is out of range."""
    if beam_size < 1:
        raise UserError(f"beam_size: expected at least 1, found {beam_size}")
    if not 1 <= n_best <= beam_size:
        raise UserError(f"n_best: expected 1 to beam_size ({beam_size}), found {n_best}")
    if not 0 <= alpha < math.inf:
        raise UserError(f"alpha: expected a finite number, 0 or more, found {alpha}")


def _length_penalty(length: Tensor, alpha: float) -> Tensor:
    return ops.power((5.0 + ops.cast(length, "float32")) / 6.0, float(alpha))


def _top_continuations(logits: Tensor, live_log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The 2 * beam_size likeliest next symbols of a sentence, over all its beams, best first.

    Returns:
        Their log-probabilities, beams and symbols, (batch, 2 * beam_size) each.
    """
    batch_size, beam_size = ops.shape(live_log_probs)
    per_beam = min(2 * beam_size, logits.shape[-1])
    logits = ops.cast(logits, "float32")
    best_logits, tokens = ops.top_k(logits, per_beam)
    log_probs = best_logits - ops.logsumexp(logits, axis=-1, keepdims=True)
    log_probs = log_probs + live_log_probs[:, :, None]
    # NaN would break the order of the candidates: what has no probability cannot be a hypothesis.
    log_probs = ops.where(ops.isnan(log_probs), NO_HYPOTHESIS, log_probs)

    candidates = (batch_size, beam_size * per_beam)
    log_probs, best = ops.top_k(ops.reshape(log_probs, candidates), 2 * beam_size)
    return log_probs, best // per_beam, _gather(ops.reshape(tokens, candidates), best)


def _gather(x: Tensor, indices: Tensor) -> Tensor:
    """Picks along axis 1, by sentence: (batch, n, ...), int32 (batch, m) -> (batch, m, ...)."""
    batch_size, n, *rest = ops.shape(x)
    rows = ops.reshape(x, (batch_size * n, *rest))
    return ops.take(rows, indices + n * ops.arange(batch_size, dtype="int32")[:, None], axis=0)


def _write(ids: Tensor, index: Tensor, tokens: Tensor) -> Tensor:
    """Sets `ids[:, :, index] = tokens`."""
    is_index = ops.arange(ops.shape(ids)[2], dtype="int32") == index
    return ops.where(is_index, tokens[:, :, None], ids)


def _where(is_old: Tensor, old: Tensor, new: Tensor) -> Tensor:
    """Chooses by sentence, `is_old` being (batch,)."""
    return ops.where(ops.reshape(is_old, (-1,) + (1,) * (len(old.shape) - 1)), old, new)
