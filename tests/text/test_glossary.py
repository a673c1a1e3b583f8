# ruff: noqa: RUF001
"""Glossaries: how files are read, and where terms are found."""

import random
import time

import pytest

from keras_transformer.errors import UserError
from keras_transformer.text.glossary import Glossary


def found(entries, sentence):
    """The first form of each term that is found."""
    return [forms[0] for forms in Glossary(entries).terms([sentence])[0]]


@pytest.mark.parametrize(
    ("entries", "sentence", "expected"),
    [
        ({"light": "Licht"}, "Light, a light; lightning, headlight", ["Licht", "Licht"]),
        ({"light": "Licht", "traffic light": "Ampel"}, "a traffic  light", ["Ampel"]),
        ({"a b": "1", "b c": "2"}, "a b c", ["1"]),  # terms do not overlap
        ({"Apple": "Apple"}, "an apple, an Apple, an APPLE", ["Apple"]),
        ({"apple": "Apfel", "Apple": "Apple"}, "apple Apple APPLE", ["Apfel", "Apple", "Apfel"]),
        ({"don't": "nicht"}, "I don't", ["nicht"]),
        ({"C++": "C++"}, "In C++, not C", ["C++"]),
        ({"known": "1"}, "well-known, unknown, known_to", ["1"]),
        ({"straße": "street"}, "STRASSE", ["street"]),
        ({"car 5": "1"}, "car", []),  # the sentence ends within the term
        ({"ﬁle": "Datei"}, "a file", ["Datei"]),  # a ligature
        ({"café": "Café"}, "cafe\u0301", ["Café"]),
        ({"汽车": "car"}, "这辆汽车很快", ["car"]),  # no spaces between words
        ({"자동차": "car"}, "자동차를", ["car"]),  # a particle follows
        ({"हिन्दी": "Hindi"}, "हिन्दी में", ["Hindi"]),  # vowel signs are part of the word
        ({"हिन्द": "1"}, "हिन्दी", []),
        ({"خانه": "house"}, "خانه\u200cها و کتاب\u200cخانه", []),  # houses and a library
        ({"خانه\u200cها": "houses"}, "خانه\u200cها", ["houses"]),
    ],
)
def test_terms_are_found_as_whole_words(entries, sentence, expected):
    assert found(entries, sentence) == expected


@pytest.mark.parametrize(
    ("sentence", "translation", "is_met"),
    [
        ("A dog.", "Ein Hund.", True),
        ("Dogs.", "Hunde.", True),  # no term
        ("A dog.", "Ein Hundehaus.", False),
        ("A red light", "Eine rote  Ampel", True),
        ("A red light", "Rote Ampeln", True),
        ("A red light", "Rot, eine Ampel", False),
        ("A dog at a red light", "Ein Hund", False),
        ("A car", "这辆汽车很快", True),
    ],
)
def test_a_translation_has_its_terms_as_whole_words(sentence, translation, is_met):
    entries = {"dog": "Hund", "red light": ["rote Ampel", "rote Ampeln"], "car": "汽车"}
    assert Glossary(entries).is_met(sentence, translation) == is_met


def test_a_file_has_a_term_a_tab_and_its_forms_a_line(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_bytes("\ufeffdog\tHund\tHunde\t\r\n\n\t\nred  light\trote Ampel\tHund\n".encode())
    glossary = Glossary.read(path)
    assert glossary.terms(["A dog at a red light"]) == [[("Hund", "Hunde"), ("rote Ampel", "Hund")]]
    assert glossary.places["Hunde"] == f"{path}:1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "dog Hund\n",
            r"terms.tsv:1: a line must have a term, a tab and a translation: found 'dog",
        ),
        ("dog\tHund\n\tKatze\n", r"terms.tsv:2: a line must have a term, a tab .* '\\tKatze'"),
        ("dog\t\n", r"terms.tsv:1: a line must have"),
        ("dog\tHund\ncat\tKatze\nDOG\tHund\ndog\tHunde\n", r"tsv:4: 'dog' has .*terms.tsv:1: give"),
        ("red light\tA\nred  light\tB\n", r"tsv:2: .* has another entry, .*terms.tsv:1"),
        ("", "terms.tsv has no terms"),
    ],
)
def test_a_malformed_line_is_named(content, message, tmp_path):
    (tmp_path / "terms.tsv").write_text(content)
    with pytest.raises(UserError, match=message) as error:
        Glossary.read(tmp_path / "terms.tsv")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([("dog", "Hund")], "entries must map each term to its translations: found list"),
        ({"": "Hund"}, "the term '' must not be empty"),
        ({"dog": []}, "the term 'dog' must not be empty, nor may a form"),
        ({"dog": [1]}, "forms of 'dog' must be strings: found int"),
        ({5: "Hund"}, "terms must be strings: found int at index 0"),
        (
            {"dog": "Hund", "dog ": "Köter"},
            "the term 'dog ': 'dog' has another entry, the term 'dog'",
        ),
    ],
)
def test_malformed_entries_are_refused(entries, message):
    with pytest.raises(UserError, match=message):
        Glossary(entries)


def test_ten_thousand_terms_are_found_as_fast_as_ten():
    rng = random.Random(1)
    words = [f"word{number}" for number in range(5000)]
    sentences = [" ".join(rng.choices(words, k=20)) for _ in range(1000)]

    def seconds(number):
        terms = {" ".join(rng.sample(words, rng.randint(1, 3))) for _ in range(number)}
        glossary = Glossary(dict.fromkeys(terms, "x"))
        start = time.process_time()
        glossary.terms(sentences)
        return time.process_time() - start

    # Looking for each term would take a thousand times as long; what is measured is 3 times.
    assert min(seconds(10_000) for _ in range(3)) < 30 * min(seconds(10) for _ in range(3))
