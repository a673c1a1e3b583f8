"""Treebank files as pairs of sentences and trees to learn translation from."""

import functools
import os
from collections.abc import Callable, Sequence

import tensorflow as tf

from keras_transformer.data.sources import SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.parsing.normalization import normalize
from keras_transformer.parsing.trees import Tree, numbered_trees, words


def read_normalized(path: str | os.PathLike) -> list[Tree]:
    """The normalised trees of a file, in order.

    Raises:
        UserError: as `read_trees`, or a tree is of traces alone.
    """
    trees = []
    for number, tree in numbered_trees(path):
        try:
            trees.append(normalize(tree))
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None
    return trees


class TreebankPairs(SentencePairs):
    """The sentences of treebank files, and their trees in symbols.

    Args:
        files: in the Penn Treebank's notation.
        as_symbols: how a tree is written: `linearize` or `word_symbols`.

    Example:
        >>> TreebankPairs(["train.mrg"], linearize).check()
        3396
    """

    def __init__(self, files: Sequence[str | os.PathLike], as_symbols: Callable[[Tree], str]):
        self.files, self.as_symbols = [os.fspath(file) for file in files], as_symbols
        self.description = ", ".join(self.files)

    @functools.cached_property
    def trees(self) -> list[Tree]:
        """The normalised trees."""
        return [tree for file in self.files for tree in read_normalized(file)]

    def pairs(self):
        return [(" ".join(words(tree)), self.as_symbols(tree)) for tree in self.trees]

    def dataset(self) -> tf.data.Dataset:
        sentences, symbols = zip(*self.pairs(), strict=True)
        return tf.data.Dataset.from_tensor_slices((list(sentences), list(symbols)))

    def check(self) -> int:
        return len(self.trees)
