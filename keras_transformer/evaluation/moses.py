"""The tokenizer of Moses, which the literature's BLEU on tokens is computed with."""

from collections.abc import Sequence

import sacremoses
from sacremoses.corpus import NonbreakingPrefixes

NAME = f"sacremoses-{sacremoses.__version__}"

# Chinese is left out: Moses does not segment it, so every clause would count as one word.
LANGUAGES = frozenset(NonbreakingPrefixes().available_langs.values()) - {"zh", "yue"}


def tokenize(sentences: Sequence[str], language: str) -> list[str]:
    """Sentences with blanks between their tokens, after the normalisation of punctuation.

    Args:
        sentences: plain text.
        language: one of `LANGUAGES`, as a two-letter code.

    Example:
        >>> tokenize(["Hallo, Welt!"], "de")
        ['Hallo , Welt !']
    """
    normalizer = sacremoses.MosesPunctNormalizer(language)
    tokenizer = sacremoses.MosesTokenizer(language)
    return [
        tokenizer.tokenize(normalizer.normalize(sentence), return_str=True)
        for sentence in sentences
    ]
