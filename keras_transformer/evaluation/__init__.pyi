from .bleu import (
    Score,
    check_language,
    format_scores,
    has_moses_tokens,
    split_compounds,
    translation_scores,
)
from .brackets import format_bracket_scores, score_trees
from .perplexity import ReferenceLoss

__all__ = [
    "ReferenceLoss",
    "Score",
    "check_language",
    "format_bracket_scores",
    "format_scores",
    "has_moses_tokens",
    "score_trees",
    "split_compounds",
    "translation_scores",
]
