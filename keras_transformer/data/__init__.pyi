from .batch_plan import bucket_boundaries
from .batches import (
    Batch,
    BatchCount,
    Batches,
    padding_share,
    translation_dataset,
)
from .corpus import Corpus, PairCounts, usable_corpus
from .findings import BadPair, Findings, check_pairs, format_findings
from .pair_rules import HeldOut, PairRules, Usual
from .sources import (
    Block,
    BuiltinPairs,
    SentencePairs,
    TextPairs,
    WeightedPairs,
)
from .tfds_pairs import TfdsPairs

__all__ = [
    "BadPair",
    "Batch",
    "BatchCount",
    "Batches",
    "Block",
    "BuiltinPairs",
    "Corpus",
    "Findings",
    "HeldOut",
    "PairCounts",
    "PairRules",
    "SentencePairs",
    "TextPairs",
    "TfdsPairs",
    "Usual",
    "WeightedPairs",
    "bucket_boundaries",
    "check_pairs",
    "format_findings",
    "padding_share",
    "translation_dataset",
    "usable_corpus",
]
