"""Files that were mixed up are noticed: slipped lines, and source and target exchanged."""

import numpy as np
import pytest

from keras_transformer.data import BuiltinPairs, TextPairs
from keras_transformer.data.mixed_up import exchanged, slipped

PAIRS = [*BuiltinPairs("train", 2600)]
LENGTHS = np.array([[len(text) for text in side] for side in zip(*PAIRS, strict=True)])


def without(row, *lines):
    """The lengths, where some lines of one side are missing."""
    size = LENGTHS.shape[1] - len(lines)
    sides = [np.delete(side, lines if row == n else [])[:size] for n, side in enumerate(LENGTHS)]
    return np.stack(sides)


def test_parallel_lines_have_not_slipped():
    assert slipped(LENGTHS) is None
    assert slipped(LENGTHS[:, :500]) is None


@pytest.mark.parametrize(
    ("lengths", "where"),
    [
        (without(0, 0), "from about pair 1 on, source n seems to go with target n + 1"),
        (without(1, 0), "from about pair 1 on, source n + 1 seems to go with target n"),
        (without(1, 1100), "from about pair 1,001 on, source n + 1 seems to go with target n"),
        (without(1, 0, 9, 12), "from about pair 1 on, source n + 3 seems to go with target n"),
    ],
)
def test_lines_after_a_missing_one_have_slipped(lengths, where):
    assert slipped(lengths) == where


@pytest.mark.parametrize(
    "lengths",
    [
        np.stack([LENGTHS[0], np.random.default_rng(0).permutation(LENGTHS[1])]),
        np.stack([LENGTHS[0], np.full_like(LENGTHS[0], 7)]),  # labels
        np.sort(LENGTHS),
        np.stack([LENGTHS[0], LENGTHS[0].max() + 1 - LENGTHS[0]]),  # long questions, short answers
        np.zeros((2, 0), int),
        np.ones((2, 1), int),
        LENGTHS[:, :50],
    ],
)
def test_where_lengths_say_nothing_nothing_is_said(lengths):
    assert slipped(lengths) is None


def files(folder, pairs, *names):
    for name, side in zip(names, zip(*pairs, strict=True), strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in side))
    return TextPairs(*(folder / name for name in names))


def test_exchanged_files_have_the_words_of_the_other_side(tmp_path):
    train = files(tmp_path, PAIRS[:500], "train.en", "train.de")
    right = files(tmp_path, PAIRS[500:520], "a.en", "a.de")
    wrong = TextPairs(tmp_path / "a.de", tmp_path / "a.en")
    assert exchanged(train, [right, wrong, right]) == [wrong]
    assert exchanged(train, []) == []


def test_both_directions_copies_and_unknown_words_are_not_exchanged(tmp_path):
    pairs = PAIRS[:200]
    both = files(tmp_path, [*pairs, *(pair[::-1] for pair in pairs)], "b.source", "b.target")
    valid = files(tmp_path, PAIRS[200:220], "v.en", "v.de")
    assert exchanged(both, [valid]) == []
    copies = files(tmp_path, [(source, source) for source, _ in pairs], "c.source", "c.target")
    assert exchanged(copies, [files(tmp_path, [(s, s) for s, _ in pairs], "d.s", "d.t")]) == []
    unknown = files(tmp_path, [("xyzzy", "plugh"), ("", "")], "u.s", "u.t")
    assert exchanged(both, [unknown]) == []
