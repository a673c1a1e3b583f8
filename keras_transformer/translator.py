"""Translation of strings on TensorFlow: a tokenizer, a model and a search."""

import copy
import dataclasses
import functools
import itertools
import os
import random
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.alignment import align
from keras_transformer.errors import (
    Unsupported,
    UserError,
    expect_at_least,
    expect_tensorflow,
)
from keras_transformer.model import Transformer
from keras_transformer.search import NO_HYPOTHESIS, Required, SearchOptions
from keras_transformer.search.compiled import CompiledSearches
from keras_transformer.search.slot_batches import SlotBatches
from keras_transformer.search.term_tables import RequiredTerm, term_tables
from keras_transformer.search.terms import Terms
from keras_transformer.term_spelling import TermSpelling
from keras_transformer.text import Tokenizer
from keras_transformer.text.directed import DirectedTokenizer
from keras_transformer.text.languages import Languages
from keras_transformer.text.ragged import padded
from keras_transformer.text.sentences import as_list, one_for_each, utf_8
from keras_transformer.translation import (
    Alignment,
    TermsWarning,
    Translation,
    as_translations,
    cut,
    expect_own_process,
    terms_for_each,
    warn,
)


class _Search(NamedTuple):
    """What is to be searched: sentences, and what their translations must contain."""

    tokens: list[np.ndarray]  # of each sentence, without an end symbol
    first: int  # the number of sentences translated before
    prefix_ids: list[np.ndarray] | None  # of each sentence
    required: list[tuple[RequiredTerm, ...]] | None  # of each sentence


class Translator:
    """Translates sentences by beam search (paper, section 6.1), or samples translations at random.

    Sentences of similar length are translated together, and put back in order. As soon as one is
    done, the next one takes its batch slot. A translation does not depend on the other sentences.
    A sentence without a token has an empty translation. Random samples are a function of `seed`
    and of the number of sentences translated before, in this call and in earlier ones.

    Translations follow the weights of the model, but graphs are kept: after `model.quantize` or
    `enable_lora`, make a new translator.

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
        **search_options: fields of `SearchOptions` that differ from `options`, such as
            `beam_size`, or `constraint`, a function of your own.

    Raises:
        UserError: an option is out of range, the vocabulary does not fit the model, or Keras's
            backend is not TensorFlow.

    Example:
        >>> translator = Translator(model, tokenizer, beam_size=4, alpha=1.0)
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
        **search_options,
    ):
        expect_tensorflow("Translator")
        expect_at_least(1, "tokens_per_batch", tokens_per_batch)
        expect_at_least(2, "max_source_length", max_source_length)  # a token and the end symbol
        expect_at_least(1, "workers", workers)
        self.models = list(model) if isinstance(model, Sequence) else [model]
        if not self.models:
            raise UserError("model must be one model or several: found an empty list")
        for model in self.models:
            tokenizer.check_fits(model.config)
            if model.config.positions == "learned":
                max_source_length = min(max_source_length, model.config.max_positions)
        self.tokenizer = tokenizer
        self.max_source_length = max_source_length
        self._pad_id = self.models[0].config.pad_id
        self._batches = SlotBatches(tokens_per_batch, workers, jit_compile, self._pad_id)
        has_first = tokenizer.languages is not None and tokenizer.languages.in_target
        self._searches = CompiledSearches(self.models, jit_compile, workers, has_first)
        # A partial, because TensorFlow counts the traces of a method over all objects: it would
        # warn about retracing after a few translators.
        ids = tf.TensorSpec([None, None], tf.int32)
        self._detokenize = tf.function(
            functools.partial(tokenizer.detokenize), [ids], autograph=False
        )
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._use(dataclasses.replace(options, **search_options))

    # What graphs and batches are made for cannot be set later.

    @property
    def options(self) -> SearchOptions:
        """Options of the search; `with_options` returns a translator with others."""
        return self._options

    @property
    def tokens_per_batch(self) -> int:
        return self._batches.tokens_per_batch

    @property
    def jit_compile(self) -> bool:
        return self._batches.jit_compile

    @property
    def workers(self) -> int:
        return self._batches.workers

    def _use(self, options):
        self._options = options
        self._search = self._searches.of(options)
        self._seed = options.seed
        if options.sample and self._seed is None:
            self._seed = random.randrange(2**31)
        self._num_sentences = 0

    def with_options(self, options: SearchOptions) -> "Translator":
        """Returns a translator with the same models and vocabulary, but other options.

        Both share their graphs. Other numbers, such as `alpha`, `patience` or a length, need no new
        graph; another `beam_size`, `n_best`, `no_repeat_ngram`, `top_k` or `top_p` does.

        Args:
            options: options of its search.

        Example:
            >>> greedy = translator.with_options(SearchOptions(beam_size=1))
            >>> greedy.models == translator.models
            True
        """
        other = copy.copy(self)
        other._use(options)
        return other

    def with_languages(
        self, target_lang: str | None, source_lang: str | None = None
    ) -> "Translator":
        """Returns a translator with the same multilingual models, for one pair of languages.

        Both share their graphs.

        Args:
            target_lang: code of the target language, as the model names it.
            source_lang: code of the source language, for a model that reads it: M2M100 or NLLB.

        Raises:
            UserError: a language is missing or unknown, or the model translates between two only.

        Example:
            >>> translator = kt.load("runs/nllb", engine="tensorflow")
            >>> to_french = translator.with_languages("fra_Latn", "eng_Latn")
        """
        other = copy.copy(self)
        other.tokenizer = DirectedTokenizer(self.tokenizer, target_lang, source_lang)
        return other

    @property
    def languages(self) -> Languages | None:
        """The languages of a multilingual model; None for any other."""
        return self.tokenizer.languages

    def expect_direction(self) -> None:
        """Raises `UserError` if the model is for several languages, and none are chosen."""
        self.tokenizer.expect_direction()

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns the translation of each sentence, in order."""
        return [translation.text for translation in self.translate(sentences)]

    def translate(
        self,
        sentences: Iterable[str],
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[Sequence[str]]] | None = None,
    ) -> list[Translation]:
        """Returns the best translation of each sentence and its score, in order.

        Args:
            sentences: sentences to translate: any iterable of strings or UTF-8 bytes.
            prefixes: start of each translation, as the vocabulary splits it; an empty prefix
                forces nothing. Limits of length count what follows it. A sentence without a token
                has an empty translation all the same. None for no prefixes.
            terms: terms that each translation must contain, each a list of forms of which one must
                occur as whole words, as from `Glossary.terms`. A term that is listed twice must
                occur twice. If a limit of length leaves no room for the terms, the sentence is
                translated without them, with a `TermsWarning`. None for no terms.

        Raises:
            UserError: the numbers of prefixes or terms and sentences differ, one of them is not
                an iterable of strings, a prefix has `max_source_length` tokens or more, the
                vocabulary cannot spell a term, or there are terms and `options.sample`.

        Example:
            >>> translator.translate(["Two dogs."], terms=[[("Hund", "Hunde")]])
            [Translation(text=...)]
        """
        return [translations[0] for translations in self.translate_n(sentences, prefixes, terms)]

    def translate_n(
        self,
        sentences: Iterable[str],
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[Sequence[str]]] | None = None,
    ) -> list[list[Translation]]:
        """Returns the `n_best` translations of each sentence, in order, the best first.

        There are fewer if fewer were found; a sentence without a token has one. Arguments are
        those of `translate`.
        """
        texts = as_list(sentences)
        forced = None if prefixes is None else one_for_each(texts, prefixes, "prefixes")
        self.tokenizer.expect_direction()
        required = None if terms is None else self._required(texts, terms)
        if not texts:
            return []
        tokens = self._tokenize(texts, self.tokenizer.tokenize)
        with self._lock:
            first = self._num_sentences
            self._num_sentences += len(texts)
        prefix_ids = None if forced is None else self._prefixes(forced)
        search = _Search(tokens, first, prefix_ids, required)
        rows = [row for row, ids in enumerate(tokens) if len(ids)]
        found = {row: [Translation("", 0.0)] for row in range(len(texts))}
        if required is None:
            found |= self._found(search, rows)
        else:
            # Sentences without terms are searched as always.
            with_terms = [row for row in rows if required[row]]
            without = search._replace(required=None)
            found |= self._found(without, [row for row in rows if not required[row]])
            found |= self._found(search, with_terms)
            unmet = [row for row in with_terms if found[row][0].score == NO_HYPOTHESIS]
            if unmet:
                warn(TermsWarning(unmet), stacklevel=2)
                found |= self._found(without, unmet)
        return [found[row] for row in range(len(texts))]

    def _required(self, texts, terms):
        """The terms of each sentence, as the search takes them."""
        if self.options.sample:
            raise Unsupported("sampling", "terms", "leave them out, or sample=True")
        return self._terms.required(terms_for_each(texts, terms))

    @functools.cached_property
    def _terms(self):
        return TermSpelling(self.tokenizer)

    def unspellable(self, forms: Iterable[str]) -> list[str]:
        """The forms of terms that the vocabulary cannot spell.

        Example:
            >>> translator.unspellable(["Ampel"])
            []
        """
        return self._terms.unspellable(as_list(forms, "forms"))

    def _found(self, search, rows):
        """The translations of these rows, by row."""
        translations = {}

        def translate_some(batch):
            source_ids = self._batches.padded(self._ids(search.tokens, batch.rows), batch.num_rows)
            # Rows of padding need an index too.
            sentence_ids = np.resize(np.add(batch.rows, search.first), len(source_ids))
            ids, scores = self._search(
                self.options,
                tf.constant(source_ids),
                batch.num_slots,
                tf.constant(sentence_ids, tf.int32),
                self._seed,
                self._required_in(search, batch, len(source_ids)),
            )
            n_best = ids.shape[1]
            texts = self._detokenize(tf.reshape(ids, [-1, ids.shape[2]])).numpy()
            texts = texts.reshape(-1, n_best)
            for row, row_texts, row_scores in zip(batch.rows, texts, scores.numpy(), strict=False):
                row_texts = (text.decode("utf-8", "replace") for text in row_texts)
                translations[row] = as_translations(
                    zip(row_texts, row_scores.tolist(), strict=True)
                )

        lengths = {row: len(search.tokens[row]) + 1 for row in rows}
        longest_prefix = 0 if search.prefix_ids is None else max(map(len, search.prefix_ids))
        more = longest_prefix + self.options.extra_length
        with ThreadPoolExecutor(self.workers) as pool:
            list(pool.map(translate_some, self._batches.plan(lengths, more, in_turns=True)))
        return translations

    def _required_in(self, search, batch, num_rows):
        """What the translations of a batch must contain, with rows of padding that need nothing."""
        prefix_ids = terms = None
        if search.prefix_ids is not None:
            prefix_ids = padded([search.prefix_ids[row] for row in batch.rows], self._pad_id)
            prefix_ids = tf.constant(self._batches.padded(prefix_ids, batch.num_rows))
        if search.required is not None:
            required = [search.required[row] for row in batch.rows]
            required += [()] * (num_rows - len(required))
            continues, opens = self._terms.continues, self._terms.opens
            end_id = self.models[0].config.end_id
            tables = term_tables(required, continues, opens, end_id, self.jit_compile)
            terms = tf.nest.map_structure(tf.constant, Terms(tables, continues, opens))
        first_id = self.tokenizer.first_id
        first = None if first_id is None else tf.constant(first_id)
        return Required(prefix_ids, first, terms)

    def count_tokens(self, sentences: Iterable[str | bytes]) -> list[int]:
        """Counts the tokens of each source sentence, without its end symbol.

        Example:
            >>> translator.count_tokens(["Two dogs."])
            [...]
        """
        return list(map(len, self._all_tokens(as_list(sentences), self.tokenizer.tokenize)))

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
        scores = [NO_HYPOTHESIS if len(ids) else 0.0 for ids in target]
        lengths = {
            row: max(len(ids), len(others)) + 1
            for row, (ids, others) in enumerate(zip(source, target, strict=True))
            if len(ids)
        }
        for rows, *_ in self._batches.plan(lengths, self.options.extra_length):
            source_ids, target_ids = (self._ids(tokens, rows) for tokens in (source, target))
            first_id = self.tokenizer.first_id
            scored = self._searches.score(self.options, source_ids, target_ids, first_id)
            found = scored.numpy().tolist()
            for row, score in zip(rows, found, strict=True):
                scores[row] = score
        return scores

    def align(self, sentences: Iterable[str], translations: Iterable[str]) -> list[Alignment]:
        """Aligns each target subword with the source subword that it attends to most.

        See `alignment.align`. An ensemble uses its first model.

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
        return align(self.models[0], self.tokenizer, source, target)

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
        self.tokenizer.expect_direction()
        sentences = as_list(sentences)
        translations = one_for_each(sentences, translations, "translations")
        return (
            self._tokenize(sentences, self.tokenizer.tokenize),
            self._tokenize(translations, self.tokenizer.tokenize_target, "translations"),
        )

    def _tokenize(self, sentences, tokenize, what="sentences"):
        expect_own_process(self._process)
        return cut(self._all_tokens(sentences, tokenize), self.max_source_length - 1, what)

    def _all_tokens(self, sentences, tokenize):
        tokens = tokenize(tf.constant([utf_8(sentence) for sentence in sentences], tf.string))
        ids, splits = tokens.flat_values.numpy(), tokens.row_splits.numpy()
        return [ids[start:end] for start, end in itertools.pairwise(splits)]

    def _prefixes(self, prefixes):
        """The ids of prefixes, which are never cut."""
        tokens = self._all_tokens(prefixes, self.tokenizer.tokenize_target)
        for prefix, ids in zip(prefixes, tokens, strict=True):
            if len(ids) >= self.max_source_length:
                start = utf_8(prefix)[:40].decode("utf-8", "replace")
                raise UserError(
                    f"the prefix {start!r}... has {len(ids)} tokens: it may have at most "
                    f"{self.max_source_length - 1}, as many as a source sentence"
                )
        return tokens

    def _ids(self, tokens, rows):
        """Pads the ids of some sentences, each with its end symbol."""
        end_id = self.models[0].config.end_id
        return padded([[*tokens[row], end_id] for row in rows], self._pad_id)
