"""Files of symbols that a vocabulary never splits."""

import os

from keras_transformer.errors import UserError
from keras_transformer.text.text_files import read_lines


def read_symbols(path: str | os.PathLike) -> tuple[str, ...]:
    """Reads the symbols for `SubwordTokenizer.with_symbols`: one a line; blank lines have none.

    Raises:
        UserError: the file cannot be read or has no symbol; a line has white space within it, or
            repeats another one.
    """
    symbols: dict[str, None] = {}
    for number, line in enumerate(read_lines(path), 1):
        symbol = line.strip()
        if len(symbol.split()) > 1:
            raise UserError(f"{path}:{number}: a symbol must have no white space: found {symbol!r}")
        if symbol in symbols:
            raise UserError(f"{path}:{number}: {symbol} is on an earlier line too: remove one")
        if symbol:
            symbols[symbol] = None
    if not symbols:
        raise UserError(f"{path}: the file has no symbol: write one on each line")
    return tuple(symbols)
