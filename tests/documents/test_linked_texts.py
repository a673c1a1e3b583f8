# ruff: noqa: RUF001
"""Links between the characters of a text and of its translation, made of an alignment."""

import pytest

from keras_transformer.documents.linked_texts import (
    Link,
    LinkedTexts,
    links_of,
    unknown_spans,
    word_links,
)
from keras_transformer.translation import Alignment


def parts(pieces, text):
    """The part of the text in which each subword stands."""
    links = links_of(Alignment(pieces, pieces, [(n, n) for n in range(len(pieces))]), text, text)
    return [text[slice(*link.source)] for link in links]


@pytest.mark.parametrize(
    ("pieces", "text", "expected"),
    [
        ("▁Two ▁dog s", "Two dogs", "Two dog s"),
        ("▁ Two ▁ dogs", "Two  dogs", "Two dogs"),
        ("▁two ▁dogs", "TWO dogs", "TWO dogs"),  # of a vocabulary in lower case
        ("▁5 ▁km2 ▁é té", "\uff15 km² e\u0301te\u0301", "\uff15 km² e\u0301 te\u0301"),
        # An unknown subword is as long as what lies between the others.
        ("▁ <unk> ▁The ▁girls", "🙂 The girls", "🙂 The girls"),
        ("▁ <unk> ▁The ▁girls", "車車車車 The girls", "車車車車 The girls"),
        ("▁The ▁ <unk> ▁ <unk> . ▁A", "The 車 車車車. A", "The 車 車車車 . A"),
        ("▁a <unk> b <unk>", "a車b車車", "a 車 b 車車"),
        ("▁ <unk> <unk> ▁b", "車車車車 b", "車車 車車 b"),
        ("the <unk> <unk> .", "the U.S. 車車 .", "the U.S. 車車 ."),  # words of OpenNMT-tf
        # A character in bytes stands where its first byte is.
        ("▁a <0xF0> <0x9F> <0x99> <0x82> ▁b", "a🙂 b", "a 🙂 b"),
        # U+200C is a space to some vocabularies, and nobody sees U+200F.
        ("▁می ▁روم ▁به", "می\u200cروم به", "می روم به"),
        ("▁می\u200cروم ▁به", "می\u200cروم به", "می\u200cروم به"),
        ("▁می ▁ <unk> ▁روم", "\u200fمی\u200f 車\u200cروم", "می 車 روم"),
        ("▁صلى ▁الله ▁عليه ▁وسلم ▁b", "ﷺ b", "ﷺ ﷺ ﷺ ﷺ b"),
        # What the vocabulary writes in another way is in proportion.
        ("▁aaa ▁bb ▁c", "xxx yy z", "xxx yy z"),
        ("▁aaa <unk> ▁bb", "xxx車 yy", "xxx 車 yy"),
        ("▁The ▁dog", "The dog sleeps", "The dog"),  # it was cut
        ("<unk>", "", ""),
    ],
)
def test_subwords_stand_where_their_characters_are(pieces, text, expected):
    assert parts(pieces.split(), text) == expected.split()


@pytest.mark.parametrize(
    ("pieces", "text", "numbers"),
    [
        ("▁Two ▁dog s", "Two dogs", [0, 1, 1]),
        ("▁it ▁ <0xCC> <0x81> s ▁a ▁dog", "it\N{ACUTE ACCENT}s a dog", [0, 0, 0, 0, 0, 1, 2]),
        ("▁a ▁ ü ▁b", "a¨ ü b", [0, 1, 1, 2]),
        ("▁« \xa0 O ui \xa0 » .", "«\xa0Oui\xa0».", [0, 0, 1, 1, 1, 2, 2]),
        ("▁5 <0xC2> <0xA0> km ▁ <unk>", "5\xa0km 車", [0, 0, 0, 1, 2, 2]),
        ("▁The ▁dog", "The dog sleeps", [0, 1]),  # it was cut
        (">>fra<< ▁A ▁man", ">>fra<<A man", [0, 0, 1]),
        ("▁خانه ▁ها ▁بود", "خانه\u200cها بود", [0, 0, 1]),
        ("▁ ▁", "¨", [0, 0]),
    ],
)
def test_words_are_those_of_the_text_whatever_the_vocabulary_sees(pieces, text, numbers):
    pieces = pieces.split(" ")
    links = [(n, n) for n in range(len(pieces))]
    one_word = Alignment(pieces, ["▁x"], [(n, 0) for n, _ in links])
    assert word_links(one_word, text, "x") == [(n, 0) for n in sorted({*numbers})]
    alone = [word_links(one_word._replace(links=[(n, 0)]), text, "x") for n, _ in links]
    assert alone == [[(n, 0)] for n in numbers]
    other_way = Alignment(["▁x"], pieces, [(0, n) for n, _ in links])
    assert word_links(other_way, "x", text) == [(0, n) for n in sorted({*numbers})]


@pytest.mark.parametrize(
    ("pieces", "text", "unknown"),
    [
        ("▁On d <0xC5> <0x99> ej ▁S", "Ondřej S", ["ř"]),
        ("▁a ▁ <unk> ▁b <unk>", "a 車車 b車", ["車車", "車"]),
        ("▁ <0xE8> <0xBB> <0x8A> <0xE8> <0xBB> <0x8A>", "車車", ["車", "車"]),
        ("▁Two ▁dogs", "Two dogs", []),
        ("▁کتاب ▁ها ▁ <unk>", "کتاب\u200cها 車", ["車"]),
        ("▁کتاب ▁ <unk> ▁b", "کتاب\u200f\x1b車\u2060 b", ["車"]),
        ("▁other ▁ <unk>", "text 車", []),  # where the text is another, nobody knows
        ("", "", []),
    ],
)
def test_unknown_characters_are_those_in_bytes_or_of_the_unknown_symbol(pieces, text, unknown):
    found = unknown_spans(pieces.split(), text)
    assert [text[slice(*span)] for span in found] == unknown


@pytest.mark.parametrize("word", ["Sprache", "हिन्दी", "كِتاب", "کتاب\u200cها"])
def test_punctuation_does_not_come_from_a_word_of_any_script(word):
    end = len(word)
    links = [Link((0, end), (0, 8)), Link((0, end), (8, 9)), Link((end + 1, end + 3), (10, 13))]
    linked = LinkedTexts(f"{word} ja", "language, yes", links)
    assert linked.segment((0, end), [(0, 3)]) == (0, 1)


@pytest.mark.parametrize("mark", ["،", "؛", "؟", "۔", "।", "॥", "՞", "።", "、", "״"])
def test_the_punctuation_of_every_script_is_no_part_of_a_word(mark):
    linked = LinkedTexts("a", f"نعم{mark} नहीं{mark}", [])
    assert linked.tokens == [(0, 3), (3, 4), (5, 9), (9, 10)]
