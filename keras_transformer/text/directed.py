"""A multilingual vocabulary for one pair of languages."""

from collections.abc import Iterable

import numpy as np
import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.text.languages import not_multilingual
from keras_transformer.text.ragged import Ragged
from keras_transformer.text.tokenizer import Tokenizer


class DirectedTokenizer(Tokenizer):
    """A multilingual vocabulary for one pair of languages, whose symbols it adds to sentences.

    A sentence without a token stays empty.

    Args:
        tokenizer: the multilingual vocabulary, for any pair or none.
        target_lang: code of the target language.
        source_lang: code of the source language, for a model that reads it.

    Raises:
        UserError: the vocabulary has one pair of languages only, or not these ones.

    Example:
        >>> tokenizer = SubwordTokenizer.train("train.en", vocab_size=320)
        >>> directed = DirectedTokenizer(tokenizer.with_languages(["de", "fr"]), "fr")
        >>> ids = directed(["Two dogs."])
        >>> directed.pieces[ids[0, 0]]
        '<2fr>'
    """

    undirected: Tokenizer

    def __init__(
        self, tokenizer: Tokenizer, target_lang: str | None, source_lang: str | None = None
    ):
        super().__init__()
        if isinstance(tokenizer, DirectedTokenizer):
            tokenizer = tokenizer.undirected
        if tokenizer.languages is None:
            raise not_multilingual(target_lang, source_lang)
        direction = tokenizer.languages.direction(target_lang, source_lang)
        self.undirected = tokenizer
        self.source_lang, self.target_lang = source_lang, target_lang
        self._symbol_id = tokenizer.pieces.index(direction.source)
        if direction.target is not None:
            self.first_id = tokenizer.pieces.index(direction.target)
        for name in ("task", "vocab_size", "target_vocab_size", "file_name", "languages"):
            setattr(self, name, getattr(tokenizer, name))
        for name in ("are_words", "pad_id", "start_id", "end_id", "unknown_id"):
            setattr(self, name, getattr(tokenizer, name))

    @property
    def pieces(self) -> list[str]:  # type: ignore[override]
        return self.undirected.pieces

    @property
    def sentencepiece_models(self) -> dict[str, bytes]:  # type: ignore[override]
        return self.undirected.sentencepiece_models

    @property
    def num_source_symbols(self) -> int:
        return 1

    def expect_direction(self) -> None:
        """Accepts any use: the direction is known."""

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        ids = self.undirected.tokenize(text)
        has_text = ids.row_lengths() > 0
        symbols = tf.fill([ids.nrows(), 1], tf.constant(self._symbol_id, ids.dtype))
        return tf.concat([tf.ragged.boolean_mask(symbols, has_text[:, None]), ids], axis=1)

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self.undirected.tokenize_target(text)

    def encode(self, sentences: Iterable[str], is_target: bool = False) -> Ragged:
        encoded = self.undirected.encode(sentences, is_target)
        if is_target:
            return encoded
        has_text = encoded.lengths > 0
        ids = np.insert(encoded.ids, encoded.starts[has_text], self._symbol_id)
        return Ragged(ids, encoded.lengths + has_text)

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self.undirected.join(ids)

    def normalize(self, text: str) -> str:
        return self.undirected.normalize(text)

    def to_bytes(self) -> bytes:
        return self.undirected.to_bytes()

    @classmethod
    def from_bytes(cls, content: bytes) -> "DirectedTokenizer":
        raise UserError("a direction is no part of a vocabulary's file")

    def __reduce__(self):
        return type(self), (self.undirected, self.target_lang, self.source_lang)
