"""Confidence intervals and the paired bootstrap: sacreBLEU's figures, in a table."""

import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.errors import UserError
from keras_transformer.evaluation import bootstrap_scores, format_comparison, format_margins

REFERENCES = [german for _, german in builtin_pairs("test", 60)]
GOOD = [line.replace("ein ", "eine ") for line in REFERENCES]
POOR = [line.rsplit(" ", 1)[0] for line in REFERENCES]


def estimates(*systems):
    return bootstrap_scores(systems, REFERENCES, "de")


def test_figures_are_those_of_sacrebleus_command_with_paired_bs():
    metrics = {"BLEU": BLEU(trg_lang="de"), "chrF2": CHRF()}
    signatures, scores = PairedTest([("a", GOOD), ("b", POOR)], metrics, [REFERENCES], "bs")()
    good, poor = estimates(GOOD, POOR)
    for key, name in (("BLEU", "bleu"), ("chrF2", "chrf")):
        for ours, theirs in zip((good[name], poor[name]), scores[key], strict=True):
            found = (ours.value, ours.mean, ours.margin, ours.p_value, ours.signature)
            assert found == (
                theirs.score,
                theirs.mean,
                theirs.ci,
                theirs.p_value,
                str(signatures[key]),
            )
        assert good[name].p_value is None


def test_several_references_are_compared_with_as_sacrebleu_does():
    references = [REFERENCES, [line.replace("der ", "die ") for line in GOOD]]
    metrics = {"BLEU": BLEU(trg_lang="de")}
    _, scores = PairedTest([("a", GOOD), ("b", POOR)], metrics, references, "bs")()
    found = [each["bleu"] for each in bootstrap_scores([GOOD, POOR], references, "de")]
    assert [(each.value, each.mean, each.margin, each.p_value) for each in found] == [
        (each.score, each.mean, each.ci, each.p_value) for each in scores["BLEU"]
    ]
    assert found[0].signature.startswith("nrefs:2|bs:1000|")
    assert found[0].value > estimates(GOOD)[0]["bleu"].value
    with pytest.raises(UserError, match=r"there must be 60 hypotheses, one for each .*: found 59"):
        bootstrap_scores([GOOD[1:]], references)


def test_a_system_equals_itself_and_differs_from_a_poor_one():
    _, same, poor = estimates(GOOD, list(GOOD), POOR)
    assert {each.p_value for each in same.values()} == {1.0}  # where sacreBLEU says 0.001
    assert max(each.p_value for each in poor.values()) < 0.01


def test_the_seed_is_sacrebleus(monkeypatch):
    assert "seed:12345" in estimates(GOOD)[0]["bleu"].signature
    usual = estimates(GOOD)
    assert estimates(GOOD) == usual
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    other = estimates(GOOD)
    assert "seed:7" in other[0]["bleu"].signature
    assert other[0]["bleu"].mean != usual[0]["bleu"].mean
    assert other[0]["bleu"].value == usual[0]["bleu"].value
    for mistake in ("seven", "-1", ""):
        monkeypatch.setenv("SACREBLEU_SEED", mistake)
        with pytest.raises(UserError, match=r"^SACREBLEU_SEED must be an integer of at least 0"):
            estimates(GOOD)


def test_lines_must_be_as_many_as_references_and_fit_into_memory():
    with pytest.raises(UserError, match=r"there must be 60 hypotheses, one for each .*: found 59"):
        estimates(GOOD[1:])
    with pytest.raises(UserError, match="at most 20,000 references: found 20,001"):
        bootstrap_scores([["a"] * 20_001], ["a"] * 20_001)


def test_a_comparison_prints_as_a_table_with_a_column_for_each_score():
    good, poor = estimates(GOOD, POOR)
    labels, *rows = format_comparison(("runs/good", "poor.de"), good, poor).splitlines()
    assert labels.split("  ")[-1].strip() == "chrF"
    assert [row.rsplit("  ", 1)[1] for row in rows] == [
        "runs/good",
        "poor.de",
        "difference",
        "p of the paired bootstrap",
    ]
    assert f"{good['bleu'].value:.2f} ± {good['bleu'].margin:.2f}" in rows[0]
    assert f"{good['bleu'].value - poor['bleu'].value:+.2f}" in rows[2]
    assert len({row.rindex("  ") for row in rows}) == 1


def test_margins_of_one_system_are_one_line(caplog):
    [line] = format_margins(estimates(GOOD)[0]).splitlines()
    assert line.strip().startswith("95% confidence (bootstrap): sacreBLEU ± ")
    assert not caplog.records  # sacreBLEU logs its progress
