"""Repair: any symbols become a tree over the words."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.errors import UserError
from keras_transformer.parsing import (
    as_brackets,
    delinearize,
    format_tree,
    linearize,
    parse_tree,
    repair,
    word_symbols,
    words,
)
from keras_transformer.parsing.trees import Close, Leaf, Open

ANY = """
(S (NP (VP S) NP) VP) XX . `` '' : , ( ) (( )) () (S( a(b X)Y <unk> -NONE- / NN/2 (S(NP
"""
SYMBOLS = st.one_of(st.sampled_from(ANY.split()), st.text(max_size=6))
LABELS = st.sampled_from(["S", "NP", "VP", "ADVP|PRT", "-X-", "X/Y", "é"])
WORDS = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=5)


@st.composite
def trees(draw):
    """Any tree with one root and without empty constituents."""
    tree, depth = [], 0
    while depth or not tree:
        kind = draw(st.sampled_from(["open", "leaf", "close"] if depth else ["open"]))
        if kind == "open" and len(tree) < 40:
            tree.append(Open(draw(LABELS)))
            depth += 1
        elif kind == "leaf" or isinstance(tree[-1], Open):
            tree.append(Leaf(draw(st.sampled_from(["NN", ",", "-LRB-", "$"])), draw(WORDS)))
        else:
            tree.append(Close())
            depth -= 1
    return tuple(tree)


@pytest.mark.slow
@given(
    st.lists(SYMBOLS, max_size=60),
    st.lists(WORDS, min_size=1, max_size=12),
)
@settings(deadline=None, max_examples=300)
def test_any_symbols_become_one_tree_over_the_words(symbols, sentence):
    for text in (" ".join(symbols), as_brackets(" ".join(symbols))):
        tree = repair(text, sentence)
        assert words(tree) == sentence
        # A tree stays the same when written and read, except for brackets within words.
        read = parse_tree(format_tree(tree))
        assert linearize(read, keep_tags=True) == linearize(tree, keep_tags=True)
        assert delinearize(linearize(tree, keep_tags=True), sentence) == tree
        assert repair(text, sentence) == tree


@given(trees())
@settings(deadline=None, max_examples=100)
def test_what_is_well_formed_stays_as_it_is(tree):
    for symbols in (linearize(tree), linearize(tree, keep_tags=True)):
        assert repair(symbols, words(tree)) == delinearize(symbols, words(tree))
    assert delinearize(linearize(tree, keep_tags=True), words(tree)) == tree
    assert repair(as_brackets(word_symbols(tree)), words(tree)) == tree


@pytest.mark.parametrize(
    ("symbols", "sentence", "tree"),
    [
        ("", "a b", "(TOP (XX a) (XX b))"),
        ("NP) S) )", "a", "(TOP (XX a))"),
        ("XX", "a b", "(TOP (XX a) (XX b))"),
        # Too few and too many leaves.
        ("(S (NP XX NP) S)", "a b", "(S (NP (XX a)) (XX b))"),
        ("(S (NP XX XX NP) (VP XX VP) S)", "a b", "(S (NP (XX a) (XX b)))"),
        # Brackets that are not closed, that close more than one, that close nothing.
        ("(S (NP XX (PP XX", "a b c", "(S (NP (XX a) (PP (XX b))) (XX c))"),
        ("(S (NP (PP XX NP) XX S)", "a b", "(S (NP (PP (XX a))) (XX b))"),
        ("(S (NP XX VP) XX NP) S)", "a b", "(S (NP (XX a) (XX b)))"),
        ("(S (NP XX ) XX )", "a b", "(S (NP (XX a)) (XX b))"),
        ("(S (NP XX S) XX", "a b", "(S (NP (XX a)) (XX b))"),
        # Several roots.
        ("(NP XX NP) (VP XX VP)", "a b", "(NP (XX a) (VP (XX b)))"),
        ("XX (NP XX NP)", "a b", "(TOP (XX a) (NP (XX b)))"),
        # Empty constituents.
        ("(S (NP (X X) NP) (VP XX VP) S)", "a", "(S (VP (XX a)))"),
        # Symbols that cannot be a label or a tag.
        ("(S ( (() XX a(b X)Y S)", "a b c", "(S (XX a) (XX b) (XX c))"),
    ],
)
def test_repair_by_hand(symbols, sentence, tree):
    assert format_tree(repair(symbols, sentence.split())) == tree


def test_there_is_no_tree_over_nothing():
    with pytest.raises(UserError, match="words must have at least one word"):
        repair("(S XX S)", [])
