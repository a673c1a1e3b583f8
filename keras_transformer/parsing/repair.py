"""Any symbols whatever as a tree over the words of a sentence."""

from collections.abc import Sequence

from keras_transformer.errors import UserError
from keras_transformer.parsing.linearization import WORD, is_closing, is_opening
from keras_transformer.parsing.normalization import without_empty
from keras_transformer.parsing.trees import ROOT, Close, Leaf, Open, Tree


def repair(symbols: str, words: Sequence[str]) -> Tree:
    """The tree that these symbols most nearly are: `delinearize`, of symbols that may be wrong.

    Read from left to right:

    - An opening bracket that comes first is the root's, which nothing closes before the end. Where
      something else comes first, the root is labelled `TOP`.
    - A closing bracket closes the constituent of its label that was opened last, and all within it;
      `)` alone the one that was opened last. Where there is none, it is left out.
    - A symbol that is no bracket stands for the next word; behind the last word, it is left out.
    - At the end all but the root is closed. Words that nothing stands for are the root's.
    - Constituents without a word are left out.

    Args:
        symbols: separated by spaces.
        words: at least one, none of them with a space.

    Returns:
        A tree of one root over exactly these words.

    Raises:
        UserError: there is no word.

    Example:
        >>> format_tree(repair("(S (NP XX (VP XX S)", ["Dogs", "bark", "."]))
        '(S (NP (XX Dogs) (VP (XX bark))) (XX .))'
    """
    if not words:
        raise UserError("expected words to make a tree of, found none")
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
