"""English constituency parsing (paper, section 6.3): treebanks, trees as symbols, a parser."""

from keras_transformer.options.parsing import ParsingOptions
from keras_transformer.parsing.linearization import delinearize, linearize
from keras_transformer.parsing.normalization import normalize
from keras_transformer.parsing.parser import Parser, search_defaults, trees_of
from keras_transformer.parsing.repair import repair
from keras_transformer.parsing.treebank import TreebankPairs, normalized_trees
from keras_transformer.parsing.trees import format_tree, parse_tree, read_trees, words
from keras_transformer.parsing.vocabulary import ParsingTokenizer
from keras_transformer.parsing.word_symbols import as_brackets, word_symbols

__all__ = [
    "Parser",
    "ParsingOptions",
    "ParsingTokenizer",
    "TreebankPairs",
    "as_brackets",
    "delinearize",
    "format_tree",
    "linearize",
    "normalize",
    "normalized_trees",
    "parse_tree",
    "read_trees",
    "repair",
    "search_defaults",
    "trees_of",
    "word_symbols",
    "words",
]
