"""Whatever editors, spreadsheets and old systems leave in text, every reader reads it alike."""

import gzip
import sys

import pytest
import tensorflow as tf
from helpers import as_read, lively_model
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_transformer.ctranslate2 import export_ctranslate2
from keras_transformer.ctranslate2.subwords import Subwords
from keras_transformer.data import BuiltinPairs, Corpus, TextPairs, TfdsPairs
from keras_transformer.evaluation import translation_scores
from keras_transformer.export import export_saved_model
from keras_transformer.options import ParsingOptions
from keras_transformer.parsing import Parser, ParsingTokenizer, TreebankPairs
from keras_transformer.text import SubwordTokenizer, in_graph
from keras_transformer.text.plain_text import plain_text
from keras_transformer.text.text_files import read_lines
from keras_transformer.translation import one_line
from keras_transformer.translator import Translator

CONTROLS = [chr(code) for code in [*range(0x20), *range(0x7F, 0xA0)] if code != 0x0A]
SEPARATORS = [*CONTROLS, "\u200b", "\u2028", "\u2029", "\u00a0", "\u3000", "\r\r"]
INVISIBLE = ["\ufeff", "\u2060", "\u200e", "\u200f", "\u202a", "\u202c", "\u2067", "\u2069"]
ENDS = ["\r", "\r\r", "\x1a", "\x0c", "\x00", "\ufeff", "\u2028", "\x85"]

# Pairs of a line with such a character, and the same line without it.
LINES = [
    *((f"A man{separator}rides", "A man rides") for separator in SEPARATORS),
    *((f"A horse{mark}shoe", "A horseshoe") for mark in INVISIBLE),
    *((f"A man rides{end}", "A man rides") for end in ENDS),
    *((f"{start}A man rides", "A man rides") for start in ["\ufeff", "\x00", "\x1a", "\u200b"]),
    ("\x1b[31mA man\x1b[0m", "[31mA man [0m"),
]
# Those without the white space of typography, which targets keep.
ALIKE = [pair for pair in LINES if not {"\u00a0", "\u3000"} & {*pair[0]}]
GIVEN, PLAIN = map(list, zip(*LINES, strict=True))
VOCABULARY = [*BuiltinPairs("train", 300).sentences(), "A man rides a horseshoe [31m [0m"]


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(VOCABULARY, 350)


@pytest.fixture(scope="module")
def translator(tokenizer):
    return Translator(lively_model(1, tokenizer.vocab_size), tokenizer, beam_size=2, extra_length=5)


@pytest.fixture(params=["", ".gz"])
def as_file(request, tmp_path):
    def as_file(lines, name="lines"):
        content = "".join(f"{line}\n" for line in lines).encode()
        path = tmp_path / f"{name}{request.param}"
        path.write_bytes(gzip.compress(content) if request.param else content)
        return path

    return as_file


def words(lines):
    return [line.split() for line in lines]


def test_each_character_separates_words_or_is_invisible_or_stays():
    for code in range(sys.maxunicode + 1):
        text = "{0} A{0}B {0} C {0}".format(chr(code))
        assert plain_text(text) == as_read(text), hex(code)


@settings(max_examples=300)
@given(st.binary(max_size=20) | st.text().map(lambda text: text.encode("utf-8", "surrogatepass")))
@example(b"\xe2\xc2\x85\xf0\x9f\xe2\x80\xa8\xc0\x80\xed\xa0\x80")
def test_a_graph_reads_all_bytes_like_python(text):
    assert in_graph.plain_text([text])[0] == plain_text(text.decode("utf-8", "replace")).encode()


def test_files_are_read_as_their_text_without_it(as_file):
    path = as_file(GIVEN)
    assert words(read_lines(path)) == words(PLAIN)
    assert [words(pair) for pair in TextPairs(path, path)] == [
        words(pair) for pair in zip(PLAIN, PLAIN, strict=True)
    ]


def test_a_folder_and_a_data_set_of_tfds_are_read_as_their_text_without_it(tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"{language}.train.txt").write_bytes(
            "".join(f"{line}\n" for line in GIVEN).encode()
        )
    folder = TfdsPairs(tmp_path, "train", "en", "de")
    assert words(source for source, _ in folder) == words(PLAIN)

    class Builder:
        class info:
            features, full_name = ("en", "de"), "given"

        def as_dataset(self, split):
            return tf.data.Dataset.from_tensor_slices({"en": GIVEN, "de": GIVEN})

    assert words(target for _, target in TfdsPairs(Builder(), "train", "en", "de")) == words(PLAIN)


def test_the_ids_are_those_of_the_text_without_it(tokenizer, as_file):
    expected = tokenizer.tokenize(PLAIN).to_list()
    assert tokenizer.tokenize(GIVEN).to_list() == expected
    for given_, plain, ids in zip(GIVEN, PLAIN, expected, strict=True):
        assert tokenizer.encode([given_]).ids.tolist() == ids, repr(given_)
        assert tokenizer.encode([given_.encode()]).ids.tolist() == ids, repr(given_)
        assert tokenizer.normalize(given_) == plain
    # `TextLineDataset` removes every `\r` before a tokenizer sees the line.
    path = str(as_file([line for line in GIVEN if "\r" not in line]))
    lines = tf.data.TextLineDataset(path, "GZIP" if path.endswith(".gz") else "")
    rest = [ids for line, ids in zip(GIVEN, expected, strict=True) if "\r" not in line]
    assert [ids.numpy().tolist() for ids in lines.map(tokenizer)] == rest
    corpus = Corpus.build(TextPairs(as_file(GIVEN), as_file(PLAIN, "plain")), tokenizer)
    assert corpus.pairs.ids.tolist() == [id_ for ids in expected for id_ in 2 * ids]


def test_a_vocabulary_is_learned_from_the_text_without_it(as_file):
    sides = [[*side, *VOCABULARY] for side in zip(*ALIKE, strict=True)]
    paths = [as_file(side, str(number)) for number, side in enumerate(sides)]
    given_, plain = (SubwordTokenizer.train(path, 350).to_bytes() for path in paths)
    assert given_ == plain


@pytest.mark.slow
def test_translations_and_scores_are_those_of_the_text_without_it(translator):
    given_, plain = GIVEN[::12], PLAIN[::12]  # all of them have the same ids, see above
    assert translator.translate(given_) == translator.translate(plain)
    assert translator.translate(given_, given_) == translator.translate(plain, plain)
    assert translator.score(given_, given_) == translator.score(plain, plain)


@pytest.mark.slow
def test_a_saved_model_translates_the_text_without_it(translator, tmp_path):
    exported = tf.saved_model.load(str(export_saved_model(translator, tmp_path)))
    translate = exported.signatures["serving_default"]
    given_, plain = (translate(tf.constant(lines))["translation"] for lines in (GIVEN, PLAIN))
    assert given_.numpy().tolist() == plain.numpy().tolist()


def test_ctranslate2_splits_the_text_without_it(translator, tmp_path):
    export_ctranslate2(translator.models[0], translator.tokenizer, tmp_path / "export")
    subwords = Subwords(tmp_path / "export")
    given_, plain = ([line.encode() for line in side] for side in (GIVEN, PLAIN))
    assert subwords.split_source(given_) == subwords.split_source(plain)
    given_, plain = ([line.encode() for line in side] for side in zip(*ALIKE, strict=True))
    assert subwords.split_target(given_) == subwords.split_target(plain)


def test_a_parser_reads_the_words_and_trees_without_it(tmp_path, as_file):
    trees = [f"(S (NP (DT A) (NN horse)){c}(VP (VBZ rides)))" for c in [" ", *SEPARATORS]]
    sentences = [sentence for sentence, _ in TreebankPairs([as_file(trees)], ParsingOptions())]
    assert sentences == ["A horse rides"] * len(trees)
    tokenizer = ParsingTokenizer.learn([("A A man man rides", "(S XX S)")], 100)
    assert tokenizer.tokenize(GIVEN).to_list() == tokenizer.tokenize(PLAIN).to_list()


@pytest.mark.slow
def test_a_parser_gives_the_trees_of_the_text_without_it():
    tokenizer = ParsingTokenizer.learn([("A A man man rides", "(S XX S)")], 100)
    parser = Parser(Translator(lively_model(1, 100), tokenizer, beam_size=1, extra_length=2))
    assert parser(GIVEN) == parser(PLAIN)


def test_a_perfect_translation_of_a_reference_with_one_has_bleu_100(as_file):
    references = [f"Ein Mann schläft auf dem {n}. Stuhl." for n in range(8)]
    for character in SEPARATORS:
        spoilt = [*references[:7], references[7].replace(" ", character, 1)]
        for given_ in (spoilt, list(read_lines(as_file(spoilt)))):
            scores = translation_scores(references, given_, "de")
            assert [score.value for score in scores.values()] == pytest.approx([100] * 5)


def test_no_translation_has_a_control_character():
    assert one_line("a\x1b[31m b\x9b\x85\r\x00c\u2028 d ") == "a [31m b c d"
