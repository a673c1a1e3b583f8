"""Fonts for letters that matplotlib's own font lacks, such as those of Chinese."""

import functools
from collections.abc import Callable
from typing import TypeVar

import matplotlib
from matplotlib import font_manager, ft2font
from matplotlib.figure import Figure

from keras_transformer.report.word_attention import WordAttention

Draw = TypeVar("Draw", bound=Callable[..., Figure])
_PLACEHOLDER = "Last Resort"  # matplotlib's font of boxes, which has all characters


def fonts_for(text: str) -> tuple[list[str], str]:
    """Installed fonts for a text, matplotlib's default first, and the characters of none of them.

    Example:
        >>> fonts_for("Two dogs")[1]
        ''
    """
    default = font_manager.findfont(font_manager.FontProperties())
    missing = {one for one in text if not one.isspace()} - _characters(default)
    families = [*matplotlib.rcParams["font.family"]]
    for font in sorted(font_manager.fontManager.ttflist, key=lambda font: font.name):
        if not missing:
            break
        if not font.name.startswith(_PLACEHOLDER) and font.name not in families:
            found = missing & _characters(font.fname)
            if found:
                families.append(font.name)
                missing -= found
    return families, "".join(sorted(missing))


def with_fonts(draw: Draw) -> Draw:
    """Makes a function draw attention with fonts that have the letters of its words."""

    @functools.wraps(draw)
    def drawn(attention, *args, **kwargs):
        families, _ = fonts_for(words_of(attention))
        with matplotlib.rc_context({"font.family": families}):
            return draw(attention, *args, **kwargs)

    return drawn  # type: ignore[return-value]


def words_of(attention: WordAttention) -> str:
    """All words that a picture of attention shows."""
    return " ".join([*attention.queries, *attention.keys])


@functools.cache
def _characters(path: str) -> frozenset[str]:
    return frozenset(map(chr, ft2font.FT2Font(path).get_charmap()))
