"""A translation that repeats itself is told from one that repeats what its source repeats."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keras_transformer.text.repetition import repeated_phrase


@pytest.mark.parametrize(
    ("translation", "phrase"),
    [
        ("ein Salat Salat Salat", "salat"),
        ("Salat, Salat... Salat!", "salat"),
        ("ein Hund und ein Hund und ein Hund", "ein hund und"),
        ("ein Mann ein Mann ein", "ein mann"),
        ("im Haus mit dem im Haus mit dem im Haus", "im haus mit dem"),
        ("一只狗一只狗一只狗", "一只狗"),
        ("他说说说", "说"),
        ("แมวแมวแมว", "แมว"),
        ("दादा, दादा, दादा", "दादा"),
        ("हिन्दीहिन्दीहिन्दी", "हिन्दी"),
        ("Masasasas", "as"),
        ("Ein TTTTTTTTTT", "tt"),
        ("U-Bahn-Bahn-Bahn", "bahn"),
    ],
)
def test_a_phrase_that_only_the_translation_repeats_is_found(translation, phrase):
    assert repeated_phrase(translation, "a salad with a dog") == phrase


@pytest.mark.parametrize(
    "translation",
    [
        "",
        "ein Hund",
        "die, die das sagten",
        "Hand in Hand in",
        "Schritt für Schritt",
        "der Mann mit dem Hut und der Mann mit dem Schal",
        "Mississippi Banane",
        "1 1 1 1 1",
        "1111111111",
        "..........",
        "- - - - -",
        "%s: %s: %s",
        "你好你好",
        "दादा दादी, नाना नानी",
    ],
)
def test_text_that_people_write_repeats_no_phrase(translation):
    assert repeated_phrase(translation, "a salad with a dog") is None


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("very, very, very good", "sehr, sehr, sehr gut"),
        ("no no no no", "nein nein nein"),
        ("hahaha", "hahaha"),
        ("哈哈哈", "Ha ha ha"),
    ],
)
def test_a_translation_may_repeat_what_its_source_repeats(source, translation):
    assert repeated_phrase(translation, source) is None


def test_a_translation_repeats_itself_if_it_does_more_often_than_its_source():
    assert repeated_phrase("nein nein nein nein", "no no no") == "nein"


PHRASES = [
    list(words)
    for length in (1, 2, 3, 4)
    for words in itertools.permutations(["rot", "Hund", "mit", "Ball"], length)
]


@given(st.sampled_from(PHRASES), st.integers(3, 9), st.lists(st.sampled_from(["er", "sie"])))
def test_every_planted_loop_is_found(phrase, times, before):
    planted = " ".join([*before, *phrase * times, "oben"])
    assert repeated_phrase(planted, "a salad with a dog") is not None
