"""The automaton of the terms that a sentence's hypotheses must contain (NumPy)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keras_transformer.search.terms import TermTables


class Spelling(NamedTuple):
    """A spelling of a form in symbols.

    Attributes:
        ids: its symbols.
        after_space: whether it begins with a space, so that it may follow anything. If not, it may
            only follow a symbol after which a word may begin, such as a parenthesis.
    """

    ids: tuple[int, ...]
    after_space: bool = True


class RequiredTerm(NamedTuple):
    """A term that must occur in a translation.

    Attributes:
        spellings: the spellings of all its forms; one at least is `after_space`.
        times: how often one of them must occur.
    """

    spellings: tuple[Spelling, ...]
    times: int = 1


_State = tuple[frozenset[int], bool]  # nodes of the trie that the last symbols lead to; is it open?
_ANYWHERE, _OPEN = 0, 1  # the roots of the trie: for spellings that follow anything, and others


class _Automaton:
    """The automaton of one sentence.

    A trie holds all spellings. A hypothesis may be in several of its nodes at the same time, and at
    each symbol it may begin a spelling. The states are the sets of nodes that occur together, found
    symbol by symbol from the first state.

    Args:
        terms: the terms.
        opens: boolean (vocab_size,), as in `Terms`.
        end_id: the end symbol.
    """

    def __init__(self, terms: Sequence[RequiredTerm], opens: np.ndarray, end_id: int):
        self.terms = terms
        self.opens = opens
        self.children: list[dict[int, int]] = [{}, {}]
        self.depths = [0, 0]
        # For each node, the fewest symbols that are missing from a spelling of each term.
        self.missing: list[dict[int, int]] = [{}, {}]
        for number, term in enumerate(terms):
            for spelling in term.spellings:
                self._add(number, spelling)
        self.shortest = [
            min(len(spelling.ids) for spelling in term.spellings if spelling.after_space)
            for term in terms
        ]
        symbols = {symbol for children in self.children for symbol in children}
        self.symbols = [end_id, *sorted(symbols)]
        nowhere: frozenset[int] = frozenset()
        self.states: list[_State] = [(nowhere, False), (nowhere, True)]
        self.next_state = self._explored()

    def _add(self, number, spelling):
        node = _ANYWHERE if spelling.after_space else _OPEN
        for depth, symbol in enumerate(spelling.ids, 1):
            if symbol not in self.children[node]:
                self.children[node][symbol] = len(self.children)
                self.children.append({})
                self.depths.append(depth)
                self.missing.append({})
            node = self.children[node][symbol]
            missing = self.missing[node]
            rest = len(spelling.ids) - depth
            missing[number] = min(rest, missing.get(number, rest))

    def _explored(self):
        """Lists for each state the next one at each of `symbols`, and adds states as found."""
        index = {state: number for number, state in enumerate(self.states)}
        columns = {symbol: column for column, symbol in enumerate(self.symbols)}
        rows = []
        for nodes, is_open in self.states:  # which grows
            symbols, row = self.symbols, [0] * len(self.symbols)
            if nodes:  # most symbols lead where they lead from the first states, without a node
                symbols = sorted({symbol for node in nodes for symbol in self.children[node]})
                row = rows[is_open].copy()
            starts = [*nodes, _ANYWHERE, *[_OPEN] * is_open]
            for symbol in symbols:
                found = {self.children[node].get(symbol) for node in starts} - {None}
                state = frozenset(found), bool(self.opens[symbol])
                if state not in index:
                    index[state] = len(self.states)
                    self.states.append(state)
                row[columns[symbol]] = index[state]
            rows.append(row)
        return rows

    def ends(self, nodes: frozenset[int]) -> list[int]:
        """For each term, 1 if the longest spelling that ends in a state is one of its own."""
        ended = [node for node in nodes if 0 in self.missing[node].values()]
        longest = max((self.depths[node] for node in ended), default=0)
        missing = [self.missing[node] for node in ended if self.depths[node] == longest]
        numbers = range(len(self.terms))
        return [int(any(one.get(number) == 0 for one in missing)) for number in numbers]

    def gains(self, nodes: frozenset[int]) -> list[int]:
        """For each term, how many symbols of its shortest spelling a state makes unnecessary."""
        gains = [0] * len(self.terms)
        ends = self.ends(nodes)
        for node in nodes:
            for number, missing in self.missing[node].items():
                if missing > 0 or ends[number]:
                    gains[number] = max(gains[number], self.shortest[number] - missing)
        return gains


def term_tables(
    sentences: Sequence[Sequence[RequiredTerm]],
    continues: np.ndarray,
    opens: np.ndarray,
    end_id: int,
    few_shapes: bool = False,
) -> TermTables:
    """Makes the tables that a search needs for the terms of each sentence, as NumPy arrays.

    The longest form that ends at a symbol counts, for all terms that have it.

    Args:
        sentences: the terms of each sentence; none in some.
        continues: boolean (vocab_size,), as in `Terms`.
        opens: boolean (vocab_size,), as in `Terms`.
        end_id: the end symbol.
        few_shapes: whether to round the sizes of the tables up to powers of 2, for a compiler.

    Example:
        >>> nothing = np.zeros(9, bool)
        >>> tables = term_tables([[RequiredTerm((Spelling((5, 7)),))]], nothing, nothing, end_id=2)
        >>> tables.symbols.tolist(), tables.shortest.tolist()
        ([[2, 5, 7]], [[2]])
    """
    automata = [_Automaton(terms, opens, end_id) for terms in sentences]
    sizes = [(len(one.symbols), len(one.states), max(1, len(one.terms))) for one in automata]
    num_symbols, num_states, num_terms = map(max, zip(*sizes, strict=True))
    if few_shapes:
        num_symbols, num_states, num_terms = (
            1 << (size - 1).bit_length() for size in (num_symbols, num_states, num_terms)
        )
    batch = len(sentences)
    symbols = np.full((batch, num_symbols), -1, np.int32)
    next_state = np.zeros((batch, num_states, num_symbols), np.int32)
    ends = np.zeros((batch, num_states, num_terms), np.int32)
    gains = np.zeros_like(ends)
    shortest = np.zeros((batch, num_terms), np.int32)
    counts = np.zeros_like(shortest)
    for row, one in enumerate(automata):
        symbols[row, : len(one.symbols)] = one.symbols
        next_state[row, : len(one.states), : len(one.symbols)] = one.next_state
        for state, (nodes, _) in enumerate(one.states):
            ends[row, state, : len(one.terms)] = one.ends(nodes)
            gains[row, state, : len(one.terms)] = one.gains(nodes)
        shortest[row, : len(one.terms)] = one.shortest
        counts[row, : len(one.terms)] = [term.times for term in one.terms]
    continued = continues[np.maximum(symbols, 0)] & (symbols >= 0)
    return TermTables(symbols, continued, next_state, ends, gains, shortest, counts)
