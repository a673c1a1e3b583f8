"""Which symbols may come next: minimum length, repetitions, a forced prefix."""

from typing import Any

from keras import ops

from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.steps import at_position

Tensor = Any


class Constraints:
    """What hypotheses may not be, asked step by step by a search.

    Args:
        options: `min_length` and `no_repeat_ngram` are what counts here.
        limits: int32 (batch,), the longest that a hypothesis of each sentence may be.
        prefix_ids: int32 (batch, prefix_length), what hypotheses must start with, padded at the
            right; None for nothing.
        end_id: the symbol that ends a sequence; never within a prefix.
        pad_id: the symbol that no hypothesis contains.
    """

    MOST_EXCLUDED = 2  # symbols that `is_excluded` may exclude at one step

    def __init__(
        self,
        options: SearchOptions,
        limits: Tensor,
        prefix_ids: Tensor | None,
        end_id: int,
        pad_id: int,
    ):
        self.no_repeat_ngram = options.no_repeat_ngram
        self.min_lengths = ops.minimum(options.min_length, limits)
        self.prefix_ids = None if prefix_ids is None else ops.cast(prefix_ids, "int32")
        self.end_id = end_id
        self.pad_id = pad_id

    def is_excluded(self, tokens: Tensor, position: Tensor) -> Tensor:
        """Which of the symbols (batch, beam_size, n) may not follow: padding, and an early end."""
        too_short = (position + 1 < self.min_lengths)[:, None, None]
        return ops.equal(tokens, self.pad_id) | (ops.equal(tokens, self.end_id) & too_short)

    def allowed(self, live_ids: Tensor, position: Tensor, vocab_size: int) -> Tensor | None:
        """Which symbols may follow, as far as that depends on what was there before.

        Args:
            live_ids: int32 (batch, beam_size, length), hypotheses from the start symbol on.
            position: int32 (batch,), of their last symbols.
            vocab_size: number of symbols.

        Returns:
            Boolean, broadcastable to (batch, beam_size, vocab_size); None if all may.
        """
        allowed = None
        if self.no_repeat_ngram:
            allowed = self._repeats_nothing(live_ids, position, vocab_size)
        if self.prefix_ids is not None:
            is_free, forced = self._prefix(position, vocab_size)
            # What is forced may repeat itself.
            allowed = (is_free if allowed is None else is_free & allowed) | forced
        return allowed

    def _prefix(self, position, vocab_size):
        """Whether the prefixes are over, and the symbols that they force where they are not."""
        # One column more, of padding: a prefix may have none, and is over behind its last.
        prefix_ids = ops.pad(self.prefix_ids, [(0, 0), (0, 1)], constant_values=self.pad_id)
        position = ops.minimum(position, ops.shape(prefix_ids)[1] - 1)
        symbols = at_position(prefix_ids[:, None], position)[..., None]
        is_free = ops.equal(symbols, self.pad_id)
        is_symbol = ops.equal(ops.arange(vocab_size, dtype="int32"), symbols)
        return is_free, is_symbol & ops.logical_not(is_free)

    def _repeats_nothing(self, live_ids, position, vocab_size):
        batch, beam_size, length = ops.shape(live_ids)
        before = self.no_repeat_ngram - 1
        # An n-gram that begins at `starts` has its last symbol `before` symbols later.
        starts = ops.arange(length, dtype="int32")
        comes_again = ops.broadcast_to(
            (starts >= 1) & (starts + before <= position[:, None, None]), (batch, beam_size, length)
        )
        for i in range(before):
            # Shifted, with the wrapped end out of the question by the condition above.
            symbols = ops.roll(live_ids, -i, axis=2)
            last = at_position(live_ids, ops.maximum(position - before + 1 + i, 0))
            comes_again = comes_again & ops.equal(symbols, last[..., None])
        repeated = ops.where(comes_again, ops.roll(live_ids, -before, axis=2), self.pad_id)
        rows = ops.reshape(ops.arange(batch * beam_size, dtype="int32"), (batch, beam_size, 1))
        places = ops.reshape(rows * vocab_size + repeated, (-1, 1))
        flat = ops.ones((batch * beam_size * vocab_size,), "int32")
        flat = ops.scatter_update(flat, places, ops.zeros_like(places[:, 0]))
        return ops.reshape(ops.cast(flat, "bool"), (batch, beam_size, vocab_size))
