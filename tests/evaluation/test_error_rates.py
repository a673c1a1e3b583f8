"""Exact matches and word errors, beside counts by hand and an edit distance of words."""

import pytest

from keras_transformer.errors import UserError
from keras_transformer.evaluation import error_rates

RIGHT = ["HH AH0 L OW1", "K AE1 T", "D AO1 G Z"]


def edits(output, right):
    """The fewest words to insert, delete or replace."""
    row = [*range(len(right) + 1)]
    for number, word in enumerate(output, 1):
        before, row = row, [number]
        for column, other in enumerate(right, 1):
            row.append(min(before[column] + 1, row[-1] + 1, before[column - 1] + (word != other)))
    return row[-1]


@pytest.mark.parametrize(
    "outputs",
    [
        RIGHT,
        ["HH AH0 L OW1", "K AE1 D", "D AO1 G"],
        ["", "K AE1 T T", "G Z"],
        ["hh ah0 l ow1", "K  AE1 T ", "D AO1 G Z Z Z"],
    ],
)
def test_rates_are_those_counted_by_hand(outputs):
    rates = error_rates(outputs, RIGHT)
    pairs = [(output.split(), right.split()) for output, right in zip(outputs, RIGHT, strict=True)]
    assert rates["exact_match"].value == 100 * sum(a == b for a, b in pairs) / 3
    assert rates["ter"].value == pytest.approx(100 * sum(edits(*pair) for pair in pairs) / 11)


def test_any_reference_may_be_met():
    rates = error_rates(["a b", "c"], [["a b", "d"], ["x", "c"]])
    assert rates["exact_match"].value == 100
    assert rates["exact_match"].signature == "nrefs:2|case:mixed"
    assert rates["ter"].value == 0


def test_case_and_characters_count_where_they_say_something():
    rates = error_rates(["Ein Hund"], ["ein hund"], lowercase=True)
    assert (rates["exact_match"].value, rates["ter"].value) == (100, 0)
    assert rates["exact_match"].signature == "nrefs:1|case:lc"
    for code in ("zh", "zh-cn", "jpn"):
        assert error_rates(["你好世界"], ["你好世界啊"], code)["ter"].value == 20


@pytest.mark.parametrize(("outputs", "references"), [([], []), (["a"], ["a", "b"])])
def test_what_cannot_be_scored_is_refused(outputs, references):
    with pytest.raises(UserError, match="hypotheses"):
        error_rates(outputs, references)
