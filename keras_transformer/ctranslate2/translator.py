"""Translation of strings on a CPU by the C++ engine CTranslate2; TensorFlow only converts."""

import copy
import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Self

from keras_transformer.ctranslate2.converted import ConvertedModel
from keras_transformer.errors import UserError, expect_at_least
from keras_transformer.machine.cores import number_of_cores
from keras_transformer.options.search import CTRANSLATE2_SEARCH, NO_HYPOTHESIS, SearchOptions
from keras_transformer.text.sentences import as_list, one_for_each
from keras_transformer.translation import Translation, as_translations, by_length, cut

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

# The search options that CTranslate2 has too; `_checked` has conditions on three of them. It lacks
# `min_length` and `no_repeat_ngram`, since it gives the probability of forbidden tokens to others,
# and `sample`, since it has no seed for each sentence.
CTRANSLATE2_OPTIONS = (
    "beam_size",
    "n_best",
    "alpha",
    "plain_length_penalty",
    "patience",
    "extra_length",
    "max_length",
)
"""The fields of `SearchOptions` that `CTranslate2Translator` supports."""
# CTranslate2 fails beyond this number of positions, where its copy of a model ends.
_POSITIONS = 2048
# With exponent 0, CTranslate2 ends a search by another rule. This exponent also divides by 1.
_ALMOST_NO_PENALTY = 1e-30


class CTranslate2Translator:
    """Translates sentences like `Translator`, but by CTranslate2, from a model_dir.

    The model is converted at its first use, and kept in the model_dir (`ConvertedModel`). The
    search equals ours with `plain_length_penalty` and a `patience`: it finds the same hypotheses
    and scores, up to rounding. Options without an equivalent in CTranslate2 are refused. Sentences
    of similar length are translated together; a translation does not depend on other sentences.
    Several threads may use one translator.

    Args:
        model: folder of a trained model for translation; or a `ConvertedModel`, for other weights
            than those that `train` chose or another precision than float32.
        options: options of the search.
        tokens_per_batch: number of positions of a batch, counting the maximum length of each
            translation.
        max_source_length: maximum source tokens, end symbol included; longer sentences are cut,
            with a `CutWarning`. At least 2. With learned positions, at most `max_positions`.
        workers: number of batches translated at the same time, each by its share of the cores;
            default: one per core.
        **search_options: fields of `SearchOptions` that differ from `options`.

    Raises:
        UserError: CTranslate2 is not installed, or does not support these options or this model.

    Example:
        >>> translator = CTranslate2Translator("runs/demo", beam_size=5)
        >>> [german] = translator(["A man rides a horse."])  # such as "Ein Mann reitet ein Pferd."
    """

    def __init__(
        self,
        model: str | os.PathLike | ConvertedModel,
        options: SearchOptions = SearchOptions(**CTRANSLATE2_SEARCH),
        *,
        tokens_per_batch: int = 4096,
        max_source_length: int = 1024,
        workers: int | None = None,
        **search_options,
    ):
        expect_at_least(1, "tokens_per_batch", tokens_per_batch)
        expect_at_least(2, "max_source_length", max_source_length)  # a token and the end symbol
        self.workers = number_of_cores() if workers is None else workers
        expect_at_least(1, "workers", self.workers)
        converted = model if isinstance(model, ConvertedModel) else ConvertedModel(model)
        self.model_dir = converted.model_dir
        config = self.model_dir.load_config()
        if config.positions == "learned":
            max_source_length = min(max_source_length, config.max_positions)
        if max_source_length > _POSITIONS:
            raise UserError(
                f"max_source_length must be at most {_POSITIONS} with CTranslate2, "
                f"which ends there: found {max_source_length}"
            )
        self.max_source_length = max_source_length
        self.tokens_per_batch = tokens_per_batch
        self.options = self._checked(dataclasses.replace(options, **search_options))
        self._engine, self._subwords = converted.load(self.workers)

    def with_options(self, options: SearchOptions) -> Self:
        """Returns the same translator with another search; raises what the constructor raises."""
        other = copy.copy(self)
        other.options = self._checked(options)
        return other

    @functools.cached_property
    def tokenizer(self) -> "Tokenizer":
        """The vocabulary; it imports TensorFlow, which translation does not need."""
        return self.model_dir.load_tokenizer()

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns the translation of each sentence, in order."""
        return [translation.text for translation in self.translate(sentences)]

    def translate(
        self, sentences: Iterable[str], prefixes: Iterable[str] | None = None
    ) -> list[Translation]:
        """Returns each sentence's best translation and its score, as `Translator.translate`."""
        return [translations[0] for translations in self.translate_n(sentences, prefixes)]

    def translate_n(
        self, sentences: Iterable[str], prefixes: Iterable[str] | None = None
    ) -> list[list[Translation]]:
        """Returns the `n_best` translations of each sentence, in order, the best first.

        Args:
            sentences: sentences to translate: any iterable of strings or UTF-8 bytes.
            prefixes: must be None: CTranslate2 gives a prefix no probability, so it ranks
                differently.

        Raises:
            UserError: there are prefixes, or `sentences` is not an iterable of strings.
        """
        if prefixes is not None:
            raise UserError(
                "CTranslate2 does not support prefixes, since its scores leave them out: leave "
                "them out, or use --engine=tensorflow"
            )
        sources = self._split(self._subwords.split_source, as_list(sentences))
        found = self._search(sources)
        texts = iter(self._subwords.join(pieces for best in found.values() for pieces, _ in best))
        translations = [[Translation("", 0.0)] for _ in sources]
        for row, best in found.items():
            translations[row] = as_translations((next(texts), score) for _, score in best)
        return translations

    def score(self, sentences: Iterable[str], translations: Iterable[str]) -> list[float]:
        """Scores given translations as the search would; arguments are `Translator.score`'s."""
        texts = as_list(sentences)
        others = one_for_each(texts, translations, "translations")
        sources = self._split(self._subwords.split_source, texts)
        targets = self._split(self._subwords.split_target, others, "translations")
        scores = [NO_HYPOTHESIS if target else 0.0 for target in targets]
        rows = [row for row, source in enumerate(sources) if source]
        found = self._scores([sources[row] for row in rows], [targets[row] for row in rows])
        for row, score in zip(rows, found, strict=True):
            scores[row] = score
        return scores

    def _scores(self, sources, targets):
        """Scores subwords of targets for subwords of sources, both without an end symbol."""
        lengths = {
            row: max(len(source), len(target)) + 1
            for row, (source, target) in enumerate(zip(sources, targets, strict=True))
        }
        scores = [0.0] * len(sources)
        started = [
            (
                rows,
                self._engine.score_batch(
                    [sources[row] for row in rows],
                    [targets[row] for row in rows],
                    max_input_length=0,
                    asynchronous=True,
                ),
            )
            for rows in self._batches(lengths)
        ]
        for rows, results in started:
            for row, result in zip(rows, results, strict=True):
                log_probs = result.result().log_probs
                score = math.fsum(log_probs) / len(log_probs) ** self.options.alpha
                scores[row] = score if score > NO_HYPOTHESIS else NO_HYPOTHESIS
        return scores

    def _checked(self, options):
        """Returns the options if CTranslate2's search has an exact equivalent for each of them."""
        options.expect_only(
            CTRANSLATE2_OPTIONS, "CTranslate2", "leave it out, or use --engine=tensorflow"
        )
        with_ctranslate2 = "with CTranslate2, which"
        options.expect(
            "alpha",
            options.plain_length_penalty or not options.alpha,
            f"0 or come with plain_length_penalty {with_ctranslate2} divides by |Y|^alpha",
        )
        options.expect(
            "patience",
            options.patience is not None,
            f"a number, such as 1, {with_ctranslate2} has no other rule to end a search",
        )
        longest = options.longest(self.max_source_length)
        name = "extra_length" if options.max_length is None else "max_length"
        expected = (
            f"such that no translation exceeds {_POSITIONS} tokens {with_ctranslate2} ends there"
        )
        options.expect(name, longest <= _POSITIONS, expected)
        return options

    def _split(self, split, texts, what="sentences"):
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
        options = self.options
        if options.max_length == 1:  # leaves 0 beside the end symbol, which means no limit
            return {row: [([], NO_HYPOTHESIS)] for rows in batches for row in rows}
        started = [
            (
                rows,
                self._engine.translate_batch(
                    [sources[row] for row in rows],
                    beam_size=options.beam_size,
                    patience=candidates / options.beam_size,
                    num_hypotheses=candidates,
                    length_penalty=options.alpha or _ALMOST_NO_PENALTY,
                    max_input_length=0,  # sources are cut already
                    max_decoding_length=options.longest(len(sources[rows[0]]) + 1) - 1,
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
            row: list(zip(result.hypotheses, result.scores, strict=True))
            for row, result in results.items()
        }

    def _is_finished(self, hypothesis):
        return hypothesis[-1:] == [self._subwords.end]

    def _batches(self, lengths: Mapping[int, int]) -> Iterator[list[int]]:
        """Yields batches of sentence indices, given the number of tokens of each sentence."""
        share = math.ceil(len(lengths) / self.workers)  # so that no worker waits for a large batch
        more = self.options.extra_length
        return by_length(
            lengths, lambda longest: min(share, self.tokens_per_batch // (longest + more))
        )
