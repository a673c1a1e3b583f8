"""The target sequences that a search is to find: their start, limits and special symbols."""

from typing import Any, NamedTuple

from keras import ops

from keras_transformer.search.terms import Terms

Tensor = Any


class Required(NamedTuple):
    """Symbols that the translation of each sentence must contain.

    Attributes:
        prefix_ids: integer (batch, prefix_length), symbols that it must start with, without a start
            symbol, padded at the right; None for no prefix.
        first_id: the symbol before them, such as the language in M2M100: an integer for all
            sentences. It has probability 1, and counts in the length by which a score is divided.
            None for none.
        terms: terms that it must contain; None for none.
    """

    prefix_ids: Tensor | None = None
    first_id: Tensor | None = None
    terms: Terms | None = None


class Targets(NamedTuple):
    """The start, the limits and the special symbols of the target sequences of a search.

    Attributes:
        start_ids: int32 (batch,), the start symbol of each sentence.
        max_lengths: int32 (batch,), the maximum length of each sentence's hypotheses, with prefix
            and end symbol (in the paper, the length of the source plus 50).
        buffer_length: length of the ids that the search returns, which also caps all limits; None
            for `max(max_lengths)`. Compilers that need static shapes (XLA) need an integer.
        prefix_ids: int32 (batch, prefix_length), symbols that each hypothesis must start with,
            padded at the right; None for no prefix. A prefix that leaves no room for the end symbol
            is cut.
        end_id: the symbol that ends a sequence.
        pad_id: the symbol that fills the ids after the end. No hypothesis contains it.
        first_id: the symbol that all hypotheses begin with, see `Required`; None for none. The
            limits count it, and `prefix_ids` begin with it too.
        terms: terms that each hypothesis must contain; None for none. A sentence has no hypothesis
            if its limit leaves too little room for them.
    """

    start_ids: Tensor
    max_lengths: Tensor
    buffer_length: Tensor = None
    prefix_ids: Tensor | None = None
    end_id: int = 2
    pad_id: int = 0
    first_id: Tensor | None = None
    terms: Terms | None = None

    def within_buffer(self) -> "Targets":
        """Returns int32 tensors, with a buffer length, and limits that it caps."""
        max_lengths, buffer_length = ops.cast(self.max_lengths, "int32"), self.buffer_length
        if buffer_length is None:
            buffer_length = ops.max(max_lengths, initial=0)
        prefix_ids = self.prefix_ids
        return self._replace(
            start_ids=ops.cast(self.start_ids, "int32"),
            max_lengths=ops.clip(max_lengths, 0, buffer_length),
            buffer_length=buffer_length,
            prefix_ids=None if prefix_ids is None else ops.cast(prefix_ids, "int32"),
        )
