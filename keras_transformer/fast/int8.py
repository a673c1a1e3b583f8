"""Products of 8-bit integers in shapes that XLA multiplies fast."""

from keras import ops

from keras_transformer.machine import processor

_FEWEST_ROWS = 8  # for which XLA uses the matrix unit; six rows take it twice as long
_COLUMNS = 32  # XLA lays out matrices of a multiple of this number of columns fast


def enough_rows(rows):
    """Adds rows of zeros to a few rows, so that XLA multiplies them in the matrix unit.

    Args:
        rows: (number of rows, width).

    Returns:
        `rows`, if there are enough, if their number is unknown or if there is no matrix unit.
    """
    count = rows.shape[0]
    is_few = isinstance(count, int) and 0 < count < _FEWEST_ROWS  # JAX may have a symbol
    if not is_few or not processor.has_matrix_unit():
        return rows
    return ops.pad(rows, [(0, _FEWEST_ROWS - count), (0, 0)])


def whole_columns(count: int) -> int:
    """Rounds a number of columns up to a multiple of 32, so that XLA lays out the matrix fast.

    A vocabulary may have any size: 10,000 symbols become 10,016 columns.
    """
    return count + -count % _COLUMNS
