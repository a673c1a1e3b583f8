"""The field's quality metrics, each with a label that says how it was computed."""

from keras_transformer.evaluation.bleu import (
    Score,
    check_language,
    format_scores,
    has_moses_tokens,
    split_compounds,
    translation_scores,
)
from keras_transformer.evaluation.brackets import format_bracket_scores, score_trees
from keras_transformer.evaluation.perplexity import ReferenceLoss

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
