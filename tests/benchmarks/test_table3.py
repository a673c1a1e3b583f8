"""The benchmark of Table 3: each row is trained once, and compared with the paper."""

import json
import math
import runpy

import pytest
from absl import flags
from command_lines import FEW_STEPS, arguments, refused, run
from helpers import ROOT

from keras_transformer import PRESETS
from keras_transformer.training import ModelDir
from tests.cli.test_command_lines import corpus  # noqa: F401 (a fixture)

SCRIPT = "benchmarks/table3.py"


@pytest.fixture(scope="module")
def table3():
    """The names that the script defines, without its flags."""
    known = set(flags.FLAGS)
    module = runpy.run_path(str(ROOT / SCRIPT))
    for name in set(flags.FLAGS) - known:
        delattr(flags.FLAGS, name)
    return module


def figures(perplexities, seed=1):
    return {
        (row, seed): {"perplexity": perplexity, "bleu": 20.0, "parameters": 1.5}
        for row, perplexity in perplexities.items()
    }


def test_every_row_is_a_preset(table3):
    published = table3["PUBLISHED"]
    assert len(published) == 20
    assert set(published) <= set(PRESETS)
    compared = {row for rows in table3["CONCLUSIONS"].values() for row in rows}
    assert compared <= set(published)


def test_the_papers_own_figures_bear_out_its_conclusions(table3):
    results = figures({row: values.perplexity for row, values in table3["PUBLISHED"].items()})
    lines = table3["conclusions"](results).splitlines()
    assert len(lines) == len(table3["CONCLUSIONS"]) + 2
    assert all(line.startswith("holds ") for line in lines[:-1])
    assert lines[-1] == "One seed of each row: what chance accounts for is not known"


def test_conclusions_follow_from_the_figures(table3):
    results = figures({"base": 5.0, "A-h1": 4.9, "A-h32": 5.0, "E-learned": 5.11, "C-N2": 6})
    answers = [line.split()[0] for line in table3["conclusions"](results).splitlines()[:-1]]
    assert answers == ["fails", "chance", *"-------", "fails"]
    results["E-learned", 1]["perplexity"] = 4.91
    lines = table3["conclusions"](results).splitlines()
    assert lines[-2] == (
        "holds   learned positions equal sinusoids, within 2%: "
        "base 5.00 (20.0), E-learned 4.91 (20.0)"
    )
    assert lines[3] == "-       more layers are better: C-N8, C-N4 not trained"


def test_a_difference_that_seeds_account_for_is_chance(table3):
    base = {1: 10.0 * 1.02, 2: 10.0 / 1.02, 3: 10.0}
    results = {}
    for seed, perplexity in base.items():  # log 1.02 is the standard deviation of the losses
        results |= figures({"base": perplexity, "A-h32": perplexity * 1.03}, seed)
    # The standard error of a difference is log 1.02 * sqrt(1/3 + 1/3), and sqrt(1/3 + 1) for the
    # rows of one seed: 2 of them are factors of 1.0329 and 1.0468.
    results |= figures({"A-h1": 10.46, "D-drop0.0": 10.48, "E-learned": 10.46})
    lines = table3["conclusions"](results).splitlines()
    answers = {line.split(maxsplit=1)[1].split(":")[0]: line.split()[0] for line in lines}
    assert answers["one head is worse than eight"] == "chance"
    assert answers["so are too many"] == "chance"
    assert answers["dropout helps"] == "holds"
    assert answers["learned positions equal sinusoids, within 2%"] == "chance"
    for seed, perplexity in base.items():
        results |= figures({"A-h32": perplexity / 1.034}, seed)
    assert "fails   so are too many" in table3["conclusions"](results)


def test_the_table_has_published_figures_beside_ours(table3):
    results = figures({"C-N2": 7.25}) | figures({"base": 5.0}) | figures({"base": 7.0}, seed=2)
    lines = table3["table"](results).splitlines()
    assert len(lines) == 22
    base, deep, big = (
        line for line in lines if line.startswith(("base ", "C-N2 ", "big ")) and "." in line
    )
    assert base.split()[4:] == ["6.00", "±", "1.41", "20.00", "±", "0.00", "1.500", "2"]
    assert deep.split() == ["C-N2", "6.11", "23.7", "36", "7.25", "20.00", "1.500", "1"]
    assert big.split() == ["big", "4.33", "26.4", "213", "-", "-", "-", "-"]


def test_the_plot_shows_every_seed_beside_the_paper(table3):
    results = figures({"base": 5.0, "C-N2": 7.5}) | figures({"base": 5.0}, seed=2)
    [axes] = table3["plot"](results).axes
    _, seeds, means, published = axes.lines
    assert list(seeds.get_xdata()) == pytest.approx([0, 0, math.log(1.5)])
    assert list(seeds.get_ydata()) == [0, 0, 1]
    assert list(means.get_xdata()) == pytest.approx([0, math.log(1.5)])
    assert list(published.get_xdata()) == pytest.approx([0, math.log(6.11 / 4.92)])
    assert [label.get_text() for label in axes.get_yticklabels()] == ["base", "C-N2"]


@pytest.fixture
def options(corpus, tmp_path):  # noqa: F811
    return {
        "train_source": corpus / "train.en",
        "train_target": corpus / "train.de",
        "valid_source": corpus / "test.en",
        "valid_target": corpus / "test.de",
        "output": tmp_path / "table3",
        "vocab_size": 340,
        "width_scale": 0.0625,
        **FEW_STEPS,
    }


@pytest.mark.slow
def test_a_row_is_trained_once(options, capfd, monkeypatch):
    row = {**options, "rows": "C-N2"}
    monkeypatch.setattr("sys.argv", [str(ROOT / SCRIPT), *arguments(row)])  # of its own process
    run(SCRIPT, **row)
    printed = capfd.readouterr().out
    assert "2 steps of 256 tokens" in printed
    results = options["output"] / "results.jsonl"
    [result] = map(json.loads, results.read_text().splitlines())
    config = ModelDir(options["output"] / "C-N2-1").load_config()
    assert (config.d_model, config.d_ff, config.d_k, config.d_v) == (32, 128, 4, 4)
    assert (config.num_heads, config.num_encoder_layers) == (8, 2)
    [line] = [line for line in printed.splitlines() if line.startswith("C-N2  ")]
    assert line.split()[1:5] == ["6.11", "23.7", "36", f"{result['perplexity']:.2f}"]
    before = results.read_bytes()
    run(SCRIPT, **row)
    again = capfd.readouterr().out
    assert again.strip() in printed  # only the table
    assert (options["output"] / "table3.png").read_bytes().startswith(b"\x89PNG")
    assert results.read_bytes() == before
    message = refused(SCRIPT, **{**options, "steps": 3}, rows="C-N2,C-N4")
    assert (
        message == f"{results}:1: C-N2 was trained with steps=2, now 3; expected another --output"
    )


@pytest.mark.slow
def test_a_row_trains_until_validation_stops_improving(options):
    early = {"steps": 100, "stop_patience": 1, "validation_steps": 1, "best_by": "loss"}
    diverging = {"learning_rate": 1000.0, "warmup_steps": 1}
    run(SCRIPT, **options | early | diverging, rows="C-N2", train_one=True)
    checkpoints = ModelDir(options["output"] / "C-N2-1").checkpoints
    assert checkpoints.steps()[-1] < 100


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rows": ""}, "expected --rows to name something, found nothing"),
        ({"seeds": ""}, "expected --seeds to name something, found nothing"),
        ({"rows": "base,F"}, "--rows: expected some of base,A-h1,"),
        ({"seeds": "1,two"}, "--seeds: expected numbers such as 1,2,3, found 'two'"),
        ({"seeds": "1,-1"}, "seed must be in [0, 2^32): found -1"),
        ({"width_scale": 0.01}, "--width_scale: expected whole widths, found d_model=5.12 of base"),
        ({"width_scale": 0.0}, "d_model must be at least 1: found 0"),
        ({"steps": 0}, "steps must be at least 1: found 0"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_any_row_is(options, wrong, message):
    assert message in refused(SCRIPT, **options | wrong)
    assert not options["output"].exists()


def test_a_damaged_line_of_results_is_refused(options):
    options["output"].mkdir()
    (options["output"] / "results.jsonl").write_text('{"row": "base"}\n')
    assert "results.jsonl:1: expected a line that this script wrote" in refused(SCRIPT, **options)
