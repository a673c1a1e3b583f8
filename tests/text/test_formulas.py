"""Raised and lowered parts are formulas, marks of notes, or words."""

import pytest

from keras_transformer.text.formulas import Part, find_formulas, is_note


@pytest.mark.parametrize(
    ("before", "part", "after", "formula"),
    [
        ("up to 2", "31", "-1", "231"),
        ("1,000.5", "2", "", "1,000.52"),
        ("10", "-6", " m", "10-6"),
        ("5 km", "2", "", "km2"),
        ("x", "n", "", "xn"),
        ("Ca", "2+", " ions", "Ca2+"),
        ("in 2019", "[1]", "", None),
        ("Vitamin C", "[2]", "", None),
        ("M", "me", " Dupont", None),
        ("10", "th", " floor", None),
        ("house", "1", "", None),
        ("He", "1", " says", None),
        ("see", "2", "", None),
        ("", "1", " a", None),
        ("a.", "1", "", None),
    ],
)
def test_raised_parts(before, part, after, formula):
    text, start = before + part + after, len(before)
    found = find_formulas(text, [Part("sup", start, start + len(part))])
    assert [text[slice(*span)] for span in found] == ([formula] if formula else [])


@pytest.mark.parametrize(
    ("text", "parts", "formulas"),
    [
        ("H2O", ["2"], ["H2O"]),
        ("a Na2SO4 and log2 n", ["2", "4", "2"], ["Na2SO4", "log2"]),
        ("a house2", ["2"], []),
        ("NH4+", ["4", "+"], ["NH4+"]),
    ],
)
def test_lowered_parts(text, parts, formulas):
    lowered, at = [], 0
    for part in parts:
        start = text.index(part, at)
        at = start + len(part)
        lowered.append(Part("sub", start, at))
    assert [text[slice(*span)] for span in find_formulas(text, lowered)] == formulas


@pytest.mark.parametrize(
    ("before", "part", "expected"),
    [
        ("a house", "1", True),
        ("a word.", "[2, 3]", True),
        ("He", "*", True),
        ("WHO", "(a)", True),
        ("10", "6", False),
        ("m", "2", False),
        ("the 10", "th", False),
        ("au XIX", "e", False),
        ("le 2", "e", False),
        ("of ", "14", False),
        ("in 2019.", "[1]", True),
        ("a", "long text", False),
    ],
)
def test_marks_of_notes(before, part, expected):
    assert is_note(before, part) is expected
