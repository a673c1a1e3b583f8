"""The cache of a decoder's layers: rows of earlier positions, for all beams of a search.

A cache has the shape (..., size, beam_size * width): one row per position, with an entry of each
beam. Reordering beams moves no entry; `visible` says which entries belong to a beam's past.
"""

import math

from keras import ops

from keras_transformer.layers.shapes import flat, reshape


def write(cache, row, position):
    """Writes a row (batch, ..., n) to a cache (batch, ..., size, n) at `position`, int32 (batch,).

    It is a scatter of rows, which backends do in place inside a loop.
    """
    batch, *outer, size, width = shape = ops.shape(cache)
    each = math.prod(outer)
    # The row of each index (batch, each) in the flat cache.
    here = reshape(size * ops.arange(batch * each, dtype="int32"), (batch, each))
    here = ops.reshape(here + position[:, None], (-1, 1))
    rows = ops.scatter_update(flat(cache), here, ops.reshape(row, (-1, width)))
    return reshape(rows, shape)


def read(cache, visible, positions):
    """Reads the entries of each beam's past at some positions.

    Args:
        cache: (batch, size, beam_size * width).
        visible: boolean (batch, 1, beam_size, size * beam_size), true where a cached entry, of one
            position and beam, belongs to the past of the query's beam.
        positions: int32 (batch, n), none after the last one written; negative ones read zeros.

    Returns:
        (batch, beam_size, n, width).
    """
    batch, size, width = ops.shape(cache)
    beam_size = ops.shape(visible)[2]
    existing = ops.maximum(positions, 0)
    rows = ops.reshape(cache, (batch, size, beam_size, width // beam_size))
    # (batch, n, beam_size, width)
    rows = ops.take_along_axis(rows, existing[:, :, None, None], axis=1)
    paths = ops.cast(ops.reshape(visible, (batch, beam_size, size, beam_size)), "int32")
    # (batch, beam_size, n, beam_size)
    paths = ops.take_along_axis(paths, existing[:, None, :, None], axis=2)
    paths = ops.swapaxes(ops.argmax(paths, axis=-1), 1, 2)  # (batch, n, beam_size)
    rows = ops.take_along_axis(rows, paths[..., None], axis=2)  # (batch, n, beam_size, width)
    return ops.where((positions >= 0)[:, None, :, None], ops.swapaxes(rows, 1, 2), 0)
