"""Words with letters that the vocabulary lacks: a translation copies them, as it does placeholders.

A vocabulary spells such a letter in bytes, or replaces it by the symbol for unknown ones. A model
that has hardly seen that loses the word, and often the rest of the sentence.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from keras_transformer.documents.linked_texts import unknown_spans
from keras_transformer.text.glossary import Glossary
from keras_transformer.text.placeholders import Span
from keras_transformer.text.words import is_part_of_word
from keras_transformer.translation import Alignment, CutWarning, without_warning


class Aligner(Protocol):
    """The method of a translator that this module calls."""

    def align(self, sentences: Iterable[str], translations: Iterable[str]) -> list[Alignment]:
        """The alignment of each sentence with its translation."""


def with_unknown_words(
    translator: Aligner, sentences: Sequence[str], spans: Sequence[Sequence[Span]]
) -> list[list[Span]]:
    """The spans of each sentence, and those of its unknown words, in order.

    Of a script without spaces between words, only the unknown letters are copied. A word within a
    term of the translator's glossary is not copied.

    Args:
        translator: has the vocabulary.
        sentences: plain text.
        spans: parts of each sentence that are copied anyhow, in order.
    """
    with without_warning(CutWarning):  # the search warns
        # An alignment with nothing has the subwords of the sentence, without a pass of the model.
        alignments = translator.align(sentences, [""] * len(sentences))
    glossary = getattr(translator, "glossary", None)
    found = []
    for text, some, alignment in zip(sentences, spans, alignments, strict=True):
        apart = [
            (start, end)
            for start, end in _unknown_words(alignment.source, text)
            if not any(start < other_end and other < end for other, other_end in some)
            and not (glossary and _is_in_term(glossary, text, (start, end)))
        ]
        found.append(sorted([*some, *apart]))
    return found


def _unknown_words(pieces: Sequence[str], text: str) -> list[Span]:
    """The words of a text, in order, that have letters which its subwords lack.

    Example:
        >>> _unknown_words(["▁J", "i", "<0xC5>", "<0x99>", "<0xC3>", "<0xAD>"], "Jiří")
        [(0, 4)]
    """
    words: list[Span] = []
    for start, end in unknown_spans(pieces, text):
        if not any(map(str.isalpha, text[start:end])) or (words and end <= words[-1][1]):
            continue
        start, end = _word_around(text, (start, end))
        if words and start <= words[-1][1]:  # they touch: as one
            start, _ = words.pop()
        words.append((start, end))
    return words


def _is_in_term(glossary: Glossary, text: str, span: Span) -> bool:
    start, end = span
    return glossary.terms([text]) != glossary.terms([f"{text[:start]} {text[end:]}"])


def _word_around(text: str, span: Span) -> Span:
    start, end = span
    while start and is_part_of_word(text[start - 1]):
        start -= 1
    while end < len(text) and is_part_of_word(text[end]):
        end += 1
    return start, end
