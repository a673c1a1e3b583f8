"""The page of a report: one self-contained HTML file, with its pictures also as files."""

import base64
import dataclasses
import datetime
import difflib
import html
import io
import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from keras_transformer.errors import UserError
from keras_transformer.files import refuse_existing, whole_file
from keras_transformer.parsing import search_defaults
from keras_transformer.report.attention_figures import heat_figure
from keras_transformer.report.fonts import fonts_for, words_of
from keras_transformer.report.history import RunHistory, read_history
from keras_transformer.report.run_figures import run_figures
from keras_transformer.report.word_attention import WordAttention, pair_attention
from keras_transformer.text.directed import DirectedTokenizer
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.translator import Translator

_DPI = 110
_SHOWN = 5  # letters without a font


def write_report(
    model_dirs: Sequence[ModelDir],
    output: str | os.PathLike | None = None,
    overwrite: bool = False,
) -> Path:
    """Writes the report of one run, or of several side by side.

    Args:
        model_dirs: the runs, finished or not.
        output: folder for `index.html` and the pictures, made if missing. Default: `report` in the
            first model_dir, where an earlier report is replaced.
        overwrite: whether to replace files of the same names in `output`.

    Returns:
        The path of the page.

    Raises:
        UserError: a model_dir holds no model, or one that was not trained there, or there are files
            to overwrite.

    Example:
        >>> write_report([ModelDir("runs/demo")])
        PosixPath('runs/demo/report/index.html')
    """
    runs = [read_history(model_dir) for model_dir in model_dirs]
    if len({run.name for run in runs}) < len(runs):  # such as a/model and b/model
        paths = [os.fsencode(model_dir.path).decode("utf-8", "replace") for model_dir in model_dirs]
        runs = [dataclasses.replace(run, name=p) for run, p in zip(runs, paths, strict=True)]
    pictures = {name: _png(figure) for name, figure in run_figures(runs).items()}
    missing = ""
    for index, (model_dir, run) in enumerate(zip(model_dirs, runs, strict=True)):
        attention = _attention(model_dir, run, of=f" of {run.name}" if len(runs) > 1 else "")
        if not attention:
            continue
        if without_font := fonts_for(words_of(attention))[1]:
            missing += without_font
            continue
        figure = heat_figure(attention, layer=model_dir.load_config().alignment_layer)
        pictures[f"attention{index + 1 if len(runs) > 1 else ''}"] = _png(figure)
    folder = Path(output) if output else model_dirs[0].path / "report"
    page, files = folder / "index.html", {name: folder / f"{name}.png" for name in pictures}
    if output and not overwrite:
        refuse_existing([page, *files.values()])
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in files.items():
        with whole_file(path) as partial:
            partial.write_bytes(pictures[name])
    with whole_file(page) as partial:
        # A command may name files whose bytes are not UTF-8.
        partial.write_text(
            _page(runs, pictures, missing), encoding="utf-8", errors="backslashreplace"
        )
    return page


def _attention(model_dir: ModelDir, run: RunHistory, of: str) -> WordAttention | None:
    """The cross-attention of the model's own translation of the shortest sample, if drawable."""
    if not run.samples or not model_dir.checkpoints.steps():
        return None
    model, tokenizer = model_dir.load_model(), model_dir.load_tokenizer()
    sample = min(run.samples, key=lambda row: len(row["source"]))
    source = sample["source"]
    if "target_lang" in sample:
        tokenizer = DirectedTokenizer(tokenizer, sample["target_lang"])
    translator = Translator(model, tokenizer, **search_defaults(tokenizer))
    [translation] = translator([source])
    try:
        attention = pair_attention(model, tokenizer, source, translation)["memory"]
    except UserError:  # a sentence has no token, or too many for a picture
        return None
    return attention._replace(title=attention.title + of)


def _png(figure: Figure) -> bytes:
    content = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # letters of a run's name without a font
        figure.savefig(content, format="png", dpi=_DPI)
    return content.getvalue()


def _page(runs: Sequence[RunHistory], pictures: Mapping[str, bytes], missing: str) -> str:
    *others, last = [run.name for run in runs]
    names = f"{', '.join(others)} and {last}" if others else last
    parts = {
        "TITLE": html.escape(names),
        "SUMMARY": _summary(runs),
        "PICTURES": "\n".join(_image(name, content) for name, content in pictures.items())
        or "<p>Nothing is logged yet.",
        "FONTS": missing and _without_fonts(missing),
        "SAMPLES": "\n".join(_samples(run) for run in runs),
        "OPTIONS": _options(runs),
        "STARTS": "\n".join(_starts(run) for run in runs),
    }
    page = resources.files(__package__).joinpath("run_page.html").read_text(encoding="utf-8")
    before, *pieces = page.split("{{")
    for piece in pieces:  # one pass, so inserted text is never searched
        name, _, rest = piece.partition("}}")
        before += parts[name] + rest
    return before


def _summary(runs):
    """A table with a row for each run: steps, data, validations, chosen weights, time."""
    columns = (
        *("run", "step", "pairs", "padding", "last validation", "best validation"),
        *("weights", "hours"),
    )
    return _table([columns, *(_summary_row(run) for run in runs)])


def _summary_row(run):
    last, best = "none", "none"
    if run.figures["validation"]:
        shown = ["perplexity", *run.scores]
        entry = run.figures["validation"][-1]
        last = ", ".join(f"{name} {_figure(entry.get(name))}" for name in shown)
        by = run.training["options"]["best_by"]
        name = "loss" if by == "loss" or not run.scores else run.scores[0]
        steps, values = run.series("validation", name)
        if values:
            value = min(values) if name == "loss" else max(values)
            best = f"{name} {_figure(value)} at step {steps[values.index(value)]:,}"
    kept = run.training["data"].get("kept")
    return (
        run.name,
        f"{run.step:,} of {run.training['options']['steps']:,}",
        "unknown" if kept is None else f"{kept:,}",
        "unknown" if run.padding_share is None else f"{run.padding_share:.1%}",
        *(last, best, run.weights),
        f"{run.hours:.2f}",
    )


def _without_fonts(missing):
    some = html.escape(" ".join(dict.fromkeys(missing[:_SHOWN])))
    return (
        f"<p>No attention is drawn, since no font on this machine has letters such as {some}: "
        "install one, such as Noto Sans CJK for Chinese, Japanese and Korean, and run "
        "<code>keras-transformer report</code> again."
    )


def _figure(value: float | None) -> str:
    return "not finite" if value is None else f"{value:.2f}"


def _image(name, content):
    data = base64.b64encode(content).decode("ascii")
    alternative = html.escape(name.replace("_", " "))
    return f'<div class=picture><img src="data:image/png;base64,{data}" alt="{alternative}"></div>'


def _samples(run):
    """The samples of the last validation; words that differ from the reference are marked."""
    blocks = [] if run.samples else ["<p>No validation recorded any."]
    for row in run.samples:
        translation, reference = row["translation"].split(), row["reference"].split()
        matcher = difflib.SequenceMatcher(None, translation, reference, autojunk=False)
        same = matcher.get_matching_blocks()
        kept = {index for a, _, size in same for index in range(a, a + size)}
        found = {index for _, b, size in same for index in range(b, b + size)}
        blocks.append(
            f"<dl><dt>source<dd dir=auto>{html.escape(row['source'])}"
            f"<dt>translation<dd dir=auto>{_marked(translation, kept, 'del')}"
            f"<dt>reference<dd dir=auto>{_marked(reference, found, 'ins')}</dl>"
        )
    return f"<h3>{html.escape(run.name)}</h3>\n" + "\n".join(blocks)


def _marked(words: Sequence[str], same: Iterable[int], tag: str) -> str:
    return " ".join(
        html.escape(word) if index in same else f"<{tag}>{html.escape(word)}</{tag}>"
        for index, word in enumerate(words)
    )


def _options(runs):
    """The fields of configurations and options; those that differ between runs come first."""
    fields: list[dict[str, Any]] = [
        {"preset": run.training["preset"], **run.config, **run.training["options"]} for run in runs
    ]
    names = dict.fromkeys(name for values in fields for name in values)

    def texts(name):
        return [str(values.get(name, "")) for values in fields]

    different = [name for name in names if len(set(texts(name))) > 1]
    rest = [name for name in names if name not in different]
    rows = [(name, *texts(name)) for name in (*different, *rest)]
    return _table([("field", *(run.name for run in runs)), *rows], marked=len(different))


def _starts(run):
    """Each start of a run: its time, its command, and the machine."""
    blocks = []
    for command, start in zip(run.training["commands"], run.training["starts"], strict=False):
        when = datetime.datetime.fromtimestamp(start["time"], datetime.UTC)
        rest = ", ".join(
            f"{name} {value}" for name, value in start.items() if value and name != "time"
        )
        blocks.append(
            f"<p>{when:%Y-%m-%d %H:%M} UTC<pre>{html.escape(command)}</pre><p>{html.escape(rest)}"
        )
    return f"<h3>{html.escape(run.name)}</h3>\n" + "\n".join(blocks)


def _table(rows: Sequence[Sequence[str]], marked: int = 0) -> str:
    """A table whose first row is its header; the first `marked` rows after it are highlighted."""
    head, *body = rows
    lines = ["<tr>" + "".join(f"<th>{html.escape(cell)}" for cell in head)]
    for index, row in enumerate(body):
        kind = ' class="different"' if index < marked else ""
        cells = "".join(f"<td>{html.escape(cell)}" for cell in row[1:])
        lines.append(f'<tr{kind}><th scope="row">{html.escape(row[0])}{cells}')
    return '<div class="wide"><table>' + "\n".join(lines) + "</table></div>"
