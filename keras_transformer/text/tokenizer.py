"""The base class of vocabularies: from text to ids and back, in-graph."""

import abc
import os
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.files import read_whole, whole_file
from keras_transformer.text.languages import Languages
from keras_transformer.text.ragged import Ragged
from keras_transformer.text.sentences import as_list, utf_8
from keras_transformer.text.vocabulary import expect_fits, naming


class Tokenizer(tf.Module, abc.ABC):
    """A vocabulary: from text to ids and back.

    Both directions are TensorFlow operations, so they run inside `tf.data`, `tf.function` and a
    SavedModel. Source and target share ids, but may be split differently.

    Attributes:
        task: task of a model with this vocabulary, "translation" or "parsing".
        vocab_size: number of ids, special ones included.
        target_vocab_size: number of ids that targets have, the first ones; None for all.
        pad_id, start_id, end_id, unknown_id: special ids of a model with this vocabulary.
        pieces: subword of each id.
        are_words: whether each piece is a word, because text is split at spaces.
        sentencepiece_models: serialised SentencePiece models that split text, by file name.
        languages: the languages of a multilingual vocabulary; None for any other.
        first_id: the symbol that every target begins with; None for none.
        file_name: name of the vocabulary's file in a model_dir.
    """

    task = "translation"
    vocab_size: int
    target_vocab_size: int | None = None
    pad_id: int
    start_id: int
    end_id: int
    unknown_id: int
    pieces: list[str]
    are_words = False
    sentencepiece_models: dict[str, bytes]
    languages: Languages | None = None
    first_id: int | None = None
    file_name: str

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Loads a vocabulary that `save` wrote.

        Raises:
            UserError: the file is missing or is not a vocabulary.
        """
        with naming(path):
            return cls.from_bytes(read_whole(path))

    def save(self, path: str | os.PathLike) -> None:
        """Writes the vocabulary to one file, atomically."""
        with whole_file(path) as partial:
            partial.write_bytes(self.to_bytes())

    @abc.abstractmethod
    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits source sentences into subwords, without start or end symbol.

        Args:
            text: string `(batch,)`.

        Returns:
            int32 `(batch, None)`.
        """

    def __call__(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Calls `tokenize`, like a keras-nlp tokenizer; also accepts a single string."""
        if isinstance(text, str | bytes) or getattr(text, "shape", None) == ():
            return self.tokenize(tf.convert_to_tensor(text)[None])[0]
        return self.tokenize(text)

    @abc.abstractmethod
    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits target sentences; arguments and result are those of `tokenize`."""

    def expect_direction(self) -> None:
        """Raises `UserError` if the vocabulary is multilingual, and no direction is chosen."""
        if self.languages is not None:
            self.languages.direction(None)

    @property
    def num_source_symbols(self) -> int:
        """The number of symbols that `tokenize` adds before the tokens of a text."""
        return 0

    def encode(self, sentences: Iterable[str], is_target: bool = False) -> Ragged:
        """Tokenises many sentences by `tokenize` or `tokenize_target`, to NumPy arrays."""
        tokenize = self.tokenize_target if is_target else self.tokenize
        ids = tokenize(tf.constant([utf_8(text) for text in as_list(sentences)], tf.string))
        return Ragged(ids.flat_values.numpy(), ids.row_lengths().numpy())

    def resplit(self, sentences: Ragged, dropout: float, random: np.random.RandomState) -> Ragged:
        """Splits encoded sentences anew at random, to regularise training (`bpe_dropout`).

        Raises:
            UserError: this vocabulary has only one way to split a sentence.
        """
        raise UserError(f"{type(self).__name__} does not support bpe_dropout")

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor | Sequence) -> tf.Tensor:
        """Joins target subwords into sentences, up to the first end symbol; drops special symbols.

        Args:
            ids: int32 `(batch, length)`, dense, ragged or a list of lists; or the ids of one
                sentence, `(length,)`.

        Returns:
            string `(batch,)`, or `()` for one sentence.
        """
        if isinstance(ids, list | tuple) and not any(map(tf.is_tensor, ids)):
            ids = tf.ragged.constant(ids, tf.int32)
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(self.pad_id)
        ids = tf.convert_to_tensor(ids, tf.int32)
        if ids.shape.rank == 1:
            return self.detokenize(ids[None])[0]
        ended = tf.cumsum(tf.cast(ids == self.end_id, tf.int32), axis=1) > 0
        special = (ids == self.pad_id) | (ids == self.start_id)
        return self.join(tf.ragged.boolean_mask(ids, ~(ended | special)))

    @abc.abstractmethod
    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Joins subwords into sentences, given ids without special symbols."""

    @abc.abstractmethod
    def normalize(self, text: str) -> str:
        """Normalises source text as the vocabulary does before splitting."""

    @property
    def lowercase(self) -> bool:
        """Whether the vocabulary folds case: all its texts are then in lower case."""
        return self.normalize("A") == "a"

    @abc.abstractmethod
    def to_bytes(self) -> bytes:
        """Returns the content of the file that `save` writes."""

    @classmethod
    @abc.abstractmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Reads the result of `to_bytes`; raises `UserError` if it is not a vocabulary."""

    def __reduce__(self):
        """Pickles and copies the file's content: TensorFlow's tables cannot be pickled."""
        return type(self).from_bytes, (self.to_bytes(),)

    def _ids_of_pieces(self) -> tf.lookup.StaticHashTable:
        """The id of each piece, for text: none spells a special symbol, which is unknown there."""
        special = (self.pad_id, self.start_id, self.end_id)
        ids = {piece: id_ for id_, piece in enumerate(self.pieces) if id_ not in special}
        entries = tf.lookup.KeyValueTensorInitializer(
            list(ids), list(ids.values()), tf.string, tf.int32
        )
        return tf.lookup.StaticHashTable(entries, default_value=self.unknown_id)

    def check_fits(self, config: TransformerConfig) -> None:
        """Raises `UserError` unless a model of this configuration has these ids."""
        expect_fits(self, config)
