"""The cache of a decoder's layers: entries of earlier positions, for all beams of a search.

A cache has the shape (batch, ..., size * beam_size, width): the entries of a position follow each
other, one for each beam. Reordering beams moves no entry; a `Past` says which ones a beam sees.
"""

import math
from typing import Any

from keras import ops

from keras_transformer.fast.rows import write_rows

Tensor = Any


class Past:
    """The past of the beams of a search, in one step: what they see in caches, where they write.

    Args:
        position: int32 (batch,), the position that the step computes in each sentence.
        visible: boolean (batch, 1, beam_size, size * beam_size), true where a cached entry, of one
            position and beam, belongs to the past of the query's beam, this step included. The
            number of beams is static.
        in_place: whether a graph may write in the memory of a cache, which is then lost.

    Attributes:
        position, visible, in_place: as above.
        beam_size: the number of beams.
    """

    def __init__(self, position: Tensor, visible: Tensor, in_place: bool = False):
        self.position = position
        self.visible = visible
        self.in_place = in_place
        self.beam_size: int = visible.shape[2]
        self._batch, _, _, self._length = ops.shape(visible)
        self._indices: dict[int, Tensor] = {}  # by the number of heads; all layers share them

    def write(self, cache: Tensor, entries: Tensor) -> Tensor:
        """Writes this step's entries, (batch, ..., beam_size, width), and returns the new cache.

        It writes rows of a matrix, each of which holds the entries of all beams at one position.
        Example: 2 sentences, at positions 1 and 2, room for 3 positions, and one head:

            rows of the matrix    0 1 2 | 3 4 5    sentence 0 | sentence 1
            rows to write           1         5
        """
        *outer, _, width = cache.shape[1:]
        row = (-1, self.beam_size * width)
        rows, new = ops.reshape(cache, row), ops.reshape(entries, row)
        index = self._index(heads=math.prod(outer))  # 1 for a cache without an axis of heads
        if self.in_place:
            rows = write_rows(rows, index, new)
        else:
            rows = ops.scatter_update(rows, index[:, None], new)
        return ops.reshape(rows, (self._batch, *outer, self._length, width))

    def _index(self, heads):
        """The rows that `write` writes, in caches of so many heads: int32 (batch * heads,)."""
        if heads not in self._indices:
            first = ops.reshape(ops.arange(self._batch * heads, dtype="int32"), (-1, heads))
            first = first * (self._length // self.beam_size)
            self._indices[heads] = ops.reshape(first + self.position[:, None], (-1,))
        return self._indices[heads]

    def read(self, cache: Tensor, positions: Tensor) -> Tensor:
        """Reads the entries of each beam's past at some positions.

        Args:
            cache: (batch, size * beam_size, width).
            positions: int32 (batch, n), none after the last one written; negative ones read zeros.

        Returns:
            (batch, beam_size, n, width).
        """
        batch, length, beam_size = self._batch, self._length, self.beam_size
        existing = ops.maximum(positions, 0)
        rows = ops.reshape(cache, (batch, length // beam_size, beam_size, cache.shape[-1]))
        # (batch, n, beam_size, width)
        rows = ops.take_along_axis(rows, existing[:, :, None, None], axis=1)
        paths = ops.reshape(self.visible, (batch, beam_size, length // beam_size, beam_size))
        # (batch, beam_size, n, beam_size)
        paths = ops.take_along_axis(ops.cast(paths, "int32"), existing[:, None, :, None], axis=2)
        paths = ops.swapaxes(ops.argmax(paths, axis=-1), 1, 2)  # (batch, n, beam_size)
        rows = ops.take_along_axis(rows, paths[..., None], axis=2)  # (batch, n, beam_size, width)
        return ops.where((positions >= 0)[:, None, :, None], ops.swapaxes(rows, 1, 2), 0)
