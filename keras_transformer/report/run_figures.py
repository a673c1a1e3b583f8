"""Draws the curves of runs with matplotlib, over steps and over time, several runs in one plot."""

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
    figure = Figure(figsize=(9, 3), layout="constrained")
    figure.suptitle(plot.title, weight="bold", fontsize=11)
    sides: Any = figure.subplots(1, 2, sharey=True)
    for axes, over in zip(sides, ("step", "hours"), strict=True):
        for run, colour in zip(runs, head_colours(len(runs)), strict=True):
            for index, (split, name, style) in enumerate(plot.lines):
                x, y = run.series(split, name, over)
                label = "run" if index == len(plot.lines) - 1 else None
                marker = "o" if len(x) == 1 else None  # a line of one point would be invisible
                axes.plot(x, y, style, color=colour, label=label, marker=marker, linewidth=1.6)
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
    if len(runs) > 1:
        _legend(sides[1], runs)
    return figure


def _minor_formatter(low, high):
    """Labels between powers of ten, unless at least two powers are certain to be in view."""
    if high >= 100 * low:
        return NullFormatter()
    digits = "25" if high >= 10 * low else "23456789"
    return FuncFormatter(lambda value, _: f"{value:,g}" if f"{value:e}"[0] in digits else "")


def _lengths(runs: Sequence[RunHistory]) -> Figure:
    """The share of rows of batches that are padded to each length."""
    figure = Figure(figsize=(9, 3), layout="constrained")
    axes = figure.subplots()
    for run, colour in zip(runs, head_colours(len(runs)), strict=True):
        lengths = sorted(run.rows_by_length)
        total = sum(run.rows_by_length.values())
        shares = [run.rows_by_length[length] / total for length in lengths]
        axes.step([0, *lengths], [0, *shares], where="pre", color=colour, label="run")
    axes.set_title("Rows of batches by the length they are padded to", weight="bold", fontsize=11)
    axes.set(xlabel="tokens", ylabel="share of rows", ylim=(0, None))
    axes.grid(alpha=0.3)
    if len(runs) > 1:
        _legend(axes, runs)
    return figure


def _legend(axes, runs):
    add_legend(axes, [run.name for run in runs], frameon=False, fontsize=8)
