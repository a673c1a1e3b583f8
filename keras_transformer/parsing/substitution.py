"""Augments a treebank by exchanging constituents between trees (Shi et al., 2021)."""

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import cast

from keras_transformer.parsing.trees import Leaf, Open, Tree


def substituted(trees: Sequence[Tree], share: float, seed: int) -> Iterator[Tree]:
    """Yields each tree with some of its constituents replaced by others of the treebank.

    A constituent is replaced with probability `share`. The replacement is drawn from all
    constituents with the same label and the same label of the parent, and is copied unchanged.
    Leaves stay. If a tree of n words would get more than 2n + 10 words, it stays unchanged.

    Args:
        trees: trees with one root each, which is never replaced.
        share: probability of a replacement, from 0 to 1.
        seed: seed of the random choices.

    Example:
        >>> dogs = parse_tree("(S (NP (NNS Dogs)) (VP (VBP bark)))")
        >>> cats = parse_tree("(S (NP (NNS Cats)) (VP (VBP sleep)))")
        >>> [words(tree) for tree in substituted([dogs, cats], 0.5, seed=1)]
        [['Dogs', 'sleep'], ['Cats', 'sleep']]
    """
    draw = random.Random(seed)
    ends = [_ends(tree) for tree in trees]
    donors: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for number, tree in enumerate(trees):
        for begin, parent in _constituents(tree):
            donors[parent, cast(Open, tree[begin]).label].append((number, begin))

    def replaced(tree, tree_ends):
        items, index, open_labels = [], 0, []
        while index < len(tree):
            item = tree[index]
            if isinstance(item, Open):
                if open_labels and draw.random() < share:
                    number, begin = draw.choice(donors[open_labels[-1], item.label])
                    items += trees[number][begin : ends[number][begin] + 1]
                    index = tree_ends[index] + 1
                    continue
                open_labels.append(item.label)
            elif not isinstance(item, Leaf):
                open_labels.pop()
            items.append(item)
            index += 1
        return tuple(items)

    for tree, tree_ends in zip(trees, ends, strict=True):
        new = replaced(tree, tree_ends)
        yield new if _length(new) <= 2 * _length(tree) + 10 else tree


def _constituents(tree: Tree) -> Iterator[tuple[int, str]]:
    """Finds the start of each constituent except the root, and the label of its parent."""
    open_labels: list[str] = []
    for index, item in enumerate(tree):
        if isinstance(item, Open):
            if open_labels:
                yield index, open_labels[-1]
            open_labels.append(item.label)
        elif not isinstance(item, Leaf):
            open_labels.pop()


def _ends(tree: Tree) -> dict[int, int]:
    """Finds the end of the constituent that begins at each opening bracket."""
    ends, begun = {}, []
    for index, item in enumerate(tree):
        if isinstance(item, Open):
            begun.append(index)
        elif not isinstance(item, Leaf):
            ends[begun.pop()] = index
    return ends


def _length(tree: Tree) -> int:
    return sum(isinstance(item, Leaf) for item in tree)
