"""Writes the tables of the documents from the measurements in benchmarks/results/.

  python benchmarks/tables.py

A table stands between two comments, of which the first says how it is made. With measurements of
the experiment "training" by two programs on two machines, on one of them in two rounds,

    <!-- table: experiment="training" rows=subject columns=machine ratio=ours -->
    <!-- /table -->

becomes

    | tokens/s | Intel | AMD |
    | --- | --: | --: |
    | ours | 1,851 to 1,853 | 785 |
    | PyTorch 2.13 | 1,130 to 1,153 | 541 |
    | **ours over PyTorch 2.13** | **1.61 to 1.64** | **1.45** |

Any column of the measurements (benchmarks/results/README.md) followed by `=` chooses those with
this value; `|` separates several values, in the order of the table's rows or columns. Beside them
there may be

    rows=subject,seed      columns that name a row
    columns=machine        columns that name a column; together they name one
    cells=mean             what stands for several values: mean, median, range (default) or ratio
    spread=yes             add the lowest and the highest value in brackets
    ratio=ours             add the ratio of this subject to the best other one, round by round
    count=seeds            add a column with the number of seeded values, and its heading
    notes=why              add a column with the notes of a row, and its heading
    head="run|machine"     headings of the columns that name a row
"""

import collections
import csv
import itertools
import json
import math
import re
import shlex
import statistics
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
TABLE = re.compile(r"(<!-- table:(.*?)-->\n).*?(<!-- /table -->)", re.DOTALL)
OPTIONS = ("rows", "columns", "cells", "spread", "ratio", "count", "notes", "head")


def main():
    measurements = read_measurements()
    for path in documents():
        path.write_text(with_tables(path.read_text(), measurements))


def documents():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def read_measurements():
    """All measurements, one dictionary each."""
    found = []
    for path in sorted(RESULTS.glob("*.csv")):
        with path.open(newline="") as file:
            found += csv.DictReader(file)
    return found + table3()


def table3():
    """The figures of `table3.py`, which keeps them in a file of its own."""
    lines = (ROOT / "benchmarks/table3_multi30k.jsonl").read_text().splitlines()
    results = [json.loads(line) for line in lines]
    base = statistics.mean(math.log(r["perplexity"]) for r in results if r["row"] == "base")
    found = []
    for result in results:
        loss = math.log(result["perplexity"]) - base
        figures = [("perplexity", result["perplexity"], 2), ("BLEU", result["bleu"], 2)]
        for metric, value, digits in [*figures, ("loss minus that of base", loss, 3)]:
            measurement = {
                "experiment": "Table 3 at convergence",
                "subject": result["row"],
                "condition": "ours",
                "metric": metric,
                "value": str(value),
                "decimals": digits,
                "seed": str(result["seed"]),
            }
            found.append(collections.defaultdict(str, measurement))
    return found


def with_tables(text, measurements):
    """A document with its tables made anew."""
    return TABLE.sub(lambda found: f"{found[1]}\n{table(found[2], measurements)}\n{found[3]}", text)


def table(description, measurements):
    """One table as Markdown."""
    given = dict(part.split("=", 1) for part in shlex.split(description))
    options = {name: given.pop(name) for name in OPTIONS if name in given}
    wanted = {name: re.split(r"\s*\|\s*", values) for name, values in given.items()}
    chosen = [m for m in measurements if all(m[name] in wanted[name] for name in wanted)]
    if not chosen:
        raise ValueError(f"no measurement for the table {description.strip()}")
    row_keys, column_keys = (options[name].split(",") for name in ("rows", "columns"))
    rows = grouped(chosen, row_keys, wanted)
    columns = grouped(chosen, column_keys, wanted)
    lines = [
        [*names, *(cell([m for m in column if m in row], options) for column in columns.values())]
        for names, row in rows.items()
    ]
    further = further_columns(chosen, column_keys, options)
    for line, row in zip(lines, rows.values(), strict=True):
        line += [cell_of(row) for _, cell_of in further]
    if len(row_keys) > 1:  # a name that several rows share stands in the first of them
        for before, line in reversed([*itertools.pairwise(lines)]):
            line[0] = "" if line[0] == before[0] else line[0]
    if "ratio" in options and "subject" in row_keys:
        ratios = [ratio_text(column, options["ratio"]) for column in columns.values()]
        lines.append([f"**{ratio_heading(chosen, options['ratio'])}**", *ratios])
    heads = row_headings(chosen, row_keys, column_keys, options)
    heads += [", ".join(filter(None, names)) for names in columns]
    heads += [heading for heading, _ in further]
    rule = ["---"] * len(row_keys) + ["--:"] * (len(heads) - len(row_keys) - ("notes" in options))
    rule += ["---"] * ("notes" in options)
    return "".join("| " + " | ".join(line) + " |\n" for line in [heads, rule, *lines])


def further_columns(chosen, column_keys, options):
    """Columns beside those of the measurements: headings, and cells for a row's measurements."""
    columns = []
    if "ratio" in options and "subject" in column_keys:
        ours = options["ratio"]
        columns.append((ratio_heading(chosen, ours), lambda row: ratio_text(row, ours)))
    if "count" in options:
        columns.append((options["count"], seeded_values))
    if "notes" in options:
        columns.append((options["notes"], notes_of))
    return columns


def grouped(measurements, keys, wanted=None):
    """Measurements by the labels of some columns, in the order of the wanted values."""
    sorting = [key for key in keys if key in (wanted or {})]
    groups = {}
    for m in sorted(measurements, key=lambda m: [wanted[key].index(m[key]) for key in sorting]):
        groups.setdefault(tuple(label(m, key) for key in keys), []).append(m)
    return groups


def label(measurement, key):
    if key == "metric" and measurement["unit"]:
        return f"{measurement['metric']} ({measurement['unit']})"
    return measurement[key]


def row_headings(chosen, row_keys, column_keys, options):
    """Headings of the columns that name a row; the first is the unit that all figures share."""
    if "head" in options:
        return options["head"].split("|")
    units = {m["unit"] for m in chosen}
    stands_elsewhere = "metric" in row_keys + column_keys or len(units) > 1
    return ["" if stands_elsewhere else units.pop(), *row_keys[1:]]


def cell(found, options):
    """The text of a table cell for some measurements."""
    if not found:
        return ""
    how = options.get("cells", "range")
    if how == "ratio":
        return range_text(ratios_of(found, "ours"), 2)
    digits = max(map(decimals, found))
    values = [float(m["value"]) for m in found]
    if how == "range":
        return range_text(values, digits)
    text = number(getattr(statistics, how)(values), digits)
    ends = [float(m[end] or m["value"]) for m in found for end in ("lowest", "highest")]
    if "spread" in options and min(ends) < max(ends):
        text += f" ({range_text(ends, digits)})"
    return text


def ratio_heading(chosen, subject):
    others = {m["subject"] for m in chosen} - {subject}
    return f"{subject} over {others.pop() if len(others) == 1 else 'the fastest other'}"


def ratio_text(found, subject):
    text = range_text(ratios_of(found, subject), 2)
    return f"**{text}**" if text else ""


def ratios_of(found, subject):
    """The ratios of a subject's figures to the best of the others', round by round."""
    ratios = []
    for of_round in grouped(found, ["round"]).values():
        ours = [float(m["value"]) for m in of_round if m["subject"] == subject]
        others = [float(m["value"]) for m in of_round if m["subject"] != subject]
        if ours and others:
            ratios.append(max(ours) / max(others))
    return ratios


def seeded_values(row):
    """How many values with a seed the fullest cell of a row has."""
    groups = grouped([m for m in row if m["seed"]], ["condition", "metric"])
    return str(max(map(len, groups.values()), default=""))


def notes_of(row):
    return " ".join(dict.fromkeys(m["note"] for m in row if m["note"]))


def range_text(values, digits):
    """The lowest and the highest value, or the only one."""
    ends = [number(end(values), digits) for end in (min, max)] if values else [""]
    return " to ".join(dict.fromkeys(ends))


def number(value, digits):
    return f"{value:,.{digits}f}".replace("-", "\N{MINUS SIGN}")


def decimals(measurement):
    return measurement.get("decimals", len(measurement["value"].partition(".")[2]))


if __name__ == "__main__":
    main()
