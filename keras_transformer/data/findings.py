"""Checks a corpus: its lengths, and the pairs that break rules."""

import dataclasses
import random
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from keras_transformer.data.pair_rules import PairRules
from keras_transformer.data.sources import SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.options.cleaning import RULES, CleaningOptions

_EXAMPLES = 20  # of each rule
_SHOWN = 1000  # characters of a side of an example
_PERCENTILES = {1: "1%", 50: "median", 99: "99%", 100: "longest"}
# What is counted of each line.
_COUNTS: dict[str, tuple[Callable[[str], int], type]] = {
    "words": (lambda line: len(line.split()), np.int32),
    "characters": (len, np.int32),
    "hashes": (hash, np.int64),
}


class BadPair(NamedTuple):
    """A pair that breaks a rule.

    Attributes:
        rule: the first rule that it breaks.
        place: where its source is, such as "train.en:7".
        source, target: its text, or the beginning of a long one.
    """

    rule: str
    place: str
    source: str
    target: str


@dataclasses.dataclass(frozen=True, eq=False)
class Findings:
    """The result of `check_pairs`: lengths, and how many pairs break each rule.

    Attributes:
        words, characters: numbers in each line, int32 `(2, pairs)`: sources, then targets.
        different_lines: number of different lines of each side.
        broken: for each rule, the number of pairs of which it is the first rule that they break.
        examples: a random sample of these pairs, at most 20 for each rule.
    """

    words: np.ndarray
    characters: np.ndarray
    different_lines: tuple[int, int]
    broken: dict[str, int]
    examples: list[BadPair]

    @property
    def pairs(self) -> int:
        """The number of pairs."""
        return self.words.shape[1]

    @property
    def suspicious(self) -> int:
        """The number of pairs that break a rule."""
        return sum(self.broken.values())


def check_pairs(
    pairs: SentencePairs,
    rules: PairRules,
    keep: Callable[[bytes, bytes], object] | None = None,
) -> Findings:
    """Reads all pairs, and finds those that break a rule, with 64 bytes of memory for each pair.

    Args:
        pairs: the pairs.
        rules: the rules, for this corpus.
        keep: takes the source and the target of each pair that breaks none.

    Raises:
        UserError: there is no pair, or `SentencePairs.blocks` raises it.
    """
    counted: dict[str, list[list[np.ndarray]]] = {name: [] for name in _COUNTS}
    broken = dict.fromkeys(rules.names, 0)
    examples: dict[str, list[BadPair]] = {name: [] for name in rules.names}
    chance, number = random.Random(0), 0
    for block in pairs.blocks():
        texts = [[line.decode("utf-8") for line in side] for side in (block.source, block.target)]
        for name, (count, dtype) in _COUNTS.items():
            counted[name].append([np.fromiter(map(count, lines), dtype) for lines in texts])
        for row, (source, target) in enumerate(zip(*texts, strict=True)):
            rule = rules.broken(source, target, number)
            number += 1
            if rule is None:
                if keep:
                    keep(block.source[row], block.target[row])
                continue
            broken[rule] += 1
            # The first 20 fill the sample; of n pairs, each is then in it with probability 20 / n.
            sample, index = examples[rule], chance.randrange(broken[rule])
            if index < _EXAMPLES:
                place = pairs.place(0, block.file, block.first + row)
                is_full = len(sample) == _EXAMPLES
                bad = BadPair(rule, place, _shortened(source), _shortened(target))
                sample[index : index + is_full] = [bad]
    if not number:
        raise UserError(f"{pairs.description} has no pair of sentences: give at least one")
    sides = {name: np.concatenate(blocks, axis=1) for name, blocks in counted.items()}
    source_lines, target_lines = (len(np.unique(hashes)) for hashes in sides["hashes"])
    return Findings(
        sides["words"],
        sides["characters"],
        (source_lines, target_lines),
        broken,
        [example for sample in examples.values() for example in sample],
    )


def _shortened(text):
    """A text that a person can read in a table."""
    if len(text) <= _SHOWN:
        return text
    return f"{text[:_SHOWN]} ... ({len(text):,} characters)"


def format_findings(findings: Findings, options: CleaningOptions) -> str:
    """Two tables: the lengths of both sides, and the pairs that break each rule."""
    pairs, counts = findings.pairs, {"words": findings.words, "characters": findings.characters}

    def row(name, values):
        return f"{name:29}" + "".join(f"{value:>14,}" for value in values)

    lines = [f"{f'{pairs:,} pairs':29}{'source':>14}{'target':>14}"]
    lines += [row(name, sides.sum(axis=1)) for name, sides in counts.items()]
    lines.append(row("different lines", findings.different_lines))
    for name, sides in counts.items():
        for percent, label in _PERCENTILES.items():
            values = np.percentile(sides, percent, axis=1, method="lower")
            lines.append(row(f"{name} of a line, {label}", values))
    source, target = np.maximum(findings.characters, 1)
    ratios = np.percentile(target / source, [1, 50, 99])
    lines.append(
        "characters of a target for each of its source: "
        "1% {:.2f}, median {:.2f}, 99% {:.2f}\n".format(*ratios)
    )
    lines.append(f"{'rule':12}{'pairs':>11}{'share':>9}  a pair is suspicious if")
    for name, count in findings.broken.items():
        what = RULES[name].format(**dataclasses.asdict(options))
        lines.append(f"{name:12}{count:11,}{count / pairs:9.2%}  {what}")
    lines.append(
        f"{'together':12}{findings.suspicious:11,}{findings.suspicious / pairs:9.2%}  "
        "each counts at the first rule that it breaks"
    )
    return "\n".join(lines)
