"""Byte-pair encoding of our own: SentencePiece's without dropout, and repeatable with it."""

import numpy as np
import pytest
from helpers import run_python
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from keras_transformer.errors import UserError
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.byte_pairs import BytePairMerges
from keras_transformer.text.ragged import Ragged

SENTENCES = [
    "the horses ride, the horse rode",
    "a riding  horse's shoe",
    "aaaaaaa bananas",
    "\u65e5\u672c \U0001f600 \x00 horse\u00e9",
    "",
    "x",
]


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(SENTENCES[:3] * 5, 330)


def tokenized(tokenizer, sentences=SENTENCES):
    ragged = tokenizer.tokenize(sentences)
    return Ragged(ragged.flat_values.numpy(), ragged.row_lengths().numpy())


def resplit(tokenizer, sentences, dropout, seed=0):
    return tokenizer.resplit(sentences, dropout, np.random.RandomState(seed))


def rows(sentences):
    return [
        sentences.ids[start : start + length].tolist()
        for start, length in zip(sentences.starts, sentences.lengths, strict=True)
    ]


def test_without_dropout_it_is_sentencepiece(tokenizer):
    sentences = tokenized(tokenizer)
    assert rows(resplit(tokenizer, sentences, 0.0)) == rows(sentences)


def test_without_dropout_it_is_sentencepiece_on_real_text(multi30k):
    files = [multi30k / f"val.{language}" for language in ("en", "de", "fr")]
    tokenizer = SubwordTokenizer.train(files[:2], vocab_size=4000)
    for file in files:
        sentences = tokenized(tokenizer, file.read_text().splitlines())
        assert rows(resplit(tokenizer, sentences, 0.0)) == rows(sentences)


def test_dropping_every_merge_leaves_characters(tokenizer):
    pieces = [tokenizer.pieces[id_] for id_ in rows(resplit(tokenizer, tokenized(tokenizer), 1))[0]]
    assert pieces == list("\u2581the\u2581horses\u2581ride,\u2581the\u2581horse\u2581rode")


class Draws:
    """Given numbers instead of random ones, round by round."""

    def __init__(self, *rounds):
        self.rounds = iter(rounds)

    def random_sample(self, count):
        numbers = next(self.rounds)
        assert len(numbers) == count
        return np.array(numbers)


def test_each_round_makes_the_best_merge_of_each_word_that_is_not_left_out():
    pieces = ["er", "he", "her", "h", "e", "r"]  # the best first
    model = ModelProto()
    model.trainer_spec.model_type = model.trainer_spec.BPE
    for number, piece in enumerate(pieces):
        model.pieces.add(piece=piece, score=-number)
    words = Ragged(np.array([3, 4, 5, 3, 4]), np.array([3, 2]))  # h e r, h e

    def split(*rounds):
        result = BytePairMerges(model).resplit(words, 0.5, Draws(*rounds))
        return [[pieces[id_] for id_ in row] for row in rows(result)]

    assert split([1, 1, 1, 1, 1], [1, 1, 1], [1]) == [["her"], ["he"]]
    assert split([1, 1, 1, 0, 1], [1, 1], [1]) == [["her"], ["h", "e"]]  # h+e left out
    assert split([1, 0, 1, 1, 1], [0, 1, 1]) == [["he", "r"], ["he"]]  # e+r, then he+r left out
    assert split([0, 0, 1, 0, 1]) == [["h", "e", "r"], ["h", "e"]]


@pytest.mark.parametrize("dropout", [0.1, 0.5, 1.0])
def test_dropout_changes_the_subwords_and_not_the_text(tokenizer, dropout):
    sentences = tokenized(tokenizer)
    splits = [resplit(tokenizer, sentences, dropout, seed) for seed in range(10)]
    for split in splits:
        texts = [tokenizer.detokenize([row])[0].numpy().decode() for row in rows(split)]
        assert texts == [tokenizer.normalize(sentence) for sentence in SENTENCES]
    assert (len({tuple(split.ids) for split in splits}) > 1) == (dropout < 1)


def test_a_merge_is_left_out_as_often_as_it_should_be():
    tokenizer = SubwordTokenizer.train_from_sentences(["ab"] * 5, 4 + 256 + 3 + 2)
    assert tokenizer.pieces[260:262] == ["ab", "\u2581ab"]
    count = 10_000
    split = resplit(tokenizer, tokenized(tokenizer, ["ab"] * count), 0.3)
    # Two merges: none with 0.3, the first alone with 0.7 x 0.3.
    for length, share in ((3, 0.3), (2, 0.7 * 0.3), (1, 0.7 * 0.7)):
        assert np.mean(split.lengths == length) == pytest.approx(share, abs=0.02)


@pytest.mark.slow
def test_it_is_the_same_in_every_process_and_version(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "vocabulary")
    script = """
import sys
import numpy as np
from keras_transformer.text.ragged import Ragged
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.byte_pairs import BytePairMerges
tokenizer = SubwordTokenizer.load(sys.argv[1])
ids = np.array([int(id_) for id_ in sys.argv[2].split()])
sentences = Ragged(ids, np.array([len(ids)]))
print(*tokenizer.resplit(sentences, 0.3, np.random.RandomState(5)).ids)
"""
    sentences = tokenized(tokenizer, SENTENCES[:1])
    found = run_python(script, tmp_path / "vocabulary", " ".join(map(str, sentences.ids)))
    assert [int(id_) for id_ in found.split()] == resplit(tokenizer, sentences, 0.3, 5).ids.tolist()


def test_it_needs_merges():
    unigram = SubwordTokenizer.train_from_sentences(SENTENCES[:3] * 5, 283, "unigram")
    with pytest.raises(UserError, match='model_type "bpe"'):
        resplit(unigram, tokenized(unigram), 0.1)
