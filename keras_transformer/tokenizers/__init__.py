"""Vocabularies: from text to ids and back, as TensorFlow operations."""

from keras_transformer.tokenizers.base import END_ID, PAD_ID, START_ID, UNKNOWN_ID, Tokenizer
from keras_transformer.tokenizers.subword import SubwordTokenizer

__all__ = ["END_ID", "PAD_ID", "START_ID", "UNKNOWN_ID", "SubwordTokenizer", "Tokenizer"]
