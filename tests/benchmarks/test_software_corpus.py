"""The corpus of software texts: what it reads from packages, drops and holds out."""

import gzip
import runpy
import subprocess
import sys

import pytest
from absl import flags
from helpers import ROOT


@pytest.fixture(scope="module")
def corpus():
    """The names that the script defines, without its flags."""
    known = set(flags.FLAGS)
    module = runpy.run_path(str(ROOT / "benchmarks/software_corpus.py"))
    for name in set(flags.FLAGS) - known:
        delattr(flags.FLAGS, name)
    return module


def test_a_catalogue_gives_translated_messages_without_their_context(corpus, tmp_path):
    file = tmp_path / "de.po"
    file.write_text(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
        'msgctxt "verb"\nmsgid "Open"\nmsgstr "Öffnen"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\n'
        'msgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\n\n'
        '#, fuzzy\nmsgid "Close"\nmsgstr "Nah"\n\n'
        'msgid "Save"\nmsgstr ""\n\n'
        'msgid "%<PRIuMAX> bytes"\nmsgstr "%<PRIuMAX> Bytes"\n',
        encoding="utf-8",
    )
    pairs = [*corpus["messages"](file, "program:x")]
    assert pairs == [("%d file", "%d Datei", "program:x"), ("Open", "Öffnen", "program:x")]


def test_a_catalogue_that_cannot_be_read_is_left_out_and_named(corpus, tmp_path, capsys):
    file = tmp_path / "de.mo"
    file.write_bytes(b"not a catalogue")
    assert [*corpus["messages"](file, "program:x")] == []
    assert capsys.readouterr().err.startswith(f"without {file}: ")


def test_an_existing_corpus_is_not_replaced(tmp_path):
    (tmp_path / "train.en").write_text("A user's line.\n")
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks/software_corpus.py", f"--output={tmp_path}"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.startswith(f"{tmp_path}/train.en exists: ")
    assert [file.name for file in tmp_path.iterdir()] == ["train.en"]


def test_a_manual_page_gives_the_paragraphs_of_its_sections(corpus, tmp_path):
    file = tmp_path / "ls.1.gz"
    with gzip.open(file, "wt") as stream:
        stream.write(
            ".TH LS 1\n.SH OPTIONS\nLists\n.I the\nfiles.\n.PP\n.EX\nls -l\n.EE\n"
            '.TP\n.BR "a b" (1)\nall\n.\\" comment\n'
        )
    assert corpus["manual_sections"](file) == [
        [("TH", "")],
        [
            ("SH", "OPTIONS"),
            ("text", "Lists the files."),
            ("PP", ""),
            ("EX", ""),
            ("EE", ""),
            ("TP", "a b(1) all"),
        ],
    ]


def test_a_description_has_a_paragraph_for_each_item_of_a_list(corpus):
    lines = [" Two lines", " of text.", " .", "  * one", "  * two", " ."]
    assert corpus["paragraphs"](lines) == ["Two lines of text.", "one", "two"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("S&ave _as", "S&ave _as"),
        ("_Save", "Save"),
        ("S&ave", "Save"),
        ("open_file", "open_file"),
        ("B<I<tar> -x> %<x%>", "tar -x 'x'"),
        ('<b>Bold</b> <a href="x">of</a> <file> &amp; all<br/>', "Bold of <file> & all"),
        ("two\n lines\\-here \\fBx\\fR", "two lines-here x"),
    ],
)
def test_a_text_is_plain_and_keeps_its_placeholders(corpus, text, expected):
    assert corpus["plain"](text, of_a_program=True) == expected


def test_only_texts_of_programs_have_accelerators(corpus):
    assert corpus["plain"]("_Save", of_a_program=False) == "_Save"


def test_sentences_are_paired_where_both_sides_have_as_many(corpus):
    pairs = corpus["sentence_pairs"]
    assert pairs("Stop. Go on.", "Halt. Weiter.") == [("Stop.", "Halt."), ("Go on.", "Weiter.")]
    assert pairs("Stop. Go on.", "Halt, weiter.") == [("Stop. Go on.", "Halt, weiter.")]
    assert pairs("Use z. B. Tar.", "Use Tar.") == [("Use z. B. Tar.", "Use Tar.")]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("Save the file", "Die Datei speichern", None),
        ("%s: %d", "%s: %d", "hardly any letters"),
        ("Save File", "save file!", "the same on both sides"),
        ("word " * 101, "Wort " * 101, "more than 100 words"),
        ("Save all of the files", "Alles", "very different lengths"),
        ("Speichern der Datei ist nötig", "The name of the file", "English on both sides"),
        ("Since 2019, at version 3", "Seit 2018, in Version 3", "other numbers"),
    ],
)
def test_a_pair_that_is_of_no_use_is_dropped_for_a_reason(corpus, source, target, expected):
    assert corpus["fault"](source, target) == expected


def test_a_pair_is_kept_once_whatever_its_case_and_digits(corpus, capsys):
    raw = [("Save 1 file", "Eine Datei", "help"), ("save 2 file.", "eine datei", "manual")]
    assert corpus["usable_pairs"](iter(raw)) == [("Save 1 file", "Eine Datei", "help")]
    assert "dropped       1  repeated" in capsys.readouterr().out


def test_nothing_held_out_is_in_train(corpus):
    def letters(number):  # digits would make no difference between texts
        return "".join(chr(97 + int(digit)) for digit in f"{number:03}")

    rows = [
        (f"the old text {letters(i)}", f"der alte Text {letters(i // 2)}", "help")
        for i in range(200)
    ]
    rows += [
        (f"a held text {letters(i)}", f"ein Text {letters(i)}", "document:apt") for i in range(20)
    ]
    rows += [("short", "kurz", "help"), ("apt", "Apt", "document:apt")]
    parts = corpus["split"](rows, held=10)
    assert {name: len(part) for name, part in parts.items() if name != "train"} == {
        "valid": 10,
        "test": 10,
        "test.docs": 10,
    }
    assert {row[2] for row in parts["test.docs"]} == {"document:apt"}
    assert {row[2] for row in parts["train"]} == {"help"}
    held = [row for name, part in parts.items() if name != "train" for row in part]
    for side in (0, 1):
        assert not {row[side] for row in held} & {row[side] for row in parts["train"]}
    assert ("short", "kurz", "help") in parts["train"]
    assert parts == corpus["split"](rows[::-1], held=10)
