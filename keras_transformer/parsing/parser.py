"""Parser: turns sentences into trees."""

from collections.abc import Iterable, Sequence
from typing import Any

from keras_transformer.errors import UserError
from keras_transformer.options.parsing import PARSER_SEARCH
from keras_transformer.parsing.linearization import PUNCTUATION_TAGS, WORD
from keras_transformer.parsing.repair import repair
from keras_transformer.parsing.trees import Leaf, Tree, format_tree
from keras_transformer.parsing.vocabulary import ParsingTokenizer
from keras_transformer.parsing.word_symbols import as_brackets
from keras_transformer.text import Tokenizer
from keras_transformer.text.sentences import as_list, as_text
from keras_transformer.translator import Translator

# The tags of words that are always punctuation; for other marks, the model's tag counts.
_PUNCTUATION = {
    **dict.fromkeys([","], ","),
    **dict.fromkeys([".", "?", "!"], "."),
    **dict.fromkeys([":", ";", "--", "..."], ":"),
    **dict.fromkeys(["``", "`"], "``"),
    **dict.fromkeys(["''"], "''"),
}
_SYMBOLS = frozenset("#$%&@")  # words, such as "per cent"


class Parser:
    """Finds the constituents of sentences by translating them to symbols of trees (section 6.3).

    `repair` corrects the model's output, so that each sentence gets a tree over exactly its words.

    Args:
        translator: a translator with a parser's vocabulary. `search_defaults` has the paper's
            search options.

    Raises:
        UserError: the vocabulary is not a parser's.

    Example:
        >>> model_dir = ModelDir("runs/parser")
        >>> model, tokenizer = model_dir.load_model(), model_dir.load_tokenizer()
        >>> parser = Parser(Translator(model, tokenizer, **search_defaults(tokenizer)))
        >>> [tree] = parser(["Dogs bark ."])  # such as "(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))"
        >>> words(parse_tree(tree))
        ['Dogs', 'bark', '.']
    """

    def __init__(self, translator: Translator):
        if not isinstance(translator.tokenizer, ParsingTokenizer):
            raise UserError("Parser needs the model of a parser: this one translates text")
        self.translator = translator

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns each sentence's tree in the treebank's notation; "" if it has no words.

        Args:
            sentences: words separated by white space, as the Penn Treebank splits them.
        """
        return [format_tree(tree) if tree else "" for tree in self.parse(sentences)]

    def parse(self, sentences: Iterable[str]) -> list[Tree]:
        """Returns each sentence's tree; an empty tree if it has no words."""
        sentences = as_list(sentences)
        # Bytes that are not UTF-8 are returned as they were read.
        all_words = [text.split() for text in as_text(sentences, errors="surrogateescape")]
        symbols = self.translator([" ".join(text.split()) for text in as_text(sentences)])
        return trees_of(symbols, all_words, self.translator.tokenizer)


def trees_of(
    symbols: Sequence[str], sentences: Sequence[Sequence[str]], tokenizer: ParsingTokenizer
) -> list[Tree]:
    """The trees of a model's output symbols, repaired, over the words of sentences."""
    as_text = as_brackets if tokenizer.two_a_word else str
    trees = [
        repair(as_text(text), words) if words else ()
        for text, words in zip(symbols, sentences, strict=True)
    ]
    return [_with_punctuation(tree) for tree in trees] if tokenizer.has_punctuation else trees


def search_defaults(tokenizer: Tokenizer) -> dict[str, Any]:
    """The search options in which parsing differs from translation (paper, section 6.3)."""
    if not isinstance(tokenizer, ParsingTokenizer):
        return {}
    return dict(PARSER_SEARCH[tokenizer.linearization])


def _with_punctuation(tree: Tree) -> Tree:
    """Gives a word a punctuation tag if, and only if, the word is punctuation.

    Scoring deletes words by their tags, and must keep the same words in both trees.
    """

    def tag(leaf):
        if leaf.word in _PUNCTUATION:
            return _PUNCTUATION[leaf.word]
        is_wrong = leaf.tag in PUNCTUATION_TAGS and not _may_be_punctuation(leaf.word)
        return WORD if is_wrong else leaf.tag

    return tuple(Leaf(tag(item), item.word) if isinstance(item, Leaf) else item for item in tree)


def _may_be_punctuation(word: str) -> bool:
    """Whether a word is a mark in any script, such as `-` or `!!`."""
    return not any(character.isalnum() or character in _SYMBOLS for character in word)
