"""Our vocabulary beside keras-nlp: packers, `tf.data`, saved models, files of both sides."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import run_python

import keras_transformer as kt
from keras_transformer.errors import UserError
from keras_transformer.text import END_ID, PAD_ID, START_ID, SubwordTokenizer

keras_nlp = pytest.importorskip("keras_nlp")

SENTENCES = [
    "A man rides a brown horse.",
    "Two women are riding horses along the river.",
    "emoji 😀, runes ᚠᚢ",
    "",
]
LENGTH = 16


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(SENTENCES * 5, vocab_size=320)


def packed(ids):
    row = [START_ID, *ids[: LENGTH - 2], END_ID]
    return row + [PAD_ID] * (LENGTH - len(row))


def test_a_vocabulary_is_called_as_tokenizers_of_keras_nlp_are(tokenizer):
    theirs = keras_nlp.tokenizers.SentencePieceTokenizer(proto=tokenizer.model)
    assert tokenizer(SENTENCES).to_list() == [list(row) for row in theirs(SENTENCES)]
    for sentence in (SENTENCES[0], tf.constant(SENTENCES[0])):
        np.testing.assert_array_equal(tokenizer(sentence), theirs(sentence))


@pytest.mark.parametrize("layer_of_theirs", [False, True])
def test_packers_of_keras_nlp_take_its_ids(tokenizer, layer_of_theirs):
    expected = [packed(ids) for ids in tokenizer.tokenize(SENTENCES).to_list()]
    tokenize = tokenizer.to_keras_nlp() if layer_of_theirs else tokenizer
    packer = keras_nlp.layers.StartEndPacker(LENGTH, START_ID, END_ID, PAD_ID)
    np.testing.assert_array_equal(packer(tokenize(SENTENCES)), expected)
    rows = tf.data.Dataset.from_tensor_slices(SENTENCES)
    for dataset in (
        rows.map(tokenize).map(packer).batch(9),
        rows.batch(9).map(tokenize).map(packer),
    ):
        np.testing.assert_array_equal(next(iter(dataset)), expected)


@pytest.mark.parametrize("layer_of_theirs", [False, True])
def test_pairs_are_packed_with_their_segments(tokenizer, layer_of_theirs):
    tokenize = tokenizer.to_keras_nlp() if layer_of_theirs else tokenizer
    packer = keras_nlp.layers.MultiSegmentPacker(
        40, start_value=START_ID, end_value=END_ID, pad_value=PAD_ID
    )
    first, second = SENTENCES[:2], SENTENCES[1::-1]
    pairs = tf.data.Dataset.from_tensor_slices((first, second)).batch(2)
    dataset = pairs.map(lambda a, b: packer((tokenize(a), tokenize(b))))
    for ids, segments in (packer((tokenize(first), tokenize(second))), next(iter(dataset))):
        for row, segment, a, b in zip(
            np.asarray(ids), np.asarray(segments), first, second, strict=True
        ):
            a, b = (tokenizer(text).numpy().tolist() for text in (a, b))
            expected = [START_ID, *a, END_ID, *b, END_ID]
            assert row.tolist() == expected + [PAD_ID] * (40 - len(expected))
            assert segment.tolist()[: len(expected)] == [0] * (len(a) + 2) + [1] * (len(b) + 1)


@pytest.mark.slow
def test_a_model_of_text_is_saved_with_its_vocabulary(tokenizer, tmp_path):
    text = keras.Input((), dtype="string")
    ids = tokenizer.to_keras_nlp(sequence_length=LENGTH)(text)
    x = kt.layers.TokenEmbedding(tokenizer.vocab_size, 8, mask_zero=True)(ids)
    x = kt.layers.EncoderLayer(8, 2, 16)(x)
    model = keras.Model(text, keras.layers.GlobalAveragePooling1D()(x))
    expected = model(tf.constant(SENTENCES[:3]))
    model.save(tmp_path / "model.keras")
    np.save(tmp_path / "expected.npy", expected)
    script = """
import sys, numpy as np, keras, keras_nlp, keras_transformer.saving
import tensorflow as tf
folder, *sentences = sys.argv[1:]
model = keras.saving.load_model(folder + "/model.keras")
found = model(tf.constant(sentences))
np.testing.assert_allclose(found, np.load(folder + "/expected.npy"), atol=1e-6)
print("equal")
"""
    assert run_python(script, tmp_path, *SENTENCES[:3]).endswith("equal\n")


def test_vocabulary_files_open_on_both_sides(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "vocabulary.model")
    theirs = keras_nlp.tokenizers.SentencePieceTokenizer(proto=str(tmp_path / "vocabulary.model"))
    ids = tokenizer(SENTENCES).to_list()
    assert [list(row) for row in theirs(SENTENCES)] == ids
    texts = [tokenizer.normalize(sentence) for sentence in SENTENCES]
    assert list(theirs.detokenize(ids)) == texts
    theirs.save_assets(str(tmp_path))
    back = SubwordTokenizer.load(tmp_path / "vocabulary.spm")
    assert back(SENTENCES).to_list() == ids
    assert [text.decode() for text in back.detokenize(ids_of(ids)).numpy()] == texts
    assert SubwordTokenizer(theirs.proto).vocab_size == theirs.vocabulary_size() == 320


def ids_of(rows):
    return tf.ragged.constant(rows, dtype=tf.int32)


def test_a_vocabulary_of_other_special_ids_is_refused_with_what_to_do(tmp_path):
    data = tf.data.Dataset.from_tensor_slices(SENTENCES[:2] * 5)
    proto = keras_nlp.tokenizers.compute_sentence_piece_proto(data, vocabulary_size=25)
    (tmp_path / "vocabulary.spm").write_bytes(proto)
    with pytest.raises(UserError) as error:
        SubwordTokenizer.load(tmp_path / "vocabulary.spm")
    message = str(error.value)
    assert "\n" not in message and f"{tmp_path}/vocabulary.spm: " in message
    assert "(0, 1, 2, 3): found (0, 2, 3, 1)" in message
    assert "spm_train makes one with --pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3" in message


@pytest.mark.slow
def test_keras_nlp_is_loaded_only_where_it_is_asked_for(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "vocabulary.model")
    script = """
import sys
import keras_transformer as kt
kt.Translator, kt.data, kt.layers, kt.training
tokenizer = kt.SubwordTokenizer.load(sys.argv[1])
tokenizer(["A man rides."])
assert not {"keras_nlp", "keras_hub", "tensorflow_datasets"} & set(sys.modules)
sys.modules["keras_nlp"] = None
try:
    tokenizer.to_keras_nlp()
except kt.UserError as error:
    print(error)
"""
    output = run_python(script, tmp_path / "vocabulary.model")
    assert "pip install '.[keras-nlp]'" in output and output.count("\n") == 1
