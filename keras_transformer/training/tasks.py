"""The tasks of training: translation, and parsing as a kind of translation."""

from collections.abc import Sequence
from typing import Any, Protocol

from keras_transformer.evaluation import format_scores, translation_scores
from keras_transformer.evaluation.bleu import sacre_bleu
from keras_transformer.parsing import (
    ParsingTokenizer,
    format_tree,
    search_defaults,
    trees_of,
)
from keras_transformer.parsing.brackets import format_bracket_scores, score_trees
from keras_transformer.text import Tokenizer


class Task(Protocol):
    """The part of training that depends on the task; outputs and references are target strings.

    Attributes:
        search: the fields of `SearchOptions` that differ from their defaults.
        score: the name of the figure that is higher for a better model.
    """

    search: dict[str, Any]
    score: str

    def figures(self, sources, outputs, references) -> dict[str, float]:
        """The figures that a validation reports, by name."""

    def report(self, sources, outputs, references) -> str:
        """The lines that report the quality of the trained model."""

    def readable(self, sources, outputs) -> list[str]:
        """The outputs in readable form."""


def task_of(tokenizer: Tokenizer, target_lang: str | None = None) -> Task:
    """The task that a vocabulary is for."""
    if tokenizer.task == "parsing":
        return Parsing(tokenizer)
    return Translation(target_lang, tokenizer.lowercase)


class Translation:
    """Translation, judged by BLEU.

    Args:
        target_lang: two-letter code of the target language, for BLEU.
        lowercase: whether the score ignores case.
    """

    def __init__(self, target_lang: str | None = None, lowercase: bool = False):
        self.target_lang, self.lowercase = target_lang, lowercase
        self.search: dict[str, Any] = {}
        self.score = "lowercased BLEU" if lowercase else "BLEU"

    def figures(self, sources, outputs, references):
        bleu = sacre_bleu(outputs, references, self.target_lang, self.lowercase)
        return {self.score: bleu.value}

    def report(self, sources, outputs, references):
        scores = translation_scores(outputs, references, self.target_lang, on_tokens=False)
        return format_scores(scores)

    def readable(self, sources, outputs):
        return outputs


class Parsing:
    """Parsing, judged by bracket scores.

    Args:
        tokenizer: the parser's vocabulary.
    """

    score = "F1"

    def __init__(self, tokenizer: ParsingTokenizer):
        self.tokenizer, self.search = tokenizer, search_defaults(tokenizer)

    def figures(self, sources, outputs, references):
        scores = score_trees(self._trees(sources, outputs), self._trees(sources, references))
        return {"F1": scores.f1, "exact match": scores.exact_match}

    def report(self, sources, outputs, references):
        return format_bracket_scores(
            self._trees(sources, outputs), self._trees(sources, references)
        )

    def readable(self, sources, outputs):
        return [format_tree(tree) for tree in self._trees(sources, outputs)]

    def _trees(self, sources: Sequence[str], symbols: Sequence[str]):
        return trees_of(symbols, [source.split() for source in sources], self.tokenizer)
