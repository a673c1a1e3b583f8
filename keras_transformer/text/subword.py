"""Subword vocabularies (section 5.1), learned from text or loaded."""

import functools
import io
import itertools
import math
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np
import sentencepiece
import tensorflow as tf
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from keras_transformer.errors import UserError, expect_at_least, not_installed
from keras_transformer.files import read_whole
from keras_transformer.text.languages import Languages, languages_in, with_languages
from keras_transformer.text.normalization import (
    NORMALIZATIONS,
    Rules,
    model_of_target,
    models_by_file,
    normalization_of,
)
from keras_transformer.text.ragged import Ragged
from keras_transformer.text.sentencepiece_model import SentencePieceModel, number_of_pieces
from keras_transformer.text.sentences import as_list, each, utf_8
from keras_transformer.text.text_files import as_paths, read_lines
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.text.vocabulary import (
    END_ID,
    PAD_ID,
    START_ID,
    UNKNOWN_ID,
    expect_special_ids,
    naming,
    parsed_model,
)

if TYPE_CHECKING:
    import keras_nlp

T = TypeVar("T")
MAX_SENTENCES = 5_000_000  # maximum number to learn a vocabulary from
_MAX_BYTES = 16_384  # maximum length of each
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's own mark of a space
_SYMBOL = ModelProto.SentencePiece.USER_DEFINED


class VocabularySizeError(UserError):
    """The text does not allow a vocabulary of the requested size.

    Args:
        expected: the sizes that it allows, with `{}` in place of `allowed`.
        allowed: nearest size that the text allows.
        found: the requested size.
    """

    def __init__(self, expected: str, allowed: int, found: int):
        super().__init__(f"vocab_size must be {expected.format(allowed)}: found {found}")
        self.expected, self.allowed, self.found = expected, allowed, found

    def __reduce__(self):
        return type(self), (self.expected, self.allowed, self.found)

    def with_added(self, number: int) -> "VocabularySizeError":
        """The same error for a vocabulary to which so many ids are added once it is learned."""
        return VocabularySizeError(self.expected, self.allowed + number, self.found + number)


class SubwordTokenizer(Tokenizer):
    """A subword vocabulary shared by source and target (section 5.1).

    Text is read without control characters and white space at its ends (`plain_text`), and runs of
    spaces become one space. Characters outside the vocabulary are spelled in UTF-8 bytes, so
    nothing is unknown. Bytes that are not UTF-8 become U+FFFD, which normalisation removes.

    A learned vocabulary normalises the source alone (NFKC, all white space to spaces):
    `detokenize(tokenize(text))` is `normalize(text)`, and `detokenize(tokenize_target(text))` is
    `text`. The one exception is U+2581, by which SentencePiece marks spaces: it becomes a space.
    In sources, U+200C is a space to a vocabulary that was learned from text without it.

    Special ids: 0 padding, 1 start symbol, 2 end symbol, 3 unknown (never produced).

    Args:
        model: serialised SentencePiece model with these special ids.

    Raises:
        UserError: `model` is not such a model.

    Example:
        >>> tokenizer = SubwordTokenizer.train(["train.en", "train.de"], vocab_size=340)
        >>> ids = tokenizer.tokenize(tf.constant(["A man rides a horse."]))
        >>> tokenizer.detokenize(ids)
        <tf.Tensor: shape=(1,), dtype=string, numpy=array([b'A man rides a horse.'], dtype=object)>
    """

    pad_id, start_id, end_id, unknown_id = PAD_ID, START_ID, END_ID, UNKNOWN_ID
    file_name = "vocabulary.model"

    def __init__(self, model: bytes):
        super().__init__()
        self._source = self._target = SentencePieceModel(model)
        if (target := model_of_target(model)) != model:
            self._target = SentencePieceModel(target)
        processor = self._source.processor
        expect_special_ids(processor)
        self.model = model
        self.vocab_size = processor.vocab_size()

    @functools.cached_property
    def pieces(self) -> list[str]:  # type: ignore[override]
        processor = self._source.processor
        return [processor.id_to_piece(id_) for id_ in range(self.vocab_size)]

    @functools.cached_property
    def languages(self) -> Languages | None:  # type: ignore[override]
        return languages_in(self.model)

    def with_languages(self, codes: Sequence[str]) -> "SubwordTokenizer":
        """Adds the symbols of target languages, for a model that translates into several.

        Args:
            codes: codes of languages, such as `["de", "fr"]`.

        Raises:
            UserError: one of them is no code of a language.

        Example:
            >>> tokenizer = SubwordTokenizer.train("train.en", vocab_size=320)
            >>> tokenizer.with_languages(["de", "fr"]).pieces[-2:]
            ['<2de>', '<2fr>']
        """
        return type(self)(with_languages(self.model, codes))

    @property
    def sentencepiece_models(self) -> dict[str, bytes]:  # type: ignore[override]
        return models_by_file(self.model)

    def to_keras_nlp(self, **options) -> "keras_nlp.tokenizers.SentencePieceTokenizer":
        """Converts the vocabulary to a keras-nlp layer, which can be part of a saved model.

        `SubwordTokenizer(layer.proto)` converts it back. `load` reads keras-nlp's file
        `vocabulary.spm`. Both need the special ids of this class. The layer gives the ids of
        `tokenize`, except for text with control characters, and, in lower case, with a capital
        sigma that ends a word.

        Args:
            **options: arguments of `keras_nlp.tokenizers.SentencePieceTokenizer`, such as
                `sequence_length`.

        Raises:
            UserError: keras-nlp is not installed.
        """
        try:
            import keras_nlp  # takes seconds to import, and few need it
        except ImportError as error:
            raise not_installed("keras-nlp", "keras-nlp", error) from error
        return keras_nlp.tokenizers.SentencePieceTokenizer(proto=self.model, **options)

    @staticmethod
    def vocab_size_of(path: str | os.PathLike) -> int:
        """Number of ids in a vocabulary file, read without TensorFlow operations.

        Raises:
            UserError: the file is missing or is not a SentencePiece model.
        """
        with naming(path):
            return number_of_pieces(read_whole(path))

    @property
    def model_type(self) -> str:
        """The kind of SentencePiece model: "bpe", "unigram", "word" or "char"."""
        return self._source.model_type

    @property
    def normalization(self) -> str:
        """The sides whose text is normalised by NFKC: "source", "both" or "none"."""
        return normalization_of(self.model)

    @property
    def symbols(self) -> list[str]:
        """The symbols of `with_symbols`, which are never split."""
        return [piece.piece for piece in parsed_model(self.model).pieces if piece.type == _SYMBOL]

    def with_symbols(self, symbols: Sequence[str]) -> "SubwordTokenizer":
        """The vocabulary with further symbols: each is one id wherever it occurs, never split.

        They are SentencePiece's user-defined symbols. A symbol that is a subword already keeps its
        id; the others have the next ids.

        Args:
            symbols: texts without white space, such as `%s` or `<0>`.

        Raises:
            UserError: a symbol has white space, or is a special symbol of the vocabulary; or
                `symbols` is a single string.

        Example:
            >>> with_placeholders = tokenizer.with_symbols(["%s", "<0>"])
            >>> with_placeholders.vocab_size - tokenizer.vocab_size
            2
        """
        proto = parsed_model(self.model)
        known = {piece.piece: piece for piece in proto.pieces}
        for symbol in as_list(symbols, "symbols"):
            piece = known[symbol] if symbol in known else proto.pieces.add(piece=symbol)
            is_whole = symbol and not any(c.isspace() or c == _SPACE for c in symbol)
            if not is_whole or piece.type not in (piece.NORMAL, _SYMBOL):
                raise UserError(
                    f"symbols must be texts without white space that are no special symbols: found "
                    f"{symbol!r}"
                )
            piece.type, piece.score = _SYMBOL, 0.0
            known[symbol] = piece
        proto.trainer_spec.user_defined_symbols[:] = [
            piece.piece for piece in proto.pieces if piece.type == _SYMBOL
        ]
        return SubwordTokenizer(proto.SerializeToString())

    @classmethod
    def train(
        cls,
        files: str | os.PathLike | Sequence[str | os.PathLike],
        vocab_size: int,
        model_type: Literal["bpe", "unigram"] = "bpe",
        lowercase: bool = False,
        seed: int = 1,
        max_sentences: int = MAX_SENTENCES,
        normalization: Literal["source", "both", "none"] = "source",
    ) -> "SubwordTokenizer":
        """Learns a vocabulary from text files with one sentence per line.

        Args:
            files: UTF-8 text file or files, plain or `.gz`, of all languages that share the
                vocabulary.
            vocab_size: number of ids, including the special ones and 256 bytes.
            model_type: "bpe" for byte-pair encoding, as for the paper's English-German; "unigram"
                for the open equivalent of the word pieces of the paper's English-French.
            lowercase: whether to lower-case all text like `str.lower`, in training and later.
            seed: seed of the sample drawn if there are more than `max_sentences`.
            max_sentences: maximum number of sentences to learn from; more are sampled at random.
            normalization: the sides whose text is normalised by NFKC (… to ..., ² to 2), and whose
                white space of all kinds becomes spaces.

        Raises:
            UserError: a file cannot be read, or (`VocabularySizeError`) the text does not allow
                `vocab_size`.
        """
        lines = itertools.chain.from_iterable(map(read_lines, as_paths(files)))
        return cls.train_from_sentences(
            lines, vocab_size, model_type, lowercase, seed, max_sentences, normalization
        )

    @classmethod
    def train_from_sentences(
        cls,
        sentences: Iterable[str | bytes],
        vocab_size: int,
        model_type: Literal["bpe", "unigram"] = "bpe",
        lowercase: bool = False,
        seed: int = 1,
        max_sentences: int = MAX_SENTENCES,
        normalization: Literal["source", "both", "none"] = "source",
    ) -> "SubwordTokenizer":
        """Learns a vocabulary from sentences; the other arguments are those of `train`.

        The same sentences, arguments and seed give the same vocabulary in every process. A
        sentence longer than 16,384 bytes is left out. One that normalisation changes is learned
        from in both forms, as it may be a source or a target.
        """
        if model_type not in ("bpe", "unigram"):
            raise UserError(f"model_type must be bpe or unigram: found {model_type!r}")
        if normalization not in NORMALIZATIONS:
            raise UserError(
                f"normalization must be {', '.join(NORMALIZATIONS)}: found {normalization!r}"
            )
        expect_at_least(1, "max_sentences", max_sentences)
        rules = Rules(normalization, lowercase)
        model, failures = io.BytesIO(), []

        def watched():
            # SentencePiece turns an iterator's exception into a RuntimeError: keep the cause.
            try:
                for sentence in sample(_usable(sentences, lowercase), max_sentences, seed):
                    yield from rules.forms(sentence)
            except BaseException as error:  # Ctrl-C too
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
                normalization_rule_name="identity",
                character_coverage=1.0,
                # At least the number given: SentencePiece's own sample differs between processes.
                input_sentence_size=2 * max(max_sentences, MAX_SENTENCES),
                max_sentence_length=_MAX_BYTES,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise (failures[0] if failures else _explained(error, vocab_size)) from error
        return cls(rules.in_model(model.getvalue()))

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._source.tokenize(text)

    def tokenize_target(self, text: tf.Tensor) -> tf.RaggedTensor:
        return self._target.tokenize(text)

    def encode(self, sentences: Iterable[str], is_target: bool = False) -> Ragged:
        return (self._target if is_target else self._source).encode(as_list(sentences))

    def resplit(self, sentences: Ragged, dropout: float, random: np.random.RandomState) -> Ragged:
        return self._source.merges.resplit(sentences, dropout, random)

    def join(self, ids: tf.RaggedTensor) -> tf.Tensor:
        return self._source.detokenize(ids)

    def normalize(self, text: str) -> str:
        return self._source.normalize(text)

    def to_bytes(self) -> bytes:
        return self.model

    @classmethod
    def from_bytes(cls, content: bytes) -> "SubwordTokenizer":
        return cls(content)


def sample(items: Iterable[T], size: int, seed: int) -> Iterator[T]:
    """Draws `size` of the items uniformly at random, in one pass; all of them if they are fewer.

    Only the items drawn are in memory, and each is released once read. This is algorithm L (Li,
    1994). Each item that enters the sample replaces a random one, and the number of items to skip
    before the next one is also random. So it takes little longer than reading all items.

    Example:
        >>> list(sample("abc", 5, seed=1))
        ['a', 'b', 'c']
    """
    items = iter(items)
    drawn = list(itertools.islice(items, size))
    if len(drawn) == size:
        random = np.random.RandomState(seed)  # its sequence never changes

        def log_uniform():
            return math.log(1.0 - random.random_sample())

        log_share = log_uniform() / size  # log of the share of coming items that enter
        while True:
            skipped = int(log_uniform() / math.log(-math.expm1(log_share)))
            entering = list(itertools.islice(items, skipped, skipped + 1))
            if not entering:
                break
            drawn[random.randint(size)] = entering[0]
            log_share += log_uniform() / size
    drawn.reverse()
    while drawn:
        yield drawn.pop()


def _usable(sentences: Iterable[str | bytes], lowercase: bool) -> Iterator[bytes]:
    """Yields the sentences that SentencePiece accepts, in UTF-8."""
    for sentence in each(sentences):
        encoded = utf_8(sentence, lowercase)
        if 0 < len(encoded) <= _MAX_BYTES:
            yield encoded


def _explained(error: RuntimeError, vocab_size: int) -> UserError:
    """Explains SentencePiece's training error in one line that says what to do."""
    message = str(error)
    if found := re.search(r"too high .* <= (\d+)", message):
        expected = "at most {}, the largest that the text allows"
    elif found := re.search(r"required_chars\. \d+ vs (\d+)", message):
        expected = "at least {}, for the text's characters, 256 bytes and the special symbols"
    elif "sentences_.empty()" in message:
        return UserError("there are no sentences to learn a vocabulary from")
    else:
        return UserError(f"cannot learn a vocabulary of {vocab_size}: {' '.join(message.split())}")
    return VocabularySizeError(expected, int(found[1]), vocab_size)
