"""Terms in the subwords of a vocabulary."""

import numpy as np
import pytest

from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.term_spelling import TermSpelling
from keras_transformer.text import SubwordTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


def spellings(tokenizer, *forms):
    """The text of each spelling, with `|` before those that may only follow punctuation."""
    [[term]] = TermSpelling(tokenizer).required([[forms]])
    return {
        "|" * (not one.after_space) + "".join(tokenizer.pieces[id_] for id_ in one.ids)
        for one in term.spellings
    }


def test_a_form_may_follow_punctuation_and_begin_with_a_capital_letter(tokenizer):
    assert spellings(tokenizer, "alte Stadt") == {
        "▁alte▁Stadt",
        "|alte▁Stadt",
        "▁Alte▁Stadt",
        "|Alte▁Stadt",
    }
    assert spellings(tokenizer, "Hund", "iPad") == {"▁Hund", "|Hund", "▁iPad", "|iPad"}


def test_a_term_that_is_listed_twice_must_occur_twice(tokenizer):
    [required] = TermSpelling(tokenizer).required([[("Hund",), ("Stadt",), ("Hund",)]])
    assert [term.times for term in required] == [2, 1]


def test_sentences_without_terms_require_nothing(tokenizer):
    assert TermSpelling(tokenizer).required([[], []]) == [(), ()]


def test_subwords_continue_words_or_let_them_begin(tokenizer):
    spelling, pieces = TermSpelling(tokenizer), tokenizer.pieces
    continues = {piece for piece, does in zip(pieces, spelling.continues, strict=True) if does}
    opens = {piece for piece, does in zip(pieces, spelling.opens, strict=True) if does}
    assert {"e", "n", "<0xC3>"} <= continues and not continues & {"▁", ".", ",", "<s>", "</s>"}
    assert {"▁", ".", ","} <= opens and not opens & {"e", "<0xC3>", "<s>", "</s>"}


def test_what_the_vocabulary_lacks_is_refused(tokenizer, monkeypatch):
    encode = type(tokenizer).encode

    def without_a_letter(self, sentences, is_target=False):  # no byte fallback: e is unknown
        ids, lengths = encode(self, sentences, is_target)
        return encode(self, sentences)._replace(
            ids=np.where(ids == self.pieces.index("e"), self.unknown_id, ids), lengths=lengths
        )

    monkeypatch.setattr(type(tokenizer), "encode", without_a_letter)
    spelling = TermSpelling(tokenizer)
    assert spelling.unspellable(["xex", "xxx"]) == ["xex"]
    with pytest.raises(UserError, match="the vocabulary cannot spell the term 'xex'"):
        spelling.required([[("xxx", "xex")]])


def test_a_capital_letter_that_the_vocabulary_lacks_is_left_out(tokenizer, monkeypatch):
    encode = type(tokenizer).encode

    def without_a_letter(self, sentences, is_target=False):
        found = encode(self, sentences)
        is_q = found.ids == self.pieces.index("<0x51>")
        return found._replace(ids=np.where(is_q, self.unknown_id, found.ids))

    small = {"▁<0x71>u", "|<0x71>u"}
    assert spellings(tokenizer, "qu") == small | {"▁<0x51>u", "|<0x51>u"}
    monkeypatch.setattr(type(tokenizer), "encode", without_a_letter)
    assert spellings(tokenizer, "qu") == small
