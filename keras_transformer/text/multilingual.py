"""The vocabulary of M2M100 and NLLB: one SentencePiece model, and symbols of languages."""

from collections.abc import Mapping

import tensorflow as tf

from keras_transformer.text.languages import Languages
from keras_transformer.text.marian import MarianTokenizer
from keras_transformer.text.sentencepiece_model import SentencePieceModel
from keras_transformer.text.vocabulary import (
    multilingual_models,
    read_multilingual,
    written_multilingual,
)


class MultilingualTokenizer(MarianTokenizer):
    """Splits both sides by one SentencePiece model, and looks up the ids of the pieces.

    Each sentence of M2M100 and NLLB begins with the symbol of its language, which
    `DirectedTokenizer` adds. As in Marian's vocabulary, pieces without an id become `<unk>`, which
    `detokenize` leaves out, with the symbols that no text has. The decoder starts with the end
    symbol, as in fairseq.

    Args:
        model: serialised SentencePiece model.
        vocabulary: id of each piece and symbol, from 0 to their number minus one.
        languages: the languages, whose symbols are in `vocabulary`.

    Raises:
        UserError: an argument is malformed.

    Example:
        >>> tokenizer = MultilingualTokenizer.load("runs/nllb/vocabulary.languages.zip")
        >>> tokenizer.languages.direction("fra_Latn", "eng_Latn")
        Direction(source='eng_Latn', target='fra_Latn')
    """

    file_name = "vocabulary.languages.zip"

    def __init__(self, model: bytes, vocabulary: Mapping[str, int], languages: Languages):
        super().__init__(model, model, vocabulary)
        self.start_id = self.end_id
        self.languages: Languages = languages
        known = SentencePieceModel(model).processor
        unknown = known.unk_id()
        self._is_text = tf.constant([known.piece_to_id(piece) != unknown for piece in self.pieces])

    @property
    def sentencepiece_models(self) -> dict[str, bytes]:  # type: ignore[override]
        return multilingual_models(self._source.model)

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self.tokenize_target(text)

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        is_text = ids.with_flat_values(tf.gather(self._is_text, ids.flat_values))
        return super().join(tf.ragged.boolean_mask(ids, is_text))

    def to_bytes(self) -> bytes:
        ids = {piece: id_ for id_, piece in enumerate(self.pieces)}
        return written_multilingual(self._source.model, ids, self.languages)

    @classmethod
    def from_bytes(cls, content: bytes) -> "MultilingualTokenizer":
        return cls(*read_multilingual(content))
