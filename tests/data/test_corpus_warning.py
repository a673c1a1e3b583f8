"""The warning of `train` about text files that should be cleaned first."""

import pytest

from keras_transformer.data import BuiltinPairs, TextPairs
from keras_transformer.data.corpus_warning import corpus_warning

SOUND = list(dict.fromkeys(BuiltinPairs("train", 400)))[:200]


def text_pairs(folder, pairs, name="train"):
    for language, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
        (folder / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side))
    return TextPairs(folder / f"{name}.en", folder / f"{name}.de")


@pytest.fixture
def warning(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def warning(pairs, valid=None):
        files = text_pairs(tmp_path, pairs)
        return corpus_warning(files, valid and text_pairs(tmp_path, valid, "valid"))

    return warning


def test_a_sound_corpus_needs_no_warning(warning):
    assert warning(SOUND) is None
    assert warning(SOUND, [("A new line.", "Eine neue Zeile.")]) is None


@pytest.mark.parametrize(
    ("pair", "what"),
    [
        (SOUND[0], "3 repeated"),
        (("", "Ja"), "3 empty on a side"),
        (("Yes " * 30, "Ja"), "3 of very different lengths"),
        (("Größe ist OK", "größe ist ok"), "3 copied from the source"),
    ],
)
def test_more_than_one_in_a_hundred_pairs_is_too_many(warning, pair, what):
    assert what in warning(SOUND + [pair] * 3)
    assert warning([*SOUND, pair]) is None


def test_the_warning_has_counts_and_the_command_that_shows_more(warning, tmp_path):
    pairs = [*SOUND, *SOUND[:20], ("Yes", "Yes"), (" ", "")]
    assert warning(pairs, [SOUND[3], ("New.", SOUND[4][1]), ("New.", "Neu.")]) == (
        f"Warning: {tmp_path}/train.en, {tmp_path}/train.de: 22 pairs (9.9%) are suspicious "
        "(1 empty on a side, 1 copied from the source, 20 repeated); "
        "training lines are in 2 of 3 validation pairs: see keras-transformer corpus "
        f"--source={tmp_path}/train.en --target={tmp_path}/train.de "
        f"--valid_source={tmp_path}/valid.en --valid_target={tmp_path}/valid.de"
    )


def test_one_validation_line_in_the_training_set_is_enough(warning):
    said = warning(SOUND, [(f" {SOUND[3][0]} ", "Etwas Neues.")])
    assert "training lines are in 1 of 1 validation pairs" in said and "suspicious" not in said


def test_files_that_were_mixed_up_are_named(warning, tmp_path):
    sources, targets = zip(*dict.fromkeys(BuiltinPairs("train", 1500)), strict=True)
    valid = [pair[::-1] for pair in BuiltinPairs("validation", 20)]
    assert warning([*zip(sources, targets[1:], strict=False)], valid).startswith(
        f"Warning: {tmp_path}/train.en, {tmp_path}/train.de: from about pair 1 on, source n + 1 "
        f"seems to go with target n; source and target of {tmp_path}/valid.en, "
        f"{tmp_path}/valid.de seem to be exchanged: see keras-transformer corpus"
    )


def test_the_command_has_patterns_as_they_were_given(tmp_path):
    text_pairs(tmp_path, SOUND * 2)
    pairs = TextPairs(f"{tmp_path}/tr*.en", f"{tmp_path}/tr*.de")
    said = corpus_warning(pairs, None)
    assert said.endswith(f"corpus '--source={tmp_path}/tr*.en' '--target={tmp_path}/tr*.de'")


def test_a_corpus_without_pairs_needs_no_warning(tmp_path):
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("")
    assert corpus_warning(TextPairs(tmp_path / "a.en", tmp_path / "a.de"), None) is None
