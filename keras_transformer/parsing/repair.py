"""Turns any sequence of symbols into a tree over the words of a sentence."""

from collections.abc import Sequence

from keras_transformer.errors import UserError
from keras_transformer.parsing.linearization import WORD, is_closing, is_opening
from keras_transformer.parsing.normalization import without_empty
from keras_transformer.parsing.trees import ROOT, Close, Leaf, Open, Tree


def repair(symbols: str, words: Sequence[str]) -> Tree:
    """Returns the tree closest to these symbols: like `delinearize`, but the symbols may be wrong.

    The symbols are read from left to right:

    - An opening bracket at the beginning opens the root, which stays open until the end. If another
      symbol comes first, the root is labelled `TOP`.
    - A closing bracket closes the last opened constituent of its label, and all within it. `)`
      alone closes the last opened constituent. If there is none, the bracket is dropped.
    - Any other symbol stands for the next word; after the last word, it is dropped.
    - At the end, all constituents are closed. Words without a symbol become children of the root.
    - Constituents without a word are dropped.

    Args:
        symbols: symbols separated by spaces.
        words: the words, at least one, all without spaces.

    Returns:
        A tree with one root over exactly these words.

    Raises:
        UserError: there is no word.

    Example:
        >>> format_tree(repair("(S (NP XX (VP XX S)", ["Dogs", "bark", "."]))
        '(S (NP (XX Dogs) (VP (XX bark))) (XX .))'
    """
    if not words:
        raise UserError("words must have at least one word to make a tree of: found none")
    tree, open_labels = [], []
    remaining = iter(words)

    def open_(label):
        open_labels.append(label)
        tree.append(Open(label))

    def close():
        open_labels.pop()
        tree.append(Close())

    for symbol in symbols.split():
        if is_opening(symbol):
            if is_name(symbol[1:]):
                open_(symbol[1:])
        elif is_closing(symbol):
            inner, label = open_labels[1:], symbol[:-1]
            if not label and inner:
                close()
            elif label in inner:
                for _ in range(inner[::-1].index(label) + 1):
                    close()
            elif label in open_labels:
                for _ in inner:
                    close()
        elif (word := next(remaining, None)) is not None:
            if not open_labels:
                open_(ROOT)
            tree.append(Leaf(symbol if is_name(symbol) else WORD, word))
    if not open_labels:
        open_(ROOT)
    for _ in open_labels[1:]:
        close()
    tree += [Leaf(WORD, word) for word in remaining]
    close()
    return tuple(without_empty(tree))


def is_name(text: str) -> bool:
    """Whether a text can be a label or a tag in the treebank's notation."""
    return bool(text) and "(" not in text and ")" not in text
