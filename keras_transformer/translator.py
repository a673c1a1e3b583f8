"""Translation of strings on TensorFlow: a tokenizer, a model and a search."""

import dataclasses
import itertools
import math
import os
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.analysis import attention_maps
from keras_transformer.backend.xla_flags import set_xla_flags
from keras_transformer.decoding import NO_HYPOTHESIS, Constraint, SearchOptions, scoring, search
from keras_transformer.errors import UserError, expect_at_least, expect_tensorflow
from keras_transformer.model import Transformer
from keras_transformer.sentences import as_list, utf_8
from keras_transformer.tokenizers import Tokenizer
from keras_transformer.translation import Translation, cut, one_line

# Maximum size of the attention maps of sentences that are aligned together, for one head. All
# layers' maps are in memory at once.
_WEIGHTS_AT_ONCE = 1 << 18


class Alignment(NamedTuple):
    """An alignment: the source subword that each target subword comes from.

    Attributes:
        source: subwords of the sentence.
        target: subwords of the translation.
        links: (source index, target index), one for each target subword.
    """

    source: list[str]
    target: list[str]
    links: list[tuple[int, int]]


class Translator:
    """Translates sentences by beam search (paper, section 6.1), or samples translations at random.

    Sentences of similar length are translated together, and put back in order. As soon as one is
    done, the next one takes its batch slot. A translation does not depend on the other sentences.
    A sentence without a token has an empty translation. Random samples are a function of `seed`
    and of the number of sentences translated before, in this call and in earlier ones.

    Args:
        model: a `Transformer`, or several of one vocabulary, whose probabilities are averaged.
        tokenizer: the vocabulary that the model was trained with.
        options: options of the search.
        tokens_per_batch: number of source tokens that are encoded together. The batch slots have
            room for as many positions, counting the maximum length of each translation.
        max_source_length: maximum source tokens, end symbol included; longer sentences are cut,
            with a `CutWarning`. At least 2. With learned positions, at most `max_positions`.
        jit_compile: whether to compile the search with XLA, once for each of a few batch shapes.
            Each takes seconds; it pays off from a few thousand sentences on.
        workers: number of batches translated at the same time, each in a thread.
        constraint: function that masks the symbols that may follow, given those so far, see
            `decoding.Constraint`; it applies in addition to `options`. None for no constraint.
        **search_options: fields of `SearchOptions` that differ from `options`.

    Raises:
        UserError: an option is out of range, the vocabulary does not fit the model, or Keras's
            backend is not TensorFlow.

    Example:
        >>> translator = Translator(model, tokenizer, beam_size=4, alpha=0.6)
        >>> [german] = translator(["A man rides a horse."])  # such as "Ein Mann reitet ein Pferd."
    """

    def __init__(
        self,
        model: Transformer | Sequence[Transformer],
        tokenizer: Tokenizer,
        options: SearchOptions = SearchOptions(),
        *,
        tokens_per_batch: int = 4096,
        max_source_length: int = 1024,
        jit_compile: bool = False,
        workers: int = 1,
        constraint: Constraint | None = None,
        **search_options,
    ):
        expect_tensorflow("Translator")
        expect_at_least(1, "tokens_per_batch", tokens_per_batch)
        expect_at_least(2, "max_source_length", max_source_length)  # a token and the end symbol
        expect_at_least(1, "workers", workers)
        self.models = list(model) if isinstance(model, Sequence) else [model]
        if not self.models:
            raise UserError("expected a model, or several, found an empty list")
        self.options = dataclasses.replace(options, **search_options)
        for model in self.models:
            tokenizer.check_fits(model.config)
            if model.config.positions == "learned":
                max_source_length = min(max_source_length, model.config.max_positions)
        self.tokenizer = tokenizer
        self.tokens_per_batch = tokens_per_batch
        self.max_source_length = max_source_length
        self.jit_compile = jit_compile
        if jit_compile:
            set_xla_flags()
        self.workers = workers
        self.constraint = constraint
        self._pad_id = self.models[0].config.pad_id
        self._seed = self.options.seed
        if self.options.sample and self._seed is None:
            self._seed = random.randrange(2**31)
        self._num_sentences, self._lock = 0, threading.Lock()
        ids, num_slots = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([], tf.int32)
        sentence_ids = tf.TensorSpec([None], tf.int32)
        self._search_ids = self._compiled([ids, num_slots, sentence_ids])
        self._search_ids_from_prefix = self._compiled([ids, num_slots, sentence_ids, ids])
        # Threads for the first run of each compiled search, see `_run`.
        self._compilers = ThreadPoolExecutor(workers)
        self._have_run: set[Callable] = set()
        # Partials, because TensorFlow counts the traces of a method over all objects: it would warn
        # about retracing after a few translators.
        self._score_ids = tf.function(partial(self._score), [ids, ids], autograph=False)
        self._detokenize = tf.function(partial(tokenizer.detokenize), [ids], autograph=False)

    def with_options(self, options: SearchOptions) -> "Translator":
        """Returns a translator with the same models and vocabulary, but other options.

        Args:
            options: options of its search.

        Example:
            >>> greedy = translator.with_options(SearchOptions(beam_size=1))
            >>> greedy.models == translator.models
            True
        """
        return Translator(
            self.models,
            self.tokenizer,
            options,
            tokens_per_batch=self.tokens_per_batch,
            max_source_length=self.max_source_length,
            jit_compile=self.jit_compile,
            workers=self.workers,
            constraint=self.constraint,
        )

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns the translation of each sentence, in order."""
        return [translation.text for translation in self.translate(sentences)]

    def translate(
        self, sentences: Iterable[str], prefixes: Iterable[str] | None = None
    ) -> list[Translation]:
        """Returns the best translation of each sentence and its score, in order.

        Args:
            sentences: sentences to translate: any iterable of strings or UTF-8 bytes.
            prefixes: start of each translation, as the vocabulary splits it; an empty prefix
                forces nothing. None for no prefixes.

        Raises:
            UserError: the numbers of prefixes and sentences differ, or either is not an iterable
                of strings.
        """
        return [translations[0] for translations in self.translate_n(sentences, prefixes)]

    def translate_n(
        self, sentences: Iterable[str], prefixes: Iterable[str] | None = None
    ) -> list[list[Translation]]:
        """Returns the `n_best` translations of each sentence, in order, the best first.

        There are fewer if fewer were found; a sentence without a token has one. Arguments are
        those of `translate`.
        """
        texts = as_list(sentences)
        forced = None if prefixes is None else as_list(prefixes, "prefixes")
        if forced is not None and len(forced) != len(texts):
            raise UserError(
                f"expected as many prefixes as sentences, {len(texts)}, found {len(forced)}"
            )
        translations = [[Translation("", 0.0)] for _ in texts]
        if not texts:
            return translations
        tokens = self._tokenize(texts, self.tokenizer.tokenize)
        if forced is not None:
            forced = self._tokenize(forced, self.tokenizer.tokenize_target)
        with self._lock:
            first = self._num_sentences
            self._num_sentences += len(texts)

        def translate_some(batch):
            num_slots, size, rows = batch
            source_ids = self._shaped(self._ids(tokens, rows), size)
            # Rows of padding need an index too.
            sentence_ids = np.resize(first + rows, len(source_ids)).astype(np.int32)
            arguments = [tf.constant(source_ids), num_slots, tf.constant(sentence_ids)]
            if forced is not None:
                prefix_ids = self._padded([forced[row] for row in rows])
                arguments.append(tf.constant(self._shaped(prefix_ids, size)))
            search_ids = self._search_ids if forced is None else self._search_ids_from_prefix
            ids, scores = self._run(search_ids, arguments)
            n_best = ids.shape[1]
            texts = self._detokenize(tf.reshape(ids, [-1, ids.shape[2]])).numpy()
            texts = texts.reshape(-1, n_best)
            for row, row_texts, row_scores in zip(rows, texts, scores.numpy(), strict=False):
                translations[row] = [
                    Translation(one_line(text.decode("utf-8", "replace")), float(score))
                    for text, score in zip(row_texts, row_scores, strict=True)
                    if score > NO_HYPOTHESIS
                ] or [Translation("", NO_HYPOTHESIS)]

        with ThreadPoolExecutor(self.workers) as pool:
            batches = self._batches(_lengths(tokens), in_turns=True)
            list(pool.map(translate_some, batches))
        return translations

    def score(self, sentences: Iterable[str], translations: Iterable[str]) -> list[float]:
        """Scores given translations as the search would: log-probability / length penalty.

        A translation is scored as the vocabulary splits it; the search may have spelled it
        differently. For a sentence without a token, the empty translation scores 0; any other
        scores `NO_HYPOTHESIS`, -1e9.

        Args:
            sentences: source sentences, cut at `max_source_length`.
            translations: one translation for each sentence, cut at `max_source_length`.

        Raises:
            UserError: the numbers of translations and sentences differ, or either is not an
                iterable of strings.

        Example:
            >>> translator.score(["Two dogs."], ["Zwei Hunde."])
            [-...]
        """
        source, target = self._token_pairs(sentences, translations)
        source_lengths, target_lengths = _lengths(source), _lengths(target)
        scores = np.where(target_lengths, NO_HYPOTHESIS, 0.0)
        lengths = np.maximum(source_lengths, target_lengths) * (source_lengths > 0)
        for *_, rows in self._batches(lengths):
            ids = (self._ids(tokens, rows) for tokens in (source, target))
            scores[rows] = self._score_ids(*ids).numpy()
        return scores.tolist()

    def align(self, sentences: Iterable[str], translations: Iterable[str]) -> list[Alignment]:
        """Aligns each target subword with the source subword that it attends to most.

        It uses the mean attention over heads in the last layer but one, which is closest to human
        alignments (Garg et al., 2019). An ensemble uses its first model.

        Args:
            sentences: source sentences.
            translations: one translation for each sentence, as the vocabulary splits it.

        Raises:
            UserError: the numbers of translations and sentences differ, or either is not an
                iterable of strings.

        Example:
            >>> [alignment] = translator.align(["Two dogs."], ["Zwei Hunde."])
            >>> alignment.links  # (source index, target index) of each target subword
            [(..., 0), (..., 1), ...]
        """
        source, target = self._token_pairs(sentences, translations)
        source_lengths, target_lengths = _lengths(source), _lengths(target)
        longest = np.maximum(source_lengths, target_lengths) + 1
        order = np.argsort(-longest, kind="stable")
        order = order[(source_lengths[order] > 0) & (target_lengths[order] > 0)]
        links: list[list[tuple[int, int]]] = [[] for _ in source]
        while len(order):
            size = max(1, _WEIGHTS_AT_ONCE // int(longest[order[0]]) ** 2)
            rows, order = order[:size], order[size:]
            weights = self._attention([source[row] for row in rows], [target[row] for row in rows])
            for row, row_weights in zip(rows, weights, strict=True):
                # Each position predicts the next subword; the end symbol is aligned with nothing.
                best = row_weights[: target_lengths[row], : source_lengths[row]].argmax(axis=1)
                links[row] = [(index, number) for number, index in enumerate(best.tolist())]
        pieces = self.tokenizer.pieces
        return [
            Alignment([pieces[id_] for id_ in of_source], [pieces[id_] for id_ in of_target], both)
            for of_source, of_target, both in zip(source, target, links, strict=True)
        ]

    def _attention(self, source, target):
        """The mean attention of heads to the source, as (sentences, target, source)."""
        model = self.models[0]
        source_ids = self._padded([[*ids, model.config.end_id] for ids in source])
        target_ids = self._padded([[model.config.start_id, *ids] for ids in target])
        weights = attention_maps(model, source_ids, target_ids).memory
        weights = weights[max(0, len(weights) - 2)]  # (sentences, heads, target, source)
        return tf.reduce_mean(tf.cast(weights, tf.float32), axis=1).numpy()

    def export(self, output: str | os.PathLike) -> Path:
        """Writes the next version for TensorFlow Serving, starting with `output/1`.

        See `keras_transformer.export.export_saved_model` for its contents and errors.

        Returns:
            The folder of the new version.

        Example:
            >>> translator.export("export/en-de")
            PosixPath('export/en-de/1')
        """
        # Imported here because the export module imports this one.
        from keras_transformer.export import export_saved_model

        return export_saved_model(self, output)

    def _token_pairs(self, sentences, translations):
        sentences, translations = as_list(sentences), as_list(translations, "translations")
        if len(sentences) != len(translations):
            raise UserError(
                f"expected as many translations as sentences, {len(sentences)}, "
                f"found {len(translations)}"
            )
        return (
            self._tokenize(sentences, self.tokenizer.tokenize),
            self._tokenize(translations, self.tokenizer.tokenize_target, "translations"),
        )

    def _tokenize(self, sentences, tokenize, what="sentences"):
        tokens = tokenize(tf.constant([utf_8(sentence) for sentence in sentences], tf.string))
        ids, splits = tokens.flat_values.numpy(), tokens.row_splits.numpy()
        sentences = (ids[start:end] for start, end in itertools.pairwise(splits))
        return cut(list(sentences), self.max_source_length - 1, what)

    def _ids(self, tokens, rows):
        """Pads the ids of some sentences, each with its end symbol."""
        end_id = self.models[0].config.end_id
        return self._padded([[*tokens[row], end_id] for row in rows])

    def _padded(self, sentences):
        ids = np.full((len(sentences), max(map(len, sentences))), self._pad_id, np.int32)
        for row, sentence in zip(ids, sentences, strict=True):
            row[: len(sentence)] = sentence
        return ids

    def _batches(self, lengths: np.ndarray, in_turns: bool = False):
        """Plans batches of sentences of similar length, without those that have no token.

        A batch has as many sentences as slots. If sentences take turns in the slots (`in_turns`),
        it has as many as fit in `tokens_per_batch` source tokens. For XLA, sizes are powers of two,
        because each size is another shape to compile.

        Yields:
            The number of batch slots, the number of rows including rows of padding, and the indices
            of the sentences.
        """
        order = np.argsort(-lengths, kind="stable")
        order = order[lengths[order] > 0]
        share = math.ceil(len(order) / self.workers)
        if self.jit_compile and share:
            share = 1 << (share - 1).bit_length()
        while len(order):
            length = self._rounded(int(lengths[order[0]]) + 1)
            num_slots = max(1, self.tokens_per_batch // (length + self.options.extra_length))
            size = max(1, self.tokens_per_batch // length) if in_turns else num_slots
            if self.jit_compile:
                num_slots, size = (1 << round(math.log2(number)) for number in (num_slots, size))
            num_slots, size = min(num_slots, share), min(size, share)
            yield num_slots, size, order[:size]
            order = order[size:]

    def _shaped(self, ids, size):
        """Pads ids to one of a few shapes if XLA compiles."""
        if not self.jit_compile:
            return ids
        # A row of padding alone is done before the first step.
        rows = size - ids.shape[0]
        columns = self._rounded(ids.shape[1]) - ids.shape[1]
        return np.pad(ids, [(0, rows), (0, columns)], constant_values=self._pad_id)

    def _rounded(self, length: int) -> int:
        """Rounds up the length of a batch for XLA: to 8, 16, 24, 32, 48, 64, 96, 128 and so on."""
        if not self.jit_compile:
            return length
        unit = max(8, (1 << length.bit_length()) // 4)
        return -(-length // unit) * unit

    def _compiled(self, signature):
        # For XLA each shape is another program; TensorFlow's own function takes all shapes.
        # Autograph is off because it takes time and has nothing to convert.
        return tf.function(
            partial(self._search),  # see `__init__`
            None if self.jit_compile else signature,
            jit_compile=self.jit_compile,
            autograph=False,
        )

    def _run(self, search_ids, arguments):
        """Calls a search; one that XLA compiles, for the first time in a thread apart.

        The compiler leaves thousands of free blocks in its thread's part of the memory (glibc's
        arena). Each product of a search allocates memory, and would look through them. The thread
        lives as long as the translator, because glibc gives the arena of an ended thread to
        another.
        """
        if not self.jit_compile:
            return search_ids(*arguments)
        # TensorFlow warns about retracing, but here each shape needs its own trace.
        search_ids = search_ids.get_concrete_function(*arguments)
        if search_ids in self._have_run:
            return search_ids(*arguments)
        results = self._compilers.submit(search_ids, *arguments).result()
        self._have_run.add(search_ids)
        return results

    def _search(self, source_ids, num_slots, sentence_ids, *prefixes):
        [prefix_ids] = prefixes or [None]
        return search(
            self.models,
            source_ids,
            self.options,
            prefix_ids,
            self._seed,
            num_slots,
            sentence_ids,
            self.constraint,
        )

    def _score(self, source_ids, target_ids):
        return scoring.score(self.models, source_ids, target_ids, self.options)


def _lengths(tokens) -> np.ndarray:
    return np.array([len(ids) for ids in tokens], int)
