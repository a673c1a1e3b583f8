from .batch_plan import bucket_boundaries
from .batches import (
    Batch,
    BatchCount,
    Batches,
    padding_share,
    translation_dataset,
)
from .corpus import Corpus, PairCounts, usable_corpus
from .sources import (
    Block,
    BuiltinPairs,
    SentencePairs,
    TextPairs,
    TfdsPairs,
    WeightedPairs,
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
    "WeightedPairs",
    "bucket_boundaries",
    "padding_share",
    "translation_dataset",
    "usable_corpus",
]
