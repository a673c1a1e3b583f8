"""A SentencePiece model as TensorFlow operations."""

import copy
import hashlib

import sentencepiece
import tensorflow as tf
import tensorflow_text as tf_text
from google.protobuf.message import DecodeError
from sentencepiece.sentencepiece_model_pb2 import ModelProto, TrainerSpec
from tensorflow_text.python.ops import sentencepiece_tokenizer as tf_text_sentencepiece

from keras_transformer.errors import UserError


class SentencePieceModel(tf.Module):
    """A SentencePiece model: text to pieces to text, in-graph.

    Args:
        model: the model, serialised.
        out_type: what a piece is: `tf.int32` for its id, `tf.string` for its text.

    Raises:
        UserError: `model` is no such model.
    """

    def __init__(self, model: bytes, out_type: tf.DType = tf.int32):
        super().__init__()
        if not model:
            raise UserError("expected a SentencePiece model, found an empty one")
        try:
            specification = ModelProto.FromString(model).trainer_spec
            self.processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (DecodeError, RuntimeError) as error:
            raise UserError("expected a SentencePiece model, found something else") from error
        self.model = model
        self._is_bpe = specification.model_type == TrainerSpec.BPE
        self._operations = tf_text.SentencepieceTokenizer(model, out_type=out_type)
        self._operations._model_resource = _SharedModel(model, name=None)

    def tokenize(self, text: tf.Tensor, bpe_dropout: float = 0.0) -> tf.RaggedTensor:
        """Splits text `(batch,)` into pieces `(batch, None)`.

        Args:
            text: string `(batch,)`.
            bpe_dropout: share of merges left out at random.

        Raises:
            UserError: `bpe_dropout` is not from 0 to 1, or the model is no byte-pair encoding.
        """
        if not 0 <= bpe_dropout <= 1:
            raise UserError(f"expected bpe_dropout from 0 to 1, found {bpe_dropout}")
        if bpe_dropout and not self._is_bpe:
            raise UserError('expected a vocabulary of model_type "bpe" for bpe_dropout')
        if not bpe_dropout:
            return self._operations.tokenize(text)
        # Once SentencePiece samples, it reads `alpha` as the dropout rate of a BPE model.
        sampler = copy.copy(self._operations)
        sampler.nbest_size, sampler.alpha = -1, bpe_dropout
        return sampler.tokenize(text)

    def detokenize(self, pieces: tf.RaggedTensor) -> tf.Tensor:
        """Joins pieces `(batch, None)` into text `(batch,)`."""
        return self._operations.detokenize(pieces)

    def normalize(self, text: str) -> str:
        """The text as the model sees it."""
        return (
            self.processor.normalize(text)
            .replace("\N{LOWER ONE EIGHTH BLOCK}", " ")
            .removeprefix(" ")
        )


class _SharedModel(tf_text_sentencepiece._SentencepieceModelResource):
    """The model in TensorFlow's memory, found by its content.

    TensorFlow Text's own has no name, so it belongs to the eager kernel that made it, and is gone
    once TensorFlow clears its kernels, as `keras.utils.set_random_seed` does.
    """

    def _create_resource(self):
        return tf_text_sentencepiece.gen_sentencepiece_tokenizer.sentencepiece_op(
            model=self._model, shared_name=hashlib.sha256(self._model).hexdigest()
        )
