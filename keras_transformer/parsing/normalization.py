"""Reduces a treebank's trees to what a parser learns: no functions, no traces."""

import re

from keras_transformer.errors import UserError
from keras_transformer.parsing.trees import ROOT, ROOT_LABELS, Close, Leaf, Open, Tree

TRACE = "-NONE-"  # the tag of what has no sound: traces, zero elements

_FUNCTION = re.compile(r"(?<=.)[-=].*")


def base_label(label: str) -> str:
    """A label without functions and indices: what is before its first `-` or `=`.

    A label that begins with one, such as `-LRB-` or `-NONE-`, is whole.

    Example:
        >>> base_label("NP-SBJ-1"), base_label("NP=2"), base_label("-LRB-")
        ('NP', 'NP', '-LRB-')
    """
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def normalize(tree: Tree) -> Tree:
    """The tree that a parser is to find (paper, section 6.3).

    Functions and indices of labels go, then traces, then constituents that this leaves empty, and
    the bracket around the sentence. A constituent that has another of the same label as its only
    child stays, as EVALB counts both. Several constituents, or a word alone, in the bracket around
    the sentence stay in one labelled `TOP`, so that there is always one root.

    Returns:
        A tree with one root, of at least one word.

    Raises:
        UserError: the tree has no word but traces.

    Example:
        >>> format_tree(normalize(parse_tree("( (S (NP-SBJ (-NONE- *)) (VP (VB Go))))")))
        '(S (VP (VB Go)))'
    """
    kept = without_empty(
        Open(base_label(item.label)) if isinstance(item, Open) else item
        for item in tree
        if not (isinstance(item, Leaf) and item.tag == TRACE)
    )
    while kept and kept[0].label in ROOT_LABELS and _is_constituent(kept[1:-1]):
        kept = kept[1:-1]
    if not kept:
        raise UserError("expected a tree with words, found one of traces alone")
    if kept[0].label in ROOT_LABELS:
        kept = [Open(ROOT), *kept[1:]]
    return tuple(kept)


def without_empty(items) -> list:
    """The items of a tree without brackets around nothing."""
    kept: list[Open | Leaf | Close] = []
    for item in items:
        if isinstance(item, Close) and kept and isinstance(kept[-1], Open):
            kept.pop()
        else:
            kept.append(item)
    return kept


def _is_constituent(items) -> bool:
    """Whether the items are one constituent, and not several, or a word."""
    depth = 0
    for index, item in enumerate(items):
        depth += isinstance(item, Open) - isinstance(item, Close)
        if depth == 0:
            return index > 0 and index == len(items) - 1
    return False
