"""A SentencePiece model as TensorFlow operations."""

import functools
import hashlib
import itertools
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text

from keras_transformer.private_names import sentencepiece_resource, set_sentencepiece_resource
from keras_transformer.text import in_graph
from keras_transformer.text.byte_pairs import BytePairMerges
from keras_transformer.text.ragged import Ragged
from keras_transformer.text.sentences import utf_8
from keras_transformer.text.vocabulary import load_processor, parsed_model


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
        self._proto = parsed_model(model)
        self.processor = load_processor(model)
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
    return len(parsed_model(model).pieces)


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
