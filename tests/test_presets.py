"""Presets: the choice for a corpus, the record of a run, and vocabularies that fit."""

import gzip
import json
import math

import pytest
from command_lines import FEW_STEPS, TINY_MODEL, begin, refused, run, run_arguments
from helpers import small_model

from keras_transformer.cli.train import chosen_preset
from keras_transformer.data import TextPairs, TfdsPairs
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.data.sources import Block, SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.machine.arithmetic_speed import product_flops
from keras_transformer.options import TrainingOptions
from keras_transformer.presets import PAIRS_BELOW, PRESETS, vocab_size_for
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir

SHAPE = {name: value for name, value in TINY_MODEL.items() if name not in ("preset", "vocab_size")}
SAYS_NO = "No --valid_source and --valid_target: nothing is validated"


def write_pairs(folder, count):
    """Flags for training files with text of the built-in corpus."""
    given = {}
    for side, column in zip(
        ("source", "target"), zip(*builtin_pairs("train", count), strict=True), strict=True
    ):
        path = given[f"train_{side}"] = folder / f"train.{side}"
        path.write_text("".join(f"{line}\n" for line in column))
    return given


@pytest.fixture
def training(tmp_path):
    """Flags that train a model of a tiny shape: no preset, no vocabulary."""
    files = write_pairs(tmp_path, 200)
    return {**files, **SHAPE, **FEW_STEPS, "report": False, "model_dir": tmp_path / "run"}


@pytest.fixture
def without_steps(monkeypatch):
    """Runs begin and resume, and train nothing."""
    monkeypatch.setattr("keras_transformer.training.train", begin)


class ManyPairs(SentencePairs):
    """A source of a given number of pairs; reading more than `largest_read` fails."""

    description = "many pairs"

    def __init__(self, count, largest_read=math.inf):
        self.size, self.largest_read = count, largest_read

    def blocks(self):
        for first in range(0, self.size, 1000):
            assert first <= self.largest_read
            lines = [b"a"] * min(1000, self.size - first)
            yield Block(lines, lines)


@pytest.fixture
def on_a_machine_of(monkeypatch, capsys):
    """Chooses preset and vocabulary size at so many operations per second; keeps what was said."""

    def choose(flops, pairs, folder=None):
        monkeypatch.setattr("keras_transformer.machine.product_flops", lambda: flops)
        chosen = chosen_preset(ManyPairs(pairs), folder)
        choose.said = capsys.readouterr().out
        return chosen

    return choose


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_trains_with_valid_options(name):
    TrainingOptions(**PRESETS[name].training)


@pytest.mark.parametrize(
    ("pairs", "preset", "vocab_size", "says"),
    [
        (500, "tiny", 2000, "500 pairs: preset tiny, the recipe for fewer than 100,000; choose "),
        (9000, "tiny", 4500, "9,000 pairs: preset tiny, "),
        (29_000, "tiny", 10_000, "29,000 pairs: preset tiny, "),
        (100_000, "small", 10_000, "100,000 pairs: preset small, the recipe for fewer than 1,000,"),
        (1_000_000, "base", 37_000, "At least 1,000,000 pairs: preset base, the recipe for these "),
    ],
)
def test_the_size_of_a_corpus_chooses_preset_and_vocabulary(
    pairs, preset, vocab_size, says, on_a_machine_of
):
    assert on_a_machine_of(1e15, pairs) == (preset, vocab_size)
    assert on_a_machine_of.said.startswith(says)
    assert on_a_machine_of.said.endswith("; choose another with --preset\n")


@pytest.mark.parametrize(
    ("pairs", "preset", "says"),
    [
        (99_999, "tiny", "99,999 pairs: preset tiny, the recipe for fewer than 100,000; choose "),
        (
            242_507,
            "compact",
            "242,507 pairs: preset compact, because small would take this machine about 2 days 15 h"
            "; choose another with --preset\n",
        ),
        (1_000_000, "compact", "At least 1,000,000 pairs: preset compact, because base would take"),
    ],
)
def test_a_slow_machine_has_a_recipe_of_its_own(pairs, preset, says, on_a_machine_of):
    assert on_a_machine_of(2e11, pairs)[0] == preset
    assert on_a_machine_of.said.startswith(says)


@pytest.mark.parametrize(
    ("began", "flops", "chosen"), [("small", 2e11, "compact"), ("compact", math.inf, "small")]
)
def test_a_run_in_a_default_folder_goes_on_at_any_speed(
    began, flops, chosen, on_a_machine_of, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    tokenizer = SubwordTokenizer.train_from_sentences(["A man rides a horse."] * 2, 280)
    model = small_model(0, vocab_size=280)
    ModelDir(f"runs/{began}").create_trained(model, tokenizer, None, "train")
    assert on_a_machine_of(flops, 242_507)[0] == began
    assert on_a_machine_of.said == (
        f"242,507 pairs: preset {began}, whose run is in runs/{began}; choose another with "
        "--preset\n"
    )
    assert on_a_machine_of(flops, 242_507, folder="runs/another")[0] == chosen
    assert on_a_machine_of(flops, 9000)[0] == "tiny"
    ModelDir(f"runs/{chosen}").create_trained(model, tokenizer, None, "train")
    assert on_a_machine_of(flops, 242_507)[0] == chosen


def test_workers_measure_nothing_before_they_have_joined(on_a_machine_of, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert on_a_machine_of(2e11, 242_507)[0] == "small"


def test_the_speed_of_a_processor_is_that_of_products():
    assert 1e8 < product_flops() < 1e14


def test_a_huge_corpus_is_not_counted_to_its_end():
    assert ManyPairs(5_000_000, largest_read=1_000_000).count(at_most=1_000_000) == 1_000_000
    assert ManyPairs(1500).count(at_most=1_000_000) == 1500


def test_pairs_of_several_files_compressed_files_and_data_sets_are_counted(tmp_path):
    (tmp_path / "data_set").mkdir()
    for name, lines in (("data_set/en.train.txt", 3), ("data_set/de.train.txt", 3), ("a", 2)):
        (tmp_path / name).write_text("a b\n" * lines)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a b\n" * 3))
    files = [tmp_path / "a", tmp_path / "a.gz"]
    assert TextPairs(files, files).count(at_most=100) == 5
    assert TextPairs(files, files).count(at_most=4) == 4
    data_set = TfdsPairs(tmp_path / "data_set", "train", "en", "de")
    assert data_set.count(at_most=100) == 3
    assert data_set.count(at_most=2) == 2
    with pytest.raises(UserError, match="nothing"):
        TfdsPairs(tmp_path / "data_set", "nothing", "en", "de").count(at_most=100)


@pytest.mark.usefixtures("without_steps")
def test_two_files_and_no_preset_are_trained_by_the_recipe_for_their_size(
    training, monkeypatch, capsys
):
    run("train", **training, vocab_type="unigram")
    no_validation, chosen, vocabulary, *_ = capsys.readouterr().out.splitlines()
    assert no_validation.startswith(SAYS_NO)
    assert chosen.startswith("200 pairs: preset tiny, ")
    assert vocabulary.startswith("Vocabulary of at most 2,000; ")
    model_dir = ModelDir(training["model_dir"])
    config, record = model_dir.load_config(), model_dir.load_training()
    assert record["preset"] == "tiny"
    assert config.pre_norm and (config.num_encoder_layers, config.d_model) == (1, 16)
    assert config.vocab_size == model_dir.load_tokenizer().vocab_size <= vocab_size_for(200)
    # The recipe's share of 2 steps in both directions is less than one step.
    recipe = {**PRESETS["tiny"].training, **FEW_STEPS, "bidirectional_steps": 0}
    assert {name: record["options"][name] for name in recipe} == recipe

    # The run resumes with its preset, whatever the size of the corpus would choose now.
    monkeypatch.setitem(PAIRS_BELOW, "tiny", 100)
    files = ("train_source", "train_target", "report", "model_dir")
    run("train", **{name: training[name] for name in files}, steps=3)
    assert model_dir.load_training()["options"]["steps"] == 3
    assert "preset small" not in capsys.readouterr().out
    assert model_dir.load_training()["preset"] == "tiny"
    assert model_dir.load_config() == config


@pytest.mark.usefixtures("without_steps")
def test_a_run_in_the_default_folder_resumes_with_its_type_of_vocabulary(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    again = {**write_pairs(tmp_path, 200), **SHAPE, "preset": "demo", "report": False}
    run("train", **again, **FEW_STEPS, vocab_size=400, vocab_type="unigram")
    run("train", **again, steps=3)
    model_dir = ModelDir("runs/demo")
    assert model_dir.load_training()["vocab_type"] == "unigram"
    assert len(model_dir.load_training()["commands"]) == 2


@pytest.mark.parametrize(
    ("preset", "given", "phases"),
    [
        ("tiny", [], (2800, 0, 20)),
        ("tiny", ["--steps=2200"], (700, 0, 5)),
        ("tiny", ["--steps=20"], (6, 0, 1)),
        ("tiny", ["--steps=17600"], (5600, 0, 20)),
        ("tiny", ["--steps=2200", "--checkpoint_steps=25"], (700, 0, 20)),
        (
            "tiny",
            ["--steps=2200", "--average_checkpoints=7", "--bidirectional_steps=0"],
            (0, 0, 7),
        ),
        ("compact", [], (0, 1200, 3)),
        ("compact", ["--steps=2000"], (0, 400, 1)),
        ("compact", ["--steps=12000"], (0, 2400, 3)),
        ("compact", ["--steps=4000", "--cooldown_steps=0"], (0, 0, 2)),
    ],
)
def test_a_recipe_keeps_the_shares_of_its_phases_with_other_steps(
    preset, given, phases, monkeypatch
):
    """The mean of the last 20 checkpoints of 22 would have weights of the first steps."""
    jobs = []
    monkeypatch.setattr("keras_transformer.training.train", lambda job, _: jobs.append(job))
    run_arguments("train", [f"--preset={preset}", "--noreport", *given])
    options = jobs[0].options
    found = (options.bidirectional_steps, options.cooldown_steps, options.average_checkpoints)
    assert found == phases


@pytest.mark.parametrize(
    ("phases", "message"),
    [
        (
            {"bidirectional_steps": 2800},
            "--steps must be above 2,800, because the run in {path} first trains so many steps in "
            "both directions: found 30",
        ),
        (
            {"cooldown_steps": 1200},
            "--steps must be at least 1,200, because the learning rate of the run in {path} falls "
            "over so many last steps: found 30; or give --cooldown_steps too",
        ),
    ],
)
def test_a_resumed_run_has_room_for_its_phases(phases, message, tmp_path):
    model_dir = ModelDir(tmp_path / "run")
    tokenizer = SubwordTokenizer.train_from_sentences(["A man rides a horse."] * 2, 280)
    model_dir.create_trained(small_model(0, vocab_size=280), tokenizer, None, "train")
    record = model_dir.load_training()
    record["options"] |= {"steps": 8800, **phases}
    model_dir.save_training(record)
    found = refused("train", model_dir=model_dir.path, steps=30)
    assert found == message.format(path=model_dir.path)


@pytest.mark.usefixtures("without_steps")
def test_a_vocabulary_is_no_larger_than_a_text_of_three_pairs_allows(training, tmp_path, capsys):
    training.update(write_pairs(tmp_path, 3))
    run("train", **training)
    size = ModelDir(training["model_dir"]).load_config().vocab_size
    assert size < 2000
    said = f"Vocabulary of {size:,}: the text does not allow 2,000"
    assert said in capsys.readouterr().out.splitlines()
    named = {**training, "model_dir": tmp_path / "named"}
    run("train", **named, preset="tiny")
    assert ModelDir(named["model_dir"]).load_config().vocab_size == size
    said = f"Vocabulary of {size:,}: the text does not allow 10,000"
    assert said in capsys.readouterr().out.splitlines()
    # A size that the user gives is not changed.
    other = {**training, "model_dir": tmp_path / "other"}
    message = refused("train", **other, vocab_size=2000)
    assert message.startswith(f"vocab_size must be at most {size},")
    assert not other["model_dir"].exists()


@pytest.mark.usefixtures("without_steps")
def test_a_run_of_another_recipe_is_named_and_goes_on_without_its_name(training):
    """A run that began in Python has no preset's name."""
    run("train", **training, preset="tiny", pre_norm=False, vocab_size=340)
    model_dir = ModelDir(training["model_dir"])
    what_to_do = "; leave out --preset to resume it as it is"
    message = refused("train", **training, preset="small")
    here = f"model_dir {model_dir.path} holds a"
    assert message == f"{here} run of preset tiny (now small){what_to_do}"
    record = model_dir.load_training()
    model_dir.save_training({**record, "preset": None})
    message = refused("train", **training, preset="tiny")
    difference = "pre_norm=False (now True)"
    assert message == f"{here} model of another configuration: {difference}{what_to_do}"
    run("train", **{**training, "steps": 3})
    record = json.loads((model_dir.path / "training.json").read_text())
    assert len(record["commands"]) == 2 and record["preset"] is None
