"""Sentence pairs: sources, corpora of ids, and batches."""

from keras_transformer.data.batch_plan import bucket_boundaries
from keras_transformer.data.batches import (
    Batch,
    BatchCount,
    Batches,
    padding_share,
    translation_dataset,
)
from keras_transformer.data.corpus import Corpus, PairCounts, usable_corpus
from keras_transformer.data.sources import (
    Block,
    BuiltinPairs,
    SentencePairs,
    TextPairs,
    TfdsPairs,
)

__all__ = [
    "Batch",
    "BatchCount",
    "Batches",
    "Block",
    "BuiltinPairs",
    "Corpus",
    "PairCounts",
    "SentencePairs",
    "TextPairs",
    "TfdsPairs",
    "bucket_boundaries",
    "padding_share",
    "translation_dataset",
    "usable_corpus",
]
