"""Minimum Bayes risk chooses the translation that random samples resemble most."""

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import CHRF
from serving_world import tiny_translator

from keras_transformer.ctranslate2.converted import ModelInMemory
from keras_transformer.ctranslate2.translator import CTranslate2Translator
from keras_transformer.errors import UserError
from keras_transformer.minimum_bayes_risk import MinimumBayesRisk, expected_chrf
from keras_transformer.options.search import NO_HYPOTHESIS, SearchOptions
from keras_transformer.translation import CutWarning, Translation

SENTENCES = ["A horse!", "", "The girls sleep."]


class Drawing:
    """A translator that finds given translations, and draws given samples in turns."""

    def __init__(self, found, samples, options=SearchOptions()):
        self.found, self.samples, self.options = found, samples, options

    def with_options(self, options):
        assert options.sample
        return Drawing(self.found, iter(self.samples), options)

    def translate_n(self, sentences, prefixes=None):
        if not self.options.sample:
            return [self.found for _ in sentences]
        draw = [Translation(*next(self.samples)) for _ in range(self.options.n_best)]
        return [draw for _ in sentences]


def translations(*texts):
    return [Translation(text, -1.0) for text in texts]


@pytest.fixture(scope="module")
def ours():
    return tiny_translator()


@pytest.fixture(
    scope="module", params=[pytest.param("tensorflow", marks=pytest.mark.slow), "ctranslate2"]
)
def translator(request, ours):
    if request.param == "tensorflow":
        return ours
    options = {"tokens_per_batch": 200, "max_source_length": 64, "extra_length": 5}
    return CTranslate2Translator(ModelInMemory(ours.models[0], ours.tokenizer), **options)


def test_the_candidate_that_the_samples_resemble_is_chosen_not_the_likeliest():
    samples = translations("zwei Hunde laufen", "zwei Hunde laufen", "zwei Hunde rennen")
    risk = MinimumBayesRisk(Drawing(translations("ein Pferd"), samples), 3)
    [best] = risk.translate(["two dogs run"])
    assert best.text == "zwei Hunde laufen"
    expected = expected_chrf([best.text], ["ein Pferd", *(sample.text for sample in samples)])
    assert best.score == expected[0] > 60


def test_the_result_of_the_search_counts_as_a_sample():
    samples = translations("ja", "nein")
    assert MinimumBayesRisk(Drawing(translations("nein"), samples), 2)(["no"]) == ["nein"]
    assert MinimumBayesRisk(Drawing(translations("ja"), samples), 2)(["no"]) == ["ja"]


def test_the_result_of_the_search_is_a_candidate():
    samples = translations("zwei Hunde rennen", "drei Hunde laufen", "zwei Katzen laufen")
    risk = MinimumBayesRisk(Drawing(translations("zwei Hunde laufen"), samples), 3)
    assert risk(["two dogs run"]) == ["zwei Hunde laufen"]


def test_n_best_candidates_are_different_and_ranked():
    options = SearchOptions(n_best=3)
    samples = translations("ja", "ja", "ja wohl", "nein")
    risk = MinimumBayesRisk(Drawing(translations("ja", "jawohl"), samples, options), 4)
    [found] = risk.translate_n(["yes"])
    assert len({text for text, _ in found}) == len(found) == 3
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert found[0].text == "ja"


def test_a_sentence_for_which_constraints_allow_nothing_has_no_hypothesis():
    nothing = [Translation("", NO_HYPOTHESIS)]
    [best] = MinimumBayesRisk(Drawing(nothing, nothing * 2), 2).translate(["yes"])
    assert best == nothing[0]
    [best] = MinimumBayesRisk(Drawing(translations("ja"), nothing * 2), 2).translate(["yes"])
    assert best.text == "ja"


TEXTS = st.lists(st.text("abc äß", max_size=12), min_size=1, max_size=4)


@given(TEXTS, TEXTS)
def test_the_utility_is_sacrebleu_s_mean_over_the_samples(candidates, samples):
    found = expected_chrf(candidates, samples)
    metric = CHRF()
    for candidate, value in zip(candidates, found, strict=True):
        scores = [metric.sentence_score(candidate, [sample]).score for sample in samples]
        assert value == pytest.approx(sum(scores) / len(scores))


def test_the_seed_determines_the_samples_of_either_engine(translator):
    def found(seed):
        return MinimumBayesRisk(translator, 4, temperature=2.0, seed=seed).translate(SENTENCES)

    first = found(1)
    assert found(1) == first
    assert found(2) != first
    assert first[1] == ("", 0.0)


def test_a_long_sentence_is_cut_with_one_warning(translator):
    risk = MinimumBayesRisk(translator, 2, seed=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        risk(["A horse!", "horse " * 100])
    assert [warning.message.indices for warning in caught if warning.category is CutWarning] == [
        [1]
    ]


@pytest.mark.slow
def test_samples_start_with_prefixes(ours):
    risk = MinimumBayesRisk(ours, 2, seed=1)
    assert all(one.text.startswith("Ja") for one in risk.translate(["A horse!"], ["Ja"]))


def test_mistakes_are_refused_in_one_line(ours):
    with pytest.raises(UserError, match="samples must be an integer of at least 2: found 1"):
        MinimumBayesRisk(ours, 1)
    sampling = ours.with_options(SearchOptions(sample=True))
    with pytest.raises(UserError, match="samples by itself: leave out sample"):
        MinimumBayesRisk(sampling, 2)
    with pytest.raises(UserError, match="temperature must be at least 1e-6"):
        MinimumBayesRisk(ours, 2, temperature=0)
