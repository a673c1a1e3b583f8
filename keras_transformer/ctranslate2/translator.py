"""Translation of strings on a CPU by the C++ engine CTranslate2, without TensorFlow."""

import copy
import dataclasses
import functools
import itertools
import math
import os
import random
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Self

import ctranslate2

from keras_transformer.ctranslate2.converted import ConvertedModel, ModelInMemory
from keras_transformer.ctranslate2.support import POSITIONS, USE_TENSORFLOW
from keras_transformer.errors import Unsupported, UserError, expect_at_least
from keras_transformer.machine.cores import number_of_cores
from keras_transformer.options.search import NO_HYPOTHESIS, SearchOptions
from keras_transformer.text.languages import Languages
from keras_transformer.text.sentences import as_list, one_for_each
from keras_transformer.translation import (
    Alignment,
    Translation,
    as_translations,
    by_length,
    cut,
    expect_own_process,
)

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

# The search options that CTranslate2 has too; `check_search` has conditions on some. It lacks
# `min_length` and `no_repeat_ngram`, since it gives the probability of forbidden tokens to others.
CTRANSLATE2_OPTIONS = (
    "beam_size",
    "n_best",
    "alpha",
    "patience",
    "extra_length",
    "max_length",
    "sample",
    "temperature",
    "top_k",
    "top_p",
    "seed",
)
"""The fields of `SearchOptions` that `CTranslate2Translator` supports."""
CTRANSLATE2_SEARCH_CHOICES = {"length_penalty": ("power",)}
"""The supported values of further fields."""
# With exponent 0, CTranslate2 ends a search by another rule. This exponent also divides by 1.
_ALMOST_NO_PENALTY = 1e-30

_ADVICE = f"leave it out, or {USE_TENSORFLOW}"


def check_search(options: SearchOptions, max_source_length: int = 1024) -> None:
    """Raises `Unsupported` unless CTranslate2's search has an exact equivalent for each option.

    Args:
        options: options of a search.
        max_source_length: maximum source tokens, end symbol included.
    """
    options.expect_only(CTRANSLATE2_OPTIONS, "CTranslate2", _ADVICE, CTRANSLATE2_SEARCH_CHOICES)
    if not options.sample and options.patience is None:  # it has no other rule to end a search
        raise Unsupported("CTranslate2", "patience=None", "use a number, such as 1")
    if max_source_length > POSITIONS:
        raise Unsupported(
            "CTranslate2",
            f"sentences of more than {POSITIONS:,} tokens, as "
            f"max_source_length={max_source_length} allows",
            f"use a smaller one, or {USE_TENSORFLOW}",
        )
    if options.longest(max_source_length) > POSITIONS:
        name = "extra_length" if options.max_length is None else "max_length"
        raise Unsupported(
            "CTranslate2",
            f"translations of more than {POSITIONS:,} tokens, as "
            f"{name}={getattr(options, name)} allows",
            f"use a smaller {name}, or {USE_TENSORFLOW}",
        )


_SEEDING = threading.Lock()


def seeded_engine(
    model: ConvertedModel | ModelInMemory, seed: int | None = None
) -> "ctranslate2.Translator":
    """Loads an engine of one worker, whose random numbers follow from a seed.

    Args:
        model: the model.
        seed: the seed; None for a new one.
    """
    engine, subwords = model.load(workers=1)
    with _SEEDING:  # the seed is the process's, and a thread takes it when it first samples
        ctranslate2.set_random_seed(random.randrange(2**31) if seed is None else seed)
        engine.translate_batch(
            [[subwords.end]], beam_size=1, sampling_topk=2, max_decoding_length=1
        )
    return engine


class CTranslate2Translator:
    """Translates sentences like `Translator`, but by CTranslate2, from a model_dir.

    The model is converted at its first use, and kept in the model_dir (`ConvertedModel`). The
    search equals ours: it finds the same hypotheses and scores, up to rounding. Options without an
    equivalent in CTranslate2 are refused, such as the paper's length penalty. Sentences
    of similar length are translated together; a translation does not depend on other sentences.
    Several threads may use one translator.

    With `sample`, it draws from the same distribution as `Translator`, but other translations.
    They are a function of `seed` and of all sentences translated before them, so not in several
    threads, and of `tokens_per_batch`. One batch at a time is sampled, whatever `workers` is.

    Args:
        model: folder of a trained model for translation; a `ConvertedModel`, for other weights
            than those that `train` chose or another precision than float32; or a `ModelInMemory`.
        options: options of the search.
        tokens_per_batch: number of positions of a batch, counting the maximum length of each
            translation.
        max_source_length: maximum source tokens, end symbol included; longer sentences are cut,
            with a `CutWarning`. At least 2. With learned positions, at most `max_positions`.
        workers: number of batches translated at the same time, each by its share of the cores;
            default: one per core.
        **search_options: fields of `SearchOptions` that differ from `options`.

    Raises:
        UserError: an option is out of range, or CTranslate2 does not support it or the model.

    Example:
        >>> translator = CTranslate2Translator("runs/demo", beam_size=5)
        >>> [german] = translator(["A man rides a horse."])  # such as "Ein Mann reitet ein Pferd."
    """

    def __init__(
        self,
        model: str | os.PathLike | ConvertedModel | ModelInMemory,
        options: SearchOptions = SearchOptions(),
        *,
        tokens_per_batch: int = 4096,
        max_source_length: int = 1024,
        workers: int | None = None,
        **search_options,
    ):
        expect_at_least(1, "tokens_per_batch", tokens_per_batch)
        expect_at_least(2, "max_source_length", max_source_length)  # a token and the end symbol
        self._workers = number_of_cores() if workers is None else workers
        expect_at_least(1, "workers", self.workers)
        self.model = ConvertedModel(model) if isinstance(model, str | os.PathLike) else model
        config = self.model.config
        if config.positions == "learned":
            max_source_length = min(max_source_length, config.max_positions)
        self.max_source_length = max_source_length
        self.tokens_per_batch = tokens_per_batch
        options = dataclasses.replace(options, **search_options)
        check_search(options, max_source_length)
        self._engine, self._subwords = self.model.load(self.workers)
        self._process = os.getpid()
        self._languages: tuple[str | None, str | None] | None = None
        self._use(options)

    # What the engine was loaded for cannot be set later.

    @property
    def options(self) -> SearchOptions:
        """Options of the search; `with_options` returns a translator with others."""
        return self._options

    @property
    def workers(self) -> int:
        return self._workers

    def _use(self, options):
        self._options = options
        self._sampler = seeded_engine(self.model, options.seed) if options.sample else None

    def with_options(self, options: SearchOptions) -> Self:
        """Returns the same translator with another search; raises what the constructor raises."""
        check_search(options, self.max_source_length)
        other = copy.copy(self)
        other._use(options)
        return other

    def with_languages(self, target_lang: str | None, source_lang: str | None = None) -> Self:
        """Returns the same translator for one pair of languages of a multilingual model.

        Arguments and errors are those of `Translator.with_languages`.
        """
        other = copy.copy(self)
        other._subwords = self._subwords.with_languages(target_lang, source_lang)
        other._languages = target_lang, source_lang
        if "tokenizer" in vars(self):  # loaded already
            vars(other)["tokenizer"] = other._directed(self.tokenizer)
        return other

    def _directed(self, tokenizer):
        from keras_transformer.text.directed import DirectedTokenizer  # imports TensorFlow

        return (
            tokenizer if self._languages is None else DirectedTokenizer(tokenizer, *self._languages)
        )

    @property
    def languages(self) -> Languages | None:
        """The languages of a multilingual model; None for any other."""
        return self._subwords.languages

    def expect_direction(self) -> None:
        """Raises `UserError` if the model is for several languages, and none are chosen."""
        self._subwords.expect_direction()

    @functools.cached_property
    def tokenizer(self) -> "Tokenizer":
        """The vocabulary; it imports TensorFlow, which translation does not need."""
        return self._directed(self.model.load_tokenizer())

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns the translation of each sentence, in order."""
        return [translation.text for translation in self.translate(sentences)]

    def translate(
        self,
        sentences: Iterable[str],
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[Sequence[str]]] | None = None,
    ) -> list[Translation]:
        """Returns each sentence's best translation and its score, as `Translator.translate`."""
        return [translations[0] for translations in self.translate_n(sentences, prefixes, terms)]

    def translate_n(
        self,
        sentences: Iterable[str],
        prefixes: Iterable[str] | None = None,
        terms: Iterable[Sequence[Sequence[str]]] | None = None,
    ) -> list[list[Translation]]:
        """Returns the `n_best` translations of each sentence, in order, the best first.

        Args:
            sentences: sentences to translate: any iterable of strings or UTF-8 bytes.
            prefixes: must be None: CTranslate2 gives a prefix no probability, so it ranks
                differently.
            terms: must be None: CTranslate2 cannot search for terms.

        Raises:
            UserError: there are prefixes or terms, or `sentences` is not an iterable of strings.
        """
        if prefixes is not None:
            raise UserError(
                "CTranslate2 does not support prefixes, since its scores leave them out: leave "
                f"them out, or {USE_TENSORFLOW}"
            )
        if terms is not None:
            raise Unsupported("CTranslate2", "terms", f"leave them out, or {USE_TENSORFLOW}")
        sources = self._split(self._split_source, as_list(sentences))
        found = self._samples(sources) if self.options.sample else self._search(sources)
        texts = iter(self._subwords.join(pieces for best in found.values() for pieces, _ in best))
        translations = [[Translation("", 0.0)] for _ in sources]
        for row, best in found.items():
            translations[row] = as_translations((next(texts), score) for _, score in best)
        return translations

    def count_tokens(self, sentences: Iterable[str | bytes]) -> list[int]:
        """Counts the tokens of each source sentence, without its end symbol."""
        return list(map(len, self._subwords.split_source(as_list(sentences))))

    def score(self, sentences: Iterable[str], translations: Iterable[str]) -> list[float]:
        """Scores given translations as the search would; arguments are `Translator.score`'s."""
        texts = as_list(sentences)
        others = one_for_each(texts, translations, "translations")
        sources = self._split(self._split_source, texts)
        targets = self._split(self._subwords.split_target, others, "translations")
        scores = [NO_HYPOTHESIS if target else 0.0 for target in targets]
        rows = [row for row, source in enumerate(sources) if source]
        found = self._scores([sources[row] for row in rows], [targets[row] for row in rows])
        for row, score in zip(rows, found, strict=True):
            scores[row] = score
        return scores

    def align(self, sentences: Iterable[str], translations: Iterable[str]) -> list[Alignment]:
        """Aligns each target subword with a source subword, as `Translator.align`."""
        texts = as_list(sentences)
        others = one_for_each(texts, translations, "translations")
        sources = self._split(self._split_source, texts)
        targets = self._split(self._subwords.split_target, others, "translations")
        first, added = self._first, self._subwords.num_source_symbols
        sizes = [
            (len(source), len(target)) for source, target in zip(sources, targets, strict=True)
        ]
        lengths = {row: max(both) + 1 for row, both in enumerate(sizes) if min(both)}
        started = [
            (
                rows,
                # A search that has to follow the whole translation reads its attention.
                self._engine.translate_batch(
                    [sources[row] for row in rows],
                    target_prefix=[[*first, *targets[row]] for row in rows],
                    beam_size=1,
                    max_input_length=0,
                    max_decoding_length=max(len(targets[row]) for row in rows) + len(first) + 1,
                    min_decoding_length=0,
                    return_attention=True,
                    asynchronous=True,
                ),
            )
            for rows in self._batches(lengths)
        ]
        links: list[list[tuple[int, int]]] = [[] for _ in texts]
        for rows, results in started:
            for row, result in zip(rows, results, strict=True):
                [attention] = result.result().attention  # of (target, source)
                attention = attention[len(first) :]
                # The symbols of languages and ends are aligned with nothing.
                positions = range(added, len(sources[row]))
                links[row] = [
                    (max(positions, key=attention[number].__getitem__) - added, number)
                    for number in range(len(targets[row]))
                ]
        known = self._subwords.known
        return [
            Alignment(known(source[added:]), known(target, True), both, self.model.are_words)
            for source, target, both in zip(sources, targets, links, strict=True)
        ]

    def _scores(self, sources, targets):
        """Scores subwords of targets for subwords of sources, both without an end symbol."""
        lengths = {
            row: max(len(source), len(target)) + 1
            for row, (source, target) in enumerate(zip(sources, targets, strict=True))
        }
        scores, first = [0.0] * len(sources), self._first
        started = [
            (
                rows,
                self._engine.score_batch(
                    [sources[row] for row in rows],
                    [[*first, *targets[row]] for row in rows],
                    max_input_length=0,
                    asynchronous=True,
                ),
            )
            for rows in self._batches(lengths)
        ]
        for rows, results in started:
            for row, result in zip(rows, results, strict=True):
                log_probs = result.result().log_probs
                # The first symbol has probability 1, but counts in the length.
                score = math.fsum(log_probs[len(first) :]) / len(log_probs) ** self.options.alpha
                scores[row] = score if score > NO_HYPOTHESIS else NO_HYPOTHESIS
        return scores

    @property
    def _first(self):
        """The symbols that each translation begins with: one or none."""
        return [] if self._subwords.first is None else [self._subwords.first]

    def _split_source(self, sentences):
        self._subwords.expect_direction()
        return self._subwords.split_source(sentences)

    def _split(self, split, texts, what="sentences"):
        expect_own_process(self._process)
        return cut(split(texts), self.max_source_length - 1, what)

    def _search(self, sources):
        """Finds the best hypotheses of each source with a token, as {index: [(subwords, score)]}.

        CTranslate2 has one length limit per batch, and cuts hypotheses there without an end symbol.
        A search that reached the limit of its own sentence is repeated, in a batch of sentences
        with the same limit.
        """
        options = self.options
        # A search ends when this many hypotheses have finished.
        candidates = options.enough_finished if options.beam_size > 1 else 1
        lengths = {row: len(source) + 1 for row, source in enumerate(sources) if source}
        found = self._results(sources, self._batches(lengths), candidates)
        cut = [
            row
            for row in sorted(lengths, key=lengths.__getitem__, reverse=True)
            # All hypotheses are returned, so the longest one tells when the search ended.
            if max(len(pieces) for pieces, _ in found[row]) >= options.longest(lengths[row]) - 1
        ]
        batches = (
            self._batches(dict.fromkeys(rows, length))
            for length, rows in itertools.groupby(cut, lengths.__getitem__)
        )
        # With this many candidates, a search still ends at the limit, and returns all hypotheses.
        more = candidates + options.beam_size - 1
        repeated = self._results(sources, itertools.chain.from_iterable(batches), more)
        found |= self._ended(sources, repeated, candidates)
        return {row: best[: options.n_best] for row, best in found.items()}

    def _samples(self, sources):
        """Draws `beam_size` translations of each source; returns what `_search` returns."""
        options = self.options
        lengths = {row: len(source) + 1 for row, source in enumerate(sources) if source}
        found = self._results(sources, self._batches(lengths), options.beam_size)
        for row, samples in found.items():
            # The limit of the batch may be larger; what was drawn beyond its own is cut.
            most = options.longest(lengths[row])
            found[row] = [
                (pieces if self._is_finished(pieces[:most]) else pieces[: most - 1], score)
                for pieces, score in samples
            ]
        ended = self._ended(sources, found, options.beam_size)
        return {row: best[: options.n_best] for row, best in ended.items()}

    def _ended(self, sources, found, candidates):
        """Ends the hypotheses that their limit cut, unless enough have finished without them.

        Their score becomes that of the translation with its end symbol, as in our search.
        """
        ended, cut = {}, []
        for row, hypotheses in found.items():
            ended[row] = [pair for pair in hypotheses if self._is_finished(pair[0])]
            if len(ended[row]) < candidates:
                cut += [(row, pieces) for pieces, _ in hypotheses if not self._is_finished(pieces)]
        scores = self._scores([sources[row] for row, _ in cut], [pieces for _, pieces in cut])
        for (row, pieces), score in zip(cut, scores, strict=True):
            ended[row].append(([*pieces, self._subwords.end], score))
        return {row: sorted(best, key=lambda pair: -pair[1]) for row, best in ended.items()}

    def _results(self, sources, batches, candidates):
        """Runs CTranslate2 on batches of source indices, each with its longest source first.

        Returns:
            Hypotheses by index, the best first: (subwords, score).
        """
        options, first = self.options, self._first
        engine = self._sampler or self._engine
        if options.max_length == 1:  # leaves 0 beside the end symbol, which means no limit
            return {row: [([], NO_HYPOTHESIS)] for rows in batches for row in rows}
        started = [
            (
                rows,
                engine.translate_batch(
                    [sources[row] for row in rows],
                    target_prefix=[first] * len(rows) if first else None,
                    num_hypotheses=candidates,
                    **self._way(candidates),
                    length_penalty=options.alpha or _ALMOST_NO_PENALTY,
                    max_input_length=0,  # sources are cut already
                    max_decoding_length=options.longest(len(sources[rows[0]]) + 1) - 1 + len(first),
                    min_decoding_length=0,
                    return_end_token=True,  # |Y| counts it, as ours does
                    return_scores=True,
                    asynchronous=True,
                ),
            )
            for rows in batches
        ]
        results = {
            row: result.result()
            for rows, results in started
            for row, result in zip(rows, results, strict=True)
        }
        return {
            row: [
                (pieces[len(first) :], score)
                for pieces, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for row, result in results.items()
        }

    def _way(self, candidates):
        """The arguments of CTranslate2 for beam search or for sampling."""
        options = self.options
        if not options.sample:
            return {"beam_size": options.beam_size, "patience": candidates / options.beam_size}
        # It takes at most as many symbols as there are, 0 for all, and does not sample from 1.
        top_k = options.top_k if options.top_k < self.model.config.vocab_size else 0
        return {
            "beam_size": 1,
            "sampling_topk": 0 if top_k == 1 else top_k,
            "sampling_topp": 1e-6 if top_k == 1 else options.top_p,
            "sampling_temperature": options.temperature,
        }

    def _is_finished(self, hypothesis):
        return hypothesis[-1:] == [self._subwords.end]

    def _batches(self, lengths: Mapping[int, int]) -> Iterator[list[int]]:
        """Yields batches of sentence indices, given the number of tokens of each sentence."""
        workers = 1 if self.options.sample else self.workers
        share = math.ceil(len(lengths) / workers)  # so that no worker waits for a large batch
        more = self.options.extra_length
        return by_length(
            lengths, lambda longest: min(share, self.tokens_per_batch // (longest + more))
        )
