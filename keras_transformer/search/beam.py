"""Beam search with a length penalty (paper section 6.1), in core Keras operations only."""

from typing import Any, NamedTuple

from keras import ops, tree

from keras_transformer.fast.dispatch import without_gradient
from keras_transformer.fast.rows import gather_rows
from keras_transformer.options.search import NO_HYPOTHESIS, SearchOptions
from keras_transformer.search.constraints import CONSTRAINTS, IMPOSSIBLE, Constraints
from keras_transformer.search.continuations import (
    continuations_with_terms,
    first_continuations,
    top_continuations,
)
from keras_transformer.search.loop import (
    DecoderSteps,
    at_position,
    step_by_step,
    take_sentences,
    where_sentence,
)
from keras_transformer.search.targets import Targets
from keras_transformer.search.terms import TermState, first_state

Tensor = Any
# The fields of `SearchOptions` that beam search and sampling both support. The two maximum lengths
# arrive as `max_lengths`.
OF_BOTH_SEARCHES = (
    *CONSTRAINTS,
    "beam_size",
    "n_best",
    "alpha",
    "length_penalty",
    "extra_length",
    "max_length",
)
BEAM_SEARCH_OPTIONS = (*OF_BOTH_SEARCHES, "patience")
"""The fields of `SearchOptions` that `beam_search` supports."""


class BeamSearchResult(NamedTuple):
    """The best hypotheses of each sentence, sorted by falling score.

    Each ends in the end symbol, also one that the limit cuts.

    Attributes:
        ids: int32 (batch, n_best, buffer_length), without the start symbol, padded at the right.
        scores: float32 (batch, n_best), log-probability / length penalty, natural logarithm. If
            there are fewer hypotheses, the others score `NO_HYPOTHESIS`, -1e9, and hold padding
            only. No score is lower.
    """

    ids: Tensor
    scores: Tensor


class BeamState(NamedTuple):
    """The live beams and finished hypotheses of each sentence, start symbol included."""

    live_ids: Tensor  # int32 (batch, beam_size, buffer_length + 1)
    live_log_probs: Tensor  # float32 (batch, beam_size), falling; minus infinity: no beam
    finished_ids: Tensor  # int32 (batch, n_best, buffer_length + 1), with the end symbol
    finished_scores: Tensor  # float32 (batch, n_best), falling; minus infinity: no hypothesis
    num_finished: Tensor  # int32 (batch,), number of finished hypotheses, kept or not
    done: Tensor  # boolean (batch,), whether the sentence's search has ended
    terms: TermState | tuple = ()  # of the live beams, if there are terms


@without_gradient
def beam_search(
    steps: DecoderSteps,
    targets: Targets,
    options: SearchOptions,
    num_slots: int | None = None,
) -> BeamSearchResult:
    """Finds the target sequences of highest score (paper section 6.1; Wu et al., 2016, section 7).

    The score of a hypothesis Y is `log P(Y) / length_penalty(|Y|)`; |Y| counts the end symbol.

    Each step ranks the 2 * `beam_size` best continuations of a sentence's live beams. Among the
    first `beam_size`, those that end become finished hypotheses. The best that do not end become
    the live beams: each beam has only one continuation that ends, so `beam_size` always remain.
    The last symbol within the limit can only be the end symbol: every live beam ends there, and its
    score includes the end symbol's log-probability. So each hypothesis has the score that `score`
    computes for it.

    A sentence is done at its limit, or once no live beam can enter its `n_best` finished
    hypotheses; a search up to the limit would return the same. With `n_best=1` this is the paper's
    rule. One beam is greedy decoding, which stops at the first end symbol. With
    `options.patience`, a sentence is also done once `patience * beam_size` hypotheses have finished
    (Kasai et al., 2022). That is sooner, and may miss a better hypothesis.

    With terms, a hypothesis may only end when it has them all. There are half as many beams more,
    so that hypotheses with few and with many of them live side by side (`terms.turns`). For
    `patience`, ends count whether or not the terms are there, but `n_best` hypotheses must have
    finished. Longer hypotheses would only add what is likely, so that the terms weigh less.

    A sentence's result does not depend on the other sentences in the batch.

    Args:
        steps: the decoder.
        targets: the start, the limits and the special symbols of the targets.
        options: options of the search. Its maximum lengths are not read; `targets` has the limits.
        num_slots: number of batch slots, that is, of sentences searched at a time. A sentence that
            is done leaves its slot to the next. None for one slot per sentence.

    Returns:
        A `BeamSearchResult`.

    Raises:
        UserError: an option is not among `BEAM_SEARCH_OPTIONS`.

    Example:
        >>> class Steps(DecoderSteps):
        ...     def step(self, ids, position, state):  # 3 is always followed by 2, the end
        ...         return 9.0 * ops.one_hot(5 - ids, 4), state
        >>> options = SearchOptions(beam_size=1)
        >>> targets = Targets(start_ids=ops.array([2]), max_lengths=[4])
        >>> result = beam_search(Steps(), targets, options)
        >>> ops.convert_to_numpy(result.ids).tolist()
        [[[3, 2, 0, 0]]]
    """
    options.expect_only(BEAM_SEARCH_OPTIONS, "beam search", "leave it out")
    beam_size, terms = options.beam_size, targets.terms
    enough = 1 if beam_size == 1 else options.enough_finished  # hypotheses that end a search
    # Hypotheses with few and with many of the terms live side by side, so these need more beams.
    num_beams = beam_size if terms is None else beam_size + max(1, beam_size // 2)
    targets = targets.within_buffer()
    start_ids, limits, buffer_length, prefix_ids, end_id, pad_id, first_id, _ = targets
    batch_size = ops.shape(start_ids)[0]

    def search_step(sentences, position, decoder_state, beams):
        """Takes one step with the sentences in the batch slots; here, batch means slots."""
        longest, last_penalty, prefixes, tables = take_sentences(of_sentences, sentences)
        has_first = first_id is not None
        constraints = Constraints(options, longest, prefixes, end_id, pad_id, has_first)
        last_ids = at_position(beams.live_ids, position)  # (batch, num_beams)
        logits, decoder_state = steps.step(last_ids, position, decoder_state)
        if terms is None:
            found = top_continuations(logits, beams, position, constraints)
        else:
            in_slots = terms._replace(tables=tables)
            found = continuations_with_terms(
                logits, beams, position, constraints, in_slots, beam_size
            )
        if first_id is not None:
            found = first_continuations(found, beams, position, first_id)
        length = position + 1  # (batch,)
        is_new = is_at(length, beams.live_ids)
        scores = found.log_probs / length_penalty(length, options)[:, None]
        finished_ids, finished_scores = _finished(beams, found, is_new, scores)

        origins, tokens, live_log_probs, live_terms = _live(found, num_beams)
        live_ids = write_tokens(gather_rows(beams.live_ids, origins), is_new, tokens)
        decoder_state = steps.reorder(decoder_state, origins)

        num_finished = beams.num_finished + found.num_ended
        # With terms, the first beam need not be the likeliest.
        largest = live_log_probs[:, 0] if terms is None else ops.max(live_log_probs, axis=1)
        # Log-probabilities only fall and penalties only grow, so no live beam can exceed it.
        live_bound = largest / last_penalty  # (batch,)
        done = (finished_scores[:, -1] >= live_bound) | (length >= longest)
        if enough is not None:
            has_enough = num_finished >= enough
            if terms is not None:
                has_enough = has_enough & (finished_scores[:, -1] > IMPOSSIBLE)
            done = done | has_enough

        # Sentences that were done before are unchanged.
        return decoder_state, BeamState(
            live_ids=where_sentence(beams.done, beams.live_ids, live_ids),
            live_log_probs=where_sentence(beams.done, beams.live_log_probs, live_log_probs),
            finished_ids=where_sentence(beams.done, beams.finished_ids, finished_ids),
            finished_scores=where_sentence(beams.done, beams.finished_scores, finished_scores),
            num_finished=num_finished,
            done=beams.done | done,
            terms=live_terms,
        )

    all_tables = None if terms is None else terms.tables
    of_sentences = limits, length_penalty(limits, options), prefix_ids, all_tables
    empty_ids = ops.full((batch_size, num_beams, buffer_length + 1), pad_id, dtype="int32")
    decoder_state = steps.initial_state(batch_size, num_beams)
    beams = _first_beams(empty_ids, start_ids, limits, options.n_best)
    if terms is not None:
        beams = beams._replace(terms=first_state(terms.tables.counts, num_beams))
    beams = step_by_step(steps, search_step, decoder_state, beams, buffer_length, num_slots)
    scores = finite(beams.finished_scores)
    ids = ops.where((scores > NO_HYPOTHESIS)[:, :, None], beams.finished_ids, pad_id)
    return BeamSearchResult(ids[:, :, 1:], scores)


def _first_beams(empty_ids, start_ids, limits, n_best):
    """The state before the first step; `empty_ids` is (batch, beam_size, buffer_length + 1)."""
    batch_size, beam_size, _ = ops.shape(empty_ids)
    # All beams start equal, so only the first one may be continued.
    first_beam = ops.broadcast_to(
        ops.arange(beam_size, dtype="int32") == 0, (batch_size, beam_size)
    )
    zero, is_empty = ops.zeros((), dtype="float32"), limits <= 0
    return BeamState(
        live_ids=write_tokens(
            empty_ids, is_at(ops.zeros_like(limits), empty_ids), start_ids[:, None]
        ),
        live_log_probs=ops.where(first_beam, zero, IMPOSSIBLE),
        finished_ids=empty_ids[:, :n_best],
        # A sentence without room for a symbol has one hypothesis, which is empty.
        finished_scores=ops.where(is_empty[:, None] & first_beam[:, :n_best], zero, IMPOSSIBLE),
        num_finished=ops.zeros((batch_size,), dtype="int32"),
        done=is_empty,
    )


def _finished(beams, found, is_new, scores):
    """The best finished hypotheses after a step: ids (batch, n_best, ...), scores (batch, n_best).

    Only the first `beam_size` continuations may finish.
    """
    size, n_best = beams.live_ids.shape[1], beams.finished_ids.shape[1]
    # Cut here: with a part of the log-probabilities, XLA would sort all candidates for them.
    scores = ops.where(found.is_end, scores, IMPOSSIBLE)[:, :size]
    ids = gather_rows(beams.live_ids, found.origins[:, :size])
    ids = write_tokens(ids, is_new, found.tokens[:, :size])
    # Earlier ones come first, so that the shorter of two hypotheses of equal score is kept.
    scores = ops.concatenate([beams.finished_scores, scores], axis=1)
    scores, best = ops.top_k(scores, n_best)  # (batch, n_best)
    return gather_rows(ops.concatenate([beams.finished_ids, ids], axis=1), best), scores


def _live(found, num_beams):
    """Selects the best continuations that do not end; they become the live beams.

    Returns:
        The beam that each continues, its symbol, its log-probability, (batch, num_beams) each, and
        its `TermState`.
    """
    order, best = ops.top_k(ops.where(found.is_end, IMPOSSIBLE, found.order), num_beams)
    origins, tokens, terms = tree.map_structure(
        lambda x: gather_rows(x, best), (found.origins, found.tokens, found.terms)
    )
    if not terms:
        return origins, tokens, order, terms
    log_probs = ops.where(order > IMPOSSIBLE, gather_rows(found.log_probs, best), IMPOSSIBLE)
    return origins, tokens, log_probs, terms


def finite(scores: Tensor) -> Tensor:
    """Replaces scores that are NaN or below `NO_HYPOTHESIS` by `NO_HYPOTHESIS`."""
    return ops.where(scores > NO_HYPOTHESIS, scores, NO_HYPOTHESIS)


def length_penalty(length: Tensor, options: SearchOptions) -> Tensor:
    """Divisor of the log-probability of sequences of `length` symbols.

    It is float32, of the shape of `length`. Length 0 counts as 1, so that it is never 0. `gnmt` is
    equation 14 of Wu et al., 2016.
    """
    length = ops.maximum(ops.cast(length, "float32"), 1.0)
    if options.length_penalty == "gnmt":
        length = (5.0 + length) / 6.0
    return ops.power(length, options.alpha)


def is_at(index: Tensor, ids: Tensor) -> Tensor:
    """Marks `ids[i, :, index[i]]` for each sentence i: boolean (batch, 1, length)."""
    return ops.arange(ops.shape(ids)[2], dtype="int32") == index[:, None, None]


def write_tokens(ids: Tensor, is_new: Tensor, tokens: Tensor) -> Tensor:
    """Sets the ids (batch, n, length) where `is_new`, (batch, 1, length), to tokens (batch, n)."""
    return ops.where(is_new, tokens[:, :, None], ids)
