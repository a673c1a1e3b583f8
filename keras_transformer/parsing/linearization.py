"""Trees as sentences of another language ("Grammar as a Foreign Language", Vinyals et al., 2015).

`(S (NP XX XX NP) (VP XX VP) . S)`: each constituent is an opening bracket, its children and a
closing bracket. A word becomes the placeholder `XX`, and punctuation its tag.
"""

from collections.abc import Sequence

from keras_transformer.errors import UserError
from keras_transformer.parsing.trees import Close, Leaf, Open, Tree

WORD = "XX"  # the placeholder of a word
PUNCTUATION_TAGS = frozenset({",", ":", "``", "''", "."})  # scoring needs these


def linearize(tree: Tree, keep_tags: bool = False) -> str:
    """The symbols of a tree, separated by spaces.

    Args:
        tree: a tree in which no word's tag begins with a bracket.
        keep_tags: whether to write each word's tag, rather than `XX` for all but punctuation.

    Example:
        >>> linearize(parse_tree("(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))"))
        '(S (NP XX NP) (VP XX VP) . S)'
    """
    symbols, open_labels = [], []
    for item in tree:
        if isinstance(item, Open):
            open_labels.append(item.label)
            symbols.append(f"({item.label}")
        elif isinstance(item, Close):
            symbols.append(f"{open_labels.pop()})")
        else:
            symbols.append(item.tag if keep_tags or item.tag in PUNCTUATION_TAGS else WORD)
    return " ".join(symbols)


def delinearize(symbols: str, words: Sequence[str]) -> Tree:
    """The tree of these symbols and words: the inverse of `linearize`.

    Raises:
        UserError: the symbols are not one tree over these words; `repair` accepts any symbols.

    Example:
        >>> format_tree(delinearize("(NP XX NP)", ["Dogs"]))
        '(NP (XX Dogs))'
    """
    tree: list[Open | Leaf | Close] = []
    open_labels: list[str] = []
    remaining = iter(words)
    for index, symbol in enumerate(symbols.split()):
        if index and not open_labels:
            raise UserError(
                f"symbol {index + 1}: expected no symbol after the tree, found {symbol!r}"
            )
        if is_opening(symbol):
            open_labels.append(symbol[1:])
            tree.append(Open(symbol[1:]))
        elif is_closing(symbol):
            if not open_labels or open_labels.pop() != symbol[:-1] or isinstance(tree[-1], Open):
                raise UserError(
                    f"symbol {index + 1}: {symbol!r} closes no open constituent with a word"
                )
            tree.append(Close())
        else:
            word = next(remaining, None)
            if word is None or not open_labels:
                raise UserError(f"symbol {index + 1}: {symbol!r} is in no bracket, or has no word")
            tree.append(Leaf(symbol, word))
    if open_labels or not tree or next(remaining, None) is not None:
        raise UserError(f"the symbols are not a whole tree over {len(words)} words: {symbols!r}")
    return tuple(tree)


def is_opening(symbol: str) -> bool:
    """Whether a symbol opens a constituent."""
    return symbol.startswith("(")


def is_closing(symbol: str) -> bool:
    """Whether a symbol closes a constituent."""
    return symbol.endswith(")") and not is_opening(symbol)
