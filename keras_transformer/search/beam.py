"""Beam search with a length penalty (paper section 6.1), in core Keras operations only."""

from typing import Any, NamedTuple

from keras import ops, tree

from keras_transformer.fast.rows import gather_rows
from keras_transformer.layers.shapes import flat, reshape, unflat
from keras_transformer.options.search import NO_HYPOTHESIS, SearchOptions
from keras_transformer.search.constraints import CONSTRAINTS, IMPOSSIBLE, Constraints
from keras_transformer.search.loop import (
    DecoderSteps,
    at_position,
    step_by_step,
    take_sentences,
    where_sentence,
)
from keras_transformer.search.targets import Targets
from keras_transformer.search.terms import (
    TermState,
    candidates,
    first_state,
    needed,
    turns,
)

Tensor = Any
TABLE_ROWS = 20  # approximate number of rows of the tables that logits are folded into
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


class _Continuations(NamedTuple):
    """The best continuations of a sentence's live beams, best first."""

    log_probs: Tensor  # float32 (batch, 2 * beam_size), of the new hypotheses
    origins: Tensor  # int32 (batch, 2 * beam_size), the beam that each continues
    tokens: Tensor  # int32 (batch, 2 * beam_size), its new symbol
    is_end: Tensor  # boolean (batch, 2 * beam_size), whether it ends
    order: Tensor  # float32 (batch, 2 * beam_size), falling: without terms, `log_probs`
    num_ended: Tensor  # int32 (batch,), number of ends among the `beam_size` likeliest
    terms: TermState | tuple = ()


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
            found = _top_continuations(logits, beams, position, constraints)
        else:
            in_slots = terms._replace(tables=tables)
            found = _continuations_with_terms(
                logits, beams, position, constraints, in_slots, beam_size
            )
        if first_id is not None:
            found = _first_continuations(found, beams, position, first_id)
        length = position + 1  # (batch,)
        is_new = is_at(length, beams.live_ids)
        scores = found.log_probs / length_penalty(length, options)[:, None]
        finished_ids, finished_scores = _finished(beams, found, is_new, scores)

        order, best = ops.top_k(ops.where(found.is_end, IMPOSSIBLE, found.order), num_beams)
        origins, tokens = gather_rows(found.origins, best), gather_rows(found.tokens, best)
        live_ids = write_tokens(gather_rows(beams.live_ids, origins), is_new, tokens)
        decoder_state = steps.reorder(decoder_state, origins)
        if terms is None:
            live_log_probs, largest = order, order[:, 0]  # (batch, num_beams), (batch,)
        else:
            live_log_probs = gather_rows(found.log_probs, best)
            live_log_probs = ops.where(order > IMPOSSIBLE, live_log_probs, IMPOSSIBLE)
            largest = ops.max(live_log_probs, axis=1)

        num_finished = beams.num_finished + found.num_ended
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
            terms=tree.map_structure(lambda x: gather_rows(x, best), found.terms),
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


class _NextSymbols(NamedTuple):
    """The symbols that may follow the live beams of each sentence."""

    logits: Tensor  # float32 (batch, beam_size, vocab_size), minus infinity where forbidden
    table: Tensor  # `logits`, folded: (batch, beam_size, rows, columns)
    maxima: Tensor  # (batch, beam_size, columns), of `table`
    offsets: Tensor  # (batch, beam_size): a logit plus this is a hypothesis's log-probability


def _next_symbols(logits, beams, position, constraints):
    """The `_NextSymbols`, given float32 logits (batch, beam_size, vocab_size)."""
    table = _folded(logits)
    maxima = ops.max(table, axis=2)
    # Forbidden symbols count in the total, so that scores remain the model's.
    log_total = _log_sum_exp(table, maxima)  # (batch, beam_size)
    allowed = constraints.allowed(beams.live_ids, position, logits.shape[-1])
    if allowed is not None:
        logits = ops.where(allowed, logits, IMPOSSIBLE)
        table = _folded(logits)
        maxima = ops.max(table, axis=2)
    return _NextSymbols(logits, table, maxima, beams.live_log_probs - log_total)


def _likeliest(symbols, is_excluded, num_excluded, num_best):
    """Finds the `num_best` best continuations of each sentence, over all its beams, best first.

    Args:
        symbols: `_NextSymbols`.
        is_excluded: function from symbols, int32 (batch, n, m), to whether they may not follow.
        num_excluded: the most symbols that it excludes for a beam.
        num_best: how many to find.

    Returns:
        Log-probabilities, beams that they continue, and symbols, each (batch, num_best).
    """
    batch_size, beam_size, rows, columns = ops.shape(symbols.table)
    # The columns of the largest maxima, over all beams, contain the largest values. Exclusions are
    # checked after this choice, so choose that many more columns for each beam.
    num_columns = min(num_best // beam_size + num_excluded, columns) * beam_size
    maxima = _without_nan(symbols.maxima + symbols.offsets[:, :, None])
    maxima = reshape(maxima, (batch_size, beam_size * columns))
    _, best = ops.top_k(maxima, num_columns)  # (batch, num_columns)
    origins = best // columns
    # (batch, num_columns, rows): indices into the tables of a sentence's beams, one after another
    first = origins * (rows * columns) + best % columns
    indices = first[:, :, None] + columns * ops.arange(rows, dtype="int32")
    table = reshape(symbols.table, (batch_size, beam_size * rows * columns))
    log_probs = gather_rows(table, reshape(indices, (batch_size, num_columns * rows)))
    log_probs = reshape(log_probs, (batch_size, num_columns, rows))
    log_probs = _without_nan(log_probs + gather_rows(symbols.offsets, origins)[:, :, None])
    # Padding of a table has an index that is no symbol's; it may be chosen if symbols are few.
    tokens = ops.minimum(indices % (rows * columns), symbols.logits.shape[-1] - 1)
    log_probs = ops.where(is_excluded(tokens), IMPOSSIBLE, log_probs)

    log_probs, tokens = (reshape(x, (batch_size, num_columns * rows)) for x in (log_probs, tokens))
    log_probs, best = ops.top_k(log_probs, num_best)
    return log_probs, gather_rows(origins, best // rows), gather_rows(tokens, best)


def _top_continuations(logits, beams, position, constraints):
    """Finds the `_Continuations`, given logits (batch, beam_size, vocab_size) of any float dtype.

    `position`, int32 (batch,), is that of the beams' last symbols.
    """
    beam_size = beams.live_log_probs.shape[1]
    logits = ops.cast(logits, "float32")
    symbols = _next_symbols(logits, beams, position, constraints)
    log_probs, origins, tokens = _likeliest(
        symbols,
        lambda tokens: constraints.is_excluded(tokens, position),
        len(constraints.exclusions),
        2 * beam_size,
    )
    # At the limit, each beam can only end; the other places stay empty.
    end_log_probs = _without_nan(logits[..., constraints.end_id] + symbols.offsets)
    end_log_probs = ops.pad(end_log_probs, [(0, 0), (0, beam_size)], constant_values=IMPOSSIBLE)
    is_last = constraints.only_end_may_follow(position)[:, None]  # (batch, 1)
    log_probs = ops.where(is_last, end_log_probs, log_probs)
    tokens = ops.where(is_last, constraints.end_id, tokens)
    is_end = ops.equal(tokens, constraints.end_id) & (log_probs > IMPOSSIBLE)
    return _Continuations(
        log_probs,
        ops.where(is_last, ops.arange(2 * beam_size, dtype="int32") % beam_size, origins),
        tokens,
        is_end,
        order=log_probs,
        num_ended=ops.sum(ops.cast(is_end[:, :beam_size], "int32"), axis=1),
    )


def _continuations_with_terms(logits, beams, position, constraints, terms, beam_size):
    """Finds the `_Continuations` like `_top_continuations`, where banks take turns (`turns`).

    `terms` are the `Terms` of the sentences in the batch slots. The candidates are the likeliest
    continuations of each beam, and all symbols of the forms.
    """
    batch_size, num_beams, vocab_size = ops.shape(logits)
    logits = ops.cast(logits, "float32")
    symbols = _next_symbols(logits, beams, position, constraints)
    of_beam = _NextSymbols(
        *(reshape(x, (batch_size * num_beams, 1, *ops.shape(x)[2:])) for x in symbols)
    )

    def is_excluded(tokens):  # (batch * num_beams, n, m), where the beams of a sentence are rows
        _, n, m = ops.shape(tokens)
        of_sentences = reshape(tokens, (batch_size, num_beams * n, m))
        excluded = constraints.is_excluded(of_sentences, position)
        return reshape(excluded, (batch_size * num_beams, n, m))

    num_likely = min(beam_size, vocab_size)
    log_probs, _, tokens = _likeliest(of_beam, is_excluded, len(constraints.exclusions), num_likely)
    likely = tuple(reshape(x, (batch_size, num_beams, num_likely)) for x in (log_probs, tokens))

    of_forms = ops.maximum(terms.tables.symbols, 0)[:, None]  # (batch, 1, symbols)
    width = ops.shape(of_forms)[2]
    indices = of_forms + vocab_size * ops.arange(num_beams, dtype="int32")[:, None]
    all_logits = reshape(symbols.logits, (batch_size, num_beams * vocab_size))
    log_probs = gather_rows(all_logits, reshape(indices, (batch_size, num_beams * width)))
    log_probs = reshape(log_probs, (batch_size, num_beams, width))
    log_probs = _without_nan(log_probs + symbols.offsets[..., None])
    log_probs = ops.where(constraints.is_excluded(of_forms, position), IMPOSSIBLE, log_probs)

    # At the limit, each beam can only end, which is the first symbol of `TermTables.symbols`.
    is_last = constraints.only_end_may_follow(position)[:, None, None]
    end_log_probs = _without_nan(logits[..., constraints.end_id] + symbols.offsets)
    is_first = ops.equal(ops.arange(width, dtype="int32"), 0)
    at_limit = ops.where(is_first, end_log_probs[..., None], IMPOSSIBLE)
    log_probs = ops.where(is_last, at_limit, log_probs)
    likely = ops.where(is_last, IMPOSSIBLE, likely[0]), likely[1]

    found = candidates(terms, beams.terms, likely, log_probs)
    # How many end, with or without their terms: when this is enough, a search without terms ends.
    is_end = ops.equal(found.tokens, constraints.end_id) & (found.log_probs > IMPOSSIBLE)
    best, _ = ops.top_k(found.log_probs, beam_size)
    num_ended = ops.sum(ops.cast(is_end & (found.log_probs >= best[:, -1:]), "int32"), axis=1)
    is_too_early = is_end & ops.any(found.terms.left > 0, axis=2)
    log_probs = ops.where(is_too_early, IMPOSSIBLE, found.log_probs)
    order = turns(log_probs, needed(terms.tables, found.terms))
    order, best = ops.top_k(order, 2 * num_beams)
    best_of = found._replace(log_probs=log_probs), is_end & ~is_too_early
    (log_probs, origins, tokens, states), is_end = tree.map_structure(
        lambda x: gather_rows(x, best), best_of
    )
    return _Continuations(log_probs, origins, tokens, is_end, order, num_ended, states)


def _first_continuations(found, beams, position, first_id):
    """Replaces the continuations of sentences at their start by `first_id`, with probability 1."""
    is_first = ops.equal(position, 0)  # (batch,)
    no_more = [(0, 0), (0, ops.shape(beams.live_log_probs)[1])]
    log_probs = ops.pad(beams.live_log_probs, no_more, constant_values=IMPOSSIBLE)
    # Only the first beam may be continued from the start, so the origins are of no matter.
    at_start = _Continuations(
        log_probs,
        origins=ops.zeros_like(found.origins),
        tokens=ops.full_like(found.tokens, first_id),
        is_end=ops.zeros_like(found.is_end),
        order=log_probs,
        num_ended=ops.zeros_like(found.num_ended),
        terms=tree.map_structure(lambda x: x[:, :1], beams.terms),  # all beams start alike
    )
    return tree.map_structure(
        lambda start, later: where_sentence(is_first, start, later), at_start, found
    )


def _folded(x: Tensor) -> Tensor:
    """Folds logits into tables: (..., vocab_size) -> (..., rows, columns).

    Maxima and sums of columns are found quickly. Example, two rows: 3 7 9 8 1 2 becomes

        3 7 9
        8 1 2
    """
    *outer, width = ops.shape(x)
    rows = _rows_of_table(width)
    columns = -(-width // rows)
    if width % rows:
        room = [(0, 0)] * len(outer) + [(0, rows * columns - width)]
        x = ops.pad(x, room, constant_values=IMPOSSIBLE)
    return reshape(x, (*outer, rows, columns))


def _log_sum_exp(table: Tensor, maxima: Tensor) -> Tensor:
    """Computes `log(sum(exp(x)))` of tables (..., rows, columns), given the maxima of columns."""
    # XLA would merge the maxima, and the sums, of rows and columns, which is three times slower.
    maxima = ops.where(ops.isfinite(maxima), maxima, IMPOSSIBLE)
    largest = ops.max(maxima, axis=-1, keepdims=True)  # (..., 1)
    largest = ops.where(ops.isfinite(largest), largest, 0.0)
    sums = ops.sum(ops.exp(table - largest[..., None]), axis=-2)  # (..., columns)
    total = ops.matmul(flat(sums), ops.ones((sums.shape[-1], 1), sums.dtype))
    return (ops.log(unflat(total, sums)) + largest)[..., 0]


def _without_nan(log_probs: Tensor) -> Tensor:
    """Makes NaN impossible: it would break the order of the candidates."""
    return ops.where(ops.isnan(log_probs), IMPOSSIBLE, log_probs)


def _rows_of_table(width: int) -> int:
    """The number of rows of the tables: near `TABLE_ROWS`, a divisor if possible."""
    fit = (rows for rows in range(TABLE_ROWS // 2, 2 * TABLE_ROWS + 1) if width % rows == 0)
    return min(fit, key=lambda rows: abs(rows - TABLE_ROWS), default=TABLE_ROWS)


def is_at(index: Tensor, ids: Tensor) -> Tensor:
    """Marks `ids[i, :, index[i]]` for each sentence i: boolean (batch, 1, length)."""
    return ops.arange(ops.shape(ids)[2], dtype="int32") == index[:, None, None]


def write_tokens(ids: Tensor, is_new: Tensor, tokens: Tensor) -> Tensor:
    """Sets the ids (batch, n, length) where `is_new`, (batch, 1, length), to tokens (batch, n)."""
    return ops.where(is_new, tokens[:, :, None], ids)
