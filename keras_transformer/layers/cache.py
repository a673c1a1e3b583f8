"""The cache of a decoder's layers: rows of earlier positions, for all beams of a search.

A cache is (..., size, beam_size * width): at each position a row of what every beam wrote there. It
is never moved when beams are reordered; `visible` says which entries a beam goes back to.
"""

import math

from keras import ops


def write(cache, row, position):
    """The cache (batch, ..., size, n) with a row (batch, ..., n) at a position, int32 (batch,).

    A scatter of rows, which backends do in place inside of a loop.
    """
    batch, *outer, size, width = ops.shape(cache)
    each = math.prod(outer)
    count = batch * each
    rows = ops.reshape(cache, (count * size, width))
    here = size * ops.arange(count, dtype="int32") + ops.repeat(position, each)
    rows = ops.scatter_update(rows, here[:, None], ops.reshape(row, (count, width)))
    return ops.reshape(rows, (batch, *outer, size, width))


def read(cache, visible, positions):
    """Reads the rows that each beam continues, at some positions.

    Args:
        cache: (batch, size, beam_size * width).
        visible: boolean (batch, 1, beam_size, size * beam_size), which cached positions of which
            beams each beam goes back to.
        positions: int32 (batch, n), up to the one written last; before the first, there are zeros.

    Returns:
        (batch, beam_size, n, width).
    """
    batch, size, width = ops.shape(cache)
    beam_size = ops.shape(visible)[2]
    existing = ops.maximum(positions, 0)
    rows = ops.reshape(cache, (batch, size, beam_size, width // beam_size))
    rows = ops.take_along_axis(rows, existing[:, :, None, None], axis=1)
    paths = ops.cast(ops.reshape(visible, (batch, beam_size, size, beam_size)), "int32")
    paths = ops.take_along_axis(paths, existing[:, None, :, None], axis=2)
    paths = ops.swapaxes(ops.argmax(paths, axis=-1), 1, 2)
    rows = ops.take_along_axis(rows, paths[..., None], axis=2)
    return ops.where((positions >= 0)[:, None, :, None], ops.swapaxes(rows, 1, 2), 0)
