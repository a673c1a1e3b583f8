"""The tables of the documents are made of the measurements in benchmarks/results/."""

import csv
import datetime
import re

import pytest
from helpers import ROOT

from benchmarks import tables
from tests.docs.test_links import anchor

FILES = sorted(tables.RESULTS.glob("*.csv"))
WITH_TABLES = [path for path in tables.documents() if "<!-- table:" in path.read_text()]
MACHINES = {"", "Intel", "AMD Zen 4", "AMD Zen 5", "AMD AVX2"}


def measurements(*lines):
    """Measurements of the given columns; the first line names them."""
    rows = csv.DictReader(lines)
    columns = ("experiment", "condition", "metric", "unit", "lowest", "highest", "round", "note")
    return [{**dict.fromkeys((*columns, "seed"), ""), **row} for row in rows]


SPEEDS = measurements(
    "subject,machine,round,unit,value",
    "ours,Intel,1,tokens/s,1851",
    "ours,Intel,2,tokens/s,1853",
    "ours,AMD,,tokens/s,785",
    "PyTorch 2.13,Intel,1,tokens/s,1153",
    "PyTorch 2.13,Intel,2,tokens/s,1130",
    "PyTorch 2.13,AMD,,tokens/s,541",
)
SCORES = measurements(
    "subject,metric,value,seed,note",
    "one command,BLEU,41.5,1,",
    "one command,BLEU,41.18,2,The second seed.",
    "published,BLEU,41.02,,",
    "published,loss,-0.5,,",
)


def test_a_table_has_a_row_and_a_column_for_each_name_and_the_ratio_of_each_round():
    text = tables.table(" rows=subject columns=machine ratio=ours ", SPEEDS)
    assert text.splitlines() == [
        "| tokens/s | Intel | AMD |",
        "| --- | --: | --: |",
        "| ours | 1,851 to 1,853 | 785 |",
        "| PyTorch 2.13 | 1,130 to 1,153 | 541 |",
        "| **ours over PyTorch 2.13** | **1.61 to 1.64** | **1.45** |",
    ]


def test_ratios_are_a_column_where_subjects_are_columns_and_may_be_the_cells():
    text = tables.table("rows=machine columns=subject ratio=ours", SPEEDS)
    assert "| AMD | 785 | 541 | **1.45** |" in text
    text = tables.table("rows=unit columns=machine cells=ratio head=speed", SPEEDS)
    assert text.splitlines()[0::2] == [
        "| speed | Intel | AMD |",
        "| tokens/s | 1.61 to 1.64 | 1.45 |",
    ]


def test_values_of_several_seeds_are_one_mean_with_their_number_and_notes():
    text = tables.table(
        'subject="published | one command" rows=subject columns=metric '
        "cells=mean spread=yes count=seeds notes=meaning head=recipe",
        SCORES,
    )
    assert text.splitlines() == [
        "| recipe | BLEU | loss | seeds | meaning |",
        "| --- | --: | --: | --: | --- |",
        "| published | 41.02 | \N{MINUS SIGN}0.5 |  |  |",
        "| one command | 41.34 (41.18 to 41.50) |  | 2 | The second seed. |",
    ]


def test_a_name_that_several_rows_share_stands_in_the_first():
    text = tables.table("rows=subject,metric columns=unit head=recipe|figure", SCORES)
    assert [line.split(" | ")[0] for line in text.splitlines()[2:5]] == [
        "| one command",
        "| published",
        "| ",
    ]


def test_a_table_of_no_measurement_is_refused():
    with pytest.raises(ValueError, match="no measurement for the table subject=theirs"):
        tables.table("subject=theirs rows=subject columns=metric", SCORES)


@pytest.mark.parametrize("document", WITH_TABLES, ids=lambda path: path.name)
def test_tables_of_a_document_are_those_of_the_measurements(document):
    text = document.read_text()
    assert text.count("<!-- table:") == len(tables.TABLE.findall(text))
    assert tables.with_tables(text, tables.read_measurements()) == text, (
        "run `python benchmarks/tables.py`"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_measurements_are_complete(path):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    described, _, _ = (tables.RESULTS / "README.md").read_text().partition("| file |")
    documented = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`.*?) \|", described, re.M)))
    assert [*rows[0]] == documented
    for number, row in enumerate(rows, 2):
        where = f"{path.name}:{number}"
        assert row["experiment"] and row["subject"] and row["metric"], where
        assert row["machine"] in MACHINES, where
        for name in ("value", "lowest", "highest", "rounds", "round", "seed"):
            assert row[name] or name != "value", where
            float(row[name] or 0)
        for day in filter(None, row["date"].split("/")):
            datetime.date.fromisoformat(day)


def test_figures_of_readme_stand_in_the_section_that_they_link_to():
    rows = re.findall(r"^\| (.*) \|$", (ROOT / "README.md").read_text(), re.M)
    found = 0
    for row in rows:
        for page, wanted in re.findall(r"\]\((docs/\w+\.md)#([\w-]+)\) *$", row):
            for figure in re.findall(r"\d[\d.,]*\d", row.split(" | ")[1]):
                assert figure in section((ROOT / page).read_text(), wanted), row
                found += 1
    assert found > 10


def section(text, wanted):
    """A document from a heading on, up to the next one that is not below it."""
    headings = [*re.finditer(r"^(#+) (.*)$", text, re.M)]
    [start] = [heading for heading in headings if anchor(heading[2]) == wanted]
    ends = [h.start() for h in headings if h.start() > start.start() and len(h[1]) <= len(start[1])]
    return text[start.start() : min(ends, default=len(text))]
