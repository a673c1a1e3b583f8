"""The warning of `train` about a corpus that should be cleaned first."""

import shlex
from collections.abc import Sequence

import numpy as np

from keras_transformer.data.mixed_up import exchanged, slipped
from keras_transformer.data.pair_rules import (
    HeldOut,
    is_copy,
    pair_hashes,
    relative_length,
    repeats,
    usual_ratio,
)
from keras_transformer.data.sources import SentencePairs, TextPairs
from keras_transformer.options.cleaning import CleaningOptions

_MOST = 0.01  # share of suspicious pairs without a warning


def corpus_warning(pairs: TextPairs, valid: SentencePairs | None) -> str | None:
    """One line if more than 1% of the pairs are suspicious, or some share a validation line.

    It looks only for what costs little to find: empty sides, very different lengths, copies,
    repeated pairs, lines of the validation set, and files that were mixed up. It needs 50 bytes of
    memory for each pair.

    Args:
        pairs: the training set.
        valid: the validation set, or None.
    """
    held_out = HeldOut.of([valid] if valid else [])
    hashes: list[np.ndarray] = []
    lengths, copies = [np.zeros((2, 0), np.int32)], [np.zeros(0, bool)]
    found: tuple[set[bytes], set[bytes]] = (set(), set())  # of the lines held out
    for block in pairs.blocks():
        hashes.append(pair_hashes(block))
        sides = [*map(bytes.strip, block.source)], [*map(bytes.strip, block.target)]
        lengths.append(np.array([[*map(len, side)] for side in sides], np.int32))
        copies.append(_are_copies(*sides, lengths[-1]))
        for seen, lines, side in zip(found, held_out, sides, strict=True):
            seen |= lines.intersection(side)
    of_lines = np.concatenate(lengths, axis=1)
    parts = _suspicious(of_lines, np.concatenate(copies), repeats(hashes))
    if valid and (shared := _count_with(valid, found)):
        parts.append(f"training lines are in {shared:,} of {valid.check():,} validation pairs")
    if slip := slipped(of_lines):
        parts.append(slip)
    for other in exchanged(pairs, [valid] if valid else []):
        parts.append(f"source and target of {other.description} seem to be exchanged")
    if not parts:
        return None
    return f"Warning: {pairs.description}: {'; '.join(parts)}: see {_command(pairs, valid)}"


def _are_copies(sources, targets, lengths):
    """Which pairs are copies; only those with sides of the same length are compared."""
    copies = lengths[0] == lengths[1]
    for row in np.flatnonzero(copies):
        copies[row] = is_copy(sources[row].decode("utf-8"), targets[row].decode("utf-8"))
    return copies


def _suspicious(lengths, is_copied, is_repeated) -> list[str]:
    """Says how many pairs are suspicious, and why, in one text; none if they are few."""
    source, target = lengths
    is_empty = (lengths == 0).any(axis=0)
    relative = relative_length(source, target, usual_ratio(source.sum(), target.sum()))
    limit = CleaningOptions().max_ratio
    kinds = {
        "empty on a side": is_empty,
        "of very different lengths": (relative > limit) | (relative < 1 / limit),
        "copied from the source": is_copied & ~is_empty,
        "repeated": is_repeated,
    }
    count = np.any([*kinds.values()], axis=0).sum()
    if count <= _MOST * lengths.shape[1]:
        return []
    share = count / lengths.shape[1]
    counts = [f"{which.sum():,} {what}" for what, which in kinds.items() if which.any()]
    return [f"{count:,} pairs ({share:.1%}) are suspicious ({', '.join(counts)})"]


def _count_with(pairs: SentencePairs, lines: Sequence[set[bytes]]) -> int:
    """The number of pairs of which one side is among its lines."""
    return sum(
        source.strip() in lines[0] or target.strip() in lines[1]
        for block in pairs.blocks()
        for source, target in zip(block.source, block.target, strict=True)
    )


def _command(pairs: TextPairs, valid: SentencePairs | None) -> str:
    """The command that shows more of the same files."""
    files = dict(zip(("source", "target"), pairs.given, strict=True))
    if isinstance(valid, TextPairs):
        files |= dict(zip(("valid_source", "valid_target"), valid.given, strict=True))
    flags = [f"--{name}={','.join(paths)}" for name, paths in files.items()]
    return shlex.join(["keras-transformer", "corpus", *flags])
