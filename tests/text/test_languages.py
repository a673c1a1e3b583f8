"""Models for several languages: their symbols, and the code of each language."""

import pickle

import numpy as np
import pytest
import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.directed import DirectedTokenizer
from keras_transformer.text.language_code import check_language_code, short_code
from keras_transformer.text.languages import Languages, nearest_codes
from keras_transformer.text.vocabulary import Vocabulary

TEXT = ["A man rides a horse.", "Ein Mann reitet ein Pferd.", "Un homme monte un cheval."]


@pytest.fixture(scope="module")
def learned():
    return SubwordTokenizer.train_from_sentences(TEXT, 310)


@pytest.fixture(scope="module")
def tokenizer(learned):
    return learned.with_languages(["de", "fr"])


def test_symbols_are_the_last_pieces_and_the_others_keep_their_ids(learned, tokenizer):
    assert tokenizer.pieces == [*learned.pieces, "<2de>", "<2fr>"]
    assert learned.languages is None
    assert tokenizer.languages == Languages({"de": "<2de>", "fr": "<2fr>"}, in_target=False)
    other = Vocabulary.of_sentencepiece(tokenizer.to_bytes())
    assert other.languages == tokenizer.languages and other.pieces == tokenizer.pieces


def test_a_source_begins_with_the_symbol_of_the_target_language(learned, tokenizer):
    directed = DirectedTokenizer(tokenizer, "fr")
    symbol = tokenizer.pieces.index("<2fr>")
    texts = [TEXT[0], "", "  "]
    expected = [[symbol, *learned.tokenize(TEXT[:1]).to_list()[0]], [], []]
    assert directed.tokenize(texts).to_list() == expected
    encoded = directed.encode(texts)
    assert encoded.ids.tolist() == expected[0] and encoded.lengths.tolist() == [
        len(expected[0]),
        0,
        0,
    ]
    targets = directed.tokenize_target(TEXT[2:])
    assert targets.to_list() == learned.tokenize_target(TEXT[2:]).to_list()
    copied = pickle.loads(pickle.dumps(directed))
    assert copied.tokenize(texts).to_list() == expected


def test_no_text_becomes_a_symbol_and_no_symbol_becomes_text(tokenizer):
    symbol = tokenizer.pieces.index("<2de>")
    for text in ("<2de>", "<2de> A man", "a<2fr>"):
        ids = tokenizer.tokenize([text])[0].numpy().tolist()
        assert symbol not in ids and symbol + 1 not in ids
        assert tokenizer.detokenize([ids])[0].numpy().decode() == text
    words = tokenizer.tokenize_target(TEXT[1:2]).to_list()[0]
    assert tokenizer.detokenize([[symbol, *words, symbol]])[0].numpy().decode() == TEXT[1]


def test_subwords_at_random_keep_the_symbol(tokenizer):
    directed = DirectedTokenizer(tokenizer, "de")
    encoded = directed.encode(TEXT)
    split = tokenizer.resplit(encoded, 0.5, np.random.RandomState(1))
    first = split.ids[np.cumsum(split.lengths) - split.lengths]
    assert first.tolist() == [tokenizer.pieces.index("<2de>")] * 3
    without = np.delete(split.ids, split.starts)
    rows = tf.RaggedTensor.from_row_lengths(without.astype("int32"), split.lengths - 1)
    assert [text.decode() for text in tokenizer.detokenize(rows).numpy()] == TEXT


def test_a_model_of_one_pair_takes_no_language(learned):
    with pytest.raises(UserError, match="between two languages: leave out target_lang=fr"):
        DirectedTokenizer(learned, "fr")


@pytest.mark.parametrize(
    ("target", "source", "message"),
    [
        ("it", None, "target_lang=it is not a language of this model: use one of de, fr"),
        (None, None, "this model is for several languages: give target_lang, one of de, fr"),
        ("de", "en", "source_lang=en has no effect on this model"),
        ("deu", None, "did you mean de?"),
    ],
)
def test_other_languages_are_refused(tokenizer, target, source, message):
    with pytest.raises(UserError, match=message.replace("?", r"\?")):
        DirectedTokenizer(tokenizer, target, source)


def test_a_symbol_needs_the_code_of_a_language(learned):
    with pytest.raises(UserError, match="target_langs must be a language code such as de"):
        learned.with_languages(["German"])


def test_a_language_has_one_symbol_however_often_it_is_added(learned, tokenizer):
    again = tokenizer.with_languages([*tokenizer.languages.symbols, "nl", "nl"])
    assert again.pieces == [*tokenizer.pieces, "<2nl>"]


@pytest.mark.parametrize(
    ("code", "expected"),
    {
        "fra_Latn": "fr",
        "cmn": "zh",
        "zho_Hant": "zh",
        "pt-br": "pt",
        "de": "de",
        "fre": "fr",
        "per": "fa",
        "chi": "zh",
        "iw": "he",
        "ace_Arab": "ace",
    }.items(),
)
def test_a_code_has_two_letters_if_there_are(code, expected):
    assert short_code(code) == expected


@pytest.mark.parametrize(
    ("code", "hint"),
    {
        "jp": "did you mean ja?",
        "cn": "did you mean zh?",
        "JA": "did you mean ja?",
        "zh_Hans": None,
        "zh-Hans-CN": None,
        "qaa": None,
        "cz-CZ": "did you mean cs-cz?",
        "xx": "two or three small letters",
        "Japanese": "two or three small letters",
        "": "two or three small letters",
    }.items(),
)
def test_a_wrong_code_is_refused_with_the_right_one_if_it_is_known(code, hint):
    if hint is None:
        check_language_code(code)
        return
    with pytest.raises(UserError) as error:
        check_language_code(code)
    expected = f"target_lang must be a language code such as de: found {code!r}; {hint}"
    assert str(error.value) == expected


def test_near_codes_are_of_the_same_language_or_spelling():
    codes = ["zho_Hans", "zho_Hant", "fra_Latn", "deu_Latn"]
    assert nearest_codes("zh", codes) == ["zho_Hans", "zho_Hant"]
    assert nearest_codes("deu_Lat", codes) == ["deu_Latn"]
    assert nearest_codes("xx", codes) == []


def test_languages_of_another_form_are_refused():
    for value in ([], {"symbols": {"fr": 1}, "in_target": True}, {"symbols": {}}):
        with pytest.raises(UserError):
            Languages.from_json(value)
