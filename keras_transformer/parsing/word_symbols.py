"""Trees as two symbols for each word: the brackets that open before it; its tag and closing count.

`(S(NP NNS/1 (VP VBP/1 ( ./1` is `(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))`. A sentence of n words
has 2n symbols. If the source has two symbols for each word too, both sides align by position, and
the decoder need not count. Labels of closing brackets follow from the opening ones. This is parsing
as sequence labelling (Gomez-Rodriguez and Vilares, 2018), split in two so that there are only a few
hundred symbols.
"""

import re

from keras_transformer.parsing.linearization import is_opening
from keras_transformer.parsing.trees import Leaf, Open, Tree

_NOTHING_OPENS = "("
_TAG_AND_CLOSING = re.compile(r"(.+)/(\d{1,9})")


def word_symbols(tree: Tree) -> str:
    """The symbols of a tree with one root, separated by spaces.

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

    Never fails: surplus closing brackets are dropped, and unknown symbols are kept.

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
