"""Reduces a treebank's trees to what a parser learns, without functions and traces."""

import re
from collections.abc import Iterator

from keras_transformer.errors import UserError
from keras_transformer.parsing.trees import ROOT, ROOT_LABELS, Close, Leaf, Open, Tree

TRACE = "-NONE-"  # the tag of silent elements, such as traces

_FUNCTION = re.compile(r"(?<=.)[-=].*")


def base_label(label: str) -> str:
    """A label without functions and indices: the part before its first `-` or `=`.

    A label that begins with a hyphen, such as `-LRB-` or `-NONE-`, stays whole.

    Example:
        >>> base_label("NP-SBJ-1"), base_label("NP=2"), base_label("-LRB-")
        ('NP', 'NP', '-LRB-')
    """
    return label if label.startswith("-") else _FUNCTION.sub("", label)


def normalize(tree: Tree) -> Tree:
    """The tree that a parser should find (paper, section 6.3).

    This removes functions and indices of labels, traces, constituents that are then empty, brackets
    without a label, and the bracket around the sentence. A constituent whose only child has the
    same label stays, since EVALB counts both. Several constituents, or a single word, get the root
    `TOP`, so that there is always one root.

    Returns:
        A tree with one root, of at least one word.

    Raises:
        UserError: the tree has no words except traces.

    Example:
        >>> format_tree(normalize(parse_tree("( (S (NP-SBJ (-NONE- *)) (VP (VB Go))))")))
        '(S (VP (VB Go)))'
    """
    kept = without_empty(
        Open(base_label(item.label)) if isinstance(item, Open) else item
        for item in _without_unlabelled(tree)
        if not (isinstance(item, Leaf) and item.tag == TRACE)
    )
    if not kept:
        raise UserError("the tree has only traces, no words")
    kept = [Open(ROOT), *kept, Close()]
    while kept[0].label in ROOT_LABELS and _is_constituent(kept[1:-1]):
        kept = kept[1:-1]
    if kept[0].label in ROOT_LABELS:
        kept = [Open(ROOT), *kept[1:]]
    return tuple(kept)


def _without_unlabelled(tree: Tree) -> Iterator[Open | Leaf | Close]:
    """Yields the items of a tree except brackets without a label."""
    open_labels: list[str] = []
    for item in tree:
        if isinstance(item, Open):
            open_labels.append(item.label)
        if isinstance(item, Leaf) or open_labels[-1]:
            yield item
        if isinstance(item, Close):
            open_labels.pop()


def without_empty(items) -> list:
    """The items of a tree without empty constituents."""
    kept: list[Open | Leaf | Close] = []
    for item in items:
        if isinstance(item, Close) and kept and isinstance(kept[-1], Open):
            kept.pop()
        else:
            kept.append(item)
    return kept


def _is_constituent(items) -> bool:
    """Whether the items are exactly one constituent, not several and not a word."""
    depth = 0
    for index, item in enumerate(items):
        depth += isinstance(item, Open) - isinstance(item, Close)
        if depth == 0:
            return index > 0 and index == len(items) - 1
    return False
