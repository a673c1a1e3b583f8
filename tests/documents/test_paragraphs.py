"""Paragraphs are translated sentence by sentence, and joined as they stood."""

import itertools

import pytest

from keras_transformer.documents.paragraphs import Paragraphs, translate_paragraphs
from keras_transformer.options.search import NO_HYPOTHESIS
from keras_transformer.translation import Translation


class Upper:
    """Translates to capitals, and to capitals and a sign, with scores by length."""

    def __init__(self, n_best=1):
        self.n_best, self.calls = n_best, []

    def translate_n(self, sentences):
        self.calls.append(list(sentences))
        return [
            [
                Translation(sentence.upper() + "!" * rank, -len(sentence) * (rank + 1) / 10)
                for rank in range(self.n_best)
            ]
            for sentence in sentences
        ]


def test_all_sentences_are_translated_in_one_call_and_joined_with_what_stood_between_them():
    translator = Upper()
    texts = ["One.  Two.\n\n- Three", b" \t", "", "Four."]
    found = translate_paragraphs(translator, texts)
    assert translator.calls == [["One.", "Two.", "Three", "Four."]]
    assert [best.text for [best] in found] == ["ONE.  TWO.\n\n- THREE", " \t", "", "FOUR."]
    assert found[0][0].sentences == ("ONE.", "TWO.", "THREE")


def test_each_sentence_has_the_row_of_its_text():
    paragraphs = Paragraphs(["One. Two.", "", "Three."])
    assert paragraphs.rows == [0, 0, 2]


def test_the_score_is_the_sum_of_the_sentences():
    [[best], [blank]] = translate_paragraphs(Upper(), ["Aa. Bbb.", " "])
    assert best.score == pytest.approx(-0.3 - 0.4)
    assert blank.score == 0.0


def test_marks_that_nobody_sees_are_not_in_a_translation():
    [[best]] = translate_paragraphs(Upper(), ["\u200fOne.\u200f Two.\u2069\n- \u200eThree."])
    assert best.text == "ONE. TWO.\n- THREE."


def test_the_best_paragraphs_are_the_best_combinations():
    [found] = translate_paragraphs(Upper(4), ["A dog. Two horses. Cats."])
    each = Upper(4).translate_n(["A dog.", "Two horses.", "Cats."])
    combined = [
        (sum(one.score for one in some), " ".join(one.text for one in some))
        for some in itertools.product(*each)
    ]
    best = sorted(combined, reverse=True)[:4]
    assert [one.score for one in found] == pytest.approx([score for score, _ in best])
    assert {one.text for one in found} == {text for _, text in best}


def test_a_paragraph_of_which_a_sentence_has_no_hypothesis_has_none():
    paragraphs = Paragraphs(["A dog. A cat."])
    none = [Translation("", NO_HYPOTHESIS)]
    [[best]] = paragraphs.join([none, [Translation("Eine Katze.", -1.0)]])
    assert best.score == NO_HYPOTHESIS


def test_the_language_splits():
    numbers = [
        len(Paragraphs(["Sie kam am 3. Oktober an."], code).sentences) for code in ("de", None)
    ]
    assert numbers == [1, 2]


class OfSeveralLanguages(Upper):
    """Knows the symbols of two languages: each is one token."""

    def count_tokens(self, sentences):
        return [1 if one in (">>fra<<", ">>ron<<") else len(one) for one in sentences]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (">>fra<< One. Two.\n\n- Three", [">>fra<< One.", ">>fra<< Two.", ">>fra<< Three"]),
        ("  >>fra<< One.", [">>fra<< One."]),
        ("\ufeff>>fra<< One. Two.", [">>fra<< One.", ">>fra<< Two."]),
        (
            "One.\n>>fra<<Two. Three.\n>>ron<< 4.",
            ["One.", ">>fra<<Two.", ">>fra<< Three.", ">>ron<< 4."],
        ),
        (">>Neu<< One. Two.", [">>Neu<< One.", "Two."]),
        ("One >>fra<< two. Three.", ["One >>fra<< two.", "Three."]),
    ],
)
def test_each_sentence_begins_with_the_language_of_its_line(text, sentences):
    translator = OfSeveralLanguages()
    translate_paragraphs(translator, [text, "Four."])
    assert translator.calls == [[*sentences, "Four."]]


def test_all_languages_are_looked_up_in_one_call():
    calls = []

    def count_tokens(symbols):
        calls.append(sorted(symbols))
        return [1] * len(symbols)

    Paragraphs([">>a<< One.\n>>b<< Two.\n>>a<< Three.", "Four."], None, count_tokens)
    assert calls == [[">>a<<", ">>b<<"]]


def test_the_split_of_a_text_is_as_it_was_without_the_language_before_each_sentence():
    texts = [">>fra<< One. Two."]
    paragraphs = Paragraphs(texts, None, OfSeveralLanguages().count_tokens)
    assert paragraphs.split == [([">>fra<< One.", "Two."], ["", " ", ""])]
    assert paragraphs.sentences == [">>fra<< One.", ">>fra<< Two."]
    assert Paragraphs(texts).sentences == [">>fra<< One.", "Two."]
