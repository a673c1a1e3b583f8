"""Arguments and results of translators on any engine, without loading a backend."""

import contextlib
import os
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from keras_transformer.errors import UserError
from keras_transformer.options.search import NO_HYPOTHESIS
from keras_transformer.text.plain_text import plain_text


class Translation(NamedTuple):
    """A translated sentence and its score: log-probability / length penalty.

    If constraints leave no hypothesis, the text is empty and the score is
    `search.NO_HYPOTHESIS`, -1e9.
    """

    text: str
    score: float


_SPACE = "▁"  # SentencePiece's mark of white space before a subword


class Alignment(NamedTuple):
    """An alignment: the source subword that each target subword comes from.

    Attributes:
        source: subwords of the sentence.
        target: subwords of the translation.
        links: (source index, target index), one for each target subword.
        are_words: whether each subword is a word, because text is split at spaces.
    """

    source: list[str]
    target: list[str]
    links: list[tuple[int, int]]
    are_words: bool = False

    def of_words(self) -> "Alignment":
        """The same alignment between words, which white space separates.

        Two words are linked if a subword of one is linked with a subword of the other. The links
        are sorted, each once.

        Example:
            >>> subwords = Alignment(["▁Two", "▁dog", "s"], ["▁Hunde"], [(1, 0), (2, 0)])
            >>> subwords.of_words()
            Alignment(source=['Two', 'dogs'], target=['Hunde'], links=[(1, 0)], are_words=True)
        """
        if self.are_words:
            return self._replace(links=sorted(set(self.links)))
        source, source_words = _words(self.source)
        target, target_words = _words(self.target)
        links = {(source_words[one], target_words[other]) for one, other in self.links}
        return Alignment(source, target, sorted(links), are_words=True)


def _words(subwords):
    """The words of subwords, and the index of each subword's word."""
    words: list[str] = []
    index = []
    for number, subword in enumerate(subwords):
        # A lone mark before other subwords begins the word that they go on with.
        if number == 0 or (subword.startswith(_SPACE) and subwords[number - 1] != _SPACE):
            words.append("")
        words[-1] += subword.removeprefix(_SPACE)
        index.append(len(words) - 1)
    return words, index


def one_line(text: str) -> str:
    r"""Makes one line of text of what a model said, possibly in bytes.

    It removes line breaks and control characters, and a character at the end of which the limit of
    length cut some bytes. Several spaces become one; other white space stays, such as U+00A0.

    Example:
        >>> one_line("5\N{NO-BREAK SPACE}km  weit\n")
        '5\xa0km weit'
    """
    whole = text.rstrip("\N{REPLACEMENT CHARACTER}")
    return re.sub(" +", " ", plain_text(whole))


def as_translations(hypotheses: Iterable[tuple[str, float]]) -> list[Translation]:
    """The translations of a sentence, of which there is at least one.

    Args:
        hypotheses: text and score of each; those that score `NO_HYPOTHESIS` are left out.
    """
    return [
        Translation(one_line(text), score) for text, score in hypotheses if score > NO_HYPOTHESIS
    ] or [Translation("", NO_HYPOTHESIS)]


_SILENT: ContextVar[tuple[type[Warning], ...]] = ContextVar("silent", default=())


@contextlib.contextmanager
def without_warning(kind: type[Warning]) -> Iterator[None]:
    """Gives no such warning of translators in this block and thread.

    `warnings.catch_warnings` changes the filters of all threads, and two of them may leave it in
    another order than they entered it.
    """
    token = _SILENT.set((*_SILENT.get(), kind))
    try:
        yield
    finally:
        _SILENT.reset(token)


def warn(warning: Warning, stacklevel: int) -> None:
    """Gives a warning of a translator, except within `without_warning`."""
    if type(warning) not in _SILENT.get():
        warnings.warn(warning, stacklevel=stacklevel + 1)


class CutWarning(UserWarning):
    """A translator has cut sentences that have more tokens than it reads.

    Attributes:
        what: the argument that the sentences are in, such as "sentences" or "translations".
        indices: their indices, from 0.
        limit: number of tokens that were read of each of them.

    Example:
        >>> warnings.simplefilter("error", kt.CutWarning)  # cut nothing: raise instead
    """

    def __init__(self, what: str, indices: Sequence[int], limit: int):
        self.what, self.indices, self.limit = what, indices, limit
        super().__init__(
            f"read only the first {limit:,} tokens of {len(indices):,} of the {what}, "
            f"at index {first_few(indices)}"
        )

    def __reduce__(self):
        return type(self), (self.what, self.indices, self.limit)


class TermsWarning(UserWarning):
    """A translator has translated sentences without terms that should occur.

    No translation with the terms is within the limits of length and the other constraints.

    Attributes:
        indices: indices of the sentences, from 0.

    Example:
        >>> warnings.simplefilter("error", kt.TermsWarning)  # raise instead
    """

    def __init__(self, indices: Sequence[int]):
        self.indices = indices
        super().__init__(
            f"{len(indices):,} of the sentences are translated without their terms, which the "
            f"limits of length or other constraints exclude, at index {first_few(indices)}"
        )

    def __reduce__(self):
        return type(self), (self.indices,)


def terms_for_each(
    sentences: Sequence[Any], terms: Iterable[Sequence[Sequence[str]]]
) -> list[list[list[str]]]:
    """Lists the terms of each sentence, each by its forms.

    Raises:
        UserError: there are not as many as sentences, or they are not lists of lists of strings.
    """
    if isinstance(terms, str | bytes) or not isinstance(terms, Iterable):
        raise UserError(
            "terms must be a list for each sentence, as from Glossary.terms: found "
            f"{type(terms).__name__}"
        )
    listed = list(terms)
    if len(listed) != len(sentences):
        raise UserError(
            f"there must be {len(sentences)} lists of terms, one for each sentence: found "
            f"{len(listed)}"
        )
    for index, of_sentence in enumerate(listed):
        if isinstance(of_sentence, str | bytes) or not isinstance(of_sentence, Iterable):
            raise UserError(
                "the terms of a sentence must be a list, empty for none: found "
                f"{of_sentence!r} at index {index}"
            )
    return [
        [_forms(forms, index) for forms in of_sentence] for index, of_sentence in enumerate(listed)
    ]


def _forms(forms, index):
    """The forms of a term of the sentence at an index, as plain text."""
    is_list = isinstance(forms, Iterable) and not isinstance(forms, str)
    are_strings = is_list and all(isinstance(form, str) for form in forms)
    plain = [plain_text(form) for form in forms] if are_strings else []
    if not plain or not all(plain):
        raise UserError(
            "each term must be a list of its forms, none of them empty: found "
            f"{forms!r} at index {index}"
        )
    return plain


def expect_own_process(process: int) -> None:
    """Checks that a translator is used by the process that loaded it.

    A forked process has no thread of its parent's engine, and would wait for it for ever.

    Args:
        process: the id of the process that loaded the translator.

    Raises:
        UserError: it is another process.
    """
    if os.getpid() != process:
        raise UserError(
            "the process that loaded this translator was forked, and its threads were left behind: "
            'start processes with multiprocessing.get_context("spawn"), and load it in each'
        )


def cut(tokens: Sequence[Any], limit: int, what: str) -> list[Any]:
    """Cuts sentences to `limit` tokens, and warns (`CutWarning`) if one of them has more.

    Args:
        tokens: tokens of each sentence.
        limit: maximum number of tokens.
        what: name of the sentences in the warning.
    """
    longer = [index for index, sentence in enumerate(tokens) if len(sentence) > limit]
    if longer:
        warn(CutWarning(what, longer, limit), stacklevel=2)
    return [sentence[:limit] for sentence in tokens]


def by_length(lengths: Mapping[int, int], size: Callable[[int], int]) -> Iterator[list[int]]:
    """Yields batches of the indices of sentences of similar length, the longest first.

    Args:
        lengths: number of tokens of each sentence, by index.
        size: number of sentences in a batch, given the length of its longest; 0 counts as 1.

    Example:
        >>> list(by_length({0: 3, 1: 9, 2: 4}, lambda longest: 12 // longest))
        [[1], [2, 0]]
    """
    rows = sorted(lengths, key=lengths.__getitem__, reverse=True)
    start = 0
    while start < len(rows):
        end = start + max(1, size(lengths[rows[start]]))
        yield rows[start:end]
        start = end


def first_few(numbers: Sequence[int], most: int = 5) -> str:
    """Lists the first numbers, for a message.

    Example:
        >>> first_few([2, 3, 5, 7, 11, 13])
        '2, 3, 5, 7, 11, ...'
    """
    return ", ".join([*map(str, numbers[:most]), *["..."] * (len(numbers) > most)])
