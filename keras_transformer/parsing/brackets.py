"""Labelled bracket scores of parsed sentences, counted like EVALB with COLLINS.prm (Table 4)."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keras_transformer.errors import UserError
from keras_transformer.parsing.linearization import PUNCTUATION_TAGS
from keras_transformer.parsing.normalization import TRACE, base_label
from keras_transformer.parsing.trees import ROOT_LABELS, Leaf, Open, Tree

DELETED = frozenset({"TOP", TRACE}) | PUNCTUATION_TAGS  # DELETE_LABEL
SAME = {"PRT": "ADVP"}  # EQ_LABEL
SHORT = 40  # maximum number of words of a short sentence in the literature


class Brackets(NamedTuple):
    """The constituents and words of a tree that are scored.

    Attributes:
        spans: the count of each constituent (label, first word, last word + 1).
        words: the words without punctuation and traces.
    """

    spans: Counter
    words: list[str]


def brackets(tree: Tree) -> Brackets:
    """The brackets of a tree that are scored, by the rules of COLLINS.prm.

    Deleting a tag deletes its word, and a constituent without words has no bracket. A bracket
    around the sentence that has no label, or is called ROOT or S1, is deleted like TOP; EVALB would
    count it. A label that begins with a hyphen stays whole.

    Example:
        >>> brackets(parse_tree("(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))")).spans
        Counter({('NP', 0, 1): 1, ('VP', 1, 2): 1, ('S', 0, 2): 1})
    """
    spans: Counter[tuple[str, int, int]] = Counter()
    kept: list[str] = []
    begun: list[tuple[str, int]] = []
    for item in tree:
        if isinstance(item, Open):
            begun.append((base_label(item.label), len(kept)))
        elif isinstance(item, Leaf):
            if item.tag not in DELETED:
                kept.append(item.word)
        else:
            label, begin = begun.pop()
            if label not in DELETED and label not in ROOT_LABELS and begin < len(kept):
                spans[SAME.get(label, label), begin, len(kept)] += 1
    return Brackets(spans, kept)


@dataclass(frozen=True)
class BracketScores:
    """Counts of sentences and brackets, and the figures computed from them, from 0 to 100.

    Attributes:
        sentences: number of scored sentences, including those without a tree.
        failed: sentences without a tree, or whose deleted words differ from the reference's.
        exact: sentences whose brackets are exactly those of the reference.
        matched: brackets of the references that were found.
        found: brackets of the parsed trees.
        expected: brackets of the references.
    """

    sentences: int
    failed: int
    exact: int
    matched: int
    found: int
    expected: int

    @property
    def recall(self) -> float:
        """Share of the references' brackets that were found."""
        return _percent(self.matched, self.expected)

    @property
    def precision(self) -> float:
        """Share of the found brackets that are in the references."""
        return _percent(self.matched, self.found)

    @property
    def f1(self) -> float:
        """Harmonic mean of recall and precision."""
        return _percent(2 * self.matched, self.expected + self.found)

    @property
    def exact_match(self) -> float:
        """Share of the sentences parsed without a mistake."""
        return _percent(self.exact, self.sentences)

    def figures(self) -> dict[str, float]:
        """All figures and counts by name, ready for JSON."""
        names = ("f1", "recall", "precision", "exact_match")
        return {**{name: getattr(self, name) for name in names}, **vars(self)}


def score_trees(
    parsed: Sequence[Tree | None], references: Sequence[Tree], max_words: int | None = None
) -> BracketScores:
    """Scores parsed sentences against a treebank's trees.

    For a sentence without a tree, no bracket counts as found. The same holds if its tags delete
    other words than the reference's tags, so that the trees cannot be compared word by word. EVALB
    skips such sentences, which would reward them.

    Args:
        parsed: the tree of each sentence, or None if there is none.
        references: the reference trees, normalised or as in the treebank.
        max_words: scores only sentences of at most this many words, including punctuation (EVALB's
            cut-off: 40); None for all.

    Raises:
        UserError: the counts differ, or a tree has other words than its reference.

    Example:
        >>> tree = parse_tree("(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))")
        >>> score_trees([tree], [tree]).f1
        100.0
    """
    if len(parsed) != len(references):
        raise UserError(
            f"parsed and references must have the same length: found {len(parsed)} and "
            f"{len(references)}"
        )
    totals: Counter[str] = Counter()
    for number, (tree, reference) in enumerate(zip(parsed, references, strict=True), start=1):
        sentence = _sentence(reference)
        if max_words is not None and len(sentence) > max_words:
            continue
        if tree is not None and _sentence(tree) != sentence:
            raise UserError(
                f"sentence {number}: the tree must have the words {' '.join(sentence)!r} of its "
                f"reference: found {' '.join(_sentence(tree))!r}"
            )
        expected = brackets(reference)
        found = Brackets(Counter(), []) if tree is None else brackets(tree)
        is_comparable = tree is not None and found.words == expected.words
        matched = (found.spans & expected.spans).total() if is_comparable else 0
        totals += Counter(
            sentences=1,
            failed=not is_comparable,
            exact=is_comparable and found.spans == expected.spans,
            matched=matched,
            found=found.spans.total(),
            expected=expected.spans.total(),
        )
    return BracketScores(**{name: totals[name] for name in BracketScores.__dataclass_fields__})


def format_bracket_scores(parsed: Sequence[Tree | None], references: Sequence[Tree]) -> str:
    """Formats the figures as a table: a line for all sentences, a line for the short ones.

    Example:
        >>> tree = parse_tree("(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))")
        >>> print(format_bracket_scores([tree], [tree]))
            F1  recall  precision  exact match
        100.00  100.00     100.00       100.00  1 sentences
        100.00  100.00     100.00       100.00  1 sentences of at most 40 words
    """
    lines = ["    F1  recall  precision  exact match"]
    for limit, which in ((None, "sentences"), (SHORT, f"sentences of at most {SHORT} words")):
        scores = score_trees(parsed, references, limit)
        lines.append(
            f"{scores.f1:6.2f}  {scores.recall:6.2f}  {scores.precision:9.2f}  "
            f"{scores.exact_match:11.2f}  {scores.sentences:,} {which}"
            + (f", {scores.failed:,} without a comparable tree" if scores.failed else "")
        )
    return "\n".join(lines)


def _sentence(tree: Tree) -> list[str]:
    return [item.word for item in tree if isinstance(item, Leaf) and item.tag != TRACE]


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0
