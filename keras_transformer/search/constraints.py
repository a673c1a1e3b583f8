"""Constraints on the next symbol: minimum length, repetitions, a forced prefix, the user's own."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.errors import UserError
from keras_transformer.options.search import SearchOptions
from keras_transformer.search.loop import at_position

Tensor = Any
IMPOSSIBLE = float("-inf")  # log-probability of a forbidden symbol
Constraint = Callable[[Tensor], Tensor]
"""A user's own constraint: a function from the symbols so far to a mask of those that may follow.

Its argument `ids` is int32 (batch, beam_size, length). The last symbol is `ids[..., -1]`; padding
fills each row before the start symbol. It returns booleans that broadcast to
(batch, beam_size, vocab_size).
"""

CONSTRAINTS = ("min_length", "no_repeat_ngram", "constraint")
"""The fields of `SearchOptions` that `Constraints` applies."""


def lengths_of(ids: Tensor, pad_id: int) -> Tensor:
    """Counts the symbols of each row, int32 (batch, length) -> (batch,), without padding."""
    return ops.sum(ops.cast(ops.not_equal(ids, pad_id), "int32"), axis=1)


class Exclusion(NamedTuple):
    """A symbol that may not follow, whatever the hypothesis so far."""

    symbol: int
    # Function from the last symbol's position, int32 (batch,), to boolean (batch,); None: always.
    applies: Callable[[Tensor], Tensor] | None = None


class Constraints:
    """Rules that hypotheses must obey, checked in each step of a search.

    There are two kinds. An exclusion forbids one symbol and is checked for the likeliest symbols
    only, which costs almost nothing. A mask (`allowed`) depends on the symbols so far, and costs a
    pass over the logits of the whole vocabulary.

    Args:
        options: options of the search, of which the fields in `CONSTRAINTS` are used. `constraint`
            does not hold within a prefix, nor for the end symbol at the limit.
        limits: int32 (batch,), the maximum length of the hypotheses of each sentence, prefix
            included.
        prefix_ids: int32 (batch, prefix_length), symbols that hypotheses must start with, padded at
            the right; None for no prefix.
        end_id: the symbol that ends a sequence; never within a prefix.
        pad_id: the symbol that no hypothesis contains.
        has_first: whether hypotheses begin with a symbol of probability 1, see `Targets.first_id`.

    Attributes:
        exclusions: all exclusions. A search ranks that many more candidates than it needs, so that
            enough of them remain.
    """

    def __init__(
        self,
        options: SearchOptions,
        limits: Tensor,
        prefix_ids: Tensor | None,
        end_id: int,
        pad_id: int,
        has_first: bool = False,
    ):
        self.constraint = options.constraint
        self.no_repeat_ngram = options.no_repeat_ngram
        self.limits = limits
        self.prefix_ids = None if prefix_ids is None else ops.cast(prefix_ids, "int32")
        # A prefix begins with the symbol of probability 1, if there is one.
        given = has_first if prefix_ids is None else lengths_of(self.prefix_ids, pad_id)
        self.min_lengths = options.min_length + given
        self.end_id = end_id
        self.pad_id = pad_id
        self.exclusions = (
            Exclusion(pad_id),
            Exclusion(end_id, applies=self._is_too_short),
        )

    def is_excluded(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Checks symbols against `exclusions`.

        Args:
            tokens: int32, broadcastable to (batch, beam_size, n), candidate symbols.
            position: int32 (batch,), position of the last symbol of each hypothesis.

        Returns:
            Boolean, the shape of `tokens`, True where a symbol may not follow.
        """
        checks = []
        for symbol, applies in self.exclusions:
            check = ops.equal(tokens, symbol)
            if applies is not None:
                check = check & applies(position)[:, None, None]
            checks.append(check)
        return functools.reduce(ops.logical_or, checks)

    def only_end_may_follow(self, position: Tensor) -> Tensor:
        """Checks whether the next symbol is the last within the limit: (batch,) -> (batch,)."""
        return position + 1 >= self.limits

    def _is_too_short(self, position):
        return position + 1 < self.min_lengths

    def allowed(self, live_ids: Tensor, position: Tensor, vocab_size: int) -> Tensor | None:
        """Masks the symbols that the hypotheses so far forbid.

        Args:
            live_ids: int32 (batch, beam_size, length), hypotheses from the start symbol on.
            position: int32 (batch,), position of their last symbols.
            vocab_size: number of symbols.

        Returns:
            Boolean, broadcastable to (batch, beam_size, vocab_size), True where a symbol may
            follow; None if all may.
        """
        masks = []
        if self.no_repeat_ngram:
            masks.append(self._repeats_nothing(live_ids, position, vocab_size))
        if self.constraint is not None:
            masks.append(self._of_user(live_ids, position, vocab_size))
        allowed = functools.reduce(ops.logical_and, masks) if masks else None
        if self.prefix_ids is not None:
            is_free, forced = self._prefix(position, vocab_size)
            # A prefix may contain symbols that are forbidden elsewhere.
            allowed = (is_free if allowed is None else is_free & allowed) | forced
        return allowed

    def _prefix(self, position, vocab_size):
        """Returns whether the prefix is over, (batch, 1, 1), and masks the symbol that it forces.

        Both are boolean; the mask is (batch, 1, vocab_size), false everywhere after the prefix.
        """
        # Add a column of padding: a prefix may be empty, and is over after its last symbol.
        prefix_ids = ops.pad(self.prefix_ids, [(0, 0), (0, 1)], constant_values=self.pad_id)
        position = ops.minimum(position, ops.shape(prefix_ids)[1] - 1)
        symbols = at_position(prefix_ids[:, None], position)[..., None]  # (batch, 1, 1)
        is_free = ops.equal(symbols, self.pad_id)
        is_symbol = ops.equal(ops.arange(vocab_size, dtype="int32"), symbols)
        return is_free, is_symbol & ops.logical_not(is_free)

    def _of_user(self, live_ids, position, vocab_size):
        """Computes the mask of the user's constraint.

        Example: the symbols up to `position`, here 2, are aligned at the right:

            live_ids    1  7  8  0  0
            index       3  4  0  1  2   (0 1 2 3 4 + position + 1) % 5
            so_far      0  0  1  7  8
        """
        length = ops.shape(live_ids)[2]
        index = (ops.arange(length, dtype="int32") + position[:, None, None] + 1) % length
        so_far = ops.take_along_axis(live_ids, index, axis=2)  # (batch, beam_size, length)
        mask = ops.convert_to_tensor(self.constraint(so_far))
        dtype, shape = keras.backend.standardize_dtype(mask.dtype), tuple(mask.shape)
        if dtype != "bool" or shape[-1:] not in ((vocab_size,), (1,), (None,)):
            raise UserError(
                "constraint must return a boolean mask (batch, beam_size, "
                f"vocab_size={vocab_size}): found {dtype} of shape {shape}"
            )
        return mask

    def _repeats_nothing(self, live_ids, position, vocab_size):
        """Masks the symbols that would complete an n-gram for the second time.

        Example: n = 3, the start symbol 1, then 7 8 5 7 8, so that `position` is 5:

            live_ids           1  7  8  5  7  8   the last n - 1 symbols are 7 8
            comes_again        0  1  0  0  0  0   7 8 also occurs at index 1, with a symbol after it
            live_ids rolled    8  5  7  8  1  7   by -(n - 1): the symbol after those two
            repeated           0  5  0  0  0  0   5 may not follow; 0 is padding, never allowed
        """
        batch, beam_size, length = ops.shape(live_ids)
        before = self.no_repeat_ngram - 1
        # An n-gram that begins at `starts` has its last symbol `before` symbols later.
        starts = ops.arange(length, dtype="int32")
        comes_again = ops.broadcast_to(
            (starts >= 1) & (starts + before <= position[:, None, None]), (batch, beam_size, length)
        )
        for i in range(before):
            # Symbols that wrap around land at the end, where the condition above is False.
            symbols = ops.roll(live_ids, -i, axis=2)  # (batch, beam_size, length)
            last = at_position(live_ids, ops.maximum(position - before + 1 + i, 0))
            comes_again = comes_again & ops.equal(symbols, last[..., None])
        repeated = ops.where(comes_again, ops.roll(live_ids, -before, axis=2), self.pad_id)
        rows = ops.reshape(ops.arange(batch * beam_size, dtype="int32"), (batch, beam_size, 1))
        indices = ops.reshape(rows * vocab_size + repeated, (-1, 1))
        allowed = ops.ones((batch * beam_size * vocab_size,), "int32")
        allowed = ops.scatter_update(allowed, indices, ops.zeros_like(indices[:, 0]))
        return ops.reshape(ops.cast(allowed, "bool"), (batch, beam_size, vocab_size))
