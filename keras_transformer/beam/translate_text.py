"""A transform of Apache Beam that translates the texts of a PCollection."""

import os
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from keras_transformer.beam.loaded_model import LoadedModel, find_saved_model
from keras_transformer.errors import UserError, not_installed
from keras_transformer.options.records import LARGEST

try:
    import apache_beam as beam
    from apache_beam.metrics import Metrics
    from apache_beam.utils.shared import Shared
except ImportError as error:
    raise not_installed("Apache Beam", "beam", error) from error

COUNTERS = ("lines", "tokens", "failures")


class Failure(NamedTuple):
    """A text that could not be translated.

    Attributes:
        key: the key of the text, or the text itself if it has no key.
        text: the text.
        reason: the error, in one line.
    """

    key: Hashable
    text: str | bytes
    reason: str


class TranslateText(beam.PTransform):
    """Translates each text of a PCollection with a SavedModel that `export` has written.

    Elements are texts (strings, or UTF-8 bytes), or pairs of a key and a text. There are two
    results: pairs of text and translation, or of key and translation; and a `Failure` for each text
    for which TensorFlow raised an error. As always in Beam, they have no particular order: keys
    identify them.

    Each worker process loads the model once, whatever the number of its threads and bundles. The
    model itself translates texts of similar length together; no translation depends on the others.

    Metrics in the namespace `keras_transformer` count `lines` (texts), their `tokens`, and the
    `failures` among them.

    Args:
        saved_model: the output folder of `export`, whose newest version is used, or one of its
            versions. Workers must find it at the same path; TensorFlow reads `gs://` too.
        lines_at_once: maximum number of texts to pass to the model together.

    Raises:
        UserError: there is no such SavedModel, or `lines_at_once` is out of range.

    Example:
        >>> import apache_beam as beam
        >>> path = translator.export("export/en-de")
        >>> with beam.Pipeline("FnApiRunner") as pipeline:
        ...     lines = pipeline | beam.Create(["Two dogs.", "A horse!"])
        ...     translated, failed = lines | TranslateText(path)
        ...     _ = translated | beam.MapTuple(lambda source, target: print(source))
        Two dogs.
        A horse!
    """

    def __init__(self, saved_model: str | os.PathLike, lines_at_once: int = 1024):
        super().__init__()
        if not 1 <= lines_at_once <= LARGEST:
            raise UserError(f"lines_at_once must be from 1 to {LARGEST}: found {lines_at_once}")
        self.saved_model = find_saved_model(saved_model)
        self.lines_at_once = lines_at_once

    def expand(self, texts):
        size = self.lines_at_once
        return (
            texts
            | "Batch" >> beam.BatchElements(min_batch_size=size, max_batch_size=size)
            | "Translate"
            >> beam.ParDo(_Translate(self.saved_model)).with_outputs("failed", main="translated")
        )


class _Translate(beam.DoFn):
    def __init__(self, saved_model: str):
        self._saved_model = saved_model
        self._shared = Shared()  # all copies of this object share its key
        self._counters = {name: Metrics.counter("keras_transformer", name) for name in COUNTERS}

    def setup(self):
        self._model = self._shared.acquire(lambda: LoadedModel(self._saved_model))

    def process(self, batch: Sequence[Any]) -> Iterator[Any]:
        elements = [element if isinstance(element, tuple) else (element,) * 2 for element in batch]
        results = self._translations([_utf_8(text) for _, text in elements])
        for (key, text), result in zip(elements, results, strict=True):
            self._counters["lines"].inc()
            if isinstance(result, str):
                yield key, result
            else:
                self._counters["failures"].inc()
                failure = Failure(key, text, " ".join(str(result.message).split()))
                yield beam.pvalue.TaggedOutput("failed", failure)

    def _translations(self, texts: list[bytes]) -> list[str | tf.errors.OpError]:
        """The translation of each text, or the error that the text raises even on its own."""
        try:
            translations = self._model.translate(texts)
            self._counters["tokens"].inc(self._model.count_tokens(texts))
            return translations
        except tf.errors.OpError as error:
            if len(texts) == 1:
                return [error]
            middle = len(texts) // 2
            return [*self._translations(texts[:middle]), *self._translations(texts[middle:])]


def _utf_8(text: str | bytes) -> bytes:
    if not isinstance(text, str | bytes):
        raise TypeError(f"elements must be texts, or pairs of a key and a text: found {text!r}")
    return text.encode("utf-8", "replace") if isinstance(text, str) else text
