"""The script of a text, by its letters."""

import pytest

from keras_transformer.text.scripts import main_script, script_of, script_share


@pytest.mark.parametrize(
    ("characters", "script"),
    [
        ("aZßéőẞ\N{FULLWIDTH LATIN CAPITAL LETTER A}", "LATIN"),
        ("яЖ", "CYRILLIC"),
        ("λ", "GREEK"),
        ("سپ", "ARABIC"),
        ("ह", "DEVANAGARI"),
        ("語ひカｱー", "HAN"),
        ("한", "HANGUL"),
        ("7 .!\u0301\N{SLIGHTLY SMILING FACE}", None),
    ],
)
def test_letters_have_a_script(characters, script):
    assert {script_of(character) for character in characters} == {script}


def test_the_main_script_is_that_of_most_letters():
    assert main_script(["Привет, мир", "ok"]) == "CYRILLIC"
    assert main_script(["日本語", "の", "文章", "by me"]) == "HAN"
    assert main_script(["", "1 + 1 = 2"]) is None


@pytest.mark.parametrize(
    ("text", "script", "share"),
    [
        ("Ein Café: „schön“", "LATIN", 1),
        ("Привет ok", "LATIN", 0.25),
        ("Привет ok", "CYRILLIC", 0.75),
        ("使用 OK", "HAN", 0.5),
        ("100 %", "HAN", 1),
        ("", "LATIN", 1),
    ],
)
def test_a_share_counts_letters_alone(text, script, share):
    assert script_share(text, script) == share
