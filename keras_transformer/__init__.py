"""The Transformer of "Attention Is All You Need" for Keras 3."""

import importlib

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity, TokenAccuracy, TokenCount
from keras_transformer.model import Transformer
from keras_transformer.presets import PRESETS
from keras_transformer.schedules import InverseSquareRootSchedule

__all__ = [
    "PRESETS",
    "InverseSquareRootSchedule",
    "LabelSmoothedCrossEntropy",
    "MarianTokenizer",
    "ModelDir",
    "Perplexity",
    "SubwordTokenizer",
    "TokenAccuracy",
    "TokenCount",
    "Transformer",
    "TransformerConfig",
    "Translator",
    "UserError",
    "data",
    "import_marian",
]

# These need TensorFlow, and are imported when first used: the model runs without it.
_ON_TENSORFLOW = {
    "MarianTokenizer": "keras_transformer.marian_tokenizer",
    "ModelDir": "keras_transformer.training",
    "SubwordTokenizer": "keras_transformer.tokenizers",
    "Translator": "keras_transformer.translator",
    "import_marian": "keras_transformer.marian",
}


def __getattr__(name):
    if name == "data":
        return importlib.import_module("keras_transformer.data")
    if name in _ON_TENSORFLOW:
        return getattr(importlib.import_module(_ON_TENSORFLOW[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
