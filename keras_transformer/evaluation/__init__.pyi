from .bleu import (
    Score,
    check_language,
    format_scores,
    has_moses_tokens,
    split_compounds,
    translation_scores,
)
from .perplexity import ReferenceLoss

__all__ = [
    "ReferenceLoss",
    "Score",
    "check_language",
    "format_scores",
    "has_moses_tokens",
    "split_compounds",
    "translation_scores",
]
