"""A SentencePiece model as TensorFlow operations."""

import functools
import hashlib
import itertools
import os
from collections.abc import Sequence

import numpy as np
import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

from keras_transformer.errors import UserError
from keras_transformer.private_names import sentencepiece_resource, set_sentencepiece_resource
from keras_transformer.text import in_graph
from keras_transformer.text.byte_pairs import BytePairMerges
from keras_transformer.text.ragged import Ragged
from keras_transformer.text.sentences import utf_8


class SentencePieceModel(tf.Module):
    """A SentencePiece model: from text to pieces and back, in-graph.

    Text is read as plain text (`plain_text`).

    Args:
        model: serialised SentencePiece model.
        out_type: type of a piece: `tf.int32` for its id, `tf.string` for its text.

    Raises:
        UserError: `model` is not a SentencePiece model.
    """

    def __init__(self, model: bytes, out_type: tf.DType = tf.int32):
        super().__init__()
        self._proto = _parsed(model)
        try:
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except RuntimeError as error:
            raise UserError("not a SentencePiece model") from error
        self.model = model
        self._operations = tf_text.SentencepieceTokenizer(model, out_type=out_type)
        set_sentencepiece_resource(self._operations, _SharedModel(model))

    @property
    def model_type(self) -> str:
        """The algorithm that learned the model: "unigram", "bpe", "word" or "char"."""
        spec = self._proto.trainer_spec
        return spec.ModelType.Name(spec.model_type).lower()

    @functools.cached_property
    def lowercase(self) -> bool:
        """Whether the model lower-cases or folds its text."""
        return self.processor.normalize("A").endswith("a")

    def tokenize(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Splits text `(batch,)` into pieces `(batch, None)`."""
        text = in_graph.plain_text(text)
        return self._operations.tokenize(
            in_graph.with_final_sigmas(text) if self.lowercase else text
        )

    def encode(self, sentences: Sequence[str | bytes]) -> Ragged:
        """Tokenises text or UTF-8 like `tokenize`, eagerly and in half the time."""
        texts = [utf_8(sentence, self.lowercase) for sentence in sentences]
        rows = self.processor.encode(texts, out_type=int, num_threads=1)
        ids = np.fromiter(itertools.chain.from_iterable(rows), np.int32)
        return Ragged(ids, np.fromiter(map(len, rows), np.int64))

    @functools.cached_property
    def merges(self) -> BytePairMerges:
        """The merges of a byte-pair encoding; raises `UserError` for other models."""
        return BytePairMerges(self._proto)

    def detokenize(self, pieces: tf.RaggedTensor) -> tf.Tensor:
        """Joins pieces `(batch, None)` into text `(batch,)`."""
        return self._operations.detokenize(pieces)

    def normalize(self, text: str) -> str:
        """Normalises text as the model does before splitting."""
        return (
            self.processor.normalize(utf_8(text, self.lowercase).decode())
            .replace("\N{LOWER ONE EIGHTH BLOCK}", " ")
            .removeprefix(" ")
        )


def number_of_pieces(model: bytes) -> int:
    """Number of pieces in a serialised SentencePiece model; raises `UserError` if it is not one."""
    return len(_parsed(model).pieces)


def _parsed(model):
    if isinstance(model, str | os.PathLike):
        raise UserError(
            f"model must be the content of a SentencePiece model: found {str(model)!r}; "
            "to read a file, call SubwordTokenizer.load"
        )
    if not model:
        raise UserError("not a SentencePiece model: it is empty")
    try:
        return ModelProto.FromString(model)
    except DecodeError as error:
        raise UserError("not a SentencePiece model") from error


class _SharedModel(tf.saved_model.experimental.TrackableResource):
    """The model as a TensorFlow resource named by a hash of its content.

    TensorFlow Text's own resource has no name, so it belongs to the eager kernel that made it. It
    is lost when TensorFlow clears its kernels, as `keras.utils.set_random_seed` does.
    """

    def __init__(self, model: bytes):
        super().__init__()
        self._model = model
        _ = self.resource_handle  # makes it now: made in a graph, it would belong to that graph

    def _create_resource(self):
        return sentencepiece_resource(self._model, hashlib.sha256(self._model).hexdigest())
