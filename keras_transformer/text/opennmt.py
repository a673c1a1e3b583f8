"""The vocabulary of OpenNMT-tf models: how each side splits its text, and the ids of tokens."""

from collections.abc import Sequence

import tensorflow as tf

from keras_transformer.text import in_graph
from keras_transformer.text.plain_text import plain_text
from keras_transformer.text.sentencepiece_model import SentencePieceModel
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.vocabulary import (
    END_ID,
    PAD_ID,
    START_ID,
    check_opennmt,
    opennmt_models,
    read_opennmt,
    written_opennmt,
)


class OpenNMTTokenizer(Tokenizer):
    """Splits each side by a SentencePiece model or at spaces, and looks up the ids of the pieces.

    The ids of the target's vocabulary come first, and `<unk>` is the last of them. The pieces after
    it occur in sources alone. As in OpenNMT-tf, a piece that its side does not have becomes
    `<unk>`. A text shows it as SentencePiece does, usually as U+2047, or as `<unk>` between spaces.

    Args:
        source_model: serialised SentencePiece model of the source language; empty to split text at
            spaces, for text that another program has split.
        target_model: the same for the target language.
        pieces: the piece of each id; the first three are `<blank>`, `<s>` and `</s>`.

    Raises:
        UserError: an argument is malformed.

    Example:
        >>> tokenizer = OpenNMTTokenizer.load("runs/en-fr/vocabulary.opennmt.zip")
        >>> ids = tokenizer.tokenize(tf.constant(["A man rides a horse."]))
    """

    pad_id, start_id, end_id = PAD_ID, START_ID, END_ID
    file_name = "vocabulary.opennmt.zip"

    def __init__(self, source_model: bytes, target_model: bytes, pieces: Sequence[str]):
        super().__init__()
        self.unknown_id = check_opennmt(pieces)
        self.pieces, self.are_words = list(pieces), not source_model
        self.vocab_size = len(pieces)
        if self.vocab_size > self.unknown_id + 1:
            self.target_vocab_size = self.unknown_id + 1
        self._source, self._target = _splitter(source_model), _splitter(target_model)
        self._pieces = tf.constant(self.pieces)
        self._ids = self._ids_of_pieces()

    @property
    def sentencepiece_models(self) -> dict[str, bytes]:  # type: ignore[override]
        return opennmt_models(self._source.model, self._target.model)

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        pieces = self._source.tokenize(text)
        return pieces.with_flat_values(self._ids.lookup(pieces.flat_values))

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        pieces = self._target.tokenize(text)
        ids = self._ids.lookup(pieces.flat_values)
        return pieces.with_flat_values(tf.minimum(ids, self.unknown_id))  # those after it: sources'

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        pieces = ids.with_flat_values(tf.gather(self._pieces, ids.flat_values))
        return tf.strings.strip(self._target.detokenize(pieces))

    def normalize(self, text: str) -> str:
        return self._source.normalize(text)

    def to_bytes(self) -> bytes:
        return written_opennmt(self._source.model, self._target.model, self.pieces)

    @classmethod
    def from_bytes(cls, content: bytes) -> "OpenNMTTokenizer":
        return cls(*read_opennmt(content))


def _splitter(model):
    return SentencePieceModel(model, tf.string) if model else _Spaces()


class _Spaces(tf.Module):
    """Splits text at spaces; its methods are those of `SentencePieceModel`."""

    model = b""

    def tokenize(self, text):
        return tf.strings.split(in_graph.plain_text(text))

    def detokenize(self, pieces):
        return tf.strings.reduce_join(pieces, axis=1, separator=" ")

    def normalize(self, text):
        return " ".join(filter(None, plain_text(text).split(" ")))
