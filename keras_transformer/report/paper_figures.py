"""Figures of the positional encoding and the learning rate (paper, sections 3.5 and 5.3)."""

from collections.abc import Mapping

import numpy as np
from keras import ops
from matplotlib.figure import Figure

from keras_transformer.layers import LearnedPositions, PositionalEncoding
from keras_transformer.report.attention_figures import add_legend, head_colours
from keras_transformer.schedules import InverseSquareRootSchedule


def positions_figure(positions: PositionalEncoding | LearnedPositions, length: int = 100) -> Figure:
    """Draws the vector added at each position, and the cosine similarity of positions.

    Args:
        positions: layer that adds positions, sinusoidal or learned.
        length: number of positions.

    Example:
        >>> positions_figure(PositionalEncoding(512), length=100).savefig("positions.png")
    """
    embeddings = ops.zeros((1, length, positions.d_model))
    encoding = np.asarray(ops.convert_to_numpy(positions(embeddings)[0]), "float32")
    norms = np.linalg.norm(encoding, axis=1, keepdims=True)
    alike = encoding @ encoding.T / (norms * norms.T)
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1.45, 1])
    largest = np.abs(encoding).max()
    for plot, values, limit, title, label in (
        (left, encoding, largest, "Positional encoding", "dimension"),
        (right, alike, 1.0, "Cosine of two positions", "position"),
    ):
        image = plot.imshow(values, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto")
        plot.set_title(title, weight="bold", fontsize=11)
        plot.set(xlabel=label, ylabel="position")
        figure.colorbar(image, ax=plot)
    return figure


def schedule_figure(schedules: Mapping[str, InverseSquareRootSchedule], steps: int) -> Figure:
    """Draws the learning rate of each update, one curve per schedule.

    Args:
        schedules: schedules by their names in the legend.
        steps: number of updates.

    Example:
        >>> widths = {"base": 512, "big": 1024}
        >>> schedules = {name: InverseSquareRootSchedule(width) for name, width in widths.items()}
        >>> schedule_figure(schedules, steps=100_000).savefig("schedule.svg")
    """
    figure = Figure(figsize=(7, 4), layout="constrained")
    plot = figure.subplots()
    updates = np.unique(np.linspace(1, steps, 1000).astype(int))
    colours = head_colours(len(schedules))
    for schedule, colour in zip(schedules.values(), colours, strict=True):
        rates = ops.convert_to_numpy(schedule(ops.convert_to_tensor(updates - 1)))
        plot.plot(updates, rates, label="schedule", color=colour, linewidth=2)
    plot.set_title("Learning rate", weight="bold", fontsize=11)
    plot.set(xlabel="step", xlim=(0, steps), ylim=(0, None))
    plot.xaxis.set_major_formatter("{x:,.0f}")
    plot.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    plot.grid(alpha=0.3)
    add_legend(plot, list(schedules), frameon=False)
    return figure
