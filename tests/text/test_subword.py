"""A subword vocabulary: any text to ids and back, in-graph; wrong input fails in one line."""

import copy
import gzip
import pickle
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.errors import UserError
from keras_transformer.text import END_ID, PAD_ID, START_ID, UNKNOWN_ID, SubwordTokenizer
from keras_transformer.text.subword import sample

SENTENCES = [
    "A man rides a brown horse.",
    "Ein Mann reitet auf einem braunen Pferd.",
    "Two women are riding horses along the river.",
    "Zwei Frauen reiten am Fluss entlang.",
] * 5


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(SENTENCES, vocab_size=350)


def round_trip(tokenizer, text):
    return tokenizer.detokenize(tokenizer.tokenize([text]))[0].numpy().decode()


def test_ids_are_a_row_a_sentence_without_special_symbols(tokenizer):
    ids = tokenizer.tokenize(tf.constant([SENTENCES[0], "", SENTENCES[2]]))
    assert isinstance(ids, tf.RaggedTensor) and ids.dtype == tf.int32 and ids.shape == (3, None)
    assert ids[1].shape == (0,)
    assert tf.reduce_min(ids.flat_values) > UNKNOWN_ID
    assert tf.reduce_max(ids.flat_values) < tokenizer.vocab_size == 350


def test_frequent_words_are_one_subword(tokenizer):
    assert len(tokenizer.tokenize(["horse"])[0]) < len("horse")


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
@pytest.mark.parametrize(
    "text",
    [
        "A man rides a brown horse.",
        "emoji 😀👩‍🚀, old Slavonic ꙮ, runes ᚠᚢ, Chinese 马, Arabic حصان",
        "<s> </s> <unk> <pad> <0x41> are plain text",
        "e\u0301 is \u00e9",
    ],
)
def test_any_text_survives(model_type, text):
    tokenizer = SubwordTokenizer.train_from_sentences(SENTENCES, 300, model_type)
    assert round_trip(tokenizer, text) == tokenizer.normalize(text)
    assert UNKNOWN_ID not in tokenizer.tokenize([text]).flat_values


@pytest.mark.slow
@settings(max_examples=200)
@given(text=st.text())
def test_any_characters_survive(tokenizer, text):
    assert round_trip(tokenizer, text) == tokenizer.normalize(text)


def test_normal_form_is_nfkc_with_single_spaces(tokenizer):
    assert tokenizer.normalize(" \ufeffone\ttwo \u00a0three\u2028\ufb01 ") == "one two three fi"
    assert tokenizer.normalize("") == ""


def test_bytes_that_are_not_utf_8_become_replacement_characters(tokenizer):
    text = b"a \xff\xc3 horse"
    assert round_trip(tokenizer, text) == tokenizer.normalize("a \ufffd\ufffd horse") == "a horse"
    read = tokenizer.detokenize(tokenizer.tokenize_target([text]))
    assert read[0] == "a \ufffd\ufffd horse".encode()


def test_text_ends_at_the_first_end_symbol_and_special_symbols_are_left_out(tokenizer):
    horse = tokenizer.tokenize(["horse"])[0].numpy().tolist()
    rows = [
        [START_ID, *horse, END_ID, *horse],
        [*horse, END_ID, END_ID, PAD_ID],
        [PAD_ID, *horse, PAD_ID],
        [END_ID, *horse],
        [],
    ]
    expected = [b"horse", b"horse", b"horse", b"", b""]
    ragged = tf.ragged.constant(rows, dtype=tf.int32)
    assert tokenizer.detokenize(ragged).numpy().tolist() == expected
    assert tokenizer.detokenize(ragged.to_tensor(PAD_ID)).numpy().tolist() == expected


def test_text_is_made_of_any_kind_of_ids(tokenizer):
    ids = tokenizer.tokenize(SENTENCES[:2])
    expected = [text.encode() for text in SENTENCES[:2]]
    assert len(ids[0]) != len(ids[1])
    for both in (
        ids,
        ids.to_list(),
        ids.to_tensor(),
        ids.to_tensor().numpy(),
        tuple(ids.to_list()),
    ):
        assert tokenizer.detokenize(both).numpy().tolist() == expected
    for one in (ids[0], ids[0].numpy(), ids[0].numpy().tolist()):
        assert tokenizer.detokenize(one).numpy() == expected[0]
    rows = [ids[0], ids[0]]
    assert tokenizer.detokenize(rows).numpy().tolist() == [expected[0]] * 2


def test_no_sentences_give_no_sentences(tokenizer):
    ids = tokenizer.tokenize(tf.zeros([0], tf.string))
    assert ids.shape == (0, None)
    assert tokenizer.detokenize(ids).shape == (0,)


def test_tokenizer_outlives_a_new_random_seed_and_a_cleared_session(tokenizer):
    dataset = tf.data.Dataset.from_tensors(["horse"]).map(tokenizer.tokenize)
    before = tokenizer.tokenize(["horse"]).to_list()
    keras.utils.set_random_seed(2)
    keras.utils.clear_session()
    assert tokenizer.tokenize(["horse"]).to_list() == next(iter(dataset)).to_list() == before


def test_two_vocabularies_do_not_mix(tokenizer):
    before = tokenizer.tokenize(["horse"]).to_list()
    other = SubwordTokenizer.train_from_sentences(["other words"], 275)
    assert other.tokenize(["horse"]).to_list() != before == tokenizer.tokenize(["horse"]).to_list()


def test_exported_function_needs_no_files(tokenizer, tmp_path):
    class RoundTrip(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, text):
            return self.tokenizer.detokenize(self.tokenizer.tokenize(text))

    tf.saved_model.save(RoundTrip(), str(tmp_path / "export"))
    exported = tf.saved_model.load(str(tmp_path / "export"))
    assert exported(tf.constant(["A horse 😀."])).numpy().tolist() == ["A horse 😀.".encode()]


def test_saved_and_loaded_vocabulary_is_the_same(tokenizer, tmp_path):
    path = tmp_path / "vocabulary.model"
    tokenizer.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["vocabulary.model"]
    assert SubwordTokenizer.load(path).model == tokenizer.model


def test_a_pickled_or_copied_vocabulary_is_the_same(tokenizer):
    for copied in (pickle.loads(pickle.dumps(tokenizer)), copy.deepcopy(tokenizer)):
        assert copied.model == tokenizer.model
        assert copied(SENTENCES).to_list() == tokenizer(SENTENCES).to_list()


def test_training_again_gives_the_same_vocabulary(tokenizer):
    assert SubwordTokenizer.train_from_sentences(SENTENCES, 350).model == tokenizer.model


def test_a_vocabulary_of_a_sample_follows_from_the_seed_alone():
    many = [f"{sentence} {number}" for number, sentence in enumerate(SENTENCES * 10)]

    def learned(sentences, **options):
        return SubwordTokenizer.train_from_sentences(sentences, 350, **options).model

    first, second = (learned(many, max_sentences=50, seed=seed) for seed in (1, 2))
    assert first != second
    # SentencePiece would draw other sentences in each process; it gets only ours.
    assert first == learned(list(sample(many, 50, seed=1)))
    assert list(sample(range(100), 5, seed=1)) == [29, 17, 32, 66, 51]
    # Sentences that SentencePiece would skip are never drawn.
    unusable = ["", "long " * 4000]
    assert learned(unusable * 20 + many, max_sentences=200) == learned(many) != first


def test_a_sample_is_uniform():
    seeds, size, items = 2000, 10, 100
    counts = np.zeros(items)
    for seed in range(seeds):
        drawn = list(sample(range(items), size, seed))
        assert len(drawn) == len(set(drawn)) == size
        counts[drawn] += 1
    expected = seeds * size / items
    chi_square = ((counts - expected) ** 2 / expected).sum()
    assert chi_square < 149.4  # 99 degrees of freedom: one in a thousand is larger
    assert list(sample(range(items), items, 1)) == list(sample(range(items), 200, 1))


def test_an_interrupted_training_is_not_mistaken_for_one_that_failed():
    def interrupted():
        yield "A man rides a horse."
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SubwordTokenizer.train_from_sentences(interrupted(), 300)


def test_files_plain_or_compressed_give_the_vocabulary_of_their_sentences(tokenizer, tmp_path):
    half = len(SENTENCES) // 2
    plain, compressed = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    plain.write_text("\n".join(SENTENCES[:half]), encoding="utf-8")
    compressed.write_bytes(gzip.compress("\n".join(SENTENCES[half:]).encode()))
    assert SubwordTokenizer.train([plain, compressed], 350).model == tokenizer.model


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_wrong_size_names_the_limit_and_the_limit_works(model_type):
    for wrong, limit in ((100_000, "at most"), (10, "at least")):
        with pytest.raises(UserError, match=rf"{limit} \d+.* found {wrong}$") as error:
            SubwordTokenizer.train_from_sentences(SENTENCES, wrong, model_type)
        size = int(str(error.value).split(limit)[1].split()[0].strip(",:"))
        trained = SubwordTokenizer.train_from_sentences(SENTENCES, size, model_type)
        assert trained.vocab_size == size


@pytest.mark.parametrize("argument", [{"model_type": "wordpiece"}, {"max_sentences": 0}])
def test_training_refuses_what_it_cannot_do(argument):
    [(name, value)] = argument.items()
    with pytest.raises(UserError, match=f"^{name} must be .*: found {value!r}$"):
        SubwordTokenizer.train_from_sentences(["a"], 300, **argument)


def test_training_needs_sentences():
    with pytest.raises(UserError, match="no sentences to learn a vocabulary from"):
        SubwordTokenizer.train_from_sentences([], 300)


def test_training_names_the_file_and_line_that_cannot_be_read(tmp_path):
    path = tmp_path / "train.en"
    path.write_bytes(b"fine\n\xff\n")
    with pytest.raises(UserError, match=r"train\.en:2: not UTF-8"):
        SubwordTokenizer.train([path], 300)
    with pytest.raises(UserError, match=r"missing\.en: "):
        SubwordTokenizer.train([tmp_path / "missing.en", path], 300)


@pytest.mark.parametrize("path", ["ours.model", Path("ours.model")])
def test_a_path_in_place_of_a_model_is_told_how_to_be_read(path):
    with pytest.raises(UserError, match=r"found 'ours\.model'; to read a file, call Sub.*\.load$"):
        SubwordTokenizer(path)


def test_missing_damaged_or_foreign_vocabulary_is_refused(tokenizer, tmp_path):
    path = tmp_path / "vocabulary.model"
    with pytest.raises(UserError, match=r"vocabulary\.model: .*No such file"):
        SubwordTokenizer.load(path)
    for content in (b"", b"not a model", tokenizer.model[:1000], tokenizer.model[:-3]):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"vocabulary\.model: not a SentencePiece model"):
            SubwordTokenizer.load(path)
