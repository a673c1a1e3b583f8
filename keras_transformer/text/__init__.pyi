from .base import END_ID, PAD_ID, START_ID, UNKNOWN_ID, Tokenizer
from .subword import SubwordTokenizer

__all__ = ["END_ID", "PAD_ID", "START_ID", "UNKNOWN_ID", "SubwordTokenizer", "Tokenizer"]
