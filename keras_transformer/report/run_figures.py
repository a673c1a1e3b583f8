"""Draws the curves of runs with matplotlib, over steps and over time, several runs in one plot."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from keras_transformer.report.attention_figures import add_legend, head_colours
from keras_transformer.report.history import RunHistory


class Plot(NamedTuple):
    """One plot of the report.

    Attributes:
        name: name of its file.
        title: title above the plot.
        lines: (split, figure, style) of each run's curves.
        is_log: whether the scale is logarithmic.
    """

    name: str
    title: str
    lines: tuple[tuple[str, str, str], ...]
    is_log: bool = False


_MARKERS = "os^DvPX*"  # tell runs apart where colours do not, as in print
_LONGEST_NAME = 60  # characters
_SIZE = 7.2, 2.9  # inches: letters stay legible where the page shows two pictures side by side
_BOTH = "dashed: training, solid: validation"
_PLOTS = (
    Plot("loss", f"Loss ({_BOTH})", (("train", "loss", "--"), ("validation", "loss", "-"))),
    Plot(
        "perplexity",
        f"Perplexity ({_BOTH})",
        (("train", "perplexity", "--"), ("validation", "perplexity", "-")),
        is_log=True,
    ),
    Plot("learning_rate", "Learning rate", (("train", "learning_rate", "-"),)),
    Plot("gradient_norm", "Norm of the gradient", (("train", "gradient_norm", "-"),), is_log=True),
    Plot("tokens_per_second", "Target tokens per second", (("train", "tokens_per_second", "-"),)),
    Plot("padding", "Share of padding in batches", (("train", "padding_share", "-"),)),
)


def run_figures(runs: Sequence[RunHistory]) -> dict[str, Figure]:
    """The plots of one or more runs, by the name of their file, without empty plots.

    Example:
        >>> figures = run_figures([read_history(ModelDir("runs/demo"))])
        >>> figures["loss"].savefig("loss.png")
    """
    scores = dict.fromkeys(score for run in runs for score in run.scores)
    plots = [
        Plot(score.replace(" ", "_"), f"{score} of validations", (("validation", score, "-"),))
        for score in scores
    ]
    figures = {
        plot.name: _curves(plot, runs) for plot in (*plots, *_PLOTS) if _has_points(plot, runs)
    }
    if any(run.rows_by_length for run in runs):
        figures["lengths"] = _lengths(runs)
    return figures


def _has_points(plot, runs):
    return any(run.series(split, name)[0] for run in runs for split, name, _ in plot.lines)


def _curves(plot: Plot, runs: Sequence[RunHistory]) -> Figure:
    """A figure of two plots: over steps, and over hours of work."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    figure.suptitle(plot.title, weight="bold", fontsize=11)
    sides: Any = figure.subplots(1, 2, sharey=True)
    for axes, over in zip(sides, ("step", "hours"), strict=True):
        for run, style in zip(runs, _styles(len(runs)), strict=True):
            for split, name, dashes in plot.lines[:-1]:
                axes.plot(*run.series(split, name, over), dashes, color=style["color"])
            split, name, dashes = plot.lines[-1]
            x, y = run.series(split, name, over)
            if len(x) == 1:  # a line of one point would be invisible
                style = {"marker": "o", **style}
            axes.plot(x, y, dashes, **style, label="run" if over == "step" else None)
        axes.set_xlabel(over if over == "step" else "hours of work")
        if plot.is_log:
            axes.set_yscale("log")
            low, high = axes.get_ylim()
            axes.yaxis.set_minor_formatter(_minor_formatter(low, high))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        axes.grid(alpha=0.3)
    whole = MaxNLocator(5, integer=True, steps=[1, 2, 2.5, 5, 10], min_n_ticks=1)
    sides[0].xaxis.set_major_locator(whole)
    sides[0].xaxis.set_major_formatter("{x:,.0f}")
    _add_legend(figure, runs)
    return figure


def _styles(count: int) -> list[dict[str, Any]]:
    """The style of each run's line: a colour, and with several runs a marker."""
    styles: list[dict[str, Any]] = [{"color": colour} for colour in head_colours(count)]
    for number, style in enumerate(styles if count > 1 else ()):
        marker = _MARKERS[number % len(_MARKERS)]
        style |= {"marker": marker, "markersize": 5, "markevery": 0.12}  # share of the diagonal
    return styles


def _minor_formatter(low, high):
    """Labels between powers of ten, unless at least two powers are certain to be in view."""
    if high >= 100 * low:
        return NullFormatter()
    digits = "25" if high >= 10 * low else "23456789"
    return FuncFormatter(lambda value, _: f"{value:,g}" if f"{value:e}"[0] in digits else "")


def _lengths(runs: Sequence[RunHistory]) -> Figure:
    """The share of rows of batches that are padded to each length."""
    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    for run, style in zip(runs, _styles(len(runs)), strict=True):
        lengths = sorted(run.rows_by_length)
        total = sum(run.rows_by_length.values())
        shares = [run.rows_by_length[length] / total for length in lengths]
        axes.step([0, *lengths], [0, *shares], where="pre", label="run", **style)
    axes.set_title("Rows of batches by the length they are padded to", weight="bold", fontsize=11)
    axes.set(xlabel="tokens", ylabel="share of rows", ylim=(0, None))
    axes.grid(alpha=0.3)
    _add_legend(figure, runs)
    return figure


def _add_legend(figure: Figure, runs: Sequence[RunHistory]) -> None:
    """Names several runs below the plots, in rows that make the figure taller."""
    if len(runs) == 1:
        return
    names = [_shortened(run.name) for run in runs]
    columns = max(1, min(len(runs), 100 // (max(map(len, names)) + 8)))
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.2 * math.ceil(len(runs) / columns))
    place: Any = {"loc": "outside lower center", "ncols": columns}
    add_legend(figure, names, **place, frameon=False, fontsize=9)


def _shortened(name: str) -> str:
    """Cuts the middle out of a long name, whose beginning and end tell more."""
    half = _LONGEST_NAME // 2
    return name if len(name) <= _LONGEST_NAME else f"{name[: half - 1]}…{name[-half:]}"
