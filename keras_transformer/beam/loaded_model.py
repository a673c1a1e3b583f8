"""Loads an exported model for workers: UTF-8 bytes in, strings out (TensorFlow)."""

import os

import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers operations)
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from keras_transformer.errors import UserError
from keras_transformer.files import open_regular

_FILE = "saved_model.pb"


def find_saved_model(path: str | os.PathLike) -> str:
    """The folder of the SavedModel at `path`, or of the newest version in it.

    Args:
        path: the output folder of `export`, or one of its versions: `export/en-de` or
            `export/en-de/2`. TensorFlow reads a path with `://`; other paths are made absolute.

    Raises:
        UserError: there is no SavedModel that translates.
    """
    folder = os.fspath(path)
    if "://" not in folder:
        folder = os.path.abspath(folder)
    try:
        if not tf.io.gfile.exists(os.path.join(folder, _FILE)):
            names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
            newest = max((name for name in names if name.isdecimal()), key=int, default="")
            folder = os.path.join(folder, newest)
        name = os.path.join(folder, _FILE)
        with tf.io.gfile.GFile(name, "rb") if "://" in name else open_regular(name) as file:
            [graph] = SavedModel.FromString(file.read()).meta_graphs
    except (tf.errors.OpError, DecodeError, ValueError, OSError) as error:
        reason = getattr(error, "message", None) or getattr(error, "strerror", None) or error
        raise UserError(
            f"{path}: cannot read a SavedModel of `keras-transformer export`: {reason}"
        ) from error
    signature = graph.signature_def["serving_default"]
    if {*signature.inputs} != {"text"} or "translation" not in signature.outputs:
        raise UserError(
            f"{path}: the SavedModel must map `text` to `translation`: found "
            f"{', '.join(signature.inputs) or 'nothing'} to "
            f"{', '.join(signature.outputs) or 'nothing'}"
        )
    return folder


class LoadedModel:
    """A SavedModel that a process has loaded.

    Args:
        path: the folder of the SavedModel.
    """

    def __init__(self, path: str):
        # Kept here, since its functions alone do not keep a loaded model alive.
        self._loaded = tf.saved_model.load(path)
        self._translate = self._loaded.signatures["serving_default"]

    def translate(self, texts: list[bytes]) -> list[str]:
        """The translation of each text.

        Raises:
            tf.errors.OpError: one of them fails.
        """
        translations = self._translate(text=tf.constant(texts, tf.string))["translation"].numpy()
        return [translation.decode("utf-8", "replace") for translation in translations]

    def count_tokens(self, texts: list[bytes]) -> int:
        """The number of tokens in all texts.

        Raises:
            tf.errors.OpError: one of them fails.
        """
        return int(tf.reduce_sum(self._loaded.count_tokens(tf.constant(texts, tf.string))))
