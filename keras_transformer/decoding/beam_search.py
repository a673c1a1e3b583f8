"""Beam search with a length penalty (paper section 6.1), in core Keras operations only."""

import math
from typing import Any, NamedTuple

from keras import ops

from keras_transformer.decoding.constraints import Constraints
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.steps import (
    DecoderSteps,
    at_position,
    gather_beams,
    limits_within,
    step_by_step,
    take_sentences,
    where_sentence,
)

Tensor = Any
NO_HYPOTHESIS = float("-inf")
ROWS = 20  # of a table of logits, whose columns' maxima are looked at before they are


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
    steps: DecoderSteps,
    start_ids: Tensor,
    options: SearchOptions,
    *,
    max_lengths: Tensor,
    buffer_length: int | None = None,
    prefix_ids: Tensor | None = None,
    end_id: int = 2,
    pad_id: int = 0,
    places: int | None = None,
) -> BeamSearchResult:
    """Finds the target sequences of highest score (paper section 6.1; Wu et al., 2016, section 7).

    The score of a hypothesis Y is `log P(Y) / length_penalty(|Y|)`; |Y| counts the end symbol.

    Each step ranks the 2 * `beam_size` best continuations of a sentence's live beams. Of the first
    `beam_size`, those that end are finished and never extended. The best that do not end live on:
    as each beam has just one continuation that ends, `beam_size` of them always remain.

    A sentence is done at its limit, or as soon as no live beam can still enter its `n_best`
    finished hypotheses: searching on to the limit would return the same. With `n_best=1` this is
    the paper's rule. One beam is greedy decoding: its first end symbol stops it. Where
    `options.patience` is given, a sentence is done after that many times `beam_size` finished
    hypotheses too (Kasai et al., 2022), which is sooner, and may miss a better one.

    A sentence's result does not depend on the other sentences in the batch.

    Args:
        steps: the decoder.
        start_ids: int32 (batch,), the symbol each sentence starts with.
        options: what to search for; the limits on length that depend on the source are
            `max_lengths`'s to state.
        max_lengths: int32 (batch,), the limit of each sentence in symbols, end symbol included
            (in the paper the length of the source plus 50).
        buffer_length: length of the returned ids, at which all limits are cut; by default
            `max(max_lengths)`. Compilers that need static shapes (XLA) need it as an integer.
        prefix_ids: int32 (batch, prefix_length), what each hypothesis must start with, padded at
            the right; None for nothing.
        end_id: the symbol that ends a sequence.
        pad_id: the symbol that fills the ids after the end. No hypothesis contains it.
        places: number of sentences that are searched at a time: one that is done makes place for
            the next. None for all.

    Returns:
        A `BeamSearchResult`.

    Example:
        >>> class Steps(DecoderSteps):
        ...     def step(self, ids, position, state):  # 3 is always followed by 2, the end
        ...         return 9.0 * ops.one_hot(5 - ids, 4), state
        >>> options = SearchOptions(beam_size=1)
        >>> result = beam_search(Steps(), ops.array([2]), options, max_lengths=[4])
        >>> ops.convert_to_numpy(result.ids).tolist()
        [[[3, 2, 0, 0]]]
    """
    beam_size, n_best = options.beam_size, options.n_best
    start_ids = ops.cast(start_ids, "int32")
    limits, buffer_length = limits_within(max_lengths, buffer_length)
    batch_size = ops.shape(start_ids)[0]

    def search_step(
        sentences,
        position,
        state,
        live_ids,
        live_log_probs,
        ended_ids,
        ended_scores,
        num_ended,
        done,
    ):
        longest, prefixes = take_sentences((limits, prefix_ids), sentences)
        constraints = Constraints(options, longest, prefixes, end_id, pad_id)
        logits, state = steps.step(at_position(live_ids, position), position, state)
        log_probs, beams, tokens = _top_continuations(
            logits, live_log_probs, live_ids, position, constraints
        )
        is_end = ops.equal(tokens, end_id) & (log_probs > NO_HYPOTHESIS)
        length = position + 1

        is_finished = is_end[:, :beam_size]
        scores = log_probs[:, :beam_size] / length_penalty(length, options)[:, None]
        scores = ops.where(is_finished, scores, NO_HYPOTHESIS)
        ids = write(gather_beams(live_ids, beams[:, :beam_size]), length, tokens[:, :beam_size])
        # The old ones come first, so that of equal scores the shorter hypothesis is kept.
        scores = ops.concatenate([ended_scores, scores], axis=1)
        new_ended_scores, best = ops.top_k(scores, n_best)
        new_ended_ids = gather_beams(ops.concatenate([ended_ids, ids], axis=1), best)

        log_probs = ops.where(is_end, NO_HYPOTHESIS, log_probs)
        new_live_log_probs, best = ops.top_k(log_probs, beam_size)
        beams, tokens = gather_beams(beams, best), gather_beams(tokens, best)
        new_live_ids = write(gather_beams(live_ids, beams), length, tokens)
        state = steps.reorder(state, beams)

        # Log-probabilities only fall and penalties only grow, so this bounds all a beam can become.
        live_bound = new_live_log_probs[:, 0] / length_penalty(longest, options)
        new_done = (new_ended_scores[:, -1] >= live_bound) | (length >= longest)
        if beam_size == 1:
            new_done = new_done | is_finished[:, 0]
        num_ended = num_ended + ops.sum(ops.cast(is_finished, "int32"), axis=1)
        if options.patience is not None:
            enough = max(n_best, math.ceil(options.patience * beam_size))
            new_done = new_done | (num_ended >= enough)

        return (
            state,
            where_sentence(done, live_ids, new_live_ids),
            where_sentence(done, live_log_probs, new_live_log_probs),
            where_sentence(done, ended_ids, new_ended_ids),
            where_sentence(done, ended_scores, new_ended_scores),
            num_ended,
            done | new_done,
        )

    empty_ids = ops.full((batch_size, beam_size, buffer_length + 1), pad_id, dtype="int32")
    # All beams are equal at the start: only the first may have continuations.
    first_beam = ops.broadcast_to(ops.arange(beam_size) == 0, (batch_size, beam_size))
    state = steps.initial_state(batch_size, beam_size)
    found = (
        write(empty_ids, ops.zeros_like(limits), start_ids[:, None]),
        ops.where(first_beam, ops.zeros((), dtype="float32"), NO_HYPOTHESIS),
        empty_ids[:, :n_best],
        ops.full((batch_size, n_best), NO_HYPOTHESIS, dtype="float32"),
        ops.zeros((batch_size,), dtype="int32"),
        limits <= 0,
    )
    found = step_by_step(steps, search_step, state, found, buffer_length, places)
    live_ids, live_log_probs, ended_ids, ended_scores, *_ = found

    # Beams still live at the limit fill the slots that finished hypotheses left empty: of equal
    # precedence, the first is taken.
    live_scores = live_log_probs / length_penalty(limits, options)[:, None]
    is_ended = ops.cast(ended_scores > NO_HYPOTHESIS, "int32")
    precedence = ops.concatenate([is_ended, ops.ones_like(live_scores, dtype="int32")], axis=1)
    _, best = ops.top_k(precedence, n_best)
    scores = gather_beams(ops.concatenate([ended_scores, live_scores], axis=1), best)
    ids = gather_beams(ops.concatenate([ended_ids, live_ids], axis=1), best)
    ids = ops.where((scores > NO_HYPOTHESIS)[:, :, None], ids, pad_id)
    return BeamSearchResult(ids[:, :, 1:], scores)


def length_penalty(length: Tensor, options: SearchOptions) -> Tensor:
    """What log-probabilities of sequences of `length` symbols are divided by: float32, `length`'s
    shape; never 0, nothing being as long as one symbol."""
    length = ops.maximum(ops.cast(length, "float32"), 1.0)
    if not options.plain_length_penalty:
        length = (5.0 + length) / 6.0
    return ops.power(length, options.alpha)


def _top_continuations(logits, live_log_probs, live_ids, position, constraints):
    """The 2 * beam_size likeliest next symbols of a sentence, over all its beams, best first.

    Returns:
        Their log-probabilities, beams and symbols, (batch, 2 * beam_size) each.
    """
    batch_size, beam_size = ops.shape(live_log_probs)
    logits = ops.cast(logits, "float32")
    # Forbidden symbols keep their part of the probability, so that scores remain the model's.
    log_total = ops.logsumexp(logits, axis=-1, keepdims=True)
    allowed = constraints.allowed(live_ids, position, logits.shape[-1])
    if allowed is not None:
        logits = ops.where(allowed, logits, NO_HYPOTHESIS)
    per_beam = min(2 * beam_size + constraints.MOST_EXCLUDED, logits.shape[-1])
    best_logits, tokens = _top_k(logits, per_beam)
    log_probs = best_logits - log_total + live_log_probs[:, :, None]
    # NaN would break the order of the candidates: what has no probability cannot be a hypothesis.
    excluded = constraints.is_excluded(tokens, position) | ops.isnan(log_probs)
    log_probs = ops.where(excluded, NO_HYPOTHESIS, log_probs)

    candidates = (batch_size, beam_size * per_beam)
    log_probs, best = ops.top_k(ops.reshape(log_probs, candidates), 2 * beam_size)
    return log_probs, best // per_beam, gather_beams(ops.reshape(tokens, candidates), best)


def _top_k(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """What `ops.top_k` gives, of equal values possibly another one.

    In a table of all values the k largest are in the k columns of largest maxima, and maxima of
    columns are quickly found: a choice among all is not.
    """
    *outer, width = ops.shape(x)
    rows = _rows_of_table(width)
    columns = -(-width // rows)
    if columns <= k:
        return ops.top_k(x, k)
    if width % rows:
        room = [(0, 0)] * len(outer) + [(0, rows * columns - width)]
        x = ops.pad(x, room, constant_values=NO_HYPOTHESIS)
    table = ops.reshape(x, (*outer, rows, columns))
    _, best = ops.top_k(ops.max(table, axis=-2), k)
    best = best[..., None, :]
    values = ops.take_along_axis(table, best, axis=-1)
    indices = best + columns * ops.arange(rows, dtype="int32")[:, None]
    values, best = ops.top_k(ops.reshape(values, (*outer, rows * k)), k)
    indices = ops.take_along_axis(ops.reshape(indices, (*outer, rows * k)), best, axis=-1)
    # Where less than k are possible, room may have been chosen, which stands for no symbol.
    return values, ops.minimum(indices, width - 1)


def _rows_of_table(width: int) -> int:
    """How many rows the table of `_top_k` has: a divisor of the width where one is fit."""
    fit = (rows for rows in range(ROWS // 2, 2 * ROWS + 1) if width % rows == 0)
    return min(fit, key=lambda rows: abs(rows - ROWS), default=ROWS)


def write(ids: Tensor, index: Tensor, tokens: Tensor) -> Tensor:
    """Sets `ids[i, :, index[i]] = tokens[i]` of each sentence."""
    is_index = ops.arange(ops.shape(ids)[2], dtype="int32") == index[:, None, None]
    return ops.where(is_index, tokens[:, :, None], ids)
