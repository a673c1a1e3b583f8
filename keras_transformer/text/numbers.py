"""Long numbers: years, versions and hashes, of which a translation may lack a digit."""

import difflib
import re
import unicodedata
from collections.abc import Sequence

# A number, a version, or the hexadecimal name of a commit; no time, such as 11:30 for 23:30.
_NUMBER = re.compile(r"(?<![\w.:])(?=[a-f]*+[0-9])[0-9a-f]++(?:\.[0-9]++)*(?!\w|:[0-9])", re.ASCII)
_DATE = re.compile(r"(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\.(?:\d\d|[12]\d{3})")
_LEAST = 4  # digits of a long number: people write shorter ones in other ways, such as in words
_LEAST_OF_COPY = 3  # digits of a wrong copy: `25. Jahrhundert` is right for 2500
_MOST = 20  # numbers that are put right: each is compared with all numbers of the translation
_ALIKE = 0.6  # the least similarity of a number and a wrong copy of it, such as 9999 and 999


def with_long_numbers(translation: str, source: str) -> str:
    """The translation, with the long numbers of its source in place of wrong copies of them.

    A number is a wrong copy if the source does not have it, and it resembles a single one of those
    that are missing. Digits count, and not what separates thousands. Dates such as 2.3.1999 are no
    such numbers, as other languages write them in another form.

    Example:
        >>> with_long_numbers("am 16. Aug. 202", "Aug 16, 2022")
        'am 16. Aug. 2022'
        >>> with_long_numbers("1.234.567 Dateien", "1,234,567 files")
        '1.234.567 Dateien'
    """
    numbers = _NUMBER.findall(source)
    missing = lost_numbers(long_numbers(source), translation)
    if not 0 < len(missing) <= _MOST:
        return translation
    known = {*map(_digits, numbers), _digits(source)}
    pieces, end = [], 0
    for match in _NUMBER.finditer(translation):
        digits = _digits(match[0])
        if not missing or len(digits) < _LEAST_OF_COPY or digits in known:
            continue
        alike = difflib.get_close_matches(match[0], missing, len(missing), _ALIKE)
        if len({*alike}) == 1:  # of two candidates, nobody knows which it is
            missing.remove(alike[0])
            pieces += [translation[end : match.start()], alike[0]]
            end = match.end()
    return "".join(pieces) + translation[end:]


def long_numbers(text: str) -> list[str]:
    """The numbers of a text that a translation has with the same digits; no dates.

    Example:
        >>> long_numbers("12 of 1,234 files of 2022")
        ['2022']
    """
    found = [one for one in _NUMBER.findall(text) if len(_digits(one)) >= _LEAST]
    return [one for one in found if not _DATE.fullmatch(one)]


def lost_numbers(numbers: Sequence[str], translation: str) -> list[str]:
    """The numbers whose digits a translation lacks, with whatever separates thousands."""
    there = _digits(translation) if numbers else ""  # most texts have none
    return [one for one in numbers if _digits(one) not in there]


def with_ascii_digits(text: str) -> str:
    """The text with ASCII's digits, and its sign of percent, for those of other scripts."""
    if text.isascii():
        return text
    text = text.replace("٪", "%")
    return re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text)


def _digits(text):
    """The digits of a number, also hexadecimal ones; of a text, all that may be digits."""
    return re.sub(r"[^0-9a-f]", "", text)
