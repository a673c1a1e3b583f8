"""What a decoder's layers remember of the positions before, for all beams of a search.

A cache is (..., size, beam_size * width): at each position a row of what every beam wrote there. It
is never moved when beams are reordered; `visible` says which entries a beam goes back to.
"""

import math

from keras import ops


def write(cache, row, position):
    """The cache (..., size, n) with a row (..., n) at a position.

    A scatter of rows, which backends do in place inside of a loop.
    """
    *outer, size, width = ops.shape(cache)
    count = math.prod(outer)
    rows = ops.reshape(cache, (count * size, width))
    here = size * ops.arange(count, dtype="int32") + position
    rows = ops.scatter_update(rows, here[:, None], ops.reshape(row, (count, width)))
    return ops.reshape(rows, (*outer, size, width))


def read(cache, visible, positions):
    """What each beam goes back to at some positions.

    Args:
        cache: (batch, size, beam_size * width).
        visible: boolean (batch, 1, beam_size, size * beam_size), which cached positions of which
            beams each beam goes back to.
        positions: integer (n,), up to the one written last; before the first, there are zeros.

    Returns:
        (batch, beam_size, n, width).
    """
    batch, size, width = ops.shape(cache)
    beam_size = ops.shape(visible)[2]
    existing = ops.maximum(positions, 0)
    rows = ops.reshape(cache, (batch, size, beam_size, width // beam_size))
    rows = ops.take(rows, existing, axis=1)
    paths = ops.reshape(visible, (batch, beam_size, size, beam_size))
    paths = ops.argmax(ops.cast(ops.take(paths, existing, axis=2), "int32"), axis=-1)
    rows = ops.take_along_axis(rows, ops.swapaxes(paths, 1, 2)[..., None], axis=2)
    return ops.where((positions >= 0)[:, None], ops.swapaxes(rows, 1, 2), 0)
