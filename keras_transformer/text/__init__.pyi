from .repetition import repeated_phrase
from .sentence_split import join_sentences, split_sentences
from .subword import SubwordTokenizer
from .tokenizer import Tokenizer
from .vocabulary import END_ID, PAD_ID, START_ID, UNKNOWN_ID

__all__ = [
    "END_ID",
    "PAD_ID",
    "START_ID",
    "UNKNOWN_ID",
    "SubwordTokenizer",
    "Tokenizer",
    "join_sentences",
    "repeated_phrase",
    "split_sentences",
]
