"""Trees as two symbols a word: what opens before it, then its tag and how much closes behind it.

`(S(NP NNS/1 (VP VBP/1 ( ./1` is `(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))`. A sentence of n words
has 2n symbols, and in a source of two symbols a word each word stands where its two do, so that the
decoder need not count. Labels of closing brackets follow from those of the opening ones. This is
parsing as sequence labelling (Gomez-Rodriguez and Vilares, 2018), in two parts, so that there are
only some hundreds of symbols.
"""

import re

from keras_transformer.parsing.linearization import is_opening
from keras_transformer.parsing.trees import Leaf, Open, Tree

_NOTHING_OPENS = "("
_TAG_AND_CLOSING = re.compile(r"(.+)/(\d{1,9})")


def word_symbols(tree: Tree) -> str:
    """The symbols of a tree of one root, separated by spaces.

    Example:
        >>> word_symbols(parse_tree("(S (NP (NNS Dogs)) (VP (VBP bark)))"))
        '(S(NP NNS/1 (VP VBP/2'
    """
    symbols, opening = [], ""
    tag, closing = None, 0
    for item in tree:
        if isinstance(item, Open | Leaf) and tag:
            symbols.append(f"{tag}/{closing}")
            tag, closing = None, 0
        if isinstance(item, Open):
            opening += f"({item.label}"
        elif isinstance(item, Leaf):
            symbols.append(opening or _NOTHING_OPENS)
            opening, tag = "", item.tag
        else:
            closing += 1
    return " ".join([*symbols, f"{tag}/{closing}"])


def as_brackets(symbols: str) -> str:
    """The same tree in the symbols of `linearize(tree, keep_tags=True)`.

    Never fails: what closes nothing is left out, what is no symbol of a word is kept as it is.

    Example:
        >>> as_brackets("(S(NP NNS/1 (VP VBP/2")
        '(S (NP NNS NP) (VP VBP VP) S)'
    """
    brackets, open_labels = [], []
    for symbol in symbols.split():
        if is_opening(symbol):
            labels = [label for label in symbol.split("(") if label]
            open_labels += labels
            brackets += [f"({label}" for label in labels]
        elif found := _TAG_AND_CLOSING.fullmatch(symbol):
            brackets.append(found[1])
            closing = min(int(found[2]), len(open_labels))
            brackets += [f"{open_labels.pop()})" for _ in range(closing)]
        else:
            brackets.append(symbol)
    return " ".join(brackets)
