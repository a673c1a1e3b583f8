from .brackets import format_bracket_scores, score_trees
from .linearization import delinearize, linearize
from .normalization import normalize
from .parser import Parser, search_defaults, trees_of
from .repair import repair
from .treebank import ParsingOptions, TreebankPairs, normalized_trees
from .trees import format_tree, parse_tree, read_trees, words
from .vocabulary import ParsingTokenizer
from .word_symbols import as_brackets, word_symbols

__all__ = [
    "Parser",
    "ParsingOptions",
    "ParsingTokenizer",
    "TreebankPairs",
    "as_brackets",
    "delinearize",
    "format_bracket_scores",
    "format_tree",
    "linearize",
    "normalize",
    "normalized_trees",
    "parse_tree",
    "read_trees",
    "repair",
    "score_trees",
    "search_defaults",
    "trees_of",
    "word_symbols",
    "words",
]
