from .subword import SubwordTokenizer
from .tokenizer import END_ID, PAD_ID, START_ID, UNKNOWN_ID, Tokenizer

__all__ = ["END_ID", "PAD_ID", "START_ID", "UNKNOWN_ID", "SubwordTokenizer", "Tokenizer"]
