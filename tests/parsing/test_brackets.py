"""Bracket scores: EVALB's with COLLINS.prm, each convention by hand."""

from collections import Counter

import evalb_trees
import pytest

from keras_transformer.errors import UserError
from keras_transformer.parsing import parse_tree
from keras_transformer.parsing.brackets import brackets, format_bracket_scores, score_trees

GOLD = "(S (NP (NNS Dogs)) (VP (VBP chase) (NP (NNS cats))) (. .))"  # S, NP, VP, NP


def spans(text):
    return brackets(parse_tree(text)).spans


def scores(*pairs):
    parsed, references = zip(*pairs, strict=True)
    return score_trees(
        [None if text is None else parse_tree(text) for text in parsed],
        list(map(parse_tree, references)),
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Preterminals are no brackets; spans are of words, from 0 on.
        ("(NP (DT a) (NN b))", {("NP", 0, 2): 1}),
        # With a punctuation tag, its word is deleted, so later spans move up.
        ("(S (, ,) (NP (NN a)) (, ,) (NN b) (. .))", {("S", 0, 2), ("NP", 0, 1)}),
        ("(S (`` ``) (NN a) ('' '') (: :) (VP (VB b)))", {("S", 0, 2), ("VP", 1, 2)}),
        # The tag counts, not the word.
        ("(NP (NN .) (NN ,))", {("NP", 0, 2)}),
        ("(NP (, a) (NN b))", {("NP", 0, 1)}),
        ("(NP (TOP a) (NN b))", {("NP", 0, 1)}),
        # Deleted labels lose their brackets, but not their words.
        ("(NP (: (NN a) (NN b)) (NN c))", {("NP", 0, 3)}),
        # Other punctuation marks are words.
        ("(NP ($ $) (CD 5) (-LRB- -LRB-) (-RRB- -RRB-) (# #))", {("NP", 0, 5)}),
        # Traces are deleted, and so are all constituents that become empty.
        ("(S (NP (-NONE- *)) (VP (VB go)))", {("S", 0, 1), ("VP", 0, 1)}),
        ("(S (PRN (X (, ,)) (: --)) (VP (VB go)))", {("S", 0, 1), ("VP", 0, 1)}),
        # The bracket around the sentence, whatever its label, and TOP anywhere.
        ("(TOP (NP (NN a)))", {("NP", 0, 1)}),
        ("( (NP (NN a)))", {("NP", 0, 1)}),
        ("(ROOT (NP (NN a)))", {("NP", 0, 1)}),
        ("(S1 (NP (NN a)))", {("NP", 0, 1)}),
        ("(NP (TOP (NN a)))", {("NP", 0, 1)}),
        # Functions and indices are stripped from labels, not from tags or labels that begin with -.
        ("(NP-SBJ-1 (NN a))", {("NP", 0, 1)}),
        ("(NP=2 (NN a))", {("NP", 0, 1)}),
        ("(-X-Y (NN a))", {("-X-Y", 0, 1)}),
        ("(NP (,-X ,) (NN a))", {("NP", 0, 2)}),
        # ADVP is PRT.
        ("(VP (PRT (RP up)))", {("VP", 0, 1), ("ADVP", 0, 1)}),
        ("(VP (PRT|ADVP (RP up)))", {("VP", 0, 1), ("PRT|ADVP", 0, 1)}),
        # The same span may come several times.
        ("(NP (NP (NN a)))", {("NP", 0, 1): 2}),
        ("(NP (NP (NN a)) (. .))", {("NP", 0, 1): 2}),
    ],
)  # fmt: skip
def test_what_is_a_bracket(text, expected):
    assert spans(text) == Counter(expected)


@pytest.mark.parametrize(
    ("parsed", "matched", "found", "expected"),
    [
        (GOLD, 4, 4, 4),
        # One label wrong.
        ("(S (NP (NNS Dogs)) (VP (VBP chase) (PP (NNS cats))) (. .))", 3, 4, 4),
        # One bracket too few, one too many.
        ("(S (NP (NNS Dogs)) (VP (VBP chase) (NNS cats)) (. .))", 3, 3, 4),
        ("(S (NP (NP (NNS Dogs))) (VP (VBP chase) (NP (NNS cats))) (. .))", 4, 5, 4),
        # Neither tags nor the attachment of punctuation is scored.
        ("(S (NP (X Dogs)) (VP (X chase) (NP (X cats)) (. .)))", 4, 4, 4),
        # A tree without brackets, and one with other spans.
        ("(TOP (X Dogs) (X chase) (X cats) (. .))", 0, 0, 4),
        ("(S (NP (X Dogs) (X chase)) (X cats) (. .))", 1, 2, 4),
        # No tree at all: no recall, and nothing that lowers precision.
        (None, 0, 0, 4),
        # Other words are deleted: not comparable, so all brackets are wrong.
        ("(S (NP (NNS Dogs)) (VP (VBP chase) (NP (NNS cats))) (NN .))", 0, 4, 4),
        ("(S (NP (NNS Dogs)) (VP (VBP chase) (NP (, cats))) (. .))", 0, 3, 4),
    ],
)
def test_what_is_matched(parsed, matched, found, expected):
    counted = scores((parsed, GOLD))
    assert (counted.matched, counted.found, counted.expected) == (matched, found, expected)
    assert counted.recall == pytest.approx(100 * matched / expected)
    assert counted.precision == pytest.approx(100 * matched / found if found else 0)
    total = 2 * matched / (found + expected)
    assert counted.f1 == pytest.approx(100 * total)
    assert counted.exact == (matched == found == expected)


def test_repeated_spans_are_matched_once_each():
    thrice, twice = "(NP (NP (NP (NN a))))", "(NP (NP (NN a)))"
    assert scores((thrice, twice)).matched == scores((twice, thrice)).matched == 2
    assert scores(("(NP (PP (NP (NN a))))", thrice)).matched == 2


def test_figures_are_of_all_brackets_together_and_no_sentence_is_skipped():
    counted = scores(
        (GOLD, GOLD),  # 4 of 4 of 4
        ("(NP (NN a) (NN b))", "(NP (NP (NN a)) (NN b))"),  # 1 of 1 of 2
        (None, "(NP (NN a))"),  # 0 of 0 of 1
    )
    assert counted.figures() == {
        "f1": pytest.approx(100 * 10 / 12),
        "recall": pytest.approx(100 * 5 / 7),
        "precision": 100.0,
        "exact_match": pytest.approx(100 / 3),
        "sentences": 3,
        "failed": 1,
        "exact": 1,
        "matched": 5,
        "found": 5,
        "expected": 7,
    }


def test_a_sentence_without_a_scored_bracket_counts_as_a_sentence():
    counted = scores(("(TOP (. .))", "(X (. .))"))
    assert (counted.sentences, counted.exact, counted.f1) == (1, 1, 0.0)


def test_a_sentence_without_a_tree_has_failed_even_if_nothing_is_scored():
    counted = scores((None, "(X (. .))"))
    assert (counted.sentences, counted.failed, counted.exact) == (1, 1, 0)


def test_the_figures_print_as_a_table():
    long = "(NP" + " (NN a)" * 41 + ")"
    pairs = [(GOLD, GOLD), (None, "(NP (NN a))"), (long, long)]
    parsed, references = zip(*pairs, strict=True)
    trees = [text and parse_tree(text) for text in parsed]
    table = format_bracket_scores(trees, [parse_tree(text) for text in references])
    assert table.splitlines() == [
        "    F1  recall  precision  exact match",
        " 90.91   83.33     100.00        66.67  3 sentences, 1 without a comparable tree",
        " 88.89   80.00     100.00        50.00  2 sentences of at most 40 words, "
        "1 without a comparable tree",
    ]
    assert format_bracket_scores(trees[:1], [parse_tree(GOLD)]).endswith(
        "1 sentences of at most 40 words"
    )
    thousand = format_bracket_scores([None] * 1000, [parse_tree("(NP (NN a))")] * 1000)
    assert thousand.endswith("1,000 sentences of at most 40 words, 1,000 without a comparable tree")


def test_short_sentences_are_counted_with_punctuation_and_without_traces():
    forty = "(S" + " (NN a)" * 38 + " (, ,) (. .) (-NONE- *))"
    more = "(S" + " (NN a)" * 39 + " (, ,) (. .))"
    trees = [parse_tree(forty), parse_tree(more)]
    assert score_trees(trees, trees, max_words=40).sentences == 1
    assert "1 sentences of at most 40 words" in format_bracket_scores(trees, trees)


def test_trees_of_other_words_are_refused():
    with pytest.raises(
        UserError, match=r"^sentence 1: the tree must have the words 'a' .*: found 'b'$"
    ):
        scores(("(NP (NN b))", "(NP (NN a))"))
    with pytest.raises(
        UserError, match="parsed and references must have the same length: found 0 and 1"
    ):
        score_trees([], [parse_tree(GOLD)])
    with pytest.raises(
        UserError, match="parsed and references must have the same length: found 2 and 1"
    ):
        score_trees([parse_tree(GOLD)] * 2, [parse_tree(GOLD)])


def test_trees_are_compared_word_by_word_and_not_by_their_number():
    # Both lose one word and keep two, but not the same ones: "(a c)" and "(b c)".
    counted = scores(("(S (NN a) (, b) (NN c))", "(S (, a) (NN b) (NN c))"))
    assert (counted.failed, counted.exact, counted.matched) == (1, 0, 0)


def test_corrupted_trees_have_the_figures_that_evalb_prints():
    found = [evalb_trees.ours(seed) for seed in range(evalb_trees.RECORDED)]
    assert found == evalb_trees.recorded()


def test_the_corrupted_trees_try_every_outcome():
    figures = evalb_trees.recorded()
    left_out = [pair for pair in figures if pair.is_left_out]
    perfect = [pair for pair in figures if pair.matched == pair.expected == pair.found > 0]
    assert min(len(left_out), len(perfect), len(figures) - len(left_out) - len(perfect)) > 30
