"""Trees as sequences of brackets and leaves, and their notation in the Penn Treebank."""

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from keras_transformer.errors import UserError
from keras_transformer.text.text_files import read_lines

ROOT_LABELS = frozenset({"", "TOP", "ROOT", "S1"})  # around a sentence's tree, not part of it
ROOT = "TOP"

_TOKEN = re.compile(r"[()]|[^\s()]+")
_BRACKET_WORDS = str.maketrans({"(": "-LRB-", ")": "-RRB-"})


class Open(NamedTuple):
    """The opening bracket of a constituent."""

    label: str


class Leaf(NamedTuple):
    """A word with its part-of-speech tag, in the Penn Treebank `(NN dog)`."""

    tag: str
    word: str


class Close(NamedTuple):
    """The closing bracket of the constituent opened last."""


# A tree, from left to right. It is flat, so that depth has no limit and two trees compare at once.
Tree = tuple[Open | Leaf | Close, ...]


def words(tree: Tree) -> list[str]:
    """The words of a tree, including traces.

    Example:
        >>> words(parse_tree("(S (NP (NNS Dogs)) (VP (VBP bark)))"))
        ['Dogs', 'bark']
    """
    return [item.word for item in tree if isinstance(item, Leaf)]


def parse_tree(text: str) -> Tree:
    """Reads exactly one tree; raises `UserError` if the text holds none or several.

    Example:
        >>> parse_tree("(NP (NNS Dogs))")
        (Open(label='NP'), Leaf(tag='NNS', word='Dogs'), Close())
    """
    trees = [tree for _, tree in _trees([text], "tree")]
    if len(trees) != 1:
        raise UserError(f"the text must hold one tree: found {len(trees)}")
    return trees[0]


def read_trees(path: str | os.PathLike) -> Iterator[Tree]:
    r"""Yields the trees of a file in the Penn Treebank's notation (`.mrg`), plain or `.gz`.

    A tree may span several lines, and a line may hold several trees; a line `*x* ...` between trees
    is a comment. Words stay as written, with escapes such as `-LRB-` and `1\/2`.

    Args:
        path: the file. A tree may be in brackets without a label, or labelled `TOP`, `ROOT` or
            `S1`, which `normalize` removes.

    Raises:
        UserError: the file cannot be read, or a bracket, a word or a label is misplaced.

    Example:
        >>> sum(1 for _ in read_trees("train.mrg"))
        3
    """
    for _, tree in numbered_trees(path):
        yield tree


def numbered_trees(path: str | os.PathLike) -> Iterator[tuple[int, Tree]]:
    """Yields the trees of `read_trees`, each with the number of its first line."""
    return _trees(read_lines(path), path)


def _trees(lines: Iterable[str], path: str | os.PathLike) -> Iterator[tuple[int, Tree]]:
    tree: list[Any] = []
    label_may_follow = False
    # The index in `tree` where each begins; None for a leaf's bracket, which is not an item.
    open_brackets: list[Any] = []
    begins = number = 0

    def refuse(expected, found):
        raise UserError(f"{path}:{number}: expected {expected}, found {found}")

    for number, line in enumerate(lines, start=1):
        if not open_brackets and line.startswith("*x*"):
            continue
        for token in _TOKEN.findall(line):
            if token == "(":
                if not open_brackets:
                    tree, begins = [], number
                elif open_brackets[-1] is None:
                    refuse("a closing bracket behind a word", "an opening one")
                open_brackets.append(len(tree))
                tree.append(Open(""))
                label_may_follow = True
                continue
            if not open_brackets:
                refuse("an opening bracket", repr(token))
            if token == ")":
                begin = open_brackets.pop()
                if begin is not None:
                    if begin == len(tree) - 1:
                        refuse("a word or a bracket", f"({tree[begin].label}) with nothing in it")
                    tree.append(Close())
                if not open_brackets:
                    yield begins, tuple(tree)
            elif label_may_follow:
                tree[-1] = Open(token)
            else:
                begin = open_brackets[-1]
                if begin is None or begin != len(tree) - 1 or not tree[begin].label:
                    refuse("a bracket", f"the word {token!r} that has no tag of its own")
                tree[begin] = Leaf(tree[begin].label, token)
                open_brackets[-1] = None
            label_may_follow = False
    if open_brackets:
        refuse(
            f"the end of the tree that begins in line {begins}",
            f"the end of the file, {len(open_brackets)} brackets open",
        )


def format_tree(tree: Tree) -> str:
    """The tree in one line, which `parse_tree` can read.

    Brackets within words become `-LRB-` and `-RRB-`, to differ from the tree's brackets.

    Example:
        >>> format_tree((Open("NP"), Leaf("NNS", "Dogs"), Close()))
        '(NP (NNS Dogs))'
    """
    parts = []
    for item in tree:
        if isinstance(item, Close):
            parts.append(")")
            continue
        parts.append(" " if parts else "")
        if isinstance(item, Open):
            parts.append(f"({item.label}")
        else:
            parts.append(f"({item.tag} {item.word.translate(_BRACKET_WORDS)})")
    return "".join(parts)
