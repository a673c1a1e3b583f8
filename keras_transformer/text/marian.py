"""The vocabulary of Marian models: two SentencePiece models that share one list of ids."""

from collections.abc import Mapping

import tensorflow as tf

from keras_transformer.text import in_graph
from keras_transformer.text.language_code import LANGUAGE_SYMBOL
from keras_transformer.text.sentencepiece_model import SentencePieceModel
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.vocabulary import (
    END,
    PAD,
    SOURCE,
    TARGET,
    UNKNOWN,
    check_marian,
    read_marian,
    written_marian,
)

_LANGUAGE = rf"^({LANGUAGE_SYMBOL})?.*$"


class MarianTokenizer(Tokenizer):
    """Splits source and target by a SentencePiece model each, and looks up the ids of the pieces.

    OPUS-MT models were trained with it. If a model has several target languages, its source
    sentences begin with a language symbol, such as `>>fra<<`; unknown language symbols are plain
    text. Pieces outside the vocabulary become `<unk>`, which `detokenize` leaves out. The decoder
    starts with the padding symbol.

    Args:
        source_model: serialised SentencePiece model of the source language.
        target_model: serialised SentencePiece model of the target language.
        vocabulary: id of each piece, from 0 to the number of pieces minus one.

    Raises:
        UserError: an argument is malformed.

    Example:
        >>> tokenizer = MarianTokenizer.load("runs/en-fr/vocabulary.zip")
        >>> ids = tokenizer.tokenize(tf.constant([">>fra<< A man rides a horse."]))
    """

    file_name = "vocabulary.zip"

    def __init__(self, source_model: bytes, target_model: bytes, vocabulary: Mapping[str, int]):
        super().__init__()
        check_marian(vocabulary)
        self.pad_id = self.start_id = vocabulary[PAD]
        self.end_id, self.unknown_id = vocabulary[END], vocabulary[UNKNOWN]
        self.vocab_size = len(vocabulary)
        self.pieces = sorted(vocabulary, key=vocabulary.__getitem__)
        self._source = SentencePieceModel(source_model, tf.string)
        self._target = SentencePieceModel(target_model, tf.string)
        self._pieces = tf.constant(self.pieces)
        self._ids = self._ids_of_pieces()

    @property
    def sentencepiece_models(self) -> dict[str, bytes]:  # type: ignore[override]
        return {SOURCE: self._source.model, TARGET: self._target.model}

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        text = in_graph.plain_text(text)
        language = tf.strings.regex_replace(text, _LANGUAGE, r"\1")
        language_id = self._ids.lookup(language)
        is_language = (language_id != self.unknown_id) & (language != "")
        start = tf.where(is_language, tf.strings.length(language), 0)
        rest = tf.strings.substr(text, start, tf.strings.length(text) - start)
        return tf.concat(
            [
                tf.ragged.boolean_mask(language_id[:, None], is_language[:, None]),
                self._look_up(self._source.tokenize(rest)),
            ],
            axis=1,
        )

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._look_up(self._target.tokenize(text))

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        ids = tf.ragged.boolean_mask(ids, ids != self.unknown_id)
        pieces = ids.with_flat_values(tf.gather(self._pieces, ids.flat_values))
        return tf.strings.strip(self._target.detokenize(pieces))

    def normalize(self, text: str) -> str:
        return self._source.normalize(text)

    def to_bytes(self) -> bytes:
        ids = {piece: id_ for id_, piece in enumerate(self.pieces)}
        return written_marian(self._source.model, self._target.model, ids)

    @classmethod
    def from_bytes(cls, content: bytes) -> "MarianTokenizer":
        return cls(*read_marian(content))

    def _look_up(self, pieces):
        return pieces.with_flat_values(self._ids.lookup(pieces.flat_values))
