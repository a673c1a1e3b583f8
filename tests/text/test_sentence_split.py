# ruff: noqa: RUF001
"""Texts are split into sentences, and nothing of them is lost."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keras_transformer.text.sentence_split import join_sentences, split_sentences

# What sentences end with, and what sentencex 1.0.32 fails at: white space beyond ASCII before a
# full stop, and half a surrogate pair.
SIGNS = st.sampled_from(
    [*'aB.!?"”»()。…', "\n", "\r\n", " ", "\t", "\u00a0", "\u2028", "- ", "1. "]
)
ANY_TEXT = st.text(st.characters(exclude_categories=())) | st.lists(SIGNS).map("".join)


@given(ANY_TEXT, st.sampled_from([None, "en", "de", "fr", "ja", "ru", "pt-br", "xx"]))
@example("\udc80 a. B.", "en")
@example("”/B\xa0./«", "de")
def test_sentences_and_gaps_are_the_text(text, language):
    sentences, gaps = split_sentences(text, language)
    assert join_sentences(sentences, gaps) == text
    assert len(gaps) == len(sentences) + 1
    for sentence in sentences:
        assert sentence == sentence.strip() and "\n" not in sentence
        assert any(map(str.isalnum, sentence))
    assert not any(map(str.isalpha, "".join(gaps).replace("a)", "")))


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        ("en", ["Mr. Jones left at 5 p.m. on Monday.", "“Really?” she asked.", "It cost $3.50!"]),
        ("en", ["J. R. R. Tolkien wrote it, e.g. in Oxford.", "Yes!", "See example.com."]),
        ("de", ["Dr. Müller kam am 3. Oktober an.", "Das ist z. B. so, bzw. anders.", "Ja!"]),
        ("fr", ["M. Dupont est arrivé avec M. Martin.", "Il a dit « Bonjour ! »"]),
        ("pt-br", ["O Sr. Silva veio.", "Ele saiu."]),
        ("hi", ["यह है।", "वह है।"]),
        ("hi", ["पी. वी. सिन्धु आईं।", "श्री पी. वी. राव गए।"]),
        ("bn", ["এ. পি. জে. কালাম।", "তিনি।"]),
        # A letter after a vowel sign is no initial.
        ("ta", ["இது நல்லது அல்ல.", "அது வேறு."]),
        ("gu", ["મારું નામ રામ.", "હું ઘરે જાઉં છું."]),
        ("he", ["זֶה טוֹב.", "אַתָּה פֹּה."]),
        (None, ["Mr. Jones left.", "He did."]),
        ("xx", ["Mr. Jones left.", "He did."]),
    ],
)
def test_the_rules_of_the_language_split(language, sentences):
    spaces = [""] + ["  "] * (len(sentences) - 1) + ["\t"]
    assert split_sentences(join_sentences(sentences, spaces), language) == (sentences, spaces)


@pytest.mark.parametrize("code", ["de", "de-AT", "DE_de", "deu", "deu_Latn"])
def test_a_language_has_its_rules_by_each_of_its_codes(code):
    sentences = ["Es war am 3. Oktober.", "Gut."]
    assert split_sentences(" ".join(sentences), code)[0] == sentences


def test_sentences_need_no_space_between_them():
    assert split_sentences("你好。他说:“是的。”", "zh") == (
        ["你好。", "他说:“是的。”"],
        ["", "", ""],
    )


@pytest.mark.parametrize("language", ["en", "de", "fr", "es", "ru", "zh", "ja"])
@pytest.mark.parametrize(
    "sentence",
    [
        "See https://x.org/a?B=c and go.",
        "Open index.php?Page=3&id=4, or https://x.org/?Id=2!",
        "Ask twitter.com/#!/user, www.Example.Com or Foo.Bar@x.org.",
        "ASP.NET has Console.WriteLine, e.g.Beep, as of v2.0!Alpha.",
        "Die Seite ist ru.wikipedia.org/wiki/Кто?Что, nicht de.wikipedia.org/wiki/Wer?Über.",
        "See https://x.gr/?αβ=δ, https://x.org/राम?क=ख and https://x.org/w?ص=محمد.",
    ],
)
def test_a_sentence_never_ends_within_a_word(sentence, language):
    assert split_sentences(f"{sentence} Is it 3?", language)[0] == [sentence, "Is it 3?"]


def test_sentences_without_a_space_between_them_stay_one_where_words_have_spaces():
    for text in ("He left.She stayed.", "Он ушёл.Она осталась.", "Wait...What?", '"Go!"He went.'):
        assert split_sentences(text) == ([text], ["", ""])
    assert split_sentences("“Go!”He went.")[0] == ["“Go!”", "He went."]
    assert split_sentences("Hello!你好!안녕?그래.", "zh")[0] == [
        "Hello!",
        "你好!",
        "안녕?",
        "그래.",
    ]
    assert split_sentences("He left.[1] She stayed.")[0] == ["He left.[1]", "She stayed."]


def test_a_long_line_is_split_like_a_short_one():
    sentences = ["Mr. Jones left at 5 p.m. on Monday.", "“Really?” she asked.", "Yes."] * 500
    assert split_sentences(" ".join(sentences))[0] == sentences
    assert split_sentences("你好。" * 2000, "zh")[0] == ["你好。"] * 2000


def test_what_has_no_end_for_long_is_cut_between_words():
    words = ["dog"] * 900
    sentences, gaps = split_sentences(" ".join(words))
    assert len(sentences) == 2
    assert gaps == ["", " ", ""]
    word = "https://x.org/" + "a" * 5000
    assert split_sentences(f"See {word} now.")[0] == [f"See {word} now."]


@pytest.mark.parametrize("text", ["é. " * 30_000, "“" * 100_000, "\n" * 300_000])
def test_the_time_is_linear_in_the_length(text):
    start = time.process_time()
    split_sentences(text)
    assert time.process_time() - start < 15  # less than 1 on a machine at rest; a minute if not


def test_lists_blank_lines_and_indentation_stand_between_sentences():
    text = "A list:\n\n\t- One. Two.\r\n  2. Three\n> a) Four\n-----\n# Five\n\n* 6\n ... \n"
    sentences, gaps = split_sentences(text)
    assert sentences == ["A list:", "One.", "Two.", "Three", "Four", "Five", "6"]
    between = ["\n\n\t- ", " ", "\r\n  2. ", "\n> a) ", "\n-----\n# ", "\n\n* ", "\n ... \n"]
    assert gaps == ["", *between]


@pytest.mark.parametrize("start", ["\ufeff- ", "\u200f1. ", "\ufeff> \u200e"])
def test_marks_that_nobody_sees_are_no_part_of_a_sentence_that_follows_a_marker(start):
    assert split_sentences(f"{start}One. Two.") == (["One.", "Two."], [start, " ", ""])


def test_marks_that_nobody_sees_stand_between_sentences():
    text = "שלום לך.\u200f מה שלומך?\u200f\u2069 \u2067כן."
    assert split_sentences(text, "he") == (
        ["שלום לך.", "מה שלומך?", "כן."],
        ["", "\u200f ", "\u200f\u2069 \u2067", ""],
    )


@pytest.mark.parametrize("text", ["", "\n", " \t\r\n", "---", "- \n- \n", "?!"])
def test_a_text_without_letters_or_digits_has_no_sentence(text):
    assert split_sentences(text) == ([], [text])


def test_columns_are_translated_apart_and_stay_where_they_are():
    text = "  --open=X      Open a tree. Then go on.\n%(id)s:\t%(father)s\n1.\tTwo\n"
    sentences, gaps = split_sentences(text)
    assert sentences == ["--open=X", "Open a tree.", "Then go on.", "%(id)s:", "%(father)s", "Two"]
    assert gaps == ["  ", "      ", " ", "\n", "\t", "\n1.\t", "\n"]
    assert join_sentences(sentences, gaps) == text


def test_two_spaces_within_a_sentence_are_no_columns():
    assert split_sentences("It  has  them.")[0] == ["It  has  them."]
