"""Terms that hypotheses must contain: constrained beam search by dynamic beam allocation.

Post and Vilar (2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation"), with the
trie of Hu et al. (2019, "Improved Lexically Constrained Decoding") made an automaton.
"""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.fast.rows import gather, gather_rows
from keras_transformer.layers.shapes import reshape
from keras_transformer.search.constraints import IMPOSSIBLE

Tensor = Any
# What each turn of a bank costs in the order of candidates: more than any log-probability.
_A_TURN = 1e5
_NEVER = 2**31 - 1  # more symbols than any candidate still needs


class TermTables(NamedTuple):
    """The automaton of each sentence's terms, as tables, which `term_tables` makes.

    A state knows how far the last symbols of a hypothesis have come in the forms of the terms.
    State 0 is within or after a word, and state 1 where a word may begin without a space; both are
    outside of all forms.
    """

    symbols: Tensor  # int32 (batch, symbols), the end symbol, then those of the forms; -1: none
    continues: Tensor  # boolean (batch, symbols), whether a symbol continues a word
    next_state: Tensor  # int32 (batch, states, symbols)
    ends: Tensor  # int32 (batch, states, terms), 1 where a form of the term ends
    gains: (
        Tensor  # int32 (batch, states, terms), symbols of the term's shortest form that are there
    )
    shortest: Tensor  # int32 (batch, terms), the length of the term's shortest form
    counts: Tensor  # int32 (batch, terms), how often the term must occur


class Terms(NamedTuple):
    """The terms of all sentences, and what symbols outside of their forms mean for words."""

    tables: TermTables
    continues: Tensor  # boolean (vocab_size,), whether a symbol continues the word before it
    opens: Tensor  # boolean (vocab_size,), whether a word may begin after it without a space


class TermState(NamedTuple):
    """The progress of each hypothesis through the terms of its sentence."""

    states: Tensor  # int32 (batch, n)
    left: Tensor  # int32 (batch, n, terms), how often each term must still occur


class Candidates(NamedTuple):
    """Continuations of a sentence's live beams, among them each symbol of each term."""

    log_probs: Tensor  # float32 (batch, n), of the new hypotheses; minus infinity: forbidden
    origins: Tensor  # int32 (batch, n), the beam that each continues
    tokens: Tensor  # int32 (batch, n), its new symbol
    terms: TermState


def first_state(counts: Tensor, num_beams: int) -> TermState:
    """The state before the first symbol, given `TermTables.counts`."""
    batch, num_terms = ops.shape(counts)
    left = ops.broadcast_to(counts[:, None], (batch, num_beams, num_terms))
    return TermState(ops.ones((batch, num_beams), "int32"), left)


def candidates(
    terms: Terms, state: TermState, likely: tuple[Tensor, Tensor], symbol_log_probs: Tensor
) -> Candidates:
    """Lists the continuations of all live beams, with their new states.

    Args:
        terms: the terms of the sentences in the batch slots.
        state: how far the live beams are, (batch, beams, ...).
        likely: log-probabilities and symbols, (batch, beams, likely), of each beam's likeliest
            continuations.
        symbol_log_probs: float32 (batch, beams, symbols), of `TermTables.symbols`.

    Returns:
        `Candidates`, n = beams * (likely + symbols).
    """
    tables = terms.tables
    log_probs, tokens = likely
    batch, beams, num_symbols = ops.shape(symbol_log_probs)
    # Symbols of the forms are all candidates anyway, with the states that they lead to.
    is_symbol = ops.any(ops.equal(tokens[..., None], tables.symbols[:, None, None]), axis=-1)
    log_probs = ops.where(is_symbol, IMPOSSIBLE, log_probs)
    other_states = ops.cast(gather(terms.opens, tokens), "int32")  # (batch, beams, likely)
    is_none = ops.less(tables.symbols, 0)[:, None]  # (batch, 1, symbols)
    symbol_log_probs = ops.where(is_none, IMPOSSIBLE, symbol_log_probs)
    of_beams = (batch, beams, num_symbols)

    def joined(likely, of_symbols):
        return ops.concatenate([likely, ops.broadcast_to(of_symbols, of_beams)], axis=2)

    log_probs = joined(log_probs, symbol_log_probs)  # (batch, beams, likely + symbols)
    states = joined(other_states, gather_rows(tables.next_state, state.states))
    continues = joined(gather(terms.continues, tokens), tables.continues[:, None])
    tokens = joined(tokens, tables.symbols[:, None])
    # A form counts once the next symbol does not continue its last word.
    completed = ops.maximum(state.left - gather_rows(tables.ends, state.states), 0)
    left = ops.where(continues[..., None], state.left[:, :, None], completed[:, :, None])
    origins = ops.broadcast_to(ops.arange(beams, dtype="int32")[:, None], ops.shape(tokens))

    n = beams * ops.shape(tokens)[2]
    log_probs, origins, tokens, states = (
        reshape(x, (batch, n)) for x in (log_probs, origins, tokens, states)
    )
    left = reshape(left, (batch, n, ops.shape(left)[3]))
    return Candidates(log_probs, origins, tokens, TermState(states, left))


def needed(tables: TermTables, state: TermState) -> Tensor:
    """Counts the symbols that hypotheses still need for their terms, at least: int32 (batch, n).

    A term that has begun counts only with the symbols that it lacks. This holds for one term, since
    the next symbol continues one form.
    """
    gains = gather_rows(tables.gains, state.states)  # (batch, n, terms)
    is_left = ops.cast(state.left > 0, "int32")
    return ops.sum(state.left * tables.shortest[:, None], axis=2) - ops.max(gains * is_left, axis=2)


def turns(log_probs: Tensor, needs: Tensor) -> Tensor:
    """Orders candidates so that hypotheses with few and with many met terms all live on.

    Candidates that need as many symbols form a bank. The banks take turns: the likeliest of each
    comes before the second of each, and so on; within a turn, the likelier one comes first. The
    likeliest of those that need the fewest symbols is the first of all. So this fewest number falls
    in each step, and a hypothesis has all terms after as many steps as they have symbols.

    Args:
        log_probs: float32 (batch, n).
        needs: int32 (batch, n), result of `needed`.

    Returns:
        float32 (batch, n), larger for those that come first; minus infinity where `log_probs` is.

    Example:
        >>> log_probs, needs = ops.array([[-1.0, -2.0, -3.0, -9.0]]), ops.array([[2, 2, 2, 1]])
        >>> [order] = ops.convert_to_numpy(turns(log_probs, needs))
        >>> order.argsort()[::-1].tolist()
        [3, 0, 1, 2]
    """
    turn = ops.cast(_rank_in_bank(log_probs, needs), "float32")
    needs = ops.where(log_probs > IMPOSSIBLE, needs, _NEVER)
    is_closest = ops.equal(needs, ops.min(needs, axis=1, keepdims=True)) & ops.equal(turn, 0)
    is_first = is_closest & (log_probs > IMPOSSIBLE)
    return ops.where(is_first, 0.0, log_probs - _A_TURN * turn)


def _rank_in_bank(log_probs, needs):
    """Ranks each candidate within its bank: int32 (batch, n), 0 for the likeliest.

    Sorting takes a thousandth of the memory of comparing all pairs of a thousand candidates.
    """
    batch, n = ops.shape(log_probs)
    rank = _ranks(ops.negative(log_probs))
    place = _ranks(needs * n + rank)  # bank after bank, the likeliest first
    # The place where the bank begins: all rows are searched as one, one after the other.
    rows = ops.arange(batch, dtype="int32")[:, None]
    banks = rows * (ops.max(needs) + 1) + needs
    begin = ops.searchsorted(ops.ravel(ops.sort(banks, axis=1)), ops.ravel(banks))
    return place + rows * n - ops.cast(reshape(begin, (batch, n)), "int32")


def _ranks(x):
    """The place of each value among those of its row, in ascending order: int32 (batch, n)."""
    return ops.argsort(ops.argsort(x, axis=1), axis=1)
