"""Chooses a preset by the size of a corpus and by what a machine can train in a day."""

from typing import NamedTuple

from keras_transformer.presets import preset_for
from keras_transformer.training.table2 import counted_flops

LIGHT = "compact"
"""The preset for more pairs than `tiny` is for, where a larger one would take over a day."""
_DAY = 24 * 3600


class PresetChoice(NamedTuple):
    """A preset, and why it is not the one for the size of the corpus.

    Attributes:
        name: the preset.
        too_slow: the preset for the size of the corpus, if this machine is too slow for it.
        seconds: how long that one would take, in seconds.
    """

    name: str
    too_slow: str = ""
    seconds: float = 0.0


def choose_preset(pairs: int, flops: float) -> PresetChoice:
    """Chooses the preset for a corpus of this many pairs, on a machine of this speed.

    Args:
        pairs: number of sentence pairs.
        flops: floating-point operations per second that the machine sustains.

    Example: On a graphics card, and on two cores.

        >>> choose_preset(250_000, flops=3e13).name, choose_preset(250_000, flops=2e11).name
        ('small', 'compact')
    """
    by_size = preset_for(pairs)
    seconds = counted_flops(by_size) / flops
    if seconds <= _DAY or by_size == "tiny":
        return PresetChoice(by_size)
    return PresetChoice(LIGHT, by_size, seconds)
