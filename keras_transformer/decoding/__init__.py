"""From a trained model to target sequences."""

from keras_transformer.decoding.beam_search import BeamSearchResult, beam_search
from keras_transformer.decoding.search import search

__all__ = ["BeamSearchResult", "beam_search", "search"]
