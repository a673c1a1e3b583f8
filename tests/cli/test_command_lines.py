"""The command lines: from text files to a translation, and refusals in one line."""

import contextlib
import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import pytest
import sacrebleu
from command_lines import (
    FEW_STEPS,
    TINY_MODEL,
    arguments,
    begin,
    ended,
    refused,
    run,
    run_process,
)
from helpers import ROOT, lively_model, randomise, sentencepiece_model

from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import Checkpoints, ModelDir
from keras_transformer.translator import Translator


def write_pairs(folder, names, split, count):
    for name, side in zip(names, zip(*builtin_pairs(split, count), strict=True), strict=True):
        (folder / name).write_text("".join(f"{line}\n" for line in side))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    write_pairs(folder, ("train.en", "train.de"), "train", 200)
    write_pairs(folder, ("test.en", "test.de"), "test", 5)
    return folder


@pytest.fixture
def training(corpus, tmp_path):
    """Flags that train a tiny model."""
    sides = {"train_source": corpus / "train.en", "train_target": corpus / "train.de"}
    return {**sides, **TINY_MODEL, **FEW_STEPS, "report": False, "model_dir": tmp_path / "runs"}


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    """A model_dir that `train` made, and its process."""
    model_dir = tmp_path_factory.mktemp("runs") / "en-de"
    process = run_process(
        "train",
        train_source=corpus / "train.en",
        train_target=corpus / "train.de",
        valid_source=corpus / "test.en",
        valid_target=corpus / "test.de",
        target_lang="de",
        model_dir=model_dir,
        **TINY_MODEL,
        **FEW_STEPS,
    )
    return model_dir, process


@pytest.fixture(scope="module")
def lively(trained, tmp_path_factory):
    """A model_dir whose model translates every sentence differently."""
    model_dir = ModelDir(tmp_path_factory.mktemp("runs") / "lively")
    shutil.copytree(trained[0], model_dir.path)
    sentences = ["The girls sleep.", "Yes", "A small lamp and a house.", "He will help."]
    for seed in range(20):  # until no two translations are the same
        model = model_dir.load_model()
        randomise(model, seed)
        translator = Translator(model, model_dir.load_tokenizer(), beam_size=1)
        if len({*translator(sentences), ""}) == 5:
            break
    for step in (3, 4):
        model_dir.checkpoints.save(model, step)
    return model_dir.path


def files_of(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# From text files to a translation.


@pytest.mark.slow
def test_train_writes_a_model_dir_and_says_so(trained):
    model_dir, process = trained
    assert process.returncode == 0
    assert process.stderr == b""
    lines = process.stdout.decode().splitlines()
    assert lines[0].startswith("Training 1 + 1 layers of width 16 on ")
    assert lines[0].endswith(f"2 steps of 256 tokens, in {model_dir}")
    assert "sacreBLEU" in process.stdout.decode()
    assert lines[-1] == f"Report: {model_dir / 'report' / 'index.html'}"
    assert Checkpoints(model_dir / "checkpoints").steps() == [1, 2]
    [command] = json.loads((model_dir / "training.json").read_text())["commands"]
    assert command.startswith("keras-transformer train --train_source=")


@pytest.mark.slow
def test_evaluate_judges_it_from_the_model_dir_alone(trained, corpus, tmp_path):
    process = run_process(
        "evaluate",
        model_dir=trained[0],
        source=corpus / "test.en",
        reference=corpus / "test.de",
        output=tmp_path / "out.de",
        json=tmp_path / "scores.json",
        bleu_on_tokens=True,
        error_rates=True,
    )
    assert process.returncode == 0
    assert process.stderr.startswith(b"Translating with CTranslate2\n")
    assert len((tmp_path / "out.de").read_bytes().split(b"\n")) == 6
    figures = json.loads((tmp_path / "scores.json").read_text())
    printed = process.stdout.decode()
    # The target language is known from training.
    of_words = "bleu_tokenized_lowercased", "bleu_paper", "exact_match", "ter"
    for name in ("bleu", "bleu_lowercased", "chrf", *of_words):
        assert f"{figures[name]['value']:6.2f}  {figures[name]['label']}" in printed
        assert figures[name]["signature"] in printed
    assert f"{figures['perplexity']:6.2f}  perplexity" in printed
    assert figures["weights"] == ModelDir(trained[0]).resolved_weights() != "auto"
    assert 1 < figures["perplexity"] < 10_000
    assert figures["loss"] > 0


@pytest.mark.slow
def test_one_sentence_has_no_confidence_interval(lively, tmp_path, capsys):
    files = {"source": tmp_path / "one.en", "reference": tmp_path / "one.de"}
    for lines, has_interval in (("Yes\n", False), ("Yes\nNo\n", True)):
        for file in files.values():
            file.write_text(lines)
        run("evaluate", model_dir=lively, **files, json=tmp_path / f"{has_interval}.json")
        figures = json.loads((tmp_path / f"{has_interval}.json").read_text())
        assert ("intervals" in figures) is ("95% confidence" in capsys.readouterr().out)
        assert ("intervals" in figures) is has_interval


@pytest.mark.slow
def test_evaluate_compares_two_models_of_different_vocabularies(
    lively, corpus, judge, tmp_path, capsys
):
    lines = (corpus / "train.de").read_text().splitlines()
    tokenizer = SubwordTokenizer.train_from_sentences(lines, 330)
    model = lively_model(1, tokenizer.vocab_size)
    ModelDir(tmp_path / "other").create_trained(model, tokenizer, "de", "made by a test")
    options = {**judge, "model_dir": lively, "beam_size": 1}
    run("evaluate", **options, compare=tmp_path / "other", json=tmp_path / "scores.json")
    printed, said = capsys.readouterr()
    repeated = (
        rf"lines? of {judge['source']} by {tmp_path / 'other'} \([\d, .]+\) may repeat a phrase"
    )
    assert re.search(repeated, said)
    figures = json.loads((tmp_path / "scores.json").read_text())
    alone = {**options, "model_dir": tmp_path / "other", "output": tmp_path / "other.de"}
    run("evaluate", **alone, json=tmp_path / "other.json")
    other = json.loads((tmp_path / "other.json").read_text())
    for name in ("bleu", "bleu_lowercased", "chrf"):
        assert figures["intervals"][name]["value"] == figures[name]["value"]
        assert figures["compared"][name]["value"] == other[name]["value"]
        assert 0 < figures["compared"][name]["p_value"] <= 1
        for system in ("intervals", "compared"):
            estimate = figures[system][name]
            assert f"{estimate['value']:.2f} ± {estimate['margin']:.2f}" in printed
        assert f"{figures['compared'][name]['p_value']:.4f}" in printed
    assert figures["compared"]["with"] == str(tmp_path / "other")

    run("evaluate", **options, compare=tmp_path / "other.de", json=tmp_path / "scores2.json")
    of_file = json.loads((tmp_path / "scores2.json").read_text())
    of_file["compared"]["with"] = figures["compared"]["with"]
    assert of_file == figures


@pytest.mark.slow
def test_evaluate_takes_several_references(lively, judge, tmp_path, capsys):
    other, output = tmp_path / "other.de", tmp_path / "out.de"
    first = judge["reference"].read_text().splitlines()
    options = {**judge, "model_dir": lively, "beam_size": 1, "json": tmp_path / "scores.json"}
    run("evaluate", **options, output=output)
    one = json.loads((tmp_path / "scores.json").read_text())
    translated = output.read_text().splitlines()
    second = [*translated[:3], *reversed(first[3:])]
    other.write_text("\n".join(second))
    both = {**options, "reference": f"{judge['reference']},{other}"}
    capsys.readouterr()
    run("evaluate", **both, compare=other, bleu_on_tokens=True)
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "scores.json").read_text())
    bleu = sacrebleu.corpus_bleu(translated, [first, second])
    assert found["bleu"]["value"] == found["intervals"]["bleu"]["value"] == bleu.score
    assert found["chrf"]["value"] == sacrebleu.corpus_chrf(translated, [first, second]).score
    assert found["compared"]["bleu"]["value"] == pytest.approx(100)
    assert found["chrf"]["value"] > one["chrf"]["value"]
    assert printed.count("nrefs:2") == 5
    assert f"{found['perplexity']:6.2f}  perplexity of the references, per subword" in printed
    # The same figure as of one long reference, for each of which the source is repeated.
    for name, parts in (
        ("long.en", [judge["source"]] * 2),
        ("long.de", [judge["reference"], other]),
    ):
        lines = [line for part in parts for line in part.read_text().splitlines()]
        (tmp_path / name).write_text("\n".join(lines))
    long = {"source": tmp_path / "long.en", "reference": tmp_path / "long.de"}
    run("evaluate", **{**options, **long})
    assert json.loads((tmp_path / "scores.json").read_text())["loss"] == pytest.approx(
        found["loss"], rel=1e-6
    )


@pytest.mark.slow
def test_evaluate_refuses_references_that_differ_in_length(judge, tmp_path, without_translating):
    first, short = judge["reference"], tmp_path / "short.de"
    short.write_text("".join(first.read_text().splitlines(keepends=True)[:4]))
    message = refused("evaluate", **{**judge, "reference": f"{first},{short}"})
    assert message == (
        "source and target must have equal numbers of lines: found 5 in "
        f"{judge['source']} and 4 in {short}"
    )
    (tmp_path / "source").write_text(judge["source"].read_text() + "\n")
    (tmp_path / "long.de").write_text(first.read_text() + "\n")
    sides = {"source": tmp_path / "source", "reference": f"{first},{tmp_path / 'long.de'}"}
    assert refused("evaluate", **{**judge, **sides}) == (
        f"references must have equal numbers of lines: found 5 in {first} and 6 in "
        f"{tmp_path / 'long.de'}"
    )
    message = refused("evaluate", **{**judge, "reference": f"{first},"})
    assert message.startswith("--reference is missing or empty")
    message = refused("evaluate", **{**judge, "reference": f"{first},{short}"}, output=short)
    assert message == f"{short} is an input or another output: choose another file"


@pytest.mark.slow
def test_evaluate_refuses_what_it_cannot_compare_with(judge, tmp_path, without_translating):
    lines = tmp_path / "lines"
    lines.write_text("a\nb\n")
    message = refused("evaluate", **judge, compare=lines)
    assert message == (
        f"--compare={lines} must have one line for each of the 5 sentences of {judge['source']}: "
        "found 2"
    )
    missing = tmp_path / "missing"
    message = refused("evaluate", **judge, compare=missing)
    assert message == f"{missing}: cannot read the file: No such file or directory"
    assert "config.json: No such file" in refused("evaluate", **judge, compare=tmp_path)
    assert refused("evaluate", **judge, compare="").startswith("--compare is missing or empty")
    message = refused("evaluate", **judge, compare=lines, output=lines)
    assert message == f"{lines} is an input or another output: choose another file"
    own = judge["model_dir"] / "config.json"
    others = {"model_dir": tmp_path, "compare": judge["model_dir"], "json": own}
    message = refused("evaluate", **{**judge, **others})
    assert message == f"{own} is a file of --compare: choose another file"


STRANGE_INPUT = b"\n".join(
    [
        b"He will not buy a small lamp.",
        b"",
        b"caf\xe9 \xff\xfe\xc3",
        b"   \t",
        b"house " * 5000,
        b"The girls sleep.\r",
        b"\r",
        "\u4f60\u597d \U0001f600 \u2028 \x0b \x85 \x00".encode(),
        b"The girls sleep.",
    ]
)


@pytest.mark.slow
def test_translate_writes_as_many_lines_as_it_reads(lively):
    process = run_process("translate", model_dir=lively, average=2, stdin=STRANGE_INPUT)
    assert process.returncode == 0
    engine, *said = process.stderr.decode().splitlines()
    assert engine == "Translating with CTranslate2"
    assert "Read only the first 1,023 tokens of 1 line of the input (5)" in said
    [not_utf_8] = [line for line in said if "not UTF-8 text" in line]
    assert not_utf_8.startswith("1 line of the input (3) is not UTF-8 text")
    # The model is hardly trained, so some translations repeat themselves.
    expected = ("Read only", "not UTF-8 text", "repeat a phrase")
    assert all(any(part in line for part in expected) for line in said)
    assert process.stdout.endswith(b"\n")
    lines = process.stdout.decode().split("\n")[:-1]
    assert len(lines) == 9
    assert lines[1] == lines[3] == lines[6] == ""
    assert lines[5] == lines[8] != ""


# The same in this process, for speed.


def translate(monkeypatch, capfd, stdin, **options):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    run("translate", **options)
    return capfd.readouterr().out.split("\n")


@pytest.mark.slow
@pytest.mark.parametrize("lines_at_once", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_lines_are_translated_alike_however_many_at_once(lively, monkeypatch, capfd, lines_at_once):
    options = {"model_dir": lively, "average": 2, "beam_size": 1}
    text = b"The girls sleep.\n\nYes\nA small lamp and a house.\nHe will help.\n"
    together = translate(monkeypatch, capfd, text, **options)
    assert len(together) == 6
    assert len(set(together)) == 5
    assert translate(monkeypatch, capfd, text, lines_at_once=lines_at_once, **options) == together


@pytest.mark.slow
def test_no_lines_in_no_lines_out(trained, monkeypatch, capfd):
    assert translate(monkeypatch, capfd, b"", model_dir=trained[0]) == [""]


@pytest.mark.slow
def test_evaluate_judges_a_source_with_empty_lines(trained, tmp_path, capsys):
    for name in ("source", "reference"):
        (tmp_path / name).write_text("\nYes.\n \n")
    files = {"source": tmp_path / "source", "reference": tmp_path / "reference"}
    run("evaluate", model_dir=trained[0], beam_size=1, output=tmp_path / "output.gz", **files)
    printed = capsys.readouterr().out
    assert "perplexity" in printed and "Moses" not in printed
    lines = gzip.decompress((tmp_path / "output.gz").read_bytes()).decode().split("\n")
    assert (len(lines), lines[0], lines[2]) == (4, "", "")


@pytest.mark.slow
def test_train_takes_a_tfds_folder(training, tmp_path, capsys):
    folder = tmp_path / "en-de"
    folder.mkdir()
    for split, name, count in (
        ("train", "train", 200),
        ("validation", "validation", 5),
        ("test", "test", 5),
    ):
        write_pairs(folder, (f"en.{name}.txt", f"de.{name}.txt"), split, count)
    del training["train_source"], training["train_target"]
    run("train", tfds=folder, source_lang="en", target_lang="de", **training)
    printed = capsys.readouterr().out
    assert "step 2: validation loss" in printed
    assert "(test, en to de)" in printed
    assert Checkpoints(training["model_dir"] / "checkpoints").steps() == [1, 2]


@pytest.mark.slow
def test_train_takes_a_tfds_folder_without_what_it_is_told_not_to_use(training, tmp_path, capsys):
    folder = tmp_path / "en-de"
    folder.mkdir()
    write_pairs(folder, ("en.train.txt", "de.train.txt"), "train", 200)
    del training["train_source"], training["train_target"]
    languages = {"source_lang": "en", "target_lang": "de"}
    run("train", tfds=folder, valid_split="", test_split="", **languages, **training)
    assert "validation loss" not in capsys.readouterr().out
    assert Checkpoints(training["model_dir"] / "checkpoints").steps() == [1, 2]


# What is refused, before anything is written.


def test_missing_file(training, tmp_path):
    missing = tmp_path / "missing.de"
    message = refused("train", **{**training, "train_target": missing})
    assert message == f"{missing}: cannot read the file: No such file or directory"
    assert not training["model_dir"].exists()


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ("1", "must be one number for each corpus, .*: found 1 for 2 corpora"),
        (
            "1,-3",
            "must be one number for each corpus, none of them negative, .*: found 1, -3 for 2.*",
        ),
        ("0,0", "must be .* with a positive and finite sum: found 0, 0 for 2 corpora"),
        ("1,many", "must be numbers: found 1,many"),
        ("", "is missing or empty: give it a value"),
    ],
)
def test_mistyped_weights_of_corpora(training, corpus, weights, found):
    sides = {
        side: f"{training[side]},{training[side]}" for side in ("train_source", "train_target")
    }
    message = refused("train", **{**training, **sides}, train_weights=weights)
    assert re.fullmatch(f"--train_weights {found}", message)
    assert not training["model_dir"].exists()


def test_weights_need_a_target_for_each_source(training, corpus):
    sources = {"train_source": f"{corpus / 'train.en'},{corpus / 'test.en'}"}
    targets = {"train_target": corpus / "t*.de"}
    message = refused("train", **{**training, **sources, **targets}, train_weights="1,3")
    assert message == (
        "--train_weights needs one of --train_target for each of --train_source: found 1 for 2"
    )


def test_unequal_line_counts(training, corpus):
    message = refused("train", **{**training, "train_target": corpus / "test.de"})
    assert "found 200 in " in message
    assert f"{corpus / 'train.en'} and 5 in {corpus / 'test.de'}" in message
    assert not training["model_dir"].exists()


def test_unequal_line_counts_of_the_validation_files(training, corpus):
    sides = {"valid_source": corpus / "test.en", "valid_target": corpus / "train.de"}
    message = refused("train", **training, **sides)
    assert f"found 5 in {corpus / 'test.en'} and 200 in {corpus / 'train.de'}" in message
    assert not training["model_dir"].exists()


def test_text_that_is_not_utf_8(training, tmp_path):
    text = tmp_path / "latin.de"
    text.write_bytes(b"ja\n" * 10 + b"K\xe4se\n" + b"ja\n" * 189)
    message = refused("train", **{**training, "train_target": text})
    assert message.startswith(f"{text}:11: not UTF-8 text")
    assert not training["model_dir"].exists()


def test_unknown_preset(training):
    message = refused("train", **{**training, "preset": "huge"})
    assert message.startswith("unknown preset 'huge': use one of base, big, ")
    assert not training["model_dir"].exists()


def test_impossible_field_and_option(training):
    message = refused("train", **{**training, "num_heads": 3})
    assert "d_model=16, num_heads=3" in message
    message = refused("train", **{**training, "steps": 0})
    assert message == "steps must be at least 1: found 0"
    assert not training["model_dir"].exists()


def test_vocabulary_larger_than_the_text_allows(training):
    message = refused("train", **{**training, "vocab_size": 1_000_000})
    largest = int(message.partition("at most ")[2].partition(",")[0])
    assert message.endswith("found 1000000")
    assert not training["model_dir"].exists()
    # The largest is the largest: one more is refused for the same reason.
    assert f"at most {largest}," in refused("train", **{**training, "vocab_size": largest + 1})


@pytest.mark.parametrize("side", ["train_source", "train_target", "valid_source", "valid_target"])
def test_one_side_without_the_other(corpus, tmp_path, side):
    message = refused("train", **{side: corpus / "train.en"}, model_dir=tmp_path / "runs")
    partner = side.replace("source", "x").replace("target", "source").replace("x", "target")
    assert f"--{side}" in message
    assert f"--{partner}" in message
    assert not (tmp_path / "runs").exists()


def test_validation_files_without_training_files(corpus, tmp_path):
    sides = {"valid_source": corpus / "test.en", "valid_target": corpus / "test.de"}
    message = refused("train", **sides, model_dir=tmp_path / "runs")
    assert message == "--train_source and --train_target are required with --valid_*"


def test_as_many_source_as_target_files(training, corpus):
    twice = f"{corpus / 'train.en'},{corpus / 'train.en'}"
    message = refused("train", **{**training, "train_source": twice})
    assert "equal numbers of files: found 2 by " in message


def test_tfds_and_files(training):
    message = refused("train", tfds="wmt14_translate/de-en", **training)
    assert (
        message
        == "--train_source has no effect with --tfds, which takes the place of files: leave it out"
    )


@pytest.mark.parametrize("given", [{}, {"source_lang": "en"}, {"target_lang": "de"}])
def test_tfds_without_languages(given):
    message = refused("train", tfds="wmt14_translate/de-en", **given)
    assert message == "--tfds needs --source_lang and --target_lang"


def test_unknown_tfds_data_set(tmp_path):
    options = {"source_lang": "en", "target_lang": "de", "model_dir": tmp_path / "runs"}
    assert "no_such_data_set" in refused("train", tfds="no_such_data_set", **options)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_model_dir_of_another_configuration(trained, training):
    model_dir, _ = trained
    before = files_of(model_dir)
    message = refused("train", **{**training, "model_dir": model_dir, "d_ff": 32})
    assert f"model_dir {model_dir} " in message
    assert ": d_ff=16 (now 32); resume the run with" in message
    assert files_of(model_dir) == before


def test_model_dir_that_is_another_folder(training, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    message = refused("train", **{**training, "model_dir": tmp_path})
    assert message.startswith(
        f"model_dir {tmp_path} has thesis.tex but no model: choose the folder"
    )
    assert files_of(tmp_path) == {tmp_path / "thesis.tex": b"mine"}


@pytest.mark.parametrize("cache", ["runs", "runs/cache", "link/cache"])
def test_a_data_cache_within_a_new_model_dir_is_refused(training, tmp_path, cache):
    (tmp_path / "link").symlink_to("runs")
    message = refused("train", **training, data_cache=tmp_path / cache)
    runs = tmp_path / "runs"
    assert message == f"data_cache must be outside of model_dir {runs}: found {tmp_path / cache}"
    assert not runs.exists()


@pytest.mark.slow
def test_damaged_checkpoint(trained, training, corpus):
    shutil.copytree(trained[0], training["model_dir"])
    weights = training["model_dir"] / "checkpoints" / "step-00000002" / "state.npz"
    weights.write_bytes(weights.read_bytes()[:-100])
    judge = {"source": corpus / "test.en", "reference": corpus / "test.de"}
    for script, options in (("translate", {}), ("evaluate", judge)):
        options |= {"engine": "tensorflow", "weights": "last"}  # the others do not read it
        message = refused(script, **{**options, "model_dir": training["model_dir"]})
        assert message.startswith(f"{weights}: the checkpoint is damaged")


@pytest.mark.slow
@pytest.mark.parametrize("script", ["evaluate", "translate"])
def test_no_model_and_too_many_checkpoints(trained, corpus, script):
    judge = {"source": corpus / "test.en", "reference": corpus / "test.de"}
    options = judge if script == "evaluate" else {}
    message = refused(script, model_dir=corpus, **options)
    assert f"{corpus / 'config.json'}: No such file or directory: choose the folder" in message
    message = refused(script, model_dir=trained[0], average=3, **options)
    assert message.startswith("average must be 1 to 2, the number of checkpoints in ")


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"beam_size": 0}, {"alpha": -1.0}, {"alpha": 1000.0}])
def test_search_option_out_of_range(trained, monkeypatch, options):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Yes.\n")))
    [name] = options
    assert refused("translate", model_dir=trained[0], **options).startswith(f"{name} must be")


@pytest.fixture
def in_two_files(judge, tmp_path):
    """Flags with which `evaluate` reads the same test set from two files of a pattern a side."""
    patterns = {}
    for name in ("source", "reference"):
        lines = judge[name].read_text().splitlines(keepends=True)
        for number, half in enumerate((lines[:2], lines[2:])):
            (tmp_path / f"{name}-{number}.txt").write_text("".join(half))
        patterns[name] = tmp_path / f"{name}-*.txt"
    return judge | patterns


@pytest.mark.slow
def test_evaluate_reads_the_files_of_a_pattern(judge, in_two_files, capfd):
    run("evaluate", **judge, beam_size=1)
    of_one_file = capfd.readouterr().out
    run("evaluate", **in_two_files, beam_size=1)
    assert capfd.readouterr().out == of_one_file
    assert "BLEU" in of_one_file


@pytest.mark.slow
def test_evaluate_does_not_write_over_a_file_of_a_pattern(in_two_files, tmp_path):
    message = refused("evaluate", **in_two_files, output=tmp_path / "source-1.txt")
    assert message.endswith(" is an input or another output: choose another file")


@pytest.mark.slow
def test_evaluate_refuses_files_that_do_not_match(trained, corpus, tmp_path):
    judge = {"source": corpus / "test.en", "reference": corpus / "train.de"}
    message = refused("evaluate", model_dir=trained[0], output=tmp_path / "out.de", **judge)
    assert f"found 5 in {corpus / 'test.en'} and 200 in {corpus / 'train.de'}" in message
    assert not (tmp_path / "out.de").exists()


@pytest.mark.slow
def test_evaluate_refuses_a_test_set_of_nothing(trained, tmp_path):
    for name in ("source", "reference"):
        (tmp_path / name).write_text("")
    files = {"source": tmp_path / "source", "reference": tmp_path / "reference"}
    message = refused("evaluate", model_dir=trained[0], **files)
    assert message == f"{files['source']} has no sentences to translate"


# How it is refused: a process of its own each.


def test_a_mistake_of_the_user_is_one_line_and_status_2(tmp_path):
    process = run_process("translate", model_dir=tmp_path / "nothing")
    assert process.returncode == 2
    assert process.stdout == b""
    [line] = process.stderr.decode().splitlines()
    assert line.startswith(
        f"keras-transformer translate: {tmp_path / 'nothing' / 'config.json'}: No such file"
    )


@pytest.mark.parametrize("closed", ["2>&-", ">&-", "<&-", "<&- >&- 2>&-"])
def test_a_command_works_with_closed_streams(closed, tmp_path):
    """No file may get the number of a closed stream: C++ would print into it."""
    script = """
import os, sys
from keras_transformer.cli.process import fill_closed_streams
was_open = [stream is not None for stream in (sys.stdin, sys.stdout, sys.stderr)]
fill_closed_streams()
file = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
assert file > 2 and was_open == [os.fstat(n).st_rdev != NULL for n in range(3)]
print("said", file=sys.stderr)
os.write(2, b"printed by C++")
"""
    script = script.replace("NULL", str(os.stat(os.devnull).st_rdev))
    command = f"{sys.executable} -c '{script}' {tmp_path / 'file'} {closed}"
    process = subprocess.run(["bash", "-c", command], cwd=ROOT, input=b"", capture_output=True)
    assert process.returncode == 0
    assert (tmp_path / "file").read_bytes() == b""
    assert process.stdout == b""
    assert process.stderr == (b"" if "2>&-" in closed else b"said\nprinted by C++")


@pytest.mark.slow
def test_training_needs_no_standard_streams(training):
    command = [sys.executable, "-m", "keras_transformer", "train", *arguments(training)]
    closed = f"{shlex.join(map(str, command))} <&- >&- 2>&-"
    assert subprocess.run(["bash", "-c", closed], cwd=ROOT).returncode == 0
    assert Checkpoints(training["model_dir"] / "checkpoints").steps() == [1, 2]


@pytest.mark.parametrize("imported", ["keras_transformer.cli.train", "tensorflow", "keras"])
def test_an_interrupted_command_is_one_line_and_status_130(imported, training):
    """The signal may come at any time: here, during an import that takes a while."""
    script = f"""
import os, signal, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {imported!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
sys.meta_path.insert(0, Interrupt())
from keras_transformer.cli.main import main
main(sys.argv[1:])
"""
    command = [sys.executable, "-c", script, "train", *arguments(training)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert process.returncode == 130
    assert process.stderr == b"keras-transformer train: interrupted\n"
    assert not training["model_dir"].exists()


@pytest.fixture
def without_steps(monkeypatch):
    """Runs begin and resume, and train nothing."""
    monkeypatch.setattr("keras_transformer.training.train", begin)


@pytest.mark.usefixtures("without_steps")
def test_training_takes_a_vocabulary_and_then_needs_its_file_no_more(training, corpus, tmp_path):
    path = tmp_path / "ours.model"
    lines = (corpus / "train.en").read_text().splitlines()
    SubwordTokenizer.train_from_sentences(lines, 320).save(path)
    del training["vocab_size"]
    message = refused("train", **training, vocabulary=path, vocab_type="bpe")
    assert message == "--vocab_type has no effect with --vocabulary: leave it out"
    message = refused("train", **training, vocabulary=path, normalization="none")
    assert message == "--normalization has no effect with --vocabulary: leave it out"
    message = refused("train", **training, vocabulary=path, start_from=tmp_path)
    assert message == "--vocabulary has no effect with --start_from: leave it out"
    run("train", **training, vocabulary=path)
    model_dir = ModelDir(training["model_dir"])
    assert model_dir.load_config().vocab_size == 320
    assert model_dir.load_tokenizer().to_bytes() == path.read_bytes()
    path.unlink()
    run("train", **{**training, "steps": 3}, vocabulary=path)
    assert len(model_dir.load_training()["commands"]) == 2


@pytest.mark.usefixtures("without_steps")
@pytest.mark.parametrize("kind", ["char", "word", "unigram"])
def test_a_run_resumes_with_a_vocabulary_of_any_type(kind, training, corpus, tmp_path):
    path = tmp_path / "ours.model"
    lines = (corpus / "train.en").read_text().splitlines()
    path.write_bytes(sentencepiece_model(lines, model_type=kind, vocab_size=60))
    del training["vocab_size"]
    run("train", **training, vocabulary=path)
    run("train", **{**training, "steps": 3})
    record = ModelDir(training["model_dir"]).load_training()
    assert (record["vocab_type"], len(record["commands"])) == (kind, 2)
    message = refused("train", **{**training, "steps": 4}, vocab_type="bpe")
    assert f"other options or data: vocab_type={kind} (now bpe)" in message


@pytest.mark.usefixtures("without_steps")
def test_a_run_keeps_the_symbols_that_it_began_with(training, tmp_path):
    (tmp_path / "symbols").write_text("%s\n<0>\n")
    run("train", **training, symbols=tmp_path / "symbols")
    run("train", **{**training, "steps": 3})
    run("train", **{**training, "steps": 4}, symbols=tmp_path / "symbols")
    model_dir = ModelDir(training["model_dir"])
    assert len(model_dir.load_training()["commands"]) == 3
    tokenizer = model_dir.load_tokenizer()
    assert tokenizer.symbols == ["%s", "<0>"]
    assert tokenizer.vocab_size == training["vocab_size"]
    (tmp_path / "symbols").write_text("%s\n")
    message = refused("train", **{**training, "steps": 5}, symbols=tmp_path / "symbols")
    assert message == (
        f"model_dir {model_dir.path} was made with other symbols: to resume the run, leave out "
        "symbols, or train another model in a new model_dir"
    )
    message = refused("train", **training, symbols=tmp_path / "symbols", start_from=tmp_path)
    assert message == "--symbols has no effect with --start_from: leave it out"


@pytest.fixture
def recorded(without_steps, monkeypatch):
    """Runs commands that a model_dir records as a terminal's."""

    def run_recorded(**options):
        monkeypatch.setattr("sys.argv", ["keras-transformer", "train", *arguments(options)])
        run("train", **options)

    return run_recorded


def without_files(training):
    return {name: training[name] for name in training if not name.startswith("train_")}


def test_a_run_on_files_resumes_with_its_files_only(training, recorded):
    recorded(**training, target_lang="de")
    for others in ({}, {"target_lang": "de"}):
        assert refused("train", **without_files(training), **others) == (
            f"model_dir {training['model_dir']} holds a run that began with --train_source, "
            "--train_target: give the same again to resume it"
        )


def test_a_model_trained_on_files_starts_no_run_without_files(training, recorded, tmp_path):
    recorded(**training)
    start = training["model_dir"]
    assert refused("train", start_from=start, model_dir=tmp_path / "new") == (
        f"--start_from={start} needs --train_source and --train_target, or --tfds: that model was "
        "not trained on the built-in corpus"
    )


def test_a_model_of_the_builtin_corpus_starts_a_run_on_it(
    training, recorded, tmp_path, monkeypatch
):
    monkeypatch.setattr("keras_transformer.cli.train.BUILTIN_PAIRS", 200)
    recorded(**without_files(training))
    start = ModelDir(training["model_dir"])
    new = {"start_from": start.path, **FEW_STEPS, "report": False}
    recorded(**new, model_dir=tmp_path / "new")
    record = start.load_training()
    for unknown in ({"commands": [""]}, {"commands": ["import-marian"], "data": {}}):
        start.save_training({**record, **unknown})
        message = refused("train", **new, model_dir=tmp_path / "other")
        assert "was not trained on the built-in corpus" in message


def test_commands_of_a_flag_file_say_nothing_of_their_data(training, recorded, tmp_path):
    (tmp_path / "flags").write_text("".join(f"{line}\n" for line in arguments(training)))
    recorded(flagfile=tmp_path / "flags")
    assert "other training pairs" in refused("train", **without_files(training))


@pytest.mark.usefixtures("without_steps")
def test_a_run_keeps_the_normalization_that_it_began_with(training):
    run("train", **training, normalization="both")
    run("train", **{**training, "steps": 3})
    model_dir = ModelDir(training["model_dir"])
    assert len(model_dir.load_training()["commands"]) == 2
    assert model_dir.load_tokenizer().normalization == "both"
    message = refused("train", **{**training, "steps": 4}, normalization="source")
    assert message == (
        f"model_dir {model_dir.path} was made with normalization=both: to resume it or to start "
        "from it, leave out normalization (now source)"
    )


@pytest.mark.slow
def test_training_goes_on_without_the_folder_it_started_from(trained, training, tmp_path):
    start = shutil.copytree(trained[0], tmp_path / "start")
    for name in TINY_MODEL:
        del training[name]
    run("train", **training, start_from=start)
    shutil.rmtree(start)
    run("train", **{**training, "steps": 3}, start_from=start)
    assert ModelDir(training["model_dir"]).checkpoints.steps()[-1] == 3


def test_a_pipe_is_no_vocabulary(training, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    message = refused("train", **training, vocabulary=tmp_path / "pipe")
    reason = "is read more than once, so it must be a file: found a pipe"
    assert message == f"{tmp_path / 'pipe'} {reason}"


def test_a_vocabulary_in_a_new_model_dir_is_not_written_over(training):
    training["model_dir"].mkdir()
    (training["model_dir"] / "vocabulary.model").write_bytes(b"mine")
    message = refused("train", **training)
    assert "has vocabulary.model but no model: choose the folder" in message
    assert files_of(training["model_dir"]) == {training["model_dir"] / "vocabulary.model": b"mine"}


def test_an_unknown_flag_is_refused_without_a_traceback(tmp_path):
    process = run_process("train", model_dir=tmp_path / "runs", num_head=4)
    assert process.returncode not in (0, None)
    assert b"Traceback" not in process.stdout + process.stderr
    assert b"num_head" in process.stderr
    assert not (tmp_path / "runs").exists()


def test_an_argument_that_is_no_flag_is_refused(tmp_path):
    process = run_process("train", "train.en", model_dir=tmp_path / "runs")
    assert process.returncode == 2
    [line] = process.stderr.decode().splitlines()
    assert line.startswith("keras-transformer train: 'train.en' is not a flag; see ")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_source": "", "train_target": ""}, "--train_source is missing or empty"),
        ({"download": True}, "--download has no effect without --tfds"),
        ({"start_from": "x"}, "x/config.json: No such file or directory: choose the folder"),
        ({"start_from": "x", "vocab_type": "bpe"}, "--vocab_type has no effect with --start_from"),
        (
            {"start_from": "x", "normalization": "both"},
            "--normalization has no effect with --start_from",
        ),
        ({"source_lang": "en"}, "--source_lang has no effect with the built-in corpus"),
        ({"target_lang": "de"}, "--target_lang has no effect with the built-in corpus"),
        ({"train_weights": "1"}, "--train_weights has no effect with the built-in corpus"),
        ({"seed": -1}, "seed must be in [0, 2^32): found -1"),
    ],
)
def test_flags_that_would_be_ignored_or_mean_nothing_are_refused(tmp_path, options, message):
    assert message in refused("train", model_dir=tmp_path / "runs", **options)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
@pytest.mark.parametrize("option", ["output", "json"])
def test_evaluate_does_not_write_over_what_it_reads(corpus, trained, option):
    source, reference = corpus / "test.en", corpus / "test.de"
    before = reference.read_bytes()
    files = {"source": source, "reference": reference, option: reference}
    assert "another output" in refused("evaluate", model_dir=trained[0], **files)
    assert reference.read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("option", ["output", "json"])
def test_evaluate_does_not_write_over_the_model(judge, tmp_path, without_translating, option):
    model_dir = judge["model_dir"]
    (tmp_path / "link").symlink_to(model_dir)
    before = files_of(model_dir)
    own = [path for path in before if path.parent.name != "report"]
    for path in (*own, model_dir / "best" / "new", tmp_path / "link" / "config.json"):
        message = refused("evaluate", **judge, **{option: path})
        assert message == f"{path} is a file of --model_dir: choose another file"
    assert files_of(model_dir) == before


@pytest.mark.slow
@pytest.mark.parametrize("option", ["output", "json"])
def test_evaluate_does_not_write_over_its_own_standard_output(
    judge, tmp_path, without_translating, option
):
    """As in `evaluate --output=/dev/stdout > out`, which would replace a link of the system's."""
    out = tmp_path / "out"
    with open(out, "w") as file, redirected(file):
        for path in ("/dev/stdout", out):
            assert "another output" in refused("evaluate", **judge, **{option: path})
    assert list(tmp_path.iterdir()) == [out]


@contextlib.contextmanager
def redirected(file):
    """Redirects standard output to a file, as a shell does."""
    before = os.dup(1)
    os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)


# What `evaluate` refuses before it translates, and what it keeps if it fails afterwards.


@pytest.fixture
def without_translating(monkeypatch):
    """Fails if something is translated."""

    def translate_n(*args, **kwargs):
        raise AssertionError("translated before the mistake was found")

    for engine in ("translator.Translator", "ctranslate2.translator.CTranslate2Translator"):
        monkeypatch.setattr(f"keras_transformer.{engine}.translate_n", translate_n)


@pytest.fixture
def judge(trained, corpus):
    """Flags with which `evaluate` works."""
    files = {"source": corpus / "test.en", "reference": corpus / "test.de"}
    return {"model_dir": trained[0], **files}


@pytest.mark.slow
@pytest.mark.parametrize("option", ["output", "json"])
def test_evaluate_refuses_what_is_no_file_to_write_to(judge, tmp_path, without_translating, option):
    message = refused("evaluate", **judge, **{option: tmp_path})
    assert message == f"{tmp_path} is not a regular file: choose another name"
    os.mkfifo(tmp_path / "pipe")  # as /dev/null is: a file of that name would take its place
    message = refused("evaluate", **judge, **{option: tmp_path / "pipe"})
    assert message == f"{tmp_path / 'pipe'} is not a regular file: choose another name"
    message = refused("evaluate", **judge, **{option: ""})
    assert message == f"--{option} is empty: give a file to write to"


@pytest.mark.slow
def test_evaluate_refuses_a_blank_reference(judge, tmp_path, without_translating):
    blank = tmp_path / "blank.de"
    blank.write_text("\n \n\n\n\n")
    message = refused("evaluate", **{**judge, "reference": blank})
    assert message.startswith(
        f"{blank} cannot be scored: each line, or its line of {judge['source']}"
    )


@pytest.mark.slow
def test_evaluate_refuses_a_language_without_its_segmenter(judge, monkeypatch, without_translating):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    assert refused("evaluate", **judge, target_lang="ja").startswith("cannot score 'ja': ")


@pytest.mark.slow
def test_evaluate_refuses_tokens_of_a_language_unknown_to_moses(judge, without_translating):
    message = refused("evaluate", **judge, target_lang="zu", bleu_on_tokens=True)
    assert (
        message == "--bleu_on_tokens needs a --target_lang that Moses knows, such as de: found zu"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["german", "DE", "en-de ", ""])
def test_evaluate_refuses_what_is_not_the_code_of_a_language(judge, name, without_translating):
    message = refused("evaluate", **judge, target_lang=name)
    assert message.startswith(f"target_lang must be a language code such as de: found {name!r}; ")


@pytest.mark.slow
def test_evaluate_refuses_several_translations_of_a_sentence(judge, without_translating):
    message = refused("evaluate", **judge, n_best=2)
    assert message.startswith("--n_best=2 has no effect: evaluate scores the best")


@pytest.mark.slow
def test_evaluate_keeps_the_translations_if_it_cannot_score_them(judge, tmp_path, monkeypatch):
    def fail(*args):
        raise UserError("no scores")

    monkeypatch.setattr("keras_transformer.evaluation.translation_scores", fail)
    options = {**judge, "beam_size": 1, "extra_length": 1, "output": tmp_path / "out.de"}
    assert refused("evaluate", **options) == "no scores"
    assert len((tmp_path / "out.de").read_text().split("\n")) == 6


# Standard input and output, and empty names of folders.


@pytest.mark.parametrize("script", ["translate", "parse"])
@pytest.mark.parametrize("name", ["input", "output"])
def test_a_closed_standard_stream_is_refused(script, name, monkeypatch, tmp_path):
    monkeypatch.setattr(f"sys.std{name.removesuffix('put')}", None)  # as Python has it after <&-
    options = {"engine": "tensorflow"} if script == "translate" else {}  # else it reads the model
    message = refused(script, model_dir=tmp_path, **options)
    assert message == f"standard {name} is closed, but this command needs it"


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("train", {}),
        ("translate", {}),
        ("parse", {}),
        ("evaluate", {"source": "test.en", "reference": "test.de"}),
        ("export", {"format": "saved_model", "output": "out"}),
        ("import-marian", {"source": "test.en"}),
        ("import-opennmt", {"source": "test.en", "config": "test.en"}),
        ("import-m2m100", {"source": "test.en"}),
        ("visualize", {"source": "A horse.", "output": "out"}),
        ("cost", {}),
    ],
)
def test_an_empty_model_dir_is_refused_by_every_command(
    script, options, corpus, tmp_path, monkeypatch
):
    files = {name: corpus / value for name, value in options.items() if value.startswith("test.")}
    monkeypatch.chdir(tmp_path)
    message = refused(script, **{**options, **files, "model_dir": ""})
    assert message == "--model_dir is missing or empty: give it a value"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize("command", ["translate", "report"])
def test_a_model_dir_may_have_a_comma_in_its_name(command, trained, tmp_path, monkeypatch, capfd):
    path = shutil.copytree(trained[0], tmp_path / "en,de")
    assert ended(command, {"model_dir": path}, monkeypatch, capfd) == (0, "")
    (tmp_path / "en,de").rename(tmp_path / "other")
    status, said = ended(command, {"model_dir": path}, monkeypatch, capfd)
    assert status == 2  # an ensemble, of folders that do not exist
    if command == "translate":
        assert (
            f"{tmp_path / 'en'}/config.json: No such file or directory: choose the folder" in said
        )


@pytest.mark.slow
def test_an_empty_name_among_the_folders_of_an_ensemble_is_refused(trained):
    message = refused("translate", model_dir=f"{trained[0]},")
    assert message == "--model_dir is missing or empty: give it a value"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("export", {"format": "saved_model"}),
        ("export", {"format": "ctranslate2"}),
        ("visualize", {"source": "A horse."}),
    ],
)
def test_an_empty_output_is_refused(script, options, trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refused(script, **options, model_dir=trained[0], output="")
    assert message == "--output is missing or empty: give it a value"
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_perplexity_is_computed_in_batches_of_the_given_size(corpus, tmp_path, monkeypatch):
    tokenizer = SubwordTokenizer.train([corpus / "train.en", corpus / "train.de"], 340)
    write_pairs(tmp_path, ("few.en", "few.de"), "train", 20)
    files = {"source": tmp_path / "few.en", "reference": tmp_path / "few.de"}
    model_dir = ModelDir(tmp_path / "run")
    model_dir.create_trained(lively_model(1, tokenizer.vocab_size), tokenizer, "de", "a test")
    rows, perplexities, set_up = [], [], ReferenceLoss.__init__

    def watched(self, model, batches):
        rows.append(max(len(labels) for _, labels in batches))
        set_up(self, model, batches)

    monkeypatch.setattr(ReferenceLoss, "__init__", watched)
    options = {"beam_size": 1, "extra_length": 1, "json": tmp_path / "scores.json"}
    for tokens in (1, 4096):
        run("evaluate", **files, **options, model_dir=model_dir.path, tokens_per_batch=tokens)
        perplexities.append(json.loads((tmp_path / "scores.json").read_text())["perplexity"])
    assert rows[0] == 1 < rows[1]
    assert perplexities[0] == pytest.approx(perplexities[1], rel=1e-5)


@pytest.mark.slow
def test_figures_that_are_no_numbers_are_null_in_json(judge, tmp_path, monkeypatch):
    def diverged(self):
        return {"loss": float("nan"), "perplexity": float("nan")}

    monkeypatch.setattr("keras_transformer.evaluation.ReferenceLoss.__call__", diverged)
    options = {"beam_size": 1, "extra_length": 1, "json": tmp_path / "scores.json"}
    run("evaluate", **judge, **options)
    figures = json.loads((tmp_path / "scores.json").read_text(), parse_constant=pytest.fail)
    assert figures["loss"] is None and figures["perplexity"] is None
    assert figures["beam_size"] == 1
