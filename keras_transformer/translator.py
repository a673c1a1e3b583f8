"""Strings in, strings out: a tokenizer, a model and a search, on TensorFlow."""

import dataclasses
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.decoding import SearchOptions, scoring, search
from keras_transformer.errors import UserError
from keras_transformer.model import Transformer
from keras_transformer.tokenizers import SubwordTokenizer


class Translation(NamedTuple):
    """A translated sentence, and its score: log-probability / length penalty."""

    text: str
    score: float


class Translator:
    """Translates sentences by beam search (paper, section 6.1).

    Sentences of similar length are translated together, and put back in order; what a sentence
    becomes does not depend on its company. One without a token becomes an empty one.

    Args:
        model: a `Transformer`.
        tokenizer: the vocabulary it was trained with.
        options: what to search for.
        tokens_per_batch: positions translated together, those a translation may grow to included.
        max_source_length: a longer sentence, in tokens, is translated up to here.
        **search_options: fields of `SearchOptions` that differ from `options`.

    Raises:
        UserError: an option is out of range, or the vocabulary is not of the model's size.

    Example:
        >>> translator = Translator(model, tokenizer, beam_size=4, alpha=0.6)
        >>> translator(["A man rides a horse."])
        ['Ein Mann reitet auf einem Pferd.']
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: SubwordTokenizer,
        options: SearchOptions = SearchOptions(),
        *,
        tokens_per_batch: int = 4096,
        max_source_length: int = 1024,
        **search_options,
    ):
        options = dataclasses.replace(options, **search_options)
        tokenizer.check_fits(model.config)
        if model.config.learned_positions:
            max_source_length = min(max_source_length, model.config.max_positions)
        self.model = model
        self.tokenizer = tokenizer
        self.options = options
        self.tokens_per_batch = tokens_per_batch
        self.max_source_length = max_source_length
        ids = tf.TensorSpec([None, None], tf.int32)
        self._translate_ids = tf.function(self._search, input_signature=[ids])
        self._score_ids = tf.function(self._score, input_signature=[ids, ids])

    def __call__(self, sentences: Sequence[str]) -> list[str]:
        """The translation of each sentence, in order."""
        return [translation.text for translation in self.translate(sentences)]

    def translate(self, sentences: Sequence[str]) -> list[Translation]:
        """The translation of each sentence and its score, in order."""
        if isinstance(sentences, str | bytes):
            raise UserError("expected a list of sentences, found a single one")
        translations = [Translation("", 0.0)] * len(sentences)
        if not translations:
            return translations
        tokens = self._tokenize(sentences)
        for rows in self._batches(tokens.row_lengths().numpy()):
            texts, scores = self._translate_ids(self._ids(tokens, rows))
            for row, text, score in zip(rows, texts.numpy(), scores.numpy(), strict=True):
                translations[row] = Translation(_one_line(text), float(score))
        return translations

    def score(self, sentences: Sequence[str], translations: Sequence[str]) -> list[float]:
        """What the search would say of given translations: log-probability / length penalty.

        A translation is scored as the vocabulary splits it, which need not be how the search
        spelled it. A sentence without a token has one translation, the empty one, of score 0; any
        other scores minus infinity.

        Args:
            sentences: what was translated; a longer one is read up to `max_source_length`.
            translations: one for each sentence; a longer one is read up to `max_source_length`.

        Raises:
            UserError: there are not as many translations as sentences.

        Example:
            >>> translator.score(["Two dogs."], ["Zwei Hunde."])
            [-0.41...]
        """
        if isinstance(sentences, str | bytes) or isinstance(translations, str | bytes):
            raise UserError("expected lists of sentences and translations, found a single one")
        if len(sentences) != len(translations):
            raise UserError(
                f"expected as many translations as sentences, {len(sentences)}, "
                f"found {len(translations)}"
            )
        if not sentences:
            return []
        source, target = self._tokenize(sentences), self._tokenize(translations)
        source_lengths, target_lengths = source.row_lengths().numpy(), target.row_lengths().numpy()
        scores = np.where(target_lengths, -math.inf, 0.0)
        lengths = np.maximum(source_lengths, target_lengths) * (source_lengths > 0)
        for rows in self._batches(lengths):
            ids = (self._ids(tokens, rows) for tokens in (source, target))
            scores[rows] = self._score_ids(*ids).numpy()
        return scores.tolist()

    def export(self, output: str | os.PathLike) -> Path:
        """Writes the next version, `output/1` at first, for TensorFlow Serving.

        `keras_transformer.export.export_saved_model` tells what it holds, and what it raises.

        Returns:
            The folder of the new version.

        Example:
            >>> translator.export("export/en-de")
            PosixPath('export/en-de/1')
        """
        # Imported here: export is made of translators, not translators of export.
        from keras_transformer.export import export_saved_model

        return export_saved_model(self, output)

    def _tokenize(self, sentences):
        tokens = self.tokenizer.tokenize(tf.constant([_utf_8(s) for s in sentences]))
        return tokens[:, : self.max_source_length - 1]

    def _ids(self, tokens, rows):
        """The ids of some sentences, each with its end symbol, padded."""
        end = tf.fill([len(rows), 1], self.model.config.end_id)
        ids = tf.concat([tf.gather(tokens, rows), end], axis=1)
        return ids.to_tensor(self.model.config.pad_id)

    def _batches(self, lengths: np.ndarray):
        """Indices of the sentences that have tokens, of similar length together."""
        order = np.argsort(-lengths, kind="stable")
        order = order[lengths[order] > 0]
        while len(order):
            longest = int(lengths[order[0]]) + 1 + self.options.extra_length
            size = max(1, self.tokens_per_batch // longest)
            yield order[:size]
            order = order[size:]

    def _search(self, source_ids):
        result = search(self.model, source_ids, self.options)
        return self.tokenizer.detokenize(result.ids[:, 0]), result.scores[:, 0]

    def _score(self, source_ids, target_ids):
        return scoring.score(self.model, source_ids, target_ids, self.options)


def _utf_8(sentence: str | bytes) -> bytes:
    return sentence.encode("utf-8", "replace") if isinstance(sentence, str) else sentence


def _one_line(text: bytes) -> str:
    """The text without line breaks, which a model can spell in bytes, nor halves of characters."""
    return " ".join(text.decode("utf-8", "replace").split())
