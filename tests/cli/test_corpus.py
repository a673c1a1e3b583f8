"""The command `corpus`: what it prints and writes, and what it refuses."""

import gzip
import os
import subprocess
import sys

import pytest
from command_lines import arguments, refused, run
from helpers import ROOT

PAIRS = [
    ("Save the file", "Datei speichern"),
    ("Save the file", "Datei speichern"),
    ("Open", "Open"),
    ("Page 12", "Seite 13"),
    ("Close the window", "Fenster schließen"),
    ("Read this", "Lies das"),
]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The corpus and a validation set, as flags."""
    monkeypatch.chdir(tmp_path)
    for name, pairs in (("raw", PAIRS), ("valid", PAIRS[5:])):
        for language, side in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
            (tmp_path / f"{name}.{language}").write_text("".join(f"{line}\n" for line in side))
    return {"source": "raw.en", "target": "raw.de"}


VALID = {"valid_source": "valid.en", "valid_target": "valid.de"}
OUTPUTS = {"output_source": "out.en", "output_target": "out.de"}


def counts(printed):
    """The number of pairs that break each rule, as printed."""
    rows = [line.split() for line in printed.partition("\nrule ")[2].splitlines()[1:]]
    return {row[0]: int(row[1]) for row in rows if len(row) > 2 and row[2].endswith("%")}


def test_it_prints_what_it_finds_and_writes_nothing(files, tmp_path, capsys):
    before = {*tmp_path.iterdir()}
    run("corpus", **files, **VALID)
    printed = capsys.readouterr().out
    found = {rule: count for rule, count in counts(printed).items() if count}
    assert found == {"copy": 1, "number": 1, "overlap": 1, "duplicate": 1, "together": 4}
    assert printed.startswith("6 pairs ")
    assert {*tmp_path.iterdir()} == before


def test_it_warns_of_files_that_were_mixed_up(files, tmp_path, capsys):
    run("corpus", **files, valid_source="valid.de", valid_target="valid.en")
    warning = "Warning: source and target of valid.de, valid.en seem to be exchanged"
    assert capsys.readouterr().out.splitlines()[-1] == warning


def test_it_writes_the_pairs_that_break_no_rule_and_examples_of_the_others(files, tmp_path, capsys):
    run("corpus", **files, **VALID, **OUTPUTS)
    assert (tmp_path / "out.en").read_text() == "Save the file\nClose the window\n"
    assert (tmp_path / "out.de").read_text() == "Datei speichern\nFenster schließen\n"
    assert (tmp_path / "out.en.dropped.tsv").read_text().splitlines() == [
        "copy\traw.en:3\tOpen\tOpen",
        "number\traw.en:4\tPage 12\tSeite 13",
        "overlap\traw.en:6\tRead this\tLies das",
        "duplicate\traw.en:2\tSave the file\tDatei speichern",
    ]
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Wrote 2 pairs to out.en and out.de; dropped 4",
        "Wrote examples of suspicious pairs to out.en.dropped.tsv",
    ]


def test_a_file_name_that_is_not_utf_8_is_escaped_among_the_examples(files, tmp_path):
    name = os.fsdecode(b"raw\xff.en")
    (tmp_path / "raw.en").rename(tmp_path / name)
    run("corpus", **{**files, "source": name}, examples="examples")
    first = (tmp_path / "examples").read_text().splitlines()[0]
    assert first == "copy\traw\\udcff.en:3\tOpen\tOpen"


def test_a_clean_corpus_is_clean(files, capsys):
    run("corpus", **files, **OUTPUTS)
    capsys.readouterr()
    run("corpus", source="out.en", target="out.de")
    assert {*counts(capsys.readouterr().out).values()} == {0}


def test_names_in_gz_are_compressed(files, tmp_path):
    run("corpus", **files, output_source="out.en.gz", output_target="out.de", examples="x.gz")
    assert gzip.decompress((tmp_path / "out.en.gz").read_bytes()).startswith(b"Save the file\n")
    assert b"copy\traw.en:3" in gzip.decompress((tmp_path / "x.gz").read_bytes())
    assert not (tmp_path / "out.en.dropped.tsv").exists()


def test_rules_and_limits_change_what_is_kept(files, tmp_path):
    run("corpus", **files, **OUTPUTS, skip_rules="copy,duplicate", min_digits=0.5)
    assert (tmp_path / "out.en").read_bytes() == (tmp_path / "raw.en").read_bytes()


def test_several_files_become_one(files, tmp_path):
    run("corpus", source="raw.en,valid.en", target="raw.de,valid.de", **OUTPUTS)
    lines = (tmp_path / "out.en").read_text().splitlines()
    assert lines == ["Save the file", "Close the window", "Read this"]


def test_an_existing_file_is_replaced_only_on_request(files, tmp_path):
    (tmp_path / "out.de").write_text("mine\n")
    message = refused("corpus", **files, **OUTPUTS)
    assert message == "out.de exists already: --overwrite replaces it"
    assert (tmp_path / "out.de").read_text() == "mine\n" and not (tmp_path / "out.en").exists()
    run("corpus", **files, **OUTPUTS, overwrite=True)
    assert (tmp_path / "out.de").read_text().startswith("Datei")


def test_an_interrupted_run_leaves_no_file(files, tmp_path, monkeypatch):
    before = {*tmp_path.iterdir()}
    monkeypatch.setattr("keras_transformer.data.check_pairs", _interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("corpus", **files, **OUTPUTS)
    assert {*tmp_path.iterdir()} == before


def _interrupted(pairs, rules, keep):
    keep(b"one", b"eins")
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "no.en"}, "no.en: cannot read the file: No such file or directory"),
        (
            {"target": "valid.de"},
            "source and target must have equal numbers of lines: found 6 in raw.en and 1 in "
            "valid.de",
        ),
        ({"target": "latin.de"}, "latin.de:3: not UTF-8 text: invalid continuation byte"),
        (
            {"source": "raw.en,valid.en"},
            "equal numbers of files: found 2 by raw.en, valid.en and 1 by raw.de",
        ),
        ({"source": "empty", "target": "empty"}, "empty, empty has no pair of sentences"),
        ({"skip_rules": "copies"}, "--skip_rules: there is no rule 'copies': use empty, encoding,"),
        (
            {"skip_rules": "copy,long", "max_words": 20},
            "--max_words has no effect with --skip_rules=long: leave it out",
        ),
        (
            {"skip_rules": "language", "target_lang": "de"},
            "--target_lang has no effect with --skip_rules=language: leave it out",
        ),
        (
            {"skip_rules": "overlap", **VALID},
            "--valid_source has no effect with --skip_rules=overlap: leave it out",
        ),
        (
            {"min_confidence": 0.5},
            "--min_confidence has no effect without --source_lang or --target_lang: leave it out",
        ),
        ({"max_words": 0}, "max_words must be at least 1: found 0"),
        (
            {"source_lang": "English"},
            "--source_lang must be a language code such as de: found 'English'",
        ),
        ({"valid_source": "valid.en"}, "--valid_source and --valid_target go together"),
        ({"output_source": "out"}, "--output_source and --output_target go together"),
        ({"examples": "raw.de"}, "raw.de is an input or another output: choose another file"),
        ({"examples": "no/x"}, "no/x: its folder does not exist or is not writable"),
        ({"output_source": "out", "output_target": "out"}, "out is an input or another output"),
        ({"overwrite": True}, "--overwrite has no effect without a file to write: leave it out"),
        (
            {**OUTPUTS, "max_characters": 1},
            "raw.en, raw.de: every pair breaks a rule (long 6), so none is left: read --examples",
        ),
    ],
    ids=str,
)
def test_a_mistake_is_refused_in_one_line_and_nothing_is_written(files, tmp_path, options, message):
    (tmp_path / "latin.de").write_bytes("Datei\nFenster\nschließen\n\n\n\n".encode("latin-1"))
    (tmp_path / "empty").write_text("")
    before = {*tmp_path.iterdir()}
    assert message in refused("corpus", **{**files, **options})
    assert {*tmp_path.iterdir()} == before


def test_it_runs_without_tensorflow(files, tmp_path):
    script = (
        "import sys; sys.modules.update(dict.fromkeys(('keras', 'tensorflow', 'jax', 'torch')))\n"
        "from keras_transformer.cli.main import main; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", script, "corpus", *arguments({**files, **OUTPUTS})]
    env = {"PYTHONPATH": str(ROOT)}
    process = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (process.returncode, process.stderr) == (0, "")
    assert "Wrote 3 pairs to out.en and out.de; dropped 3" in process.stdout
