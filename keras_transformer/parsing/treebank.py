"""Treebank files as pairs of sentences and linearized trees, to train on like translations."""

import functools
import itertools
import os
import random
from collections.abc import Iterator, Sequence

from keras_transformer.data import Block, SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.options.parsing import ParsingOptions
from keras_transformer.parsing.linearization import linearize
from keras_transformer.parsing.normalization import normalize
from keras_transformer.parsing.substitution import substituted
from keras_transformer.parsing.trees import Tree, numbered_trees, words
from keras_transformer.parsing.word_symbols import word_symbols
from keras_transformer.text.text_files import as_paths, matching_files, refuse_pipes

_BLOCK_PAIRS = 1024


def normalized_trees(path: str | os.PathLike) -> Iterator[Tree]:
    """Yields the normalised trees of a file.

    Raises:
        UserError: as for `read_trees`, or a tree holds only traces.
    """
    for number, tree in numbered_trees(path):
        try:
            yield normalize(tree)
        except UserError as error:
            raise UserError(f"{path}:{number}: {error}") from None


class TreebankPairs(SentencePairs):
    """The sentences of treebank files, and their trees as symbols.

    Args:
        files: file in the Penn Treebank's notation, plain or `.gz`, or a list of files. A pattern
            such as `wsj/02/*.mrg` stands for its files, sorted by name.
        options: how trees are written and augmented.
        extra_files: additional trees, weighted by `options.extra_weight` (paper, section 6.3: the
            semi-supervised setting mixes in 17 million sentences parsed by other parsers). With a
            weight of 2.5, each occurs twice, and a random half of them once more.

    Example:
        >>> TreebankPairs(["train.mrg"], ParsingOptions()).check()
        3
    """

    task = "parsing"

    def __init__(
        self,
        files: str | os.PathLike | Sequence[str | os.PathLike],
        options: ParsingOptions,
        extra_files: str | os.PathLike | Sequence[str | os.PathLike] = (),
    ):
        self.files, self.extra_files = matching_files(files), matching_files(extra_files)
        self.options, self.linearization = options, options.linearization
        refuse_pipes(self.extra_files)
        self.description = ", ".join([*as_paths(files), *as_paths(extra_files)])

    @functools.cached_property
    def trees(self) -> list[Tree]:
        """The normalised trees of `files`, without `extra_files`, which may not fit in memory."""
        return [tree for file in self.files for tree in normalized_trees(file)]

    def as_pair(self, tree: Tree) -> tuple[str, str]:
        """The sentence of a tree, with words separated by spaces, and the tree's symbols."""
        in_words = self.linearization == "words"
        return " ".join(words(tree)), word_symbols(tree) if in_words else linearize(tree)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yields all pairs in order: trees, augmented copies, extra trees by weight."""
        yield from map(self.as_pair, self.trees)
        for seed in range(self.options.substituted):
            copies = substituted(self.trees, self.options.substituted_share, seed)
            yield from map(self.as_pair, copies)
        draw, weight = random.Random(0), self.options.extra_weight
        for file in self.extra_files:
            for tree in normalized_trees(file):
                times = int(weight) + (draw.random() < weight % 1)
                yield from [self.as_pair(tree)] * times

    def blocks(self) -> Iterator[Block]:
        """Yields all pairs in order.

        Raises:
            UserError: a file is not a treebank.
        """
        pairs, first = self.pairs(), 1
        while chosen := list(itertools.islice(pairs, _BLOCK_PAIRS)):
            sides = zip(*chosen, strict=True)
            source, target = ([text.encode("utf-8") for text in side] for side in sides)
            yield Block(source, target, first=first)
            first += len(chosen)
