"""Decoding: beam search, sampling and scoring with a trained model."""

from keras_transformer.options.search import NO_HYPOTHESIS, SearchOptions
from keras_transformer.search.beam import BeamSearchResult, beam_search
from keras_transformer.search.constraints import Constraint
from keras_transformer.search.loop import DecoderSteps
from keras_transformer.search.sampling import sample
from keras_transformer.search.scoring import score
from keras_transformer.search.steps import search
from keras_transformer.search.targets import Required, Targets

__all__ = [
    "NO_HYPOTHESIS",
    "BeamSearchResult",
    "Constraint",
    "DecoderSteps",
    "Required",
    "SearchOptions",
    "Targets",
    "beam_search",
    "sample",
    "score",
    "search",
]
