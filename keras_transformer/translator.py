"""Strings in, strings out: a tokenizer, a model and a search, on TensorFlow."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.decoding import SearchOptions, search
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
        tokens = self.tokenizer.tokenize(tf.constant([_utf_8(s) for s in sentences]))
        tokens = tokens[:, : self.max_source_length - 1]
        lengths = tokens.row_lengths().numpy()
        for rows in self._batches(lengths):
            end = tf.fill([len(rows), 1], self.model.config.end_id)
            source_ids = tf.concat([tf.gather(tokens, rows), end], axis=1)
            texts, scores = self._translate_ids(source_ids.to_tensor(self.model.config.pad_id))
            for row, text, score in zip(rows, texts.numpy(), scores.numpy(), strict=True):
                translations[row] = Translation(_one_line(text), float(score))
        return translations

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


def _utf_8(sentence: str | bytes) -> bytes:
    return sentence.encode("utf-8", "replace") if isinstance(sentence, str) else sentence


def _one_line(text: bytes) -> str:
    """The text without line breaks, which a model can spell in bytes, nor halves of characters."""
    return " ".join(text.decode("utf-8", "replace").split())
