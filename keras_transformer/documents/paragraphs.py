"""Paragraphs: texts whose sentences are translated together, and joined as they stood."""

import heapq
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from keras_transformer.options.search import NO_HYPOTHESIS
from keras_transformer.text.language_code import LANGUAGE_SYMBOL
from keras_transformer.text.plain_text import without_invisible
from keras_transformer.text.sentence_split import join_sentences, split_sentences
from keras_transformer.text.sentences import as_list
from keras_transformer.translation import Translation


class ParagraphTranslation(NamedTuple):
    """A translated paragraph, and the sum of its sentences' scores.

    Attributes:
        text: the translations of the sentences, with what stood between the sentences.
        score: the sum; `search.NO_HYPOTHESIS` if a sentence has no hypothesis.
        sentences: the translation of each sentence.
    """

    text: str
    score: float
    sentences: tuple[str, ...]


class Paragraphs:
    """The sentences of texts, for a translator, and the way back from their translations.

    Args:
        texts: strings or UTF-8 bytes.
        language: code of their language, as for `split_sentences`.
        count_tokens: that of the translator. A symbol of a language that is one token, such as
            `>>fra<<`, holds for all sentences after it in its text. None: the model has none.

    Attributes:
        sentences: the sentences of all texts, in order, each with the symbol of its language.
        rows: for each sentence, the index of its text.
        split: for each text, its sentences and gaps, as from `split_sentences`.
    """

    def __init__(
        self,
        texts: Iterable[str | bytes],
        language: str | None = None,
        count_tokens: Callable[[list[str]], list[int]] | None = None,
    ):
        decoded = [
            text.decode("utf-8", "replace") if isinstance(text, bytes) else text
            for text in as_list(texts)
        ]
        self.split = [split_sentences(text, language) for text in decoded]
        self.sentences = list(_with_symbols(self.split, count_tokens))
        self.rows = [row for row, (sentences, _) in enumerate(self.split) for _ in sentences]

    def join(
        self, translations: Sequence[Sequence[Translation]]
    ) -> list[list[ParagraphTranslation]]:
        """Joins the translations of the sentences of each text.

        Args:
            translations: of each sentence, the best first.

        Returns:
            For each text, as many translations as its sentences have at most: the combinations
            with the highest sums of scores, best first. A text without a sentence has itself.
        """
        rest = iter(translations)
        return [
            [
                # Without marks of the source's direction: a translation may have another one.
                ParagraphTranslation(
                    join_sentences(best, [*map(without_invisible, gaps)]), score, best
                )
                for score, best in _combinations(list(itertools.islice(rest, len(sentences))))
            ]
            for sentences, gaps in self.split
        ]


class _Translator(Protocol):
    def translate_n(self, sentences: Iterable[str]) -> list[list[Translation]]: ...


def translate_paragraphs(
    translator: _Translator, texts: Iterable[str | bytes], language: str | None = None
) -> list[list[ParagraphTranslation]]:
    r"""Translates texts sentence by sentence, all sentences of all texts together.

    White space, list markers and blank lines stay as they are.

    Args:
        translator: a `Translator` or `CTranslate2Translator`.
        texts: texts of any number of lines.
        language: code of their language, such as `de`, whose rules split them; None: English.

    Returns:
        Up to `n_best` translations of each text, the best first.

    Example:
        >>> [[german]] = translate_paragraphs(translator, ["- Two dogs. A horse.\n\n- A cat."])
        >>> german.text  # such as "- Zwei Hunde. Ein Pferd.\n\n- Eine Katze."
        '- ...\n\n- ...'
    """
    # A translator of your own may have only `translate_n`.
    paragraphs = Paragraphs(texts, language, getattr(translator, "count_tokens", None))
    return paragraphs.join(translator.translate_n(paragraphs.sentences))


def _with_symbols(split, count_tokens) -> Iterator[str]:
    """The sentences of all texts; those that follow the symbol of a language begin with it too."""
    found = {
        sentence: symbol[0]
        for sentences, _ in split
        for sentence in sentences
        if (symbol := re.match(LANGUAGE_SYMBOL, sentence, re.ASCII))
    }
    symbols = [*{*found.values()}]
    counts = count_tokens(symbols) if count_tokens and symbols else [0] * len(symbols)
    known = {symbol for symbol, count in zip(symbols, counts, strict=True) if count == 1}
    for sentences, _ in split:
        current = ""
        for sentence in sentences:
            if found.get(sentence) in known:
                current = f"{found[sentence]} "
                yield sentence
            else:
                yield current + sentence


def _combinations(
    translations: Sequence[Sequence[Translation]],
) -> list[tuple[float, tuple[str, ...]]]:
    """Combines a translation of each sentence: those with the highest sums, best first.

    There are as many as a sentence has at most. A sentence added changes all sums alike, so a
    combination that is not among the best of some sentences is not among those of more.
    """
    most = max(map(len, translations), default=1)
    best: list[tuple[float, tuple[str, ...]]] = [(0.0, ())]
    for of_sentence in translations:
        more = (
            (max(total + score, NO_HYPOTHESIS), (*texts, text))
            for total, texts in best
            for text, score in of_sentence
        )
        best = heapq.nlargest(most, more, key=lambda pair: pair[0])
    return best
