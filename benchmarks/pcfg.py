"""Scores a probabilistic context-free grammar from a treebank, as a baseline for the parser.

  python benchmarks/pcfg.py --train_source=train.mrg --source=dev.mrg

The grammar of Klein and Manning (2003): each label includes its parent's (`--vertical=2`; 1: it
does not), and binarised rules remember a number of siblings (`--horizontal`). Words seen once, and
unknown words, are replaced by their class: capitals, digits, a hyphen, the ending. CKY finds the
most likely derivation, which is scored like our parser's trees.
"""

import re
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
from absl import app, flags

from keras_transformer.parsing import format_tree, normalized_trees, words
from keras_transformer.parsing.brackets import format_bracket_scores
from keras_transformer.parsing.trees import Close, Leaf, Open

flags.DEFINE_list("train_source", None, "treebank files to learn the grammar from", required=True)
flags.DEFINE_string("source", None, "treebank file whose sentences to parse", required=True)
flags.DEFINE_integer("vertical", 2, "labels in a symbol: 1, its own; 2, its parent's too", 1, 2)
flags.DEFINE_integer("horizontal", 1, "siblings that a binarised rule remembers", 0)
flags.DEFINE_integer("max_words", None, "skip sentences of more words")
flags.DEFINE_string("output", None, "file to write the trees to")
FLAGS = flags.FLAGS

START = "TOP"
PART = "@"  # prefix of the symbols of binarisation
IMPOSSIBLE = np.float32(-np.inf)
SMOOTHING = 3.0  # weight of a word's class, in occurrences of the word


def nested(tree):
    """A flat tree as (label, children); the children of a leaf are its word."""
    stack: list[tuple] = [(None, [])]
    for item in tree:
        if isinstance(item, Open):
            stack.append((item.label, []))
        elif isinstance(item, Leaf):
            stack[-1][1].append((item.tag, item.word))
        else:
            node = stack.pop()
            stack[-1][1].append(node)
    return stack[0][1][0]


def word_class(word, length):
    """The class of a word: its shape and ending."""
    shape = "".join(
        letter
        for letter, pattern in (("0", r"\d"), ("A", r"^[A-Z]"), ("a", "[a-z]"), ("-", "-"))
        if re.search(pattern, word)
    )
    return shape, word[-length:].lower() if length else ""


class Grammar:
    """A grammar of rules and word classes, counted in trees."""

    def __init__(self, trees):
        rules, tag_words = Counter(), Counter()
        for tree in trees:
            self._count(nested(tree), START, rules, tag_words)
            rules[START, (self._name(tree[0].label, START),)] += 1
        totals = Counter()
        for (parent, _), count in rules.items():
            totals[parent] += count
        names = {START, *totals, *(tag for tag, _ in tag_words)}
        names |= {name for _, children in rules for name in children}
        self.names = sorted(names)
        self.ids = {name: i for i, name in enumerate(self.names)}
        logs = {rule: np.log(count / totals[rule[0]]) for rule, count in rules.items()}
        self._binary(logs)
        self._unary(logs)
        self._lexicon(tag_words)

    def _name(self, label, parent):
        return f"{label}^{parent}" if FLAGS.vertical == 2 else label

    def _count(self, node, parent, rules, tag_words):
        label, children = node
        name = self._name(label, parent)
        if isinstance(children, str):
            tag_words[name, children] += 1
            return
        names = [self._name(child[0], label) for child in children]
        left = name
        for i in range(len(names) - 2):
            memory = ",".join(
                child[0] for child in children[max(0, i + 1 - FLAGS.horizontal) : i + 1]
            )
            right = f"{PART}{name}|{memory}"
            rules[left, (names[i], right)] += 1
            left = right
        rules[left, tuple(names[-2:])] += 1
        for child in children:
            self._count(child, label, rules, tag_words)

    def _binary(self, logs):
        ids = self.ids
        binary = sorted(
            (ids[p], ids[c[0]], ids[c[1]], v) for (p, c), v in logs.items() if len(c) == 2
        )
        self.parent, self.left, self.right = (
            np.array(c) for c in list(zip(*binary, strict=True))[:3]
        )
        self.binary = np.array([rule[3] for rule in binary], "float32")
        self.first = np.flatnonzero(np.diff(self.parent, prepend=-1))

    def _unary(self, logs):
        """The best chains of unary rules between all pairs of symbols."""
        best = {}
        for (p, c), v in logs.items():
            if len(c) == 1 and p != c[0]:
                best[self.ids[p], self.ids[c[0]]] = v, (self.ids[c[0]],)
        rules = defaultdict(list)
        for (p, c), (v, _) in best.items():
            rules[p].append((c, v))
        changed = True
        while changed:
            changed = False
            for (p, c), (v, chain) in list(best.items()):
                for d, w in rules[c]:
                    if d != p and v + w > best.get((p, d), (IMPOSSIBLE,))[0]:
                        best[p, d] = v + w, (*chain, d)
                        changed = True
        self.chains = {pair: chain for pair, (_, chain) in best.items()}
        pairs = sorted(best)
        self.unary_parent, self.unary_child = np.array(pairs).T
        self.unary = np.array([best[pair][0] for pair in pairs], "float32")
        self.unary_first = np.flatnonzero(np.diff(self.unary_parent, prepend=-1))

    def _lexicon(self, tag_words):
        self.tag_counts, self.word_counts, self.class_counts = Counter(), Counter(), Counter()
        self.tags_of_word, self.tags_of_class = defaultdict(Counter), defaultdict(Counter)
        for (tag, word), count in tag_words.items():
            self.tag_counts[tag] += count
            self.word_counts[word] += count
            self.tags_of_word[word][tag] += count
        for (tag, word), count in tag_words.items():
            if self.word_counts[word] <= 2:
                for length in range(4):
                    self.tags_of_class[word_class(word, length)][tag] += count
        self.total = sum(self.tag_counts.values())

    def word_scores(self, word):
        """log P(word | tag) for each tag, up to a constant."""
        classes = (self.tags_of_class.get(word_class(word, length)) for length in (3, 2, 1, 0))
        tags = next((c for c in classes if c and sum(c.values()) >= 5), self.tag_counts)
        by_class = {tag: n / sum(tags.values()) for tag, n in tags.items()}
        seen = self.tags_of_word.get(word, {})
        scores = np.full(len(self.names), IMPOSSIBLE, "float32")
        weight = 0.01 if self.word_counts[word] > 20 else SMOOTHING
        for tag in {*by_class, *seen}:
            share = seen.get(tag, 0) + weight * by_class.get(tag, 0)
            share /= self.word_counts[word] + weight
            scores[self.ids[tag]] = np.log(share * self.total / self.tag_counts[tag])
        return scores

    def _with_unaries(self, scores):
        best = scores.copy()
        chained = np.maximum.reduceat(self.unary + scores[self.unary_child], self.unary_first)
        parents = self.unary_parent[self.unary_first]
        best[parents] = np.maximum(best[parents], chained)
        return best

    def parse(self, sentence):
        """The most likely tree over the words; None if the grammar has none."""
        n = len(sentence)
        # Scores of each span (first word, last word + 1), before and after unary rules.
        plain = np.full((n, n + 1, len(self.names)), IMPOSSIBLE, "float32")
        chart = plain.copy()
        parents = self.parent[self.first]
        for width in range(1, n + 1):
            for begin in range(n - width + 1):
                end = begin + width
                if width == 1:
                    plain[begin, end] = self.word_scores(sentence[begin])
                else:
                    lefts = chart[begin, begin + 1 : end][:, self.left]
                    rights = chart[begin + 1 : end, end][:, self.right]
                    best = (lefts + rights).max(axis=0) + self.binary
                    plain[begin, end, parents] = np.maximum.reduceat(best, self.first)
                chart[begin, end] = self._with_unaries(plain[begin, end])
        if chart[0, n, self.ids[START]] == IMPOSSIBLE:
            return None
        tree = []
        self._trace(plain, chart, sentence, 0, n, self.ids[START], tree)
        return tuple(tree[1:-1])  # without the start symbol

    def _trace(self, plain, chart, sentence, begin, end, symbol, tree):
        """Appends the best derivation of a symbol over a span."""
        chain = [symbol]
        if plain[begin, end, symbol] < chart[begin, end, symbol]:
            rows = np.flatnonzero(self.unary_parent == symbol)
            scores = self.unary[rows] + plain[begin, end, self.unary_child[rows]]
            child = self.unary_child[rows[scores.argmax()]]
            chain += self.chains[symbol, child]
        *above, symbol = chain
        is_word = end == begin + 1
        opened = [self.names[i] for i in ([*above] if is_word else [*above, symbol])]
        opened = [name.partition("^")[0] for name in opened if not name.startswith(PART)]
        tree += [Open(label) for label in opened]
        if is_word:
            tree.append(Leaf(self.names[symbol].partition("^")[0], sentence[begin]))
        else:
            rows = np.flatnonzero(self.parent == symbol)
            lefts = chart[begin, begin + 1 : end][:, self.left[rows]]
            rights = chart[begin + 1 : end, end][:, self.right[rows]]
            scores = lefts + rights + self.binary[rows]
            split, row = np.unravel_index(scores.argmax(), scores.shape)
            middle, row = begin + 1 + split, rows[row]
            self._trace(plain, chart, sentence, begin, middle, self.left[row], tree)
            self._trace(plain, chart, sentence, middle, end, self.right[row], tree)
        tree += [Close()] * len(opened)


def main(_):
    grammar = Grammar([tree for path in FLAGS.train_source for tree in normalized_trees(path)])
    print(f"{len(grammar.binary):,} binary rules, {len(grammar.names):,} symbols", flush=True)
    references = list(normalized_trees(FLAGS.source))
    if FLAGS.max_words:
        references = [tree for tree in references if len(words(tree)) <= FLAGS.max_words]
    began = time.perf_counter()
    parsed = [grammar.parse(words(tree)) for tree in references]
    seconds = time.perf_counter() - began
    print(format_bracket_scores(parsed, references))
    print(f"{seconds:.0f} s, {sum(tree is None for tree in parsed)} sentences without a tree")
    if FLAGS.output:
        lines = ["" if tree is None else format_tree(tree) for tree in parsed]
        Path(FLAGS.output).write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    app.run(main)
