"""The Moses tokenizer, with which the literature computes BLEU on tokens."""

from collections.abc import Iterable

import sacremoses
from sacremoses.corpus import NonbreakingPrefixes

from keras_transformer.text.sentences import as_text

NAME = f"sacremoses-{sacremoses.__version__}"

# Chinese is left out: Moses does not segment it, so every clause would count as one word.
LANGUAGES = frozenset(NonbreakingPrefixes().available_langs.values()) - {"zh", "yue"}


def normalize_punctuation(sentences: Iterable[str], language: str) -> list[str]:
    """Applies Moses' `normalize-punctuation.perl`: quotes, dashes and spaces, by language.

    Example:
        >>> normalize_punctuation(["5\u00a0000 „Euro“"], "de")
        ['5,000 "Euro"']
    """
    normalizer = sacremoses.MosesPunctNormalizer(language)
    return [normalizer.normalize(sentence) for sentence in as_text(sentences)]


def replace_unicode_punctuation(sentences: Iterable[str]) -> list[str]:
    """Applies Moses' `replace-unicode-punctuation.perl`: wide punctuation, and some quotes.

    Example:
        >>> replace_unicode_punctuation(["5\u00a0000 „Euro“"])
        ['5\xa0000 „Euro"']
    """
    normalizer = sacremoses.MosesPunctNormalizer()
    return [normalizer.replace_unicode_punct(sentence) for sentence in as_text(sentences)]


def tokenize(sentences: Iterable[str], language: str) -> list[str]:
    """Applies Moses' `tokenizer.perl`: blanks between tokens, and HTML escapes of some characters.

    Args:
        sentences: plain text.
        language: one of `LANGUAGES`, as a two-letter code.

    Example:
        >>> tokenize(["Hallo, Welt!"], "de")
        ['Hallo , Welt !']
    """
    tokenizer = sacremoses.MosesTokenizer(language)
    return [tokenizer.tokenize(sentence, return_str=True) for sentence in as_text(sentences)]
