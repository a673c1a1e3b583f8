"""Signs that files were mixed up: lines that have slipped, or source and target exchanged."""

import itertools
from collections.abc import Sequence

import numpy as np

from keras_transformer.data.sources import SentencePairs

_WINDOW = 1000  # pairs that are looked at together
_SHIFTS = (1, -1, 2, -2, 3, -3)
_BETTER = 0.3  # by which a correlation must be better with a shift; noise is about 0.03
_FIRST = 20_000  # pairs whose words are compared


def slipped(lengths: np.ndarray) -> str | None:
    """Says where the lines of the two sides have slipped against each other; None if nowhere.

    A line that is missing on one side shifts all lines after it. Sentences and their translations
    have similar lengths, so the lengths then fit better with a shift.

    Args:
        lengths: of each line, in characters or bytes, `(2, pairs)`: sources, then targets.

    Example:
        >>> rng = np.random.default_rng(1)
        >>> target = rng.integers(1, 100, 2000)
        >>> slipped(np.stack([np.roll(target, 1), target]))
        'from about pair 1 on, source n + 1 seems to go with target n'
    """
    for start in range(0, max(1, lengths.shape[1] - _WINDOW // 2), _WINDOW):
        source, target = np.log1p(lengths[:, start : start + _WINDOW])
        fits = {shift: _correlation(source, target, shift) for shift in (0, *_SHIFTS)}
        best = max(fits, key=fits.__getitem__)
        # Without a shift, it is negative if long questions have short answers.
        if fits[best] > max(0.0, fits[0]) + _BETTER:
            sides = f"source n + {best}", "target n"
            if best < 0:
                sides = "source n", f"target n + {-best}"
            return f"from about pair {start + 1:,} on, {sides[0]} seems to go with {sides[1]}"
    return None


def _correlation(source, target, shift):
    """The correlation of source n + shift with target n; 0 if it is not defined."""
    size = len(source) - abs(shift)
    if size < _WINDOW // 10:
        return 0.0
    source, target = source[max(0, shift) :][:size], target[max(0, -shift) :][:size]
    source, target = source - source.mean(), target - target.mean()
    deviation = np.sqrt((source @ source) * (target @ target))
    return float(source @ target / deviation) if deviation else 0.0


def exchanged(pairs: SentencePairs, others: Sequence[SentencePairs]) -> list[SentencePairs]:
    """Returns those of the others whose source and target seem to be exchanged.

    Their sources have the words of the targets of `pairs`, and their targets those of the sources.
    """
    if not others:
        return []
    known = _words(pairs)
    found = []
    for other in others:
        source, target = _words(other)
        straight = _share(source, known[0]) + _share(target, known[1])
        crossed = _share(source, known[1]) + _share(target, known[0])
        if crossed > 2 * straight and crossed > 0.3:
            found.append(other)
    return found


def _words(pairs):
    """The different words of the sources and of the targets."""
    words: tuple[set[bytes], set[bytes]] = (set(), set())
    lines = (zip(block.source, block.target, strict=True) for block in pairs.blocks())
    for both in itertools.islice(itertools.chain.from_iterable(lines), _FIRST):
        for side, line in zip(words, both, strict=True):
            side.update(line.split())
    return words


def _share(words, known):
    return len(words & known) / len(words) if words else 0.0
