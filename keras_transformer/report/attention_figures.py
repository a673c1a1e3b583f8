"""Attention figures with matplotlib: lines as in the paper (figures 3 to 5), and heat maps."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.textpath import TextPath

from keras_transformer.report.fonts import with_fonts
from keras_transformer.report.word_attention import WordAttention

# Okabe and Ito's colours, safe for colour-blind readers; yellow is darker, to show on white.
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#b5a800"]
_ROW = 0.25  # inches between words
_FONT = 10  # points
_LINES = 2.6  # inches between the two columns of words
_MARGIN, _CHIP = 0.15, 0.4  # inches; a chip marks a head in the legend
_FAINT = 0.02  # lines of less weight would be invisible


def head_colours(num_heads: int) -> list[str]:
    """Lists a colour for each head, as "#rrggbb"; from the ninth head on, lighter ones."""
    colours = []
    for head in range(num_heads):
        colour = np.array(to_rgb(_COLOURS[head % len(_COLOURS)]))
        lighter = 1 - 0.6 ** (head // len(_COLOURS))
        red, green, blue = colour + (1 - colour) * lighter
        colours.append(to_hex((red, green, blue)))
    return colours


@with_fonts
def line_figure(
    attention: WordAttention,
    layer: int,
    heads: Sequence[int] | None = None,
    words: Sequence[int] | None = None,
) -> Figure:
    """Draws attention as the paper does: lines from each word to those it attends to.

    Each head has a colour, and more opaque lines have greater weights. With `words`, squares beside
    each word on the right show the weight that each head gives it, summed over `words`.

    Args:
        attention: attention of a sentence pair, from `pair_attention`.
        layer: index of the layer, from 0.
        heads: indices of the heads to draw; default: all.
        words: positions of the queries to draw lines from; default: all.

    Example:
        >>> maps = pair_attention(model, tokenizer, "Two dogs.", "Zwei Hunde.")
        >>> line_figure(maps["encoder"], layer=0, words=[1]).savefig("dogs.svg")
    """
    weights = attention.weights[layer]
    heads = _each_once(range(len(weights)) if heads is None else heads)
    words = None if words is None else _each_once(words)
    drawn = range(len(attention.queries)) if words is None else words
    colours = head_colours(len(weights))

    rows = max(len(attention.queries), len(attention.keys))
    left, right = (_text_width(labels) for labels in (attention.queries, attention.keys))
    square = 0.13
    squares = 0 if words is None else square * len(heads) + 0.1
    width = left + _LINES + squares + right
    figure, axes, _ = _page(width, rows * _ROW, _title(attention, layer, heads), heads, colours)
    start, end = left, left + _LINES

    def height(row):
        return (rows - row - 0.5) * _ROW

    lines = sorted(
        (float(weights[head, query, key]), query, key, place)
        for place, head in enumerate(heads)
        for query in drawn
        for key in np.flatnonzero(weights[head, query] >= _FAINT)
    )
    segments, line_colours = [], []
    for weight, query, key, place in lines:  # strongest last, so that it is on top
        beside = (len(heads) / 2 - place) * min(0.02, 0.5 * _ROW / len(heads))
        segments.append([(start, height(query) + beside), (end, height(key) + beside)])
        line_colours.append((*to_rgb(colours[heads[place]]), min(1.0, weight)))
    axes.add_collection(LineCollection(segments, colors=line_colours, linewidths=1.6))

    for row, label in enumerate(attention.queries):
        if words is not None and row in words:
            box = (0, height(row) - 0.45 * _ROW), left, 0.9 * _ROW
            axes.add_patch(Rectangle(*box, color="#e4e4e4", linewidth=0))
        _write(axes, start - 0.1, height(row), label, "right")
    for row, label in enumerate(attention.keys):
        _write(axes, end + squares + 0.1, height(row), label, "left")
        if words is not None:
            for place, head in enumerate(heads):
                weight = min(1.0, float(weights[head, words, row].sum()))
                corner = (end + 0.05 + place * square, height(row) - square / 2)
                axes.add_patch(
                    Rectangle(
                        corner, square, square, color=colours[head], alpha=weight, linewidth=0
                    )
                )
    return figure


@with_fonts
def heat_figure(attention: WordAttention, layer: int, heads: Sequence[int] | None = None) -> Figure:
    """Draws a layer's mean weight over some heads as a heat map; arguments as for `line_figure`."""
    weights = attention.weights[layer]
    heads = _each_once(range(len(weights)) if heads is None else heads)
    mean = weights[heads].mean(axis=0)
    left, below = (_text_width(labels) for labels in (attention.queries, attention.keys))
    width, height = _ROW * len(attention.keys), _ROW * len(attention.queries)
    title = _title(attention, layer, heads, "mean of ")
    figure, _, axes = _page(left + width + 0.8, height + below, title)
    plot = axes(left, below, width, height)
    image = plot.imshow(mean, cmap="Blues", vmin=0, aspect="auto")
    _ticks(plot, attention, size=9)
    bar = figure.colorbar(image, cax=axes(left + width + 0.15, below, 0.15, height))
    bar.ax.tick_params(labelsize=8)
    return figure


@with_fonts
def grid_figure(attention: WordAttention) -> Figure:
    """Draws a small heat map of every head of every layer, layers from top to bottom."""
    layers, heads = attention.weights.shape[:2]
    longest = max(len(attention.queries), len(attention.keys))
    is_labelled = longest <= 30
    side = max(1.3, 0.11 * longest) if is_labelled else 2.0
    figure = Figure(figsize=(side * heads + 1.3, side * layers + 1.5), layout="constrained")
    figure.suptitle(_capitalised(attention.title), weight="bold")
    plots: Any = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
    for layer, head in np.ndindex(layers, heads):
        plot = plots[layer, head]
        weights = attention.weights[layer, head]
        image = plot.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        if layer == 0:
            plot.set_title(f"head {head + 1}", fontsize=10)
        if head == 0:
            plot.set_ylabel(f"layer {layer + 1}", fontsize=10)
        if is_labelled:
            _ticks(plot, attention, size=6)
        else:
            plot.set(xticks=[], yticks=[])
    figure.colorbar(image, ax=plots, shrink=min(1.0, 3 / (side * layers)), pad=0.01)
    return figure


def add_legend(axes: Axes | Figure, names: Sequence[str], **options) -> None:
    """Adds a legend with a name for each labelled line; options are those of `legend`.

    Names may be any text; as labels, those that begin with an underscore would be left out.
    """
    for text, name in zip(axes.legend(**options).get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)


def _page(width, height, title, heads=(), colours=()):
    """Makes a figure with a title and a legend of heads, and axes below in units of inches."""
    header = 0.65 if heads else 0.4
    width = max(width, 0.1 * len(title), _CHIP * len(heads) + 0.5)
    size = (width + 2 * _MARGIN, height + header + 2 * _MARGIN)
    figure = Figure(figsize=size)

    def axes(left, bottom, width, height):
        """Adds axes at a place given in inches from the lower left corner inside the margins."""
        place = (_MARGIN + left) / size[0], (_MARGIN + bottom) / size[1]
        return figure.add_axes((*place, width / size[0], height / size[1]))

    page = axes(0, 0, width, height + header)
    page.set(xlim=(0, width), ylim=(0, height + header))
    page.axis("off")
    page.text(0, height + header - 0.1, title, va="center", weight="bold")
    row = height + header - 0.4
    if heads:
        page.text(0, row, "head", va="center", fontsize=9)
    for place, head in enumerate(heads):
        x = 0.45 + _CHIP * place
        chip = (x, row - 0.06), 0.12, 0.12
        page.add_patch(Rectangle(*chip, color=colours[head], linewidth=0))
        page.text(x + 0.16, row, f"{head + 1}", va="center", fontsize=9)
    return figure, page, axes


def _title(attention, layer, heads, before=""):
    """Makes a title that numbers layers and heads from 1, as in the paper."""
    layers, num_heads = attention.weights.shape[:2]
    which = "all heads" if len(heads) == num_heads else f"head{'s' * (len(heads) > 1)} "
    if len(heads) < num_heads:
        which += ", ".join(str(head + 1) for head in heads)
        before = before if len(heads) > 1 else ""
    return _capitalised(f"{attention.title}, layer {layer + 1} of {layers}, {before}{which}")


def _each_once(indices):
    return list(dict.fromkeys(indices))


def _capitalised(title):
    return title[0].upper() + title[1:]


def _text_width(labels):
    """Width of the longest label in inches."""
    plain = (label.replace("$", r"\$") for label in labels)  # a formula could stand between two "$"
    return (
        0.2 + max(TextPath((0, 0), label, size=_FONT).get_extents().width for label in plain) / 72
    )


def _write(axes, x, y, text, side):
    axes.text(x, y, text, ha=side, va="center", fontsize=_FONT, parse_math=False)


def _ticks(plot, attention, size):
    plot.set_xticks(range(len(attention.keys)), attention.keys, rotation=90, fontsize=size)
    plot.set_yticks(range(len(attention.queries)), attention.queries, fontsize=size)
    for label in (*plot.get_xticklabels(), *plot.get_yticklabels()):
        label.set_parse_math(False)
    plot.tick_params(length=0)
