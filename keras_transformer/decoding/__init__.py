"""From a trained model to target sequences."""

from keras_transformer.decoding.beam_search import BeamSearchResult, beam_search
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.sampling import sample
from keras_transformer.decoding.scoring import score
from keras_transformer.decoding.search import search
from keras_transformer.decoding.steps import DecoderSteps

__all__ = [
    "BeamSearchResult",
    "DecoderSteps",
    "SearchOptions",
    "beam_search",
    "sample",
    "score",
    "search",
]
