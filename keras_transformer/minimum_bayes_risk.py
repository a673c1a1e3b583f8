"""Minimum Bayes risk: of several translations, the one that random samples resemble most."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from sacrebleu.metrics import CHRF
from sacrebleu.metrics.helpers import extract_all_char_ngrams

from keras_transformer.errors import UserError, expect_at_least
from keras_transformer.options.search import MBR_TEMPERATURE, NO_HYPOTHESIS, SearchOptions
from keras_transformer.private_names import chrf_of_counts
from keras_transformer.text.sentences import as_list, one_for_each
from keras_transformer.translation import Alignment, CutWarning, Translation, without_warning

if TYPE_CHECKING:
    from keras_transformer.ctranslate2.translator import CTranslate2Translator
    from keras_transformer.translator import Translator

_MOST_TOGETHER = 8  # samples of a sentence that one search draws; they share its encoder output


class MinimumBayesRisk:
    """Translates by minimum Bayes risk (Eikema and Aziz, 2020), with either engine.

    It draws samples of each sentence at random. The translator's own search adds its best
    translation to them. The candidates are these samples and the other `n_best` translations of the
    search. The best one has the highest expected chrF: the mean of sacreBLEU's chrF with each
    sample as the reference. The samples follow from `seed` as those of the translator with
    `sample`.

    Args:
        translator: a translator that searches; its limits of length and constraints hold for
            samples too.
        samples: number of samples of each sentence.
        temperature: softmax temperature of the samples.
        top_k: number of most likely tokens to sample from; 0 for all.
        top_p: total probability of the most likely tokens to sample from.
        seed: seed of the samples; None for new ones.

    Raises:
        UserError: the translator samples, or an argument is out of range or not supported by the
            translator's engine.

    Example:
        >>> mbr = MinimumBayesRisk(translator, samples=4, seed=1)
        >>> [german] = mbr(["A man rides a horse."])  # such as "Ein Mann reitet ein Pferd."
    """

    def __init__(
        self,
        translator: "Translator | CTranslate2Translator",
        samples: int = 16,
        *,
        temperature: float = MBR_TEMPERATURE,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int | None = None,
    ):
        expect_at_least(2, "samples", samples)
        if translator.options.sample:
            raise UserError("minimum Bayes risk samples by itself: leave out sample")
        self.translator, self.options = translator, translator.options
        self._samples = samples
        self._of_samples: dict[str, Any] = {
            "temperature": temperature,
            "top_k": top_k,
            "top_p": top_p,
            "seed": seed,
        }
        together = max(n for n in range(1, _MOST_TOGETHER + 1) if samples % n == 0)
        self._copies = samples // together
        options = dataclasses.replace(
            translator.options,
            sample=True,
            patience=SearchOptions().patience,
            beam_size=together,
            n_best=together,
            **self._of_samples,
        )
        self._sampler = translator.with_options(options)

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns the translation of each sentence, in order."""
        return [translation.text for translation in self.translate(sentences)]

    def translate(
        self,
        sentences: Iterable[str],
        prefixes: Iterable[str] | None = None,
    ) -> list[Translation]:
        """Returns the best translation of each sentence and its expected chrF, in order."""
        return [translations[0] for translations in self.translate_n(sentences, prefixes)]

    def translate_n(
        self,
        sentences: Iterable[str],
        prefixes: Iterable[str] | None = None,
    ) -> list[list[Translation]]:
        """Returns up to `n_best` different candidates of each sentence, in order, the best first.

        Args:
            sentences: as for the translator's own `translate_n`.
            prefixes: start of each translation, if the translator supports prefixes.

        Returns:
            Translations whose score is the expected chrF, from 0 to 100.
        """
        texts = as_list(sentences)
        forced = None if prefixes is None else one_for_each(texts, prefixes, "prefixes")
        searched = self.translator.translate_n(texts, forced)
        drawn = self._draw(texts, forced)
        return [
            self._ranked(found, samples) for found, samples in zip(searched, drawn, strict=True)
        ]

    def with_options(self, options: SearchOptions) -> "MinimumBayesRisk":
        """Returns the same by another search; raises what the constructor raises."""
        translator = self.translator.with_options(options)
        return MinimumBayesRisk(translator, self._samples, **self._of_samples)

    @property
    def max_source_length(self) -> int:
        """The maximum number of tokens that are read of a sentence, with its end symbol."""
        return self.translator.max_source_length

    def count_tokens(self, sentences: Iterable[str | bytes]) -> list[int]:
        """Counts the tokens of each source sentence, without its end symbol."""
        return self.translator.count_tokens(sentences)

    def align(self, sentences: Iterable[str], translations: Iterable[str]) -> list[Alignment]:
        """Aligns subwords as the translator does."""
        return self.translator.align(sentences, translations)

    def _draw(self, texts, forced):
        """The texts of the samples of each sentence."""
        copies = self._copies
        with without_warning(CutWarning):  # the search has warned
            drawn = self._sampler.translate_n(
                [text for text in texts for _ in range(copies)],
                forced and [prefix for prefix in forced for _ in range(copies)],
            )
        for start in range(0, len(drawn), copies):
            samples = itertools.chain.from_iterable(drawn[start : start + copies])
            yield [text for text, score in samples if score > NO_HYPOTHESIS]

    def _ranked(self, found, samples):
        """The candidates by their expected chrF, the highest first."""
        found = [text for text, score in found if score > NO_HYPOTHESIS]
        samples = [*found[:1], *samples]
        if not samples:  # a constraint allows none
            return [Translation("", NO_HYPOTHESIS)]
        candidates = list(dict.fromkeys([*found, *samples]))
        scored = zip(candidates, expected_chrf(candidates, samples), strict=True)
        best = sorted(itertools.starmap(Translation, scored), key=lambda one: -one.score)
        return best[: self.options.n_best]


def expected_chrf(candidates: Sequence[str], samples: Sequence[str]) -> list[float]:
    """Computes the mean sentence-level chrF of each candidate, with each sample as the reference.

    Args:
        candidates: translations.
        samples: translations of the same sentence, at least one, which may repeat.

    Example:
        >>> expected_chrf(["Ein Hund", "Zwei"], ["Ein Hund", "Ein Hund", "Zwei"])
        [68.4..., 35.9...]
    """
    metric = CHRF()
    times = Counter(samples)
    ngrams = {
        text: extract_all_char_ngrams(text, metric.char_order) for text in {*candidates, *times}
    }
    return [
        sum(
            count * chrf_of_counts(metric, ngrams[candidate], ngrams[sample])
            for sample, count in times.items()
        )
        / len(samples)
        for candidate in candidates
    ]
