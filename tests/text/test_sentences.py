"""Every function that takes sentences accepts any iterable, or says what it expects."""

import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import lively_model

from keras_transformer.ctranslate2.subwords import Subwords
from keras_transformer.data import BuiltinPairs
from keras_transformer.documents.placeholders import PlaceholderTranslator
from keras_transformer.errors import UserError
from keras_transformer.evaluation import moses, translation_scores
from keras_transformer.parsing import Parser, ParsingTokenizer, parse_tree, words
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.sentences import as_list, as_text
from keras_transformer.translator import Translator

SENTENCES = ["The girls sleep.", "", "A horse!"]
PREFIXES = ["Die", "", "Ein Pferd"]


@pytest.fixture
def of_kind(tmp_path):
    """Sentences in every kind of iterable; most can be read only once."""

    def of_kind(kind, sentences):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.txt"  # an earlier one may still be open
        path.write_text("".join(f"{sentence}\n" for sentence in sentences), encoding="utf-8")
        return {
            "tuple": lambda: tuple(sentences),
            "generator": lambda: (sentence for sentence in sentences),
            "file": lambda: path.open(encoding="utf-8"),
            "file of bytes": lambda: path.open("rb"),
            "keys": lambda: dict.fromkeys(sentences).keys(),
            "array": lambda: np.array(sentences),
            "array of objects": lambda: np.array(sentences, object),
            "array of bytes": lambda: np.array([sentence.encode() for sentence in sentences]),
            "tensor": lambda: tf.constant(sentences),
        }[kind]()

    return of_kind


KINDS = [
    "tuple",
    "generator",
    "file",
    "file of bytes",
    "keys",
    "array",
    "array of objects",
    "array of bytes",
    "tensor",
]
any_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


@pytest.fixture(scope="module")
def translator(tokenizer):
    return Translator(lively_model(3, tokenizer.vocab_size), tokenizer, max_length=4, beam_size=2)


@pytest.fixture(scope="module")
def parser():
    tree = parse_tree("(S (NP (DT The) (NNS dogs)) (VP (VBD slept)) (. .))")
    pairs = [(" ".join(words(tree)), "(S (NP XX XX NP) (VP XX VP) . S)")]
    tokenizer = ParsingTokenizer.learn(pairs, vocab_size=60)
    return Parser(Translator(lively_model(1, tokenizer.vocab_size), tokenizer, extra_length=4))


@pytest.fixture(scope="module")
def of_lists(translator):
    """Translations of a list of sentences that begin with prefixes, and scores of the prefixes."""
    return translator.translate(SENTENCES, PREFIXES), translator.score(SENTENCES, PREFIXES)


@any_kind
def test_any_iterable_is_listed(of_kind, kind):
    listed = as_list(of_kind(kind, SENTENCES))
    assert all(type(sentence) in (str, bytes) for sentence in listed)
    assert [text.strip() for text in as_text(listed)] == SENTENCES


@pytest.mark.parametrize("kind", ["generator", "file of bytes", "array of bytes"])
def test_a_translator_takes_any_iterable(translator, of_lists, of_kind, kind):
    translations, scores = of_lists
    assert [bool(best.text) for best in translations] == [*map(bool, SENTENCES)]
    sentences, prefixes = (of_kind(kind, texts) for texts in (SENTENCES, PREFIXES))
    assert translator.translate(sentences, prefixes) == translations
    sentences, prefixes = (of_kind(kind, texts) for texts in (SENTENCES, PREFIXES))
    assert translator.score(sentences, prefixes) == scores


def test_alignments_are_of_any_iterable(translator):
    expected = translator.align(SENTENCES, PREFIXES)
    assert translator.align(iter(SENTENCES), np.array(PREFIXES)) == expected


@pytest.mark.slow
def test_a_parser_takes_any_iterable(parser, of_kind):
    sentences = ["The dogs slept .", "", "Dogs ."]
    expected = parser(sentences)
    assert expected[0].endswith(")") and not expected[1]
    for kind in ("generator", "file of bytes", "array"):
        assert parser(of_kind(kind, sentences)) == expected


@any_kind
def test_a_tokenizer_takes_any_iterable(tokenizer, of_kind, kind):
    found = tokenizer.encode(of_kind(kind, SENTENCES))
    expected = tokenizer.encode(SENTENCES)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.lengths, expected.lengths)


@any_kind
def test_translations_are_evaluated_of_any_iterable(of_kind, kind):
    hypotheses, references = (
        ["A horse !", "No", "The girls"],
        ["A horse!", "Yes", "The girls sleep."],
    )
    expected = translation_scores(hypotheses, references, "en")
    found = translation_scores(of_kind(kind, hypotheses), iter(references), "en")
    assert found == expected and found["chrf"].value > 1
    assert moses.tokenize(of_kind(kind, hypotheses), "en") == ["A horse !", "No", "The girls"]


TAKE_SENTENCES = {
    "translate": lambda translator, parser, value: translator(value),
    "prefixes": lambda translator, parser, value: translator.translate(["Yes"], value),
    "score": lambda translator, parser, value: translator.score(value, ["Ja"]),
    "translations": lambda translator, parser, value: translator.score(["Yes"], value),
    "align": lambda translator, parser, value: translator.align(value, ["Ja"]),
    "parse": lambda translator, parser, value: parser.parse(value),
    "encode": lambda translator, parser, value: translator.tokenizer.encode(value),
    "vocabulary": lambda translator, parser, value: SubwordTokenizer.train_from_sentences(
        value, 340
    ),
    "hypotheses": lambda translator, parser, value: translation_scores(value, ["Ja"]),
    "references": lambda translator, parser, value: translation_scores(["Ja"], value),
    "moses": lambda translator, parser, value: moses.tokenize(value, "en"),
}


@pytest.mark.parametrize("take", TAKE_SENTENCES)
@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("Yes", "found a single string"),
        (b"Yes", "found a single string"),
        (np.array("Yes"), "found a single string"),
        (5, "found int"),
        ([None], "found NoneType at index 0"),
        (np.array([["Yes"]]), "found list at index 0"),
        (lambda: iter(["Yes", 3.0]), "found float at index 1"),
    ],
    ids=lambda value: "an iterator" if callable(value) else repr(value),
)
def test_what_is_no_list_of_strings_is_refused_in_one_line(translator, parser, take, value, found):
    if callable(value):
        value = value()
    with pytest.raises(UserError, match="must be .*: " + found):
        TAKE_SENTENCES[take](translator, parser, value)


def test_bytes_that_are_not_utf_8_are_read_alike_on_all_paths(translator, tokenizer, tmp_path):
    lines = [b"Die M\xe4dchen \xff schlafen.", b"\xf0\x9f\x90 horse\xc3", "Die Mädchen".encode()]
    texts = [line.decode("utf-8", "replace") for line in lines]
    expected = [[one.text for one in some] for some in translator.translate_n(texts)]
    for one in (translator, PlaceholderTranslator(translator)):
        assert [[best.text for best in some] for some in one.translate_n(lines)] == expected
    assert translator.score(lines, lines) == translator.score(texts, texts)
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "config.json").write_text(json.dumps(special))
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(tokenizer.pieces))
    for name, model in tokenizer.sentencepiece_models.items():
        (tmp_path / name).write_bytes(model)
    subwords = Subwords(tmp_path)
    for is_target, in_graph, without_tensorflow in [
        (False, tokenizer.tokenize, subwords.split_source),
        (True, tokenizer.tokenize_target, subwords.split_target),
    ]:
        ids = tokenizer.encode(texts, is_target).ids
        np.testing.assert_array_equal(tokenizer.encode(lines, is_target).ids, ids)
        np.testing.assert_array_equal(in_graph(lines).flat_values, ids)
        split = [piece for pieces in without_tensorflow(lines) for piece in pieces]
        assert split == [tokenizer.pieces[id_] for id_ in ids]


def test_a_lone_surrogate_is_a_question_mark(translator, tokenizer):
    # Python strings may have them, for example the names of files that are not UTF-8.
    broken, mended = ["The girls \udcff sleep."], ["The girls ? sleep."]
    assert translator.translate(broken, broken) == translator.translate(mended, mended)
    assert translator.score(broken, broken) == translator.score(mended, mended)
    np.testing.assert_array_equal(tokenizer.encode(broken).ids, tokenizer.encode(mended).ids)
    assert translation_scores(broken, mended, "en")["bleu_paper"].value == pytest.approx(100)
    text = list(BuiltinPairs("train", 300).sentences())
    first, second = (
        SubwordTokenizer.train_from_sentences(text + sentences, 340)
        for sentences in (broken, mended)
    )
    assert first.to_bytes() == second.to_bytes()


def test_a_list_is_a_copy():
    sentences = ["Yes"]
    as_list(sentences).append("No")
    assert sentences == ["Yes"]
