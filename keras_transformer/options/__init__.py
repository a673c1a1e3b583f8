"""Validated records of options, from which the commands make their flags; none needs a backend."""

from keras_transformer.options.cleaning import CleaningOptions
from keras_transformer.options.parsing import ParsingOptions
from keras_transformer.options.search import SearchOptions
from keras_transformer.options.serving import ServingOptions
from keras_transformer.options.training import STRATEGIES, TrainingOptions

__all__ = [
    "STRATEGIES",
    "CleaningOptions",
    "ParsingOptions",
    "SearchOptions",
    "ServingOptions",
    "TrainingOptions",
]
