"""Glossaries: source terms, each with the forms that may translate it."""

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from keras_transformer.errors import UserError
from keras_transformer.text.plain_text import plain_text
from keras_transformer.text.sentences import as_text
from keras_transformer.text.text_files import read_lines
from keras_transformer.text.words import split_words


class _Entry(NamedTuple):
    """A term of a glossary."""

    forms: tuple[str, ...]
    place: str  # where the user wrote it, for messages


class Glossary:
    """Source terms, each with the forms that may translate it.

    A term is found in a sentence as whole words (`split_words`), whatever the white space between
    them. If it is written in lower case, it is also found with capitals; a term with a capital
    letter is found only as it is written. Where several terms begin, the longest is found; found
    terms do not overlap.

    Args:
        entries: the translation of each term: a string, or several forms of which one must occur.

    Raises:
        UserError: a term or a form is empty, or two entries are for one term.

    Example:
        >>> glossary = Glossary({"traffic light": ["Ampel", "Ampeln"], "light": "Licht"})
        >>> glossary.terms(["Traffic lights, a traffic light.", "A bright light"])
        [[('Ampel', 'Ampeln')], [('Licht',)]]
    """

    def __init__(self, entries: Mapping[str, str | Sequence[str]]):
        if not isinstance(entries, Mapping):
            kind = type(entries).__name__
            raise UserError(f"entries must map each term to its translations: found {kind}")
        self._begin()
        for (term, given), source in zip(entries.items(), as_text(entries, "terms"), strict=True):
            forms = as_text([given] if isinstance(given, str) else given, f"forms of {term!r}")
            place = f"the term {term!r}"
            if not source or not forms or not all(forms):
                raise UserError(f"{place} must not be empty, nor may a form of its translation")
            self._add(source, forms, place)

    def _begin(self):
        self._exact: dict[tuple[str, ...], _Entry] = {}
        self._any_case: dict[tuple[str, ...], _Entry] = {}
        # By the first word in lower case: numbers of words that terms have, falling.
        self._lengths: dict[str, list[int]] = {}

    @classmethod
    def read(cls, path: str | os.PathLike) -> "Glossary":
        """Reads a text file of one term a line: the term, a tab and its form; or several forms.

        Blank lines and empty columns after the first form mean nothing.

        Args:
            path: path of the file, UTF-8, which is decompressed if it ends in `.gz`.

        Raises:
            UserError: the file cannot be read, a line has no term or no form, two lines are for one
                term, or there is no term.
        """
        glossary = cls.__new__(cls)
        glossary._begin()
        for number, line in enumerate(read_lines(path, exact=True), 1):
            source, *columns = map(plain_text, line.split("\t"))
            forms = [form for form in columns if form]
            if not source and not forms:
                continue
            if not source or not forms:
                raise UserError(
                    f"{path}:{number}: a line must have a term, a tab and a translation: found "
                    f"{line[:60]!r}"
                )
            glossary._add(source, forms, f"{path}:{number}")
        if not glossary._lengths:
            raise UserError(f"{path} has no terms: write a term, a tab and its translation a line")
        return glossary

    def _add(self, source, forms, place):
        words = tuple(split_words(unicodedata.normalize("NFKC", source)))
        entries = self._any_case if source == source.lower() else self._exact
        if entries is self._any_case:
            words = tuple(word.casefold() for word in words)
        if words in entries:
            raise UserError(
                f"{place}: {source!r} has another entry, {entries[words].place}: give it one entry "
                "with all forms"
            )
        entries[words] = _Entry(tuple(dict.fromkeys(forms)), place)
        lengths = self._lengths.setdefault(words[0].casefold(), [])
        if len(words) not in lengths:
            lengths.append(len(words))
            lengths.sort(reverse=True)

    @property
    def places(self) -> dict[str, str]:
        """Where each form was written, such as `terms.tsv:12`, for messages."""
        entries = [*self._exact.values(), *self._any_case.values()]
        return {form: entry.place for entry in entries for form in entry.forms}

    def any_term(self) -> str:
        """A source term, whose words have spaces between them."""
        return " ".join(next(iter(self._exact or self._any_case)))

    def terms(self, sentences: Iterable[str | bytes]) -> list[list[tuple[str, ...]]]:
        """Lists the terms of each sentence, once for each time that they occur, by their forms.

        Args:
            sentences: source sentences: any iterable of strings or UTF-8 bytes.

        Returns:
            The argument `terms` of `Translator.translate`.
        """
        return [[*self._found(text)] for text in as_text(sentences)]

    def is_met(self, sentence: str | bytes, translation: str | bytes) -> bool:
        """Whether a translation has each term of its sentence at least once, as whole words.

        Example:
            >>> glossary = Glossary({"traffic light": ["Ampel", "Ampeln"]})
            >>> glossary.is_met("Traffic lights, a traffic light.", "Eine Ampel.")
            True
        """
        [terms], [text] = self.terms([sentence]), as_text([translation])
        spaced = _spaced(text)
        return all(
            any(
                _spaced(form) in spaced or _spaced(form[0].upper() + form[1:]) in spaced
                for form in forms
            )
            for forms in terms
        )

    def _found(self, text):
        words = split_words(unicodedata.normalize("NFKC", text))
        lower = [word.casefold() for word in words]
        start = 0
        while start < len(words):
            for length in self._lengths.get(lower[start], ()):
                end = start + length
                entry = self._exact.get(tuple(words[start:end]))
                entry = entry or self._any_case.get(tuple(lower[start:end]))
                if entry and end <= len(words):
                    yield entry.forms
                    start = end
                    break
            else:
                start += 1


def _spaced(text):
    """The words of a text, each between spaces."""
    return f" {' '.join(split_words(unicodedata.normalize('NFKC', text)))} "
