"""How good a model is: the field's metrics, each with a label that says how it was computed."""

from keras_transformer.evaluation.bleu import (
    Score,
    format_scores,
    split_compounds,
    translation_scores,
)
from keras_transformer.evaluation.perplexity import ReferenceLoss

__all__ = ["ReferenceLoss", "Score", "format_scores", "split_compounds", "translation_scores"]
