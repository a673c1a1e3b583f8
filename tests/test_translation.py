"""Alignments of words, made of alignments of subwords."""

import itertools

import pytest

from keras_transformer.translation import Alignment


def of_words(source, target, links):
    return Alignment(source.split(), target.split(), links).of_words()


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("▁a ▁b", "▁c ▁d", [(1, 0), (0, 1)], "0-1 1-0"),
        ("▁a b ▁c", "▁d e f", [(0, 0), (1, 1), (2, 2)], "0-0 1-0"),  # each link once
        ("▁ a ▁b", "▁c ▁ d", [(0, 0), (1, 2), (2, 1)], "0-0 0-1 1-1"),  # a mark by itself
        ("a ▁b", "c ▁d", [(0, 0), (1, 1)], "0-0 1-1"),  # no mark before the first word
        ("", "▁a", [], ""),
    ],
)
def test_words_are_linked_if_their_subwords_are(source, target, links, expected):
    found = of_words(source, target, links)
    assert " ".join(f"{one}-{other}" for one, other in found.links) == expected


def test_each_piece_may_be_a_word():
    alignment = Alignment(["the", "dog"], ["der", "hund"], [(1, 1), (0, 0), (0, 0)], are_words=True)
    words = alignment.of_words()
    assert words == (["the", "dog"], ["der", "hund"], [(0, 0), (1, 1)], True)
    assert words.of_words() == words


def test_words_are_those_of_the_text():
    found = of_words("▁Zwei ▁Hun de , ▁ drei .", "▁ ja", [])
    assert found.source == ["Zwei", "Hunde,", "drei."]
    assert found.target == ["ja"]


def test_every_subword_belongs_to_one_word():
    for pieces in itertools.product(["▁", "a", "▁a"], repeat=4):
        text = "".join(pieces).replace("▁", " ")
        words = Alignment(list(pieces), ["▁x"], [(i, 0) for i in range(4)]).of_words()
        assert "".join(words.source) == text.replace(" ", "")
        assert [index for index, _ in words.links] == list(range(len(words.source)))
