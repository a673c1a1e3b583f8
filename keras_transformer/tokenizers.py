"""Subword vocabularies (section 5.1): trained, saved and loaded; text to ids to text, in-graph."""

import functools
import io
import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import Literal, Self

import numpy as np
import sentencepiece
import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.files import whole_file
from keras_transformer.ragged import Ragged
from keras_transformer.sentencepiece_model import SentencePieceModel
from keras_transformer.text_files import read_lines

PAD_ID, START_ID, END_ID, UNKNOWN_ID = 0, 1, 2, 3


class Tokenizer(tf.Module):
    """A vocabulary: text to ids to text.

    Both directions are TensorFlow operations, so they run inside `tf.data`, `tf.function` and a
    SavedModel. Source and target share their ids, but may be split differently.

    Attributes:
        vocab_size: number of ids, special ones included.
        pad_id, start_id, end_id, unknown_id: the special ids of a model of this vocabulary.
        pieces: the subword of each id.
        sentencepiece_models: the serialised SentencePiece models that split text, by file name.
        file_name: what its file in a model's folder is called.
    """

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
        try:
            with open(path, "rb") as file:
                return cls.from_bytes(file.read())
        except OSError as error:
            raise UserError(f"{path}: expected a vocabulary file: {error.strerror}") from error
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

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

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits target sentences; arguments and result are those of `tokenize`."""
        raise NotImplementedError

    def encode(self, sentences: Sequence[str], is_target: bool = False) -> Ragged:
        """The ids of `tokenize`, or of `tokenize_target`, for many sentences, in NumPy."""
        tokenize = self.tokenize_target if is_target else self.tokenize
        ids = tokenize(tf.constant(sentences, tf.string))
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
        """What `detokenize` makes of ids without special symbols."""
        raise NotImplementedError

    def normalize(self, text: str) -> str:
        """Source text as the vocabulary sees it."""
        raise NotImplementedError

    @property
    def lowercase(self) -> bool:
        """Whether it folds case: its texts are then in lower case, whatever they were."""
        return self.normalize("A") == "a"

    def to_bytes(self) -> bytes:
        """The content of the file that `save` writes."""
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The vocabulary of this `to_bytes`; raises `UserError` if it is none."""
        raise NotImplementedError

    def check_fits(self, config: TransformerConfig) -> None:
        """Raises `UserError` unless a model of this configuration has these ids."""
        for name in ("vocab_size", "pad_id", "start_id", "end_id"):
            ours, found = getattr(self, name), getattr(config, name)
            if found != ours:
                raise UserError(
                    f"expected a model with {name}={ours}, as the vocabulary has it, found {found}"
                )


class SubwordTokenizer(Tokenizer):
    """A subword vocabulary shared by source and target (section 5.1).

    Text is normalised first (NFKC, runs of white space to one space); a character that
    the vocabulary lacks is spelled in UTF-8 bytes, so nothing is ever unknown, and
    `detokenize(tokenize(text))` is `normalize(text)`. Bytes that are not UTF-8 become U+FFFD.

    Ids: 0 pads, 1 starts, 2 ends a sentence, 3 is unknown (never produced).

    Args:
        model: a serialised SentencePiece model whose special ids are the above.

    Raises:
        UserError: `model` is no such model.

    Example:
        >>> tokenizer = SubwordTokenizer.train(["train.en", "train.de"], vocab_size=10_000)
        >>> ids = tokenizer.tokenize(tf.constant(["A man rides a horse."]))
        >>> tokenizer.detokenize(ids)
        <tf.Tensor: shape=(1,), dtype=string, numpy=array([b'A man rides a horse.'], dtype=object)>
    """

    pad_id, start_id, end_id, unknown_id = PAD_ID, START_ID, END_ID, UNKNOWN_ID
    file_name = "vocabulary.model"

    def __init__(self, model: bytes):
        super().__init__()
        self._sentencepiece = SentencePieceModel(model)
        processor = self._sentencepiece.processor
        found = (processor.pad_id(), processor.bos_id(), processor.eos_id(), processor.unk_id())
        if found != (PAD_ID, START_ID, END_ID, UNKNOWN_ID):
            raise UserError(
                "expected a SentencePiece model with pad, start, end and unknown ids "
                f"{(PAD_ID, START_ID, END_ID, UNKNOWN_ID)}, found {found}"
            )
        self.model = model
        self.vocab_size = processor.vocab_size()

    @functools.cached_property
    def pieces(self) -> list[str]:
        processor = self._sentencepiece.processor
        return [processor.id_to_piece(id_) for id_ in range(self.vocab_size)]

    @property
    def sentencepiece_models(self) -> dict[str, bytes]:
        return {"sentencepiece.model": self.model}

    @classmethod
    def train(
        cls,
        files: str | os.PathLike | Sequence[str | os.PathLike],
        vocab_size: int,
        model_type: Literal["bpe", "unigram"] = "bpe",
        lowercase: bool = False,
    ) -> "SubwordTokenizer":
        """Learns a vocabulary from text files, one sentence a line.

        Args:
            files: UTF-8 text file or files, `.gz` or plain, of all languages that share the
                vocabulary.
            vocab_size: number of ids, the special ones and 256 bytes among them.
            model_type: "bpe" for byte-pair encoding, as the paper's English-German; "unigram" for
                the open equivalent of the word pieces of its English-French.
            lowercase: whether to fold case ("ß" stays), in training text and in all that it is
                given later.

        Raises:
            UserError: a file cannot be read, or the text does not allow `vocab_size`.
        """
        files = [files] if isinstance(files, str | os.PathLike) else files
        lines = itertools.chain.from_iterable(map(read_lines, files))
        return cls.train_from_sentences(lines, vocab_size, model_type, lowercase)

    @classmethod
    def train_from_sentences(
        cls,
        sentences: Iterable[str],
        vocab_size: int,
        model_type: Literal["bpe", "unigram"] = "bpe",
        lowercase: bool = False,
    ) -> "SubwordTokenizer":
        """Learns a vocabulary from sentences; the other arguments are those of `train`.

        Of more than 5 million sentences, 5 million drawn at random are used; a sentence longer than
        16,384 bytes is left out.
        """
        model, failures = io.BytesIO(), []

        def watched():
            # SentencePiece turns what an iterator raises into a RuntimeError: keep the cause.
            try:
                yield from sentences
            except Exception as error:
                failures.append(error)
                raise

        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=watched(),
                model_writer=model,
                vocab_size=vocab_size,
                model_type=model_type,
                pad_id=PAD_ID,
                bos_id=START_ID,
                eos_id=END_ID,
                unk_id=UNKNOWN_ID,
                byte_fallback=True,
                normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
                character_coverage=1.0,
                input_sentence_size=5_000_000,
                max_sentence_length=16_384,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise (failures[0] if failures else _explained(error, vocab_size)) from error
        return cls(model.getvalue())

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._sentencepiece.tokenize(text)

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self.tokenize(text)

    def encode(self, sentences: Sequence[str], is_target: bool = False) -> Ragged:
        return self._sentencepiece.encode(sentences)

    def resplit(self, sentences: Ragged, dropout: float, random: np.random.RandomState) -> Ragged:
        return self._sentencepiece.merges.resplit(sentences, dropout, random)

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self._sentencepiece.detokenize(ids)

    def normalize(self, text: str) -> str:
        return self._sentencepiece.normalize(text)

    def to_bytes(self) -> bytes:
        return self.model

    @classmethod
    def from_bytes(cls, content: bytes) -> "SubwordTokenizer":
        return cls(content)


def _explained(error: RuntimeError, vocab_size: int) -> UserError:
    """SentencePiece's training error in one line that says what to do."""
    message = str(error)
    if found := re.search(r"too high .* <= (\d+)", message):
        limit = f"at most {found[1]}, the largest that the text allows"
    elif found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        limit = f"at least {found[1]}: the text's characters, 256 bytes and the special symbols"
    elif "sentences_.empty()" in message:
        return UserError("expected sentences to learn a vocabulary from, found none")
    else:
        return UserError(f"cannot learn a vocabulary of {vocab_size}: {' '.join(message.split())}")
    return UserError(f"expected a vocab_size of {limit}; found {vocab_size}")
