"""Symbols such as `%s` are one subword wherever they occur, in every engine."""

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf

from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.symbols import read_symbols

SYMBOLS = ["%s", "<0>", "%1$s", "x"]
TEXT = "The <0>file %s%1$s is x.%s"


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request):
    sentences = [*BuiltinPairs("train", 300).sentences()]
    learned = SubwordTokenizer.train_from_sentences(sentences, 400, request.param)
    return learned, learned.with_symbols(SYMBOLS)


def test_a_symbol_is_one_subword_wherever_it_occurs(tokenizer):
    _, with_symbols = tokenizer
    for tokenize in (with_symbols.tokenize, with_symbols.tokenize_target):
        ids = tokenize(tf.constant([TEXT]))
        pieces = [with_symbols.pieces[id_] for id_ in ids.flat_values.numpy()]
        assert [piece for piece in pieces if piece in SYMBOLS] == ["<0>", "%s", "%1$s", "x", "%s"]
        assert with_symbols.detokenize(ids).numpy()[0].decode() == TEXT
        assert with_symbols.encode([TEXT]).ids.tolist() == ids.flat_values.numpy().tolist()


def test_other_text_has_the_ids_that_it_had(tokenizer):
    learned, with_symbols = tokenizer
    text = ["The girls sleep. Die Mädchen schlafen; 5 % of them."]
    assert learned.encode(text).ids.tolist() == with_symbols.encode(text).ids.tolist()


def test_a_subword_that_becomes_a_symbol_keeps_its_id(tokenizer):
    learned, with_symbols = tokenizer
    known = [symbol for symbol in SYMBOLS if symbol in learned.pieces]
    assert with_symbols.vocab_size == learned.vocab_size + len(SYMBOLS) - len(known)
    assert sorted(with_symbols.symbols) == sorted(SYMBOLS)
    again = SubwordTokenizer.from_bytes(with_symbols.to_bytes())
    assert again.symbols == with_symbols.symbols and learned.symbols == []


def test_the_file_is_a_sentencepiece_model_with_user_defined_symbols(tokenizer):
    _, with_symbols = tokenizer
    theirs = sentencepiece.SentencePieceProcessor(model_proto=with_symbols.model)
    assert theirs.encode(TEXT) == with_symbols.encode([TEXT]).ids.tolist()


def test_symbols_are_not_split_at_random(tokenizer):
    _, with_symbols = tokenizer
    if with_symbols.model_type == "bpe":
        ids = with_symbols.encode([TEXT])
        split = with_symbols.resplit(ids, 0.9, np.random.RandomState(1)).ids
        assert [id_ for id_ in split if with_symbols.pieces[id_] in SYMBOLS] == [
            id_ for id_ in ids.ids if with_symbols.pieces[id_] in SYMBOLS
        ]


@pytest.mark.parametrize("symbol", ["", "a b", "\u3000", "<s>", "<unk>", "<0x0A>", "▁x"])
def test_what_is_no_symbol_is_refused(tokenizer, symbol):
    with pytest.raises(UserError, match=r"^symbols must be texts without white space"):
        tokenizer[0].with_symbols([symbol])


def test_a_single_symbol_in_place_of_a_list_is_refused(tokenizer):
    with pytest.raises(UserError, match=r"^symbols must be a list of strings: found a single str"):
        tokenizer[0].with_symbols("%s")  # else % and s would be symbols


def test_a_file_has_a_symbol_on_a_line(tmp_path):
    (tmp_path / "a").write_text(" %s\n\n<0>\r\n")
    assert read_symbols(tmp_path / "a") == ("%s", "<0>")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("%s\n%s x\n", ":2: a symbol must have no white space: found '%s x'"),
        ("%s\n\n%s\n", ":3: %s is on an earlier line too: remove one"),
        ("\n", ": the file has no symbol: write one on each line"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path, content, message):
    (tmp_path / "a").write_text(content)
    with pytest.raises(UserError) as error:
        read_symbols(tmp_path / "a")
    assert str(error.value) == f"{tmp_path / 'a'}{message}"
