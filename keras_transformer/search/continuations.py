"""The likeliest continuations of the live beams of a beam search, in core Keras operations only."""

from typing import Any, NamedTuple

from keras import ops, tree

from keras_transformer.fast.rows import gather_rows
from keras_transformer.layers.shapes import flat, reshape, unflat
from keras_transformer.search.constraints import IMPOSSIBLE
from keras_transformer.search.loop import where_sentence
from keras_transformer.search.terms import TermState, candidates, needed, turns

Tensor = Any
TABLE_ROWS = 20  # approximate number of rows of the tables that logits are folded into


class Continuations(NamedTuple):
    """The best continuations of a sentence's live beams, best first."""

    log_probs: Tensor  # float32 (batch, 2 * beam_size), of the new hypotheses
    origins: Tensor  # int32 (batch, 2 * beam_size), the beam that each continues
    tokens: Tensor  # int32 (batch, 2 * beam_size), its new symbol
    is_end: Tensor  # boolean (batch, 2 * beam_size), whether it ends
    order: Tensor  # float32 (batch, 2 * beam_size), falling: without terms, `log_probs`
    num_ended: Tensor  # int32 (batch,), number of ends among the `beam_size` likeliest
    terms: TermState | tuple = ()


def top_continuations(logits, beams, position, constraints):
    """Finds the `Continuations`, given logits (batch, beam_size, vocab_size) of any float dtype.

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
    return Continuations(
        log_probs,
        ops.where(is_last, ops.arange(2 * beam_size, dtype="int32") % beam_size, origins),
        tokens,
        is_end,
        order=log_probs,
        num_ended=ops.sum(ops.cast(is_end[:, :beam_size], "int32"), axis=1),
    )


def continuations_with_terms(logits, beams, position, constraints, terms, beam_size):
    """Finds the `Continuations` like `top_continuations`, where banks take turns (`turns`).

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
    return Continuations(log_probs, origins, tokens, is_end, order, num_ended, states)


def first_continuations(found, beams, position, first_id):
    """Replaces the continuations of sentences at their start by `first_id`, with probability 1."""
    is_first = ops.equal(position, 0)  # (batch,)
    no_more = [(0, 0), (0, ops.shape(beams.live_log_probs)[1])]
    log_probs = ops.pad(beams.live_log_probs, no_more, constant_values=IMPOSSIBLE)
    # Only the first beam may be continued from the start, so the origins are of no matter.
    at_start = Continuations(
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
