"""Trees of a small grammar, each with a corrupted copy, and EVALB's figures for each pair.

`evalb_figures.txt` holds the figures of EVALB with COLLINS.prm (the version of January 2006, whose
source is not distributed here). With its binary, this script compares other pairs, or records anew:

  python tests/support/evalb_trees.py path/to/evalb path/to/COLLINS.prm  # thousands of others
  python tests/support/evalb_trees.py path/to/evalb path/to/COLLINS.prm --record
"""

import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from keras_transformer.parsing import parse_tree
from keras_transformer.parsing.brackets import score_trees

FIGURES = Path(__file__).with_name("evalb_figures.txt")
RECORDED = 300  # number of pairs, of the seeds from 0

GRAMMAR = {
    "S": [["NP-SBJ", "VP"], ["PP", ",", "NP-SBJ", "VP"], ["S", ",", "CC", "S"], ["VP"]],
    "NP-SBJ": [["DT", "NN"], ["NNS"], ["NP", "PP"], ["-NONE-"], ["``", "NN", "''"]],
    "NP": [["DT", "NN"], ["NNS"], ["NP", "PP"], ["NP", ",", "NP", ","], ["NP"], ["DT", "JJ", "NN"]],
    "VP": [["VB", "NP"], ["VB", "PRT"], ["VB", "NP", "PP-1"], ["VB", "ADVP"], ["VB", ":", "S"]],
    "PP": [["IN", "NP"], ["IN", "NP=2"]],
    "PP-1": [["IN", "NP"]],
    "NP=2": [["NNS"]],
    "PRT": [["RP"]],
    "ADVP": [["RB"], ["RB", "PRT"]],
}
WORDS = {
    "DT": ["the", "a"],
    "NN": ["dog", "cat", "."],
    "NNS": ["dogs", ","],
    "VB": ["see", "go"],
    "IN": ["of"],
    "RP": ["up"],
    "RB": ["up", "off"],
    "JJ": ["old"],
    "CC": ["and"],
    "-NONE-": ["*"],
    ",": [","],
    ".": ["."],
    ":": ["--"],
    "``": ["``"],
    "''": ["''"],
}
TAGS = [*(tag for tag in WORDS if tag != "-NONE-"), "NN", "XX"]
LABELS = ["S", "NP", "VP", "PP", "ADVP", "PRT", "NP-TMP", "X=1", "TOP"]


class Evalb(NamedTuple):
    """EVALB's figures for a pair; if EVALB skips the pair, it counts no brackets."""

    length: int
    is_left_out: bool
    matched: int
    expected: int
    found: int


class Choices:
    """Random choices that are the same with every version of Python."""

    def __init__(self, seed):
        self.random = random.Random(seed).random

    def among(self, items):
        return items[int(self.random() * len(items))]

    def tree(self, label="S", depth=0):
        """A tree as [label, children] or [tag, word]."""
        if label in WORDS:
            return [label, self.among(WORDS[label])]
        shortest_of_deep = sorted(GRAMMAR[label], key=len)[: 1 if depth > 4 else None]
        children = [self.tree(child, depth + 1) for child in self.among(shortest_of_deep)]
        if label == "S" and depth == 0:
            children.append([".", "."])
        return [label, children]

    def corrupt(self, tree):
        """Makes one change to the tree, in place; the words stay."""
        constituents = [node for node in nodes(tree) if isinstance(node[1], list)]
        node = self.among(constituents)
        children = node[1]
        first = int(self.random() * len(children))
        last = first + int(self.random() * (len(children) - first))
        kind = self.among(["label", "tag", "tag", "wrap", "unwrap", "swap punctuation"])
        if kind == "label":
            node[0] = self.among(LABELS)
        elif kind == "tag":
            leaf = self.among([leaf for leaf in nodes(tree) if is_word(leaf)])
            leaf[0] = self.among(TAGS)
        elif kind == "wrap":
            children[first : last + 1] = [[self.among(LABELS), children[first : last + 1]]]
        elif kind == "unwrap" and isinstance(children[first][1], list):
            children[first : first + 1] = children[first][1]
        elif kind == "swap punctuation":
            # Another word is deleted instead: as many words stay, but not the same ones.
            leaves = [leaf for leaf in nodes(tree) if is_word(leaf)]
            one, other = self.among(leaves), self.among(leaves)
            one[0], other[0] = other[0], one[0]

    def pair(self):
        """A tree, and a copy with up to five changes."""
        tree = self.tree()
        copy = [tree[0], [*map(copied, tree[1])]]
        for _ in range(int(self.random() * 6)):
            self.corrupt(copy)
        around = self.among(["(TOP {})", "{}"])
        return around.format(text(tree)), "(TOP " + text(copy) + ")"


def nodes(tree):
    yield tree
    if isinstance(tree[1], list):
        for child in tree[1]:
            yield from nodes(child)


def is_word(node):
    return isinstance(node[1], str) and node[0] != "-NONE-"


def copied(tree):
    return [tree[0], tree[1] if isinstance(tree[1], str) else [*map(copied, tree[1])]]


def text(tree):
    inside = tree[1] if isinstance(tree[1], str) else " ".join(map(text, tree[1]))
    return f"({tree[0]} {inside})"


def pair(seed):
    """A reference and a parsed tree, in the treebank's notation."""
    return Choices(seed).pair()


def recorded():
    """EVALB's recorded figures for the pairs of seeds 0, 1, 2 and so on."""
    return [as_evalb(line.split()) for line in FIGURES.read_text().splitlines()]


def as_evalb(columns):
    """Reads the columns `length status matched expected found`; status 0 means scored."""
    length, status, *counts = map(int, columns)
    return Evalb(length, status > 0, *counts)


def ours(seed):
    """The same figures from `score_trees`, which counts the brackets of every pair."""
    reference, parsed = map(parse_tree, pair(seed))
    scores = score_trees([parsed], [reference])
    length = next(n for n in range(500) if score_trees([parsed], [reference], n).sentences)
    counts = (scores.matched, scores.expected, scores.found)
    return Evalb(length, scores.failed == 1, *((0, 0, 0) if scores.failed else counts))


def run_evalb(binary, parameters, seeds):
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, "reference"), Path(folder, "parsed")]
        for path, trees in zip(paths, zip(*map(pair, seeds), strict=True), strict=True):
            path.write_text("".join(f"{tree}\n" for tree in trees))
        command = [binary, "-p", parameters, "-e", "100000000", *paths]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    body = re.split("=====+", printed)[1]
    rows = [line.split() for line in body.splitlines() if line]
    return [" ".join([*row[1:3], *row[5:8]]) for row in rows]


if __name__ == "__main__":
    binary, parameters, *record = sys.argv[1:]
    seeds = range(RECORDED) if record else range(RECORDED, RECORDED + 5000)
    lines = run_evalb(binary, parameters, seeds)
    if record:
        FIGURES.write_text("".join(f"{line}\n" for line in lines))
    found = [as_evalb(line.split()) for line in lines]
    differing = [seed for seed, evalb in zip(seeds, found, strict=True) if evalb != ours(seed)]
    print(f"{len(found)} pairs, {sum(pair.is_left_out for pair in found)} left out by EVALB")
    print(f"{len(differing)} differ, the first of the seeds {differing[:3]}")
