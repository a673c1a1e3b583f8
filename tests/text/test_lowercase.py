# ruff: noqa: RUF001
"""Vocabularies in lower case: lower case as Unicode defines it, alike in Python and in a graph."""

import io
import json
import os
import subprocess
import sys

import pytest
import sentencepiece
from helpers import ROOT
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_transformer.ctranslate2.subwords import Subwords
from keras_transformer.evaluation import translation_scores
from keras_transformer.text import SubwordTokenizer, in_graph
from keras_transformer.text.plain_text import plain_text, with_final_sigmas
from keras_transformer.text.sentencepiece_model import SentencePieceModel

TEXTS = [
    "λόγος ΛΌΓΟΣ, ο Οδυσσέας κι ο ΟΔΥΣΣΕΎΣ: ΟΣ'ΑΣ Σ. ΑΣ. Σ' Μ.Σ.",  # final sigmas
    "İstanbul, ISPARTA, Iğdır, Şırnak",
    "Die GROẞE Straße in GRÖSSE XXL",
    "Москва, ЁЖ, Њива, Ґанок, ѢѲ",
    "Երևան Հայաստան ՄԵԾ",
    "ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ꮳꮃꭹ",  # Cherokee
    "ᲗᲑᲘᲚᲘᲡᲘ თბილისი ႠႡႢ",  # Georgian, with both kinds of capitals
    "𐐔𐐯𐑅𐐨𐑉𐐯𐐻 𐐀𐐁",  # Deseret
    "𞤀𞤁𞤂 𞤢𞤣𞤤",  # Adlam
    "ⲀⲂⲄ ϢϤ",  # Coptic
    "Ǆ ǅ ǆ Ⅳ ™ ℡ Å K Ω ＡＢＣ",  # letters for compatibility
    "Nguyễn ĐẶNG THỊ, ÅNGSTRÖM, CAFÉ, Ÿ, Ħal, ŁÓDŹ",
    "שלום مرحبا 日本語 ไทย हिन्दी",  # without case
]
SIGMAS = st.text(st.sampled_from("ΣΣσςΑα ΆA1.'’:-\u0301\u00ad\u200bʰ\U0001d6bcÅ𐐀\x85"), max_size=12)


@pytest.fixture(scope="module")
def lower():
    return SubwordTokenizer.train_from_sentences(TEXTS * 3, 620, lowercase=True)


@pytest.fixture(scope="module")
def cased():
    return SubwordTokenizer.train_from_sentences(TEXTS * 3, 620)


def graph_ids(tokenizer, text):
    return tokenizer.tokenize([text])[0].numpy().tolist()


def round_trip(tokenizer, text):
    return tokenizer.detokenize(tokenizer.tokenize([text]))[0].numpy().decode()


def test_a_vocabulary_says_whether_it_is_in_lower_case(lower, cased):
    assert lower.lowercase and not cased.lowercase
    assert SubwordTokenizer.from_bytes(lower.to_bytes()).lowercase


@pytest.mark.parametrize("text", TEXTS)
def test_a_vocabulary_in_lower_case_writes_what_str_lower_gives(lower, cased, text):
    expected = cased.normalize(text.lower()).lower()  # "™" is a letter only once it is "TM"
    assert lower.normalize(text) == round_trip(lower, text) == expected
    assert lower.normalize(expected) == expected
    if text is TEXTS[0]:
        assert expected == text.lower() and expected.startswith("λόγος λόγος, ο οδυσσέας κι")


def test_each_letter_has_its_own_lower_case(lower, cased):
    letters = [c for c in map(chr, range(sys.maxunicode + 1)) if c.lower() != c or c.upper() != c]
    assert len(letters) > 2800
    for letter in letters:
        expected = "".join(map(str.lower, cased.normalize(letter.lower())))  # not in context
        assert lower.normalize(letter) == expected, hex(ord(letter))


@settings(max_examples=400)
@given(SIGMAS)
@example("ΑΣ.Σ ΣΣ Σ 1Σ Α'Σ'Α")
def test_a_capital_sigma_is_final_where_str_lower_says_so(text):
    assert with_final_sigmas(text).lower() == text.lower()
    plain = plain_text(text)
    assert in_graph.with_final_sigmas([plain])[0].numpy().decode() == with_final_sigmas(plain)


@pytest.mark.slow
def test_every_character_decides_like_str_lower_whether_a_sigma_is_final():
    text = "\n".join(
        f"{character}Σ\nΑ{character}Σ\nΑΣ{character}\nΑΣ{character}Α"
        for character in map(chr, range(sys.maxunicode + 1))
        if not character.isspace()
    )
    assert with_final_sigmas(text).lower() == text.lower()


@settings(max_examples=300)
@given(
    SIGMAS
    | st.text(st.sampled_from("".join(TEXTS)), max_size=12)
    | st.text(max_size=8)
    | st.binary(max_size=8)
)
@example(b"\xce\x91\xce\xa3\xff \xce\x91\xce\xa3\xe2\x80")
def test_python_and_the_graph_agree_on_all_text(lower, text):
    in_python = lower.encode([text]).ids.tolist()
    text = text.encode("utf-8", "replace") if isinstance(text, str) else text
    assert graph_ids(lower, text) == in_python


def test_ctranslate2_splits_alike(lower, tmp_path):
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "config.json").write_text(json.dumps(special))
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(lower.pieces))
    (tmp_path / "sentencepiece.model").write_bytes(lower.model)
    for text in TEXTS:
        [pieces] = Subwords(tmp_path).split_source([text.encode()])
        assert [lower.pieces.index(piece) for piece in pieces] == graph_ids(lower, text)


def test_a_perfect_translation_into_greek_has_lowercased_bleu_100(lower):
    greek = [TEXTS[0], "ΟΙ ΝΕΟΙ ΦΙΛΟΙ ΜΑΣ", "Ο Γιώργος είναι ψηλός."]
    translations = [round_trip(lower, text) for text in greek]
    for references in (greek, [text.lower() for text in greek]):
        score = translation_scores(translations, references, "el")["bleu_lowercased"]
        assert score.value == pytest.approx(100) and "case:lc" in score.signature


def test_capitals_and_small_letters_give_the_same_vocabulary_without_traces_of_files(lower):
    small = [text.lower() for text in TEXTS]
    again = SubwordTokenizer.train_from_sentences(small * 3, 620, lowercase=True)
    assert again.to_bytes() == lower.to_bytes()
    assert b".tsv" not in again.to_bytes()


def test_a_vocabulary_that_folds_case_goes_on_as_it_was():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS * 3),
        model_writer=model,
        vocab_size=600,
        model_type="bpe",
        **{"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "byte_fallback": True},
        normalization_rule_name="nmt_nfkc_cf",
        minloglevel=2,
    )
    tokenizer = SubwordTokenizer(model.getvalue())
    processor = SentencePieceModel(model.getvalue()).processor
    assert tokenizer.lowercase and tokenizer.normalize("ΛΌΓΟΣ λόγος") == "λόγοσ λόγοσ"
    for text in TEXTS:
        assert graph_ids(tokenizer, text) == tokenizer.encode([text]).ids.tolist()
        assert graph_ids(tokenizer, text) == processor.encode(text)


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["tr_TR.UTF-8", "lt_LT.UTF-8"])
def test_lower_case_does_not_depend_on_the_locale(locale):
    """ICU, in TensorFlow, has rules of its own for Turkish and Lithuanian."""
    script = """
import tensorflow as tf
from keras_transformer.text import in_graph
letters = [chr(code) for code in range(1, 0x2C00)]
texts = letters + [f"x{letter}{mark}" for letter in letters for mark in "\u0301\u0307"]
assert [text.decode() for text in in_graph.lower(texts).numpy()] == [t.lower() for t in texts]
print("equal")
"""
    environment = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "1"}
    process = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True
    )
    assert process.stdout == "equal\n", process.stderr
