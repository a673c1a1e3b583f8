"""Trees: the Penn Treebank's notation, normalization, trees as symbols and back."""

import gzip
import os
from pathlib import Path

import pytest

from keras_transformer.errors import UserError
from keras_transformer.parsing import (
    as_brackets,
    delinearize,
    format_tree,
    linearize,
    normalize,
    normalized_trees,
    parse_tree,
    read_trees,
    word_symbols,
    words,
)

DOGS = "(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))"


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "trees.mrg"
        path.write_text(text)
        return path

    return write


@pytest.fixture(scope="module")
def treebank():
    root = os.environ.get("KERAS_TRANSFORMER_DATA")
    folder = Path(root or ".") / "wsj"
    if not root or not folder.is_dir():
        pytest.skip("KERAS_TRANSFORMER_DATA is not set to a folder with wsj/train.mrg and dev.mrg")
    return [tree for name in ("train", "dev") for tree in normalized_trees(folder / f"{name}.mrg")]


def read(path):
    return [format_tree(tree) for tree in read_trees(path)]


# Reading


def test_a_tree_over_several_lines_and_several_on_one(write):
    path = write(f"( (S\n  (NP (NNS Dogs))\n\n (VP (VBP bark)) (. .) ))\n{DOGS} {DOGS}\n")
    assert read(path) == [f"( {DOGS})", DOGS, DOGS]


def test_comments_between_trees_are_skipped(write):
    assert read(write(f"*x* Copyright (c) 1995\n*x*)(\n{DOGS}\n")) == [DOGS]


@pytest.mark.parametrize("word", ["-LRB-", r"1\/2", r"\*", "''", "=", "é", "a-b=c"])
def test_words_stay_as_they_are_written(write, word):
    path = write(f"(NP (NN {word}))")
    assert [words(tree) for tree in read_trees(path)] == [[word]]


def test_brackets_within_words_are_escaped_when_written():
    tree = delinearize("(NP XX NP)", ["(a)"])
    assert format_tree(tree) == "(NP (XX -LRB-a-RRB-))"


def test_a_gzip_file_is_read(tmp_path):
    path = tmp_path / "trees.mrg.gz"
    path.write_bytes(gzip.compress(DOGS.encode()))
    assert read(path) == [DOGS]


def test_an_empty_file_holds_no_tree(write):
    assert read(write("\n")) == []


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("(S (NP (NNS Dogs))\n\n", 2, "the end of the file, 1 brackets open"),
        (f"{DOGS}\n)", 2, "expected an opening bracket, found ')'"),
        (f"{DOGS}\nDogs", 2, "expected an opening bracket, found 'Dogs'"),
        ("(S\n(NP Dogs bark))", 2, "the word 'bark' that has no tag of its own"),
        ("(S (NP (NNS Dogs)\n bark))", 2, "the word 'bark' that has no tag of its own"),
        ("(S (NP\n))", 2, "expected a word or a bracket, found (NP) with nothing in it"),
        ("(S (NP ()))", 1, "expected a word or a bracket, found () with nothing in it"),
        ("(S (NN Dogs (X x)))", 1, "expected a closing bracket behind a word"),
        ("( () )", 1, "with nothing in it"),
    ],
)
def test_what_is_no_tree_is_refused_with_its_line(write, text, line, problem):
    path = write(text)
    with pytest.raises(UserError) as error:
        read(path)
    assert str(error.value).startswith(f"{path}:{line}: ")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", f"{DOGS} {DOGS}"])
def test_parse_tree_wants_one(text):
    with pytest.raises(UserError, match="the text must hold one tree"):
        parse_tree(text)


def test_a_tree_may_be_deeper_than_python_recurses():
    text = "(NP " * 50_000 + "(NN dog)" + ")" * 50_000
    tree = parse_tree(text)
    assert format_tree(normalize(tree)) == text
    assert delinearize(linearize(tree, keep_tags=True), ["dog"]) == tree
    assert word_symbols(tree) == "(NP" * 50_000 + " NN/50000"


# Normalisation


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        # Functions, indices and gaps are stripped, unless the label begins with a hyphen.
        ("(S (NP-SBJ-1 (NN a)) (NP=2 (NN b)))", "(S (NP (NN a)) (NP (NN b)))"),
        ("(NP|X-Y=3 (-LRB- -LRB-) (NN a))", "(NP|X (-LRB- -LRB-) (NN a))"),
        # Traces are removed, and every constituent that becomes empty.
        ("(S (NP (-NONE- *-1)) (VP (VB go)))", "(S (VP (VB go)))"),
        ("(S (SBAR (-NONE- 0) (S (NP (-NONE- *T*)))) (VP (VB go)))", "(S (VP (VB go)))"),
        # The bracket around the sentence is removed.
        (f"( {DOGS})", DOGS),
        (f"(TOP {DOGS})", DOGS),
        (f"(ROOT ( {DOGS}))", DOGS),
        (f"(S1 {DOGS})", DOGS),
        ("( (NP (NN a)) (. .))", "(TOP (NP (NN a)) (. .))"),
        ("( (NN a))", "(TOP (NN a))"),
        ("(NN a)", "(TOP (NN a))"),
        # Brackets without a label, anywhere.
        ("( (S (X ( (NP (NN a)) ( (, ,))) (VP (VB b)))))", "(S (X (NP (NN a)) (, ,) (VP (VB b))))"),
        ("( ( (NN a)) (NN b))", "(TOP (NN a) (NN b))"),
        ("(TOP (X (-NONE- 0)) (NP (NN a)))", "(NP (NN a))"),
        # A constituent within one of the same label stays, because EVALB counts both.
        ("(NP (NP (NN a)))", "(NP (NP (NN a)))"),
    ],
)
def test_normalisation(written, normal):
    tree = normalize(parse_tree(written))
    assert format_tree(tree) == normal
    assert normalize(tree) == tree


def test_a_tree_of_traces_alone_is_refused_with_its_line(write):
    path = write(f"{DOGS}\n( (S (NP (-NONE- *))\n))")
    with pytest.raises(UserError, match=f"{path}:2: the tree has only traces, no words"):
        list(normalized_trees(path))


# Trees as symbols


def test_linearisation_is_the_papers():
    assert linearize(parse_tree(DOGS)) == "(S (NP XX NP) (VP XX VP) . S)"
    assert linearize(parse_tree(DOGS), keep_tags=True) == "(S (NP NNS NP) (VP VBP VP) . S)"


def test_two_symbols_a_word():
    assert word_symbols(parse_tree(DOGS)) == "(S(NP NNS/1 (VP VBP/1 ( ./1"
    assert as_brackets("(S(NP NNS/1 (VP VBP/1 ( ./1") == "(S (NP NNS NP) (VP VBP VP) . S)"


@pytest.mark.parametrize("symbols", ["(S", "/1", "( ( (", "NN/9999999999", "(S(( NN/3 x) <unk>"])
def test_two_symbols_a_word_may_be_any(symbols):
    as_brackets(symbols)


@pytest.mark.parametrize(
    ("symbols", "count"),
    [
        ("", 1),
        ("(NP XX", 1),
        ("(NP XX NP)", 2),
        ("(NP XX XX NP)", 1),
        ("(NP XX VP)", 1),
        ("(NP NP)", 0),
        ("XX", 1),
        ("NP)", 0),
        ("(NP XX NP) (NP XX NP)", 2),
        ("(NP XX NP) NP)", 1),
    ],
)
def test_the_inverse_refuses_what_is_no_tree_over_the_words(symbols, count):
    with pytest.raises(UserError):
        delinearize(symbols, ["dog"] * count)


@pytest.mark.slow
def test_the_inverse_is_exact_on_every_tree_of_the_treebank(treebank):
    assert len(treebank) == 3396 + 273
    for tree in treebank:
        assert delinearize(linearize(tree, keep_tags=True), words(tree)) == tree
        assert as_brackets(word_symbols(tree)) == linearize(tree, keep_tags=True)
        assert parse_tree(format_tree(tree)) == tree
        without_tags = delinearize(linearize(tree), words(tree))
        assert linearize(without_tags) == linearize(tree)
        assert words(without_tags) == words(tree)
