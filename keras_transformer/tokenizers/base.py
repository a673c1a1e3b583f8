"""The vocabulary that models and commands know: text to ids to text, in-graph."""

import contextlib
import os
from collections.abc import Iterable
from typing import Self

import numpy as np
import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.files import whole_file
from keras_transformer.ragged import Ragged
from keras_transformer.sentences import as_list

PAD_ID = 0
"""The id that fills up rows."""
START_ID = 1
"""The id that every target begins with."""
END_ID = 2
"""The id that ends every sentence."""
UNKNOWN_ID = 3
"""The id of text that the vocabulary lacks."""


class Tokenizer(tf.Module):
    """A vocabulary: text to ids to text.

    Both directions are TensorFlow operations, so they run inside `tf.data`, `tf.function` and a
    SavedModel. Source and target share their ids, but may be split differently.

    Attributes:
        task: what a model of this vocabulary does, "translation" or "parsing".
        vocab_size: number of ids, special ones included.
        pad_id, start_id, end_id, unknown_id: the special ids of a model of this vocabulary.
        pieces: the subword of each id.
        sentencepiece_models: the serialised SentencePiece models that split text, by file name.
        file_name: what its file in a model's folder is called.
    """

    task = "translation"
    vocab_size: int
    pad_id: int
    start_id: int
    end_id: int
    unknown_id: int
    pieces: list[str]
    sentencepiece_models: dict[str, bytes]
    file_name: str

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Loads what `save` wrote.

        Raises:
            UserError: the file is missing or is no vocabulary.
        """
        with naming(path), open(path, "rb") as file:
            return cls.from_bytes(file.read())

    def save(self, path: str | os.PathLike) -> None:
        """Writes the vocabulary, one file, whole or not at all."""
        with whole_file(path) as partial:
            partial.write_bytes(self.to_bytes())

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits source sentences into subwords, without start or end symbol.

        Args:
            text: string `(batch,)`.

        Returns:
            int32 `(batch, None)`.
        """
        raise NotImplementedError

    def __call__(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Does what `tokenize` does, as tokenizers of keras-nlp are called; also of one string."""
        return self.tokenize(text)

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits target sentences; arguments and result are those of `tokenize`."""
        raise NotImplementedError

    def encode(self, sentences: Iterable[str], is_target: bool = False) -> Ragged:
        """The ids of `tokenize`, or of `tokenize_target`, for many sentences, in NumPy."""
        tokenize = self.tokenize_target if is_target else self.tokenize
        ids = tokenize(tf.constant(as_list(sentences), tf.string))
        return Ragged(ids.flat_values.numpy(), ids.row_lengths().numpy())

    def resplit(self, sentences: Ragged, dropout: float, random: np.random.RandomState) -> Ragged:
        """The ids of `encode` as they may be too, to regularise training: for `bpe_dropout`.

        Raises:
            UserError: there is only one way to write a sentence in this vocabulary.
        """
        raise UserError(f"expected another vocabulary for bpe_dropout, found {type(self).__name__}")

    def detokenize(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Joins target subwords into sentences: up to the first end symbol, no special symbols.

        Args:
            ids: int32 `(batch, length)`, dense or ragged.

        Returns:
            string `(batch,)`.
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor(self.pad_id)
        ids = tf.convert_to_tensor(ids, tf.int32)
        ended = tf.cumsum(tf.cast(ids == self.end_id, tf.int32), axis=1) > 0
        special = (ids == self.pad_id) | (ids == self.start_id)
        return self.join(tf.ragged.boolean_mask(ids, ~(ended | special)))

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        """Joins subwords into sentences: `detokenize` of ids without special symbols."""
        raise NotImplementedError

    def normalize(self, text: str) -> str:
        """Source text as the vocabulary sees it."""
        raise NotImplementedError

    @property
    def lowercase(self) -> bool:
        """Whether it folds case: all its texts are then in lower case."""
        return self.normalize("A") == "a"

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Reads what `to_bytes` returned; raises `UserError` if it is no vocabulary."""
        raise NotImplementedError

    def check_fits(self, config: TransformerConfig) -> None:
        """Raises `UserError` unless a model of this configuration has these ids."""
        for name in ("vocab_size", "pad_id", "start_id", "end_id"):
            ours, found = getattr(self, name), getattr(config, name)
            if found != ours:
                raise UserError(
                    f"expected a model with {name}={ours}, as the vocabulary has it, found {found}"
                )


@contextlib.contextmanager
def naming(path):
    """Names the file in what is wrong with it."""
    try:
        yield
    except OSError as error:
        raise UserError(f"{path}: expected a vocabulary file: {error.strerror}") from error
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
