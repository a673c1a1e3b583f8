"""Decoding: beam search, sampling and scoring with a trained model."""

from keras_transformer.decoding.beam_search import BeamSearchResult, beam_search
from keras_transformer.decoding.constraints import Constraint
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.scoring import score
from keras_transformer.decoding.search import search
from keras_transformer.decoding.steps import DecoderSteps
from keras_transformer.decoding.targets import Targets
from keras_transformer.options.search import NO_HYPOTHESIS, SearchOptions

__all__ = [
    "NO_HYPOTHESIS",
    "BeamSearchResult",
    "Constraint",
    "DecoderSteps",
    "SearchOptions",
    "Targets",
    "beam_search",
    "sample",
    "score",
    "search",
]
