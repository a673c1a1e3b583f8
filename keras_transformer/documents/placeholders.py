"""Placeholders such as `%s`, `{name}` and URLs, which translations have unchanged, each once."""

import bisect
import collections
import dataclasses
import functools
import operator
import re
import warnings
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from keras_transformer.documents.linked_texts import Link, LinkedTexts, links_of
from keras_transformer.documents.unknown_words import with_unknown_words
from keras_transformer.options.search import OF_SAMPLING, SearchOptions
from keras_transformer.text.numbers import with_long_numbers
from keras_transformer.text.placeholders import (
    Span,
    filled_in_order,
    find_placeholders,
    placeholder_patterns,
    without_spans,
)
from keras_transformer.text.sentences import as_text
from keras_transformer.text.words import PUNCTUATION, is_part_of_word, is_word
from keras_transformer.translation import (
    Alignment,
    CutWarning,
    TermsWarning,
    Translation,
    first_few,
    without_warning,
)

# Before these, no white space stays where a placeholder is taken out; also before what other
# scripts have for them, such as the Arabic question mark.
_CLOSING = re.compile(rf"[.,;:!?)\]}}»”\u2019…]|(?![\0-\u036f\u2000-\uffff])[{PUNCTUATION}]")
_SEPARATES = re.compile(r"[^\W_]|[()\[\]]")  # two groups: a word, or a bracket of one only
# What placeholders are written with, except the punctuation of sentences.
_MARKS = frozenset("%{}()[]<>$@#/=&")
_BROKEN_ENTITY = re.compile(r"&[a-zA-Z][\w.-]*;?")  # models lose the semicolon
_BRACKETS = {"()", "[]", "<>", "{}", '""', "''", "`'", "``", "“”", "„“", "«»", "»«", "\u2018\u2019"}


class Translator(Protocol):
    """The methods of `kt.Translator` and `kt.CTranslate2Translator` that this module calls."""

    max_source_length: int

    @property
    def options(self) -> SearchOptions: ...

    def translate_n(
        self, sentences: Iterable[str], prefixes: Iterable[str] | None = None
    ) -> list[list[Translation]]:
        """The best translations of each sentence."""

    def align(self, sentences: Iterable[str], translations: Iterable[str]) -> list[Alignment]:
        """The alignment of each sentence with its translation."""

    def count_tokens(self, sentences: Iterable[str | bytes]) -> list[int]:
        """The number of tokens of each sentence."""

    def with_options(self, options: SearchOptions) -> "Translator":
        """The same translator with another search."""


class KeptTranslation(NamedTuple):
    """A translation whose placeholders are those of its sentence.

    Attributes:
        text: the translation.
        score: its score; that of the search, also where placeholders were put in afterwards.
        kept: the placeholders of the sentence, in order, and where each stands in the translation.
        is_certain: whether the model wrote all placeholders; False if they were put in, or one for
            another, so that a person should look at the line.
    """

    text: str
    score: float
    kept: list[Link]
    is_certain: bool


class PlaceholderWarning(UserWarning):
    """The model lost placeholders, which were put into its translations by the alignment.

    Attributes:
        indices: the indices of the sentences, from 0.
    """

    def __init__(self, indices: Sequence[int]):
        self.indices = indices
        super().__init__(
            f"put placeholders into {len(indices):,} of the translations, since the model did not "
            f"copy them: check those at index {first_few(indices)}"
        )

    def __reduce__(self):
        return type(self), (self.indices,)


class PlaceholderTranslator:
    """Translates as another translator does, and copies placeholders unchanged, each once.

    Sentences without placeholders have the same translations and scores. Of a sentence with some,
    the translations count that have all of them; if the model finds none, the placeholders are put
    in where its alignment says, with a `PlaceholderWarning`.

    Args:
        translator: a `Translator` or `CTranslate2Translator`.
        keep: regular expressions of further text to copy.

    Raises:
        UserError: one of them is no regular expression, or matches an empty text.

    Example:
        >>> keeping = kt.PlaceholderTranslator(translator, keep=["#[0-9]+"])
        >>> [[best]] = keeping.translate_n(["{name} sees two dogs: #12"])
        >>> best.text  # such as "{name} sieht zwei Hunde: #12"
        '...{name}...'
    """

    def __init__(self, translator: Translator, keep: Sequence[str] = ()):
        self.translator = translator
        self._patterns = placeholder_patterns(keep)

    def __call__(self, sentences: Iterable[str]) -> list[str]:
        """Returns the translation of each sentence, in order."""
        return [best.text for best, *_ in self.translate_n(sentences)]

    def translate_n(
        self, sentences: Iterable[str], prefixes: Iterable[str] | None = None
    ) -> list[list[Translation]]:
        """The best translations of each sentence; arguments and errors are the translator's.

        With prefixes, a translation that lacks placeholders is only reported.
        """
        texts = as_text(sentences)
        spans = [find_placeholders(text, self._patterns) for text in texts]
        if prefixes is None:
            found = translate_keeping(self.translator, texts, spans, self._patterns)
            uncertain = [row for row, best in enumerate(found) if not best[0].is_certain]
            translations = [[Translation(one.text, one.score) for one in best] for best in found]
        else:
            translations = self.translator.translate_n(texts, prefixes)
            uncertain = [
                row
                for row, (text, some) in enumerate(zip(texts, spans, strict=True))
                if some
                and _Sentence(text, some, self._patterns).spans_in(translations[row][0].text)
                is None
            ]
        if uncertain:
            warnings.warn(PlaceholderWarning(uncertain), stacklevel=2)
        return translations

    def count_tokens(self, sentences: Iterable[str | bytes]) -> list[int]:
        """The number of tokens of each sentence."""
        return self.translator.count_tokens(sentences)


def translate_keeping(
    translator: Translator,
    sentences: Sequence[str],
    spans: Sequence[Sequence[Span]],
    patterns: Sequence[re.Pattern[str]],
) -> list[list[KeptTranslation]]:
    """Translates sentences, and copies some parts of each unchanged, each once.

    With patterns, it also copies words with letters that the vocabulary lacks.

    Args:
        translator: translates and aligns.
        sentences: plain text.
        spans: the parts of each sentence to copy, in order.
        patterns: patterns of what no translation may have that its sentence has not.

    Returns:
        Up to `n_best` translations of each sentence, best first.
    """
    given = spans
    spans = with_unknown_words(translator, sentences, given) if patterns else given
    found = _keeping(translator, sentences, spans, patterns)
    for row, (all_spans, some) in enumerate(zip(spans, given, strict=True)):
        if len(all_spans) > len(some):  # links are of what the caller asked for
            found[row] = [
                one._replace(kept=[link for link in one.kept if link.source in some])
                for one in found[row]
            ]
    return found


def _keeping(translator, sentences, spans, patterns):
    """`translate_keeping`, with the spans of unknown words too."""
    kept = [_Sentence(*both, patterns) for both in zip(sentences, spans, strict=True)]
    corrects = bool(patterns)  # numbers, which are copied where placeholders are
    hypotheses = _translations(translator, sentences, spans, corrects)
    found = [one.those_with_all(best) for one, best in zip(kept, hypotheses, strict=True)]

    failed = [row for row, best in enumerate(found) if not best]
    if not failed:
        return found
    is_cut = dict(
        zip(failed, _are_cut(translator, [sentences[row] for row in failed]), strict=True)
    )
    # The first search has warned, by the indices of all sentences.
    with without_warning(TermsWarning):
        options = translator.options
        rows = [row for row in failed if not is_cut[row]]
        if rows and not options.sample and options.beam_size > options.n_best:
            all_of_search = translator.with_options(
                dataclasses.replace(options, n_best=options.beam_size)
            )
            again = ([given[row] for row in rows] for given in (sentences, spans))
            more = _translations(all_of_search, *again, corrects)
            for row, best in zip(rows, more, strict=True):
                hypotheses[row] = best
                found[row] = kept[row].those_with_all(best)[: options.n_best]

        for row in failed:
            if not found[row] and (itself := kept[row].as_it_is()):
                found[row] = [itself]
            elif not found[row] and (exchanged := kept[row].exchanged(hypotheses[row])):
                found[row] = [exchanged]
            elif not found[row] and is_cut[row]:
                found[row] = [kept[row].with_parts_at_end(hypotheses[row][0])]

        if rows := [row for row in failed if not found[row]]:
            # Random translations depend on the number of sentences before: so these are searched,
            # and by a copy, which does not count those that are drawn for minimum Bayes risk.
            searching = translator.with_options(_without_sampling(options))
            repaired = _put_in(searching, [kept[row] for row in rows], corrects)
            for row, best in zip(rows, repaired, strict=True):
                found[row] = [best]
    return found


def _without_sampling(options):
    of_sampling = {name: getattr(SearchOptions(), name) for name in OF_SAMPLING}
    return dataclasses.replace(options, sample=False, **of_sampling)


def _translations(translator, sentences, spans, corrects):
    """The best translations of each sentence; a glossary has no terms for the parts to copy."""
    if hasattr(translator, "glossary"):  # whose terms may have other numbers
        return translator.translate_n(sentences, copied=spans)
    found = translator.translate_n(sentences)
    if not corrects:
        return found
    return [
        [one._replace(text=with_long_numbers(one.text, sentence)) for one in best]
        for best, sentence in zip(found, sentences, strict=True)
    ]


def aligned(translator: Translator, pairs: Sequence[tuple[str, str]]) -> list[list[Link]]:
    """The links between each sentence and its translation; none if it is too long for the model."""
    is_cut = _are_cut(translator, [sentence for sentence, _ in pairs])
    rows = [row for row, cut in enumerate(is_cut) if not cut]
    sentences, translations = ([pairs[row][side] for row in rows] for side in (0, 1))
    links: list[list[Link]] = [[] for _ in pairs]
    # A translation that is cut loses links, not words; and these are not all sentences.
    with without_warning(CutWarning):
        alignments = translator.align(sentences, translations)
    for row, alignment in zip(rows, alignments, strict=True):
        links[row] = list(links_of(alignment, *pairs[row]))
    return links


def _are_cut(translator, sentences):
    """Whether each sentence, or a long translation of it, has more tokens than are read."""
    options, most = translator.options, translator.max_source_length
    return [
        max(count + 1, options.longest(count + 1)) > most
        for count in translator.count_tokens(sentences)
    ]


class _Sentence:
    """A sentence with the parts that its translation copies.

    Args:
        text: the sentence.
        spans: where the parts are in it, in order.
        patterns: patterns of what no translation may have that the sentence has not.
    """

    def __init__(self, text: str, spans: Sequence[Span], patterns: Sequence[re.Pattern[str]]):
        self.text, self.spans = text, spans
        self.parts = [text[start:end] for start, end in spans]
        known = find_placeholders(text, patterns) if spans else []
        others = {*spans} - {*known}
        # What a copied element has may also be a word of the translation, such as `in`.
        self._words = {text[start:end] for start, end in others}
        self._placeholders = patterns
        self._patterns = [
            *([_literally(text, spans)] if others else []),
            *([_BROKEN_ENTITY] if any(part.startswith("&") for part in self.parts) else []),
            *patterns,
        ]

    def those_with_all(self, hypotheses: Iterable[Translation]) -> list[KeptTranslation]:
        """Those translations that have each part once, and no other."""
        return [
            self._kept(one, spans)
            for one in hypotheses
            if (spans := self.spans_in(one.text)) is not None
        ]

    def spans_in(self, text: str) -> list[Span] | None:
        """Where each part is in a translation; None unless it has each once, and no other.

        The translation of a sentence without parts may have anything.
        """
        if not self.parts:
            return []
        there = self._find(text)
        if collections.Counter(there.values()) != collections.Counter(self.parts):
            return None
        if filled_in_order(there.values()) != filled_in_order(self.parts):
            return None
        if self._marks_outside(text, there) - self._own_marks:
            return None  # pieces of placeholders, such as the `)s` of `%(name)s)s`
        waiting = collections.defaultdict(list)
        for span, part in there.items():
            waiting[part].append(span)
        return [waiting[part].pop(0) for part in self.parts]

    @functools.cached_property
    def _own_marks(self):
        return self._marks_outside(self.text, self.spans)

    def _marks_outside(self, text, spans):
        """How often a text has each mark of this sentence's placeholders outside of `spans`."""
        marks = _MARKS.intersection("".join(self.parts))
        return collections.Counter(filter(marks.__contains__, without_spans(text, spans)))

    def exchanged(self, hypotheses: Iterable[Translation]) -> KeptTranslation | None:
        """The first translation that has as many placeholders, with the right ones in their place.

        Those that are wrong, or in a wrong order, are replaced by the missing ones in order.
        """
        for text, score in hypotheses:
            there = self._find(text)
            if len(there) != len(self.parts):
                continue
            parts = _in_order(_exchanged([*there.values()], self.parts), self.parts)
            wrong = {one for one, part in zip(there.values(), parts, strict=True) if one != part}
            if wrong & self._words:
                continue
            pieces, end = [], 0
            for (start, next_end), part in zip(there, parts, strict=True):
                pieces += [text[end:start], part]
                end = next_end
            new = Translation("".join(pieces) + text[end:], score)
            if (spans := self.spans_in(new.text)) is not None:
                changes = sum(map(operator.ne, parts, there.values()))
                return self._kept(new, spans, is_certain=changes == 1)
        return None

    def as_it_is(self) -> KeptTranslation | None:
        """The sentence, if it has no word besides its parts: it is its own translation."""
        has_words = any(map(str.isalnum, self.without_parts()[0]))
        return None if has_words else self._kept(Translation(self.text, 0.0), self.spans)

    def without_parts(self) -> tuple[str, list[int]]:
        """The sentence without the groups of its parts, and the position of each group in it."""
        offsets: list[int] = []
        text, end = "", 0
        for span in [*self._groups, (len(self.text), len(self.text))]:
            between = self.text[end : span[0]]
            if not text or text[-1:].isspace():
                between = between.lstrip()
            if _CLOSING.match(between):
                text = text.rstrip()
                offsets[-1:] = [min(offset, len(text)) for offset in offsets[-1:]]
            text += between
            offsets.append(len(text))  # of the next group
            end = span[1]
        text = text.rstrip()
        return text, [min(offset, len(text)) for offset in offsets[:-1]]

    def with_parts(self, translation: Translation, positions: Sequence[int]) -> KeptTranslation:
        """The translation of `without_parts`, with each group put in at its position."""
        found = self._with_parts(translation, positions, is_apart=False)
        if not {link.target for link in found.kept} <= self._find(found.text).keys():
            # One reads as another beside what is there.
            found = self._with_parts(translation, positions, is_apart=True)
        return found

    def _with_parts(self, translation, positions, is_apart):
        text, end, given = "", 0, translation.text
        spans: dict[Span, Span] = {}
        for position, (start, stop) in self._placed(positions):
            text += given[end:position]
            former = " " if is_apart else _before(self.text, start)
            text += _space_between(text[-1:], former, self.text[start])
            moved = len(text) - start
            spans |= {(a, b): (a + moved, b + moved) for a, b in self._spans_of((start, stop))}
            text += self.text[start:stop]
            following = given[position : position + 1]
            if is_apart or not _CLOSING.match(following):
                former = " " if is_apart else self.text[stop : stop + 1]
                text += _space_between(following, former, text[-1])
            end = position
        new = translation._replace(text=text + given[end:])
        return self._kept(new, [spans[span] for span in self.spans], is_certain=False)

    def with_parts_at_end(self, translation: Translation) -> KeptTranslation:
        """A translation with the parts at its end, for a sentence too long to be aligned."""
        bare = self.without_invented(translation)
        return self.with_parts(bare, [len(bare.text)] * len(self._groups))

    def _placed(self, positions):
        """Groups by their positions; those filled in order change places among themselves."""
        places = sorted(zip(positions, self._groups, strict=True))
        in_order = [
            bool(filled_in_order(self.text[start:end] for start, end in self._spans_of(group)))
            for _, group in places
        ]
        waiting = iter(
            sorted(group for (_, group), is_in in zip(places, in_order, strict=True) if is_in)
        )
        return [
            (position, next(waiting) if is_in else group)
            for (position, group), is_in in zip(places, in_order, strict=True)
        ]

    def _spans_of(self, group):
        """The parts in a group."""
        first, end = (bisect.bisect_left(self.spans, (position, 0)) for position in group)
        return self.spans[first:end]

    @functools.cached_property
    def _groups(self) -> list[Span]:
        """The parts with the brackets around them; those that no word separates are together.

        Example: `(%d/%d)`, `{file} (%d)` and `"{name}"` are groups.
        """
        groups: list[Span] = []
        for span in self.spans:
            start, end = self._with_brackets(span)
            if groups and not _SEPARATES.search(self.text, groups[-1][1], start):
                start, end = self._with_brackets((groups.pop()[0], end))
            groups.append((start, end))
        return groups

    def _with_brackets(self, span):
        start, end = span
        while _before(self.text, start) + self.text[end : end + 1] in _BRACKETS:
            start, end = start - 1, end + 1
        return start, end

    def without_invented(self, translation: Translation) -> Translation:
        """The translation without what looks like a placeholder."""
        text, before = translation.text, ""
        while text != before:  # of `%shttps://a.b`, the URL is a placeholder once `%s` is out
            before = text
            for start, end in reversed(find_placeholders(text, self._placeholders)):
                text = f"{text[:start].rstrip()} {text[end:].lstrip()}".strip()
        return translation._replace(text=text)

    def _find(self, text: str) -> dict[Span, str]:
        """The parts that a text has, or anything of the patterns, and where."""
        spans = find_placeholders(text, self._patterns)
        return {(start, end): text[start:end] for start, end in spans}

    def _kept(self, translation, spans, is_certain=True):
        links = [Link(*both) for both in zip(self.spans, spans, strict=True)]
        return KeptTranslation(*translation, links, is_certain)


def _put_in(translator, sentences, corrects):
    """The translation of each sentence without its parts, which are put in by the alignment."""
    bare = [sentence.without_parts() for sentence in sentences]
    texts = [text for text, _ in bare]
    translations = _translations(translator, texts, [()] * len(texts), corrects)
    best = [
        sentence.without_invented(hypotheses[0])
        for sentence, hypotheses in zip(sentences, translations, strict=True)
    ]
    links = aligned(
        translator, [(text, one.text) for (text, _), one in zip(bare, best, strict=True)]
    )
    for sentence, (text, offsets), one, some in zip(sentences, bare, best, links, strict=True):
        linked = LinkedTexts(text, one.text, some)
        positions = [linked.gap(offset, 0, len(linked.tokens)) for offset in offsets]
        yield sentence.with_parts(one, positions)


def _before(text: str, position: int) -> str:
    """The character before a position; empty at the beginning."""
    return text[position - 1 : position] if position else ""


def _space_between(neighbour: str, former: str, character: str) -> str:
    """The space that a placeholder needs before it or after it.

    Args:
        neighbour: the character of the translation there.
        former: the character of the sentence there.
        character: the placeholder's own.
    """
    if not neighbour or neighbour.isspace():
        return ""
    was_apart = former.isspace() or not is_word(former)
    has_space = character.isalnum() or is_part_of_word(neighbour)  # a Chinese letter has none
    is_beside_word = is_word(neighbour) and has_space
    return " " if former.isspace() or (was_apart and is_beside_word) else ""


def _exchanged(there: Sequence[str], parts: Sequence[str]) -> list[str]:
    """The given parts in the order in which a translation has them, or has others for them.

    Example:
        >>> _exchanged(["{b}", "{Farbe}"], ["{colour}", "{b}"])
        ['{b}', '{colour}']
    """
    missing = collections.Counter(parts)
    is_right = []
    for part in there:
        is_right.append(missing[part] > 0)
        missing[part] -= is_right[-1]
    rest = iter([*missing.elements()])
    return [part if right else next(rest) for part, right in zip(there, is_right, strict=True)]


def _in_order(there: Sequence[str], parts: Sequence[str]) -> list[str]:
    """The parts of a translation; those that are filled in order have that of the sentence."""
    ordered = iter(filled_in_order(parts))
    return [next(ordered) if filled_in_order([part]) else part for part in there]


def _literally(text: str, spans: Iterable[Span]) -> re.Pattern[str]:
    """A pattern of parts of a text, which are within a word only if one of them is so there."""
    parts: dict[str, list[bool]] = {}
    for start, end in spans:
        is_apart = parts.setdefault(text[start:end], [True, True])
        is_apart[0] &= not is_word(_before(text, start))
        is_apart[1] &= not is_word(text[end : end + 1])
    choices = (
        r"(?<!\w)" * before + re.escape(part) + r"(?!\w)" * after
        for part, (before, after) in sorted(parts.items(), key=lambda one: -len(one[0]))
    )
    return re.compile("|".join(choices))
