"""Spelling of terms in the subwords of a vocabulary, for a search that must find them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from keras_transformer.errors import UserError
from keras_transformer.search.term_tables import RequiredTerm, Spelling
from keras_transformer.text.words import is_part_of_word

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # SentencePiece's mark of white space before a subword
_QUOTE = '"'  # after it, a word begins without a space


class TermSpelling:
    """The spellings of terms in a vocabulary.

    A form has up to four spellings: after a space and after a quotation mark, which stands for all
    punctuation; and, if its first word is in lower case, with a capital letter too, as at the start
    of a sentence.

    Args:
        tokenizer: the vocabulary.

    Attributes:
        continues: boolean (vocab_size,), whether a subword continues the word before it.
        opens: boolean (vocab_size,), whether a word may begin after a subword without a space.
    """

    def __init__(self, tokenizer: "Tokenizer"):
        self._tokenizer = tokenizer
        special = (tokenizer.pad_id, tokenizer.start_id, tokenizer.end_id, tokenizer.unknown_id)
        pieces = ["" if id_ in special else piece for id_, piece in enumerate(tokenizer.pieces)]
        are_bytes = np.array([len(piece) == 6 and piece.startswith("<0x") for piece in pieces])
        starts = np.array([is_part_of_word(piece[:1] or _SPACE) for piece in pieces])
        ends = np.array([is_part_of_word(piece[-1:]) if piece else True for piece in pieces])
        self.continues = (starts | are_bytes) & (not tokenizer.are_words)
        self.opens = ~(ends | are_bytes)

    def unspellable(self, forms: Iterable[str]) -> list[str]:
        """The forms that have characters which the vocabulary lacks."""
        forms = list(forms)
        return [
            form for form, ids in zip(forms, self._ids(forms), strict=True) if not self._fit(ids)
        ]

    def required(
        self, sentences: Sequence[Sequence[Sequence[str]]]
    ) -> list[tuple[RequiredTerm, ...]]:
        """Spells the forms of the terms of each sentence.

        Raises:
            UserError: the vocabulary cannot spell a form.
        """
        terms = [Counter(map(tuple, of_sentence)) for of_sentence in sentences]
        spelled = self._spelled({form for counted in terms for forms in counted for form in forms})
        return [
            tuple(
                RequiredTerm(tuple({s: None for form in forms for s in spelled[form]}), count)
                for forms, count in counted.items()
            )
            for counted in terms
        ]

    def _spelled(self, forms):
        """The spellings of each form."""
        written = [(form, text) for form in sorted(forms) for text in _with_capital(form)]
        texts = [text for _, text in written]
        after_space = self._ids(texts)
        [quote, *after_quote] = self._ids([_QUOTE, *(_QUOTE + text for text in texts)])
        spelled: dict[str, list[Spelling]] = {form: [] for form in forms}
        for (form, text), ids, quoted in zip(written, after_space, after_quote, strict=True):
            if not self._fit(ids):
                if text != form:  # the vocabulary has no such capital letter
                    continue
                raise UserError(f"the vocabulary cannot spell the term {form!r}: leave it out")
            spelled[form].append(Spelling(ids))
            # A vocabulary may have one subword for the quotation mark and what follows.
            if quoted[: len(quote)] == quote and self._fit(quoted[len(quote) :]):
                spelled[form].append(Spelling(quoted[len(quote) :], after_space=False))
        return spelled

    def _ids(self, texts):
        spelled = self._tokenizer.encode(texts, is_target=True)
        rows = zip(spelled.starts, spelled.lengths, strict=True)
        return [tuple(spelled.ids[start : start + length].tolist()) for start, length in rows]

    def _fit(self, ids):
        return len(ids) > 0 and self._tokenizer.unknown_id not in ids


def _with_capital(form):
    """The form, and if its first word is in lower case, also that with a capital letter."""
    first = form.split()[0]
    capital = form[0].upper() + form[1:]
    return [form] if first != first.lower() or capital == form else [form, capital]
