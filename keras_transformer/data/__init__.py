"""Sentence pairs and how they become batches."""

from keras_transformer.data.pipeline import (
    PairCounts,
    bucket_boundaries,
    count_pairs,
    padding_share,
    pair_batches,
    translation_dataset,
)
from keras_transformer.data.sources import BuiltinPairs, SentencePairs, TextPairs, TfdsPairs

__all__ = [
    "BuiltinPairs",
    "PairCounts",
    "SentencePairs",
    "TextPairs",
    "TfdsPairs",
    "bucket_boundaries",
    "count_pairs",
    "padding_share",
    "pair_batches",
    "translation_dataset",
]
