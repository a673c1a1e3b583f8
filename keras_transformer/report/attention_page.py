"""Interactive attention on one self-contained HTML page (paper, figures 3 to 5)."""

import base64
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

import numpy as np

from keras_transformer.report.attention_figures import head_colours
from keras_transformer.report.word_attention import WordAttention


def attention_page(maps: Mapping[str, WordAttention]) -> str:
    """Makes an HTML page that shows the attention of a chosen layer and heads, word by word.

    The page loads nothing, so it works from a file and without a network.

    Args:
        maps: attention from `pair_attention`, all with the same number of heads.

    Example:
        >>> maps = pair_attention(model, tokenizer, "Two dogs.", "Zwei Hunde.")
        >>> page = attention_page(maps)
        >>> Path("attention.html").write_text(page, encoding="utf-8") == len(page)
        True
    """
    page, style, script = (
        resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
        for name in ("attention_page.html", "attention_drawing.css", "attention_drawing.js")
    )
    # Inside <script>, only "<" could start or end a tag.
    data = json.dumps(attention_data(maps)).replace("<", "\\u003c")
    page = page.replace("{{STYLE}}", style).replace("{{SCRIPT}}", script)
    return page.replace("{{ATTENTION}}", data)


def attention_data(maps: Mapping[str, WordAttention]) -> dict[str, Any]:
    """Makes the data of `attention_drawing.js`: kinds of attention, and a colour for each head."""
    kinds = [
        {
            "title": attention.title,
            "queries": attention.queries,
            "keys": attention.keys,
            "layers": len(attention.weights),
            "weights": _encoded(attention.weights),
        }
        for attention in maps.values()
    ]
    [num_heads] = {attention.weights.shape[1] for attention in maps.values()}
    return {"kinds": kinds, "colours": head_colours(num_heads)}


def _encoded(weights):
    """Encodes weights as 16-bit integers in base64: a third of their size in decimal digits."""
    integers = np.rint(np.clip(weights, 0, 1) * 65535).astype("<u2")
    return base64.b64encode(integers.tobytes()).decode("ascii")
