"""Rules that suspicious sentence pairs break."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from keras_transformer.data.sources import Block, SentencePairs
from keras_transformer.options.cleaning import CleaningOptions
from keras_transformer.text.identification import identified_code, language_identifier
from keras_transformer.text.numbers import with_ascii_digits
from keras_transformer.text.scripts import UNSPACED, main_script, script_share

# UTF-8 that was read as Latin-1 or Windows-1252.
_QUOTES = "\xab\xbb\u2013-\u203a"  # and dashes: they may follow a capital, as in «CAFÉ»
_REST = "\xa1-\xaa\xac-\xba\xbc-\xbf\u0152-\u0178\u02c6\u02dc\u20ac\u2122"
_SECOND = f"(?:[{_REST}]|[{_QUOTES}](?=[^\\W\\d_]))"
_WRONGLY_DECODED = re.compile(
    f"\ufffd|[ÃÂ](?:[\x80-\xa0\xab]|{_SECOND})|â€|[Ä-Þ]{_SECOND}.*[Ä-Þ]{_SECOND}", re.DOTALL
)
_MAY_BE_DECODED = re.compile(f"[Ä-Þà-ô][{_REST}{_QUOTES}]")
# UTF-8 of three bytes: most letters of a line, each with two characters after it. Of these, many
# are control characters to Latin-1, which are read as spaces.
_WRONG_LEADS = re.compile(f"[à-ï][{_REST}{_QUOTES}\x20\xa0]{{2}}")
_OTHER_LETTERS = re.compile(f"[^\\W\\d_à-ï{_REST}]")
_QUOTED_CAPITAL = re.compile(r"[Ä-Þ][»«“”\u2019…](?!\w)")
_LETTER = re.compile(r"[^\W\d_]")
_UNSPACED_LETTER = re.compile(f"[{UNSPACED}]")
_PLACEHOLDER = re.compile(
    r"%\(\w+\)[a-z]|%\{\w+\}|\$\{\w+\}|\{\{?[\w.:!]*\}?\}|[%$][A-Z][A-Z0-9_]{2,}%?"
    r"|(?<![%\d])%(?:[-+#0]|['I](?=\d*[diu]))*+\d*+(?:\.\d++)?(?:hh|ll|[hlLqjzt])?[diouxXeEfgGcsp@]"
    r"|(?<![%\d])%\d+|</[A-Za-z][\w:-]*>"
)
# What has letters of its own in every language.
_NOT_TEXT = re.compile(rf"{_PLACEHOLDER.pattern}|<[^<>]{{1,200}}>|https?://\S+")
_CHARACTER_REFERENCE = re.compile(r"&#\w{1,8};")  # &#8217; is no number
_GROUPING = str.maketrans("", "", "'I")  # %'d and %Id are %d with the digits of the language
_STARTS_OF_PLACEHOLDERS = ("%", "{", "$", "</")
_NUMBER_OF_ARGUMENT = re.compile(r"(?<=%)\d+\$")  # 2$ of %2$s: a translation may change the order
_MOST_AS_WORD = 12  # a number that many languages write as a word; months have numbers in some
_LEAST_LETTERS = 20  # of a line whose language can be found; one without spaces needs half of them
_ROMAN_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
_IMPROBABLE = 0.02  # below this probability, a line is not in a language
_SHORT = 10  # characters that are added to each side before lengths are compared
_SAMPLED = 100  # lines of a block, evenly spread, that show the usual script


class HeldOut(NamedTuple):
    """The lines of a validation or test set, each without spaces around it."""

    source: frozenset[bytes]
    target: frozenset[bytes]

    @classmethod
    def of(cls, sets: Iterable[SentencePairs]) -> "HeldOut":
        """Reads the lines of several sets."""
        blocks = [block for pairs in sets for block in pairs.blocks()]
        source = {line.strip() for block in blocks for line in block.source}
        target = {line.strip() for block in blocks for line in block.target}
        return cls(frozenset(source - {b""}), frozenset(target - {b""}))


@dataclass(frozen=True, eq=False)
class Usual:
    """The usual length ratio, scripts and repeats of a corpus, by which its pairs are judged.

    Attributes:
        repeats: bool `(pairs,)`, whether the same pair came before.
        ratio: characters of the targets for each character of the sources.
        scripts: the script of most letters of each side, such as "LATIN"; None without letters.
    """

    repeats: np.ndarray
    ratio: float
    scripts: tuple[str | None, str | None]

    @classmethod
    def of(cls, pairs: SentencePairs) -> "Usual":
        """Reads all pairs, with about 32 bytes of memory for each."""
        hashes: list[np.ndarray] = []
        characters = [0, 0]
        samples: tuple[list[str], list[str]] = ([], [])
        for block in pairs.blocks():
            hashes.append(pair_hashes(block))
            for side, lines in enumerate((block.source, block.target)):
                characters[side] += len(b"".join(lines).decode("utf-8"))
                every = 1 + len(lines) // _SAMPLED
                samples[side].extend(line.decode("utf-8") for line in lines[::every])
        scripts = main_script(samples[0]), main_script(samples[1])
        return cls(repeats(hashes), usual_ratio(*characters), scripts)


class PairRules:
    """The rules of a corpus, less those that are off or that nothing was given for.

    Args:
        options: the limits.
        usual: what is usual in the corpus.
        skipped: names of rules that are off.
        languages: codes of the source language and the target language, such as "en"; None for a
            side whose language is not checked.
        held_out: the lines that must not occur; None: rule `overlap` is off.

    Attributes:
        names: the rules that are on, in their order.

    Raises:
        UserError: a language is given, and the library that recognises languages is missing or
            does not know it.
    """

    def __init__(
        self,
        options: CleaningOptions,
        usual: Usual,
        skipped: Collection[str] = (),
        languages: tuple[str | None, str | None] = (None, None),
        held_out: HeldOut | None = None,
    ):
        self.options, self.usual, self.held_out = options, usual, held_out
        rules: dict[str, Callable[[str, str], Any]] = {
            "empty": lambda source, target: not (source.strip() and target.strip()),
            "encoding": lambda *sides: any(map(is_wrongly_decoded, sides)),
            "letters": lambda *sides: not all(map(_LETTER.search, sides)),
            "long": lambda *sides: any(map(self._is_long, sides)),
            "ratio": self._has_other_length,
            "copy": is_copy,
            "placeholder": _have_other_placeholders,
            "number": self._has_other_numbers,
            "script": self._has_other_script,
        }
        if any(languages) and "language" not in skipped:
            self._languages = [code and identified_code(code) for code in languages]
            self._likeliest = language_identifier(most=1)
            self._all_languages = language_identifier()  # several times as slow
            rules["language"] = self._has_other_language
        if held_out:
            rules["overlap"] = self._is_held_out
        self._rules = {name: rule for name, rule in rules.items() if name not in skipped}
        self.names = [*self._rules, *{"duplicate"}.difference(skipped)]

    def broken(self, source: str, target: str, number: int) -> str | None:
        """The name of the first rule that a pair breaks, or None.

        Args:
            source: the sentence.
            target: its translation.
            number: number of the pair in the corpus, from 0.
        """
        for name, is_broken in self._rules.items():
            if is_broken(source, target):
                return name
        is_repeated = self.usual.repeats[number] and self.names[-1] == "duplicate"
        return "duplicate" if is_repeated else None

    def _is_long(self, text):
        options = self.options
        if len(text) > options.max_characters:
            return True
        is_possible = len(text) >= 2 * options.max_words  # a word and a space are 2 characters
        return is_possible and len(text.split()) > options.max_words

    def _has_other_length(self, source, target):
        relative = relative_length(len(source), len(target), self.usual.ratio)
        return not 1 / self.options.max_ratio <= relative <= self.options.max_ratio

    def _has_other_numbers(self, source, target):
        ours, theirs = _digits(source), _digits(target)
        if ours == theirs:
            return False
        numbers = Counter(_numbers(source)), Counter(_numbers(target))
        ours_alone, theirs_alone = numbers[0] - numbers[1], numbers[1] - numbers[0]
        if not (ours_alone and theirs_alone) and (
            all(_may_be_written_in(target, one) for one in ours_alone)
            and all(_may_be_written_in(source, one) for one in theirs_alone)
        ):
            return False
        common = sum(min(ours.count(digit), theirs.count(digit)) for digit in {*ours})
        return 2 * common / (len(ours) + len(theirs)) < self.options.min_digits

    def _has_other_script(self, *sides):
        return any(
            script
            and script_share(side, script) < self.options.min_script
            and script_share(_NOT_TEXT.sub(" ", side), script) < self.options.min_script
            for side, script in zip(sides, self.usual.scripts, strict=True)
        )

    def _has_other_language(self, *sides):
        for side, language in zip(sides, self._languages, strict=True):
            if language and _has_enough_letters(side):
                found, probability = next(iter(self._likeliest(side).items()))
                if found == language or probability < self.options.min_confidence:
                    continue
                if self._all_languages(side).get(language, 0) < _IMPROBABLE:
                    return True
        return False

    def _is_held_out(self, source, target):
        in_sources = source.strip().encode() in self.held_out.source
        return in_sources or target.strip().encode() in self.held_out.target


def is_wrongly_decoded(text: str) -> bool:
    """Whether a text has U+FFFD, or UTF-8 that was read as Latin-1 or Windows-1252.

    Example:
        >>> [is_wrongly_decoded(text) for text in ("fÃ¼r", "kapatÄ±ldÄ±", "für «GRÖẞE»")]
        [True, True, False]
    """
    if text.isascii():
        return False
    if _WRONGLY_DECODED.search(text):
        return True
    wrong = len(_WRONG_LEADS.findall(text))
    if wrong >= 2 and wrong >= len(_OTHER_LETTERS.findall(text)):
        return True
    if not _MAY_BE_DECODED.search(text) or _QUOTED_CAPITAL.search(text):
        return False
    try:
        text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return False
    return True


def is_copy(source: str, target: str) -> bool:
    """Whether two lines are the same, except for capitals and for spaces around them."""
    return source.strip().casefold() == target.strip().casefold()


def usual_ratio(source: int, target: int) -> float:
    """Characters of all targets for each character of all sources; 1 if a side has none."""
    return float(target / source) if source and target else 1.0


def relative_length(source: Any, target: Any, usual: float) -> Any:
    """How many times as long as usual a target is, beside its source; lengths may be arrays.

    Example:
        >>> relative_length(20, 20, usual=1.0), relative_length(10, 90, usual=1.0)
        (1.0, 5.0)
    """
    return (target + _SHORT) / (source * usual + _SHORT)


def pair_hashes(block: Block) -> np.ndarray:
    """Hashes of the pairs of a block, int64 `(pairs,)`, the same ones only in this process."""
    pairs = zip(map(bytes.strip, block.source), map(bytes.strip, block.target), strict=True)
    return np.fromiter(map(hash, pairs), np.int64)


def repeats(hashes: list[np.ndarray]) -> np.ndarray:
    """Whether each pair came before, bool `(pairs,)`, by the hashes of all blocks in order.

    Two of a hundred million different pairs have the same hash once in thousands of corpora.
    """
    joined = np.concatenate([np.zeros(0, np.int64), *hashes])
    order = np.argsort(joined, kind="stable")  # the same hashes one after the other, first to last
    joined = joined[order]
    repeated = np.zeros(len(joined), bool)
    repeated[order[1:]] = joined[1:] == joined[:-1]
    return repeated


def _have_other_placeholders(source, target):
    ours, theirs = _placeholders(source), _placeholders(target)
    if ours == theirs:
        return False
    return _without_percentages(ours, target) != _without_percentages(theirs, source)


def _without_percentages(placeholders, other):
    """The placeholders without such as %50, which is 50% on the other side, as in Turkish."""
    other = with_ascii_digits(other)
    return [
        one
        for one in placeholders
        if not (one[1:].isdigit() and re.search(rf"(?<!\d){one[1:]}\s?%", other))
    ]


def _may_be_written_in(text, number):
    """Whether a text may have a number as a word, or has it in Roman numerals, as in XIXe."""
    if len(number) > 2:
        return False
    if int(number) <= _MOST_AS_WORD:
        return True
    tens, ones = divmod(int(number), 10)
    roman = tens * "X" + _ROMAN_ONES[ones]
    return tens < 4 and bool(re.search(rf"(?<![^\W\d_]){roman}(?![IVXLCDM])", text))


def _placeholders(text):
    if not any(start in text for start in _STARTS_OF_PLACEHOLDERS):
        return []
    found = _PLACEHOLDER.findall(_NUMBER_OF_ARGUMENT.sub("", with_ascii_digits(text)))
    return sorted(one.translate(_GROUPING) for one in found)


def _digits(text):
    return sorted("".join(_numbers(text)))


def _numbers(text):
    """The runs of digits of a text, but not those of `%2$s`, as ASCII digits of any script."""
    if "%" in text:
        text = _NUMBER_OF_ARGUMENT.sub("", text)
    if "&#" in text:
        text = _CHARACTER_REFERENCE.sub("", text)
    found = re.findall(r"\d+", text)
    return [*map(with_ascii_digits, found)]


def _has_enough_letters(text):
    """Whether a text is long enough for its language to be found."""
    letters = _LETTER.findall(text)
    return len(letters) + len(_UNSPACED_LETTER.findall(text)) >= _LEAST_LETTERS
