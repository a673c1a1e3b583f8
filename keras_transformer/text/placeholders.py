r"""Placeholders: what a translation copies, such as `%s`, `{name}`, URLs and emoji."""

import re
from collections.abc import Iterable, Sequence

from keras_transformer.errors import UserError
from keras_transformer.text.scripts import HANGUL, UNSPACED
from keras_transformer.text.words import MARKS

Span = tuple[int, int]  # start and end in a text, in characters

_BESIDE = UNSPACED + HANGUL  # letters beside which a URL or a name may stand without a space
_PREFIXED = "\u0590-\u06ff"  # Hebrew and Arabic, which write "and" and "to" as the first letter
_LETTER = rf"[^\W{_BESIDE}{_PREFIXED}]"  # a letter, digit or `_` that would belong to the same word
_OF_URL = rf"""[^\s()<>"'`«»\u2010-\u2025\u2027-\u206f\u3000-\u303f\uff00-\uffef{_BESIDE}]"""
# The end of a URL: not the full stop or the bracket of the sentence, but all of `/A_(b)`.
_REST_OF_URL = rf"(?:{_OF_URL}|\({_OF_URL}*\))+(?<=[\w{MARKS}/=&\#~+$)-])"
_DOMAIN = rf"[\w-]+(?:\.[\w-]+)*\.[a-zA-Z]{{2,24}}(?!{_LETTER})"

# Each repetition is short, or begins at the start of a word: so a long line takes linear time.
_IN_PROGRAMS = r"""
      \[X\d+X\]                                    # Weblate: [X12X]
    | </?\d+/?>                                    # i18next: <0>text</0>
    | \{\{\{.{0,200}?\}\}\}                         # Handlebars: {{{ x }}}
    | \$?\{\{.{0,200}?\}\} | \{%.{0,200}?%\}       # Jinja, GitHub: {{ x }}, {% if x %}, ${{ x }}
    | <%.{0,200}?%>                                # ERB: <%= x %>
    | [$%\#]?\{[^\s{}]{0,200}\}                    # Python, ICU, shell, Ruby: {name}, ${x}, %{x}
    | \{\w+,\s*(?:number|date|time)\b[^{}]{0,80}\} # ICU: {when, date, short}
    | %\(\w{1,80}\)[-+\#0]*+\d*+(?:\.\d++)?[a-zA-Z]  # Python: %(name)s
    | %\d{1,2}\$(?:[-+\#0']|I(?=\d*[diu]))*+\d*+(?:\.\d++)?(?:hh?|ll?|[qLjzt])?[a-zA-Z@]  # %1$s
    | %L\d{1,2}                                    # Qt, with separators: %L1
    | (?<![a-zA-Z0-9_])%[A-Z][A-Z_]+\d*%?          # LibreOffice: %PRODUCTNAME
    | (?<!\d)%(?:[-+\#0']|I(?=\d*[diu]))*+(?:\*|\d++)?+(?:\.(?:\*|\d++))?
      (?:hh?|ll?|I64|[qLjzt])?[a-zA-Z@]            # printf: %s; %Id has digits of the language
    | %\d{1,2}                                     # Qt: %1
    | %%
"""
_ON_THE_WEB = rf"""
    | (?<!{_LETTER})(?:https?|ftps?|file|ssh|git|mailto)://{_REST_OF_URL}
    | (?<![.+/-])(?<!{_LETTER})(?:{_LETTER}|[.+-])+@{_DOMAIN}   # name@example.org
    | (?<![\w.&/])[@\#][^\W\d][\w{MARKS}]*(?:@{_DOMAIN})?       # @name, #topic
    | (?<!\.)(?<!{_LETTER})www\.[\w-]+\.{_REST_OF_URL}
"""
# Arrows, lines of tables, signs such as those for warnings, emoji; not what NFKC makes of letters.
_SIGN = (
    "[\u2190-\u21ff\u2300-\u23ff\u2500-\u27bf\u2900-\u297f\u2b00-\u2bff\U0001f000-\U0001f0ff"
    "\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]"
)
_SIGNS_AND_ENTITIES = rf"""
    | {_SIGN}(?:[\u200d\ufe0e\ufe0f]|{_SIGN}|[\U000e0020-\U000e007f])*
    | [0-9*\#]\ufe0f?\u20e3                         # a digit on a key
    | &(?:[a-zA-Z][\w.-]{{0,80}}|\#\d{{1,7}}|\#[xX][0-9a-fA-F]{{1,6}});  # &name; of XML and HTML
"""
_PLACEHOLDER = re.compile(_IN_PROGRAMS + _ON_THE_WEB + _SIGNS_AND_ENTITIES, re.VERBOSE)
_STANDS_FOR_ONE = "\N{OBJECT REPLACEMENT CHARACTER}"  # in no term and in no placeholder
# Those that are filled in order: `%s`, `{}` and `{:.2f}`, not `%1$s`, `%(name)s`, `%1` or `%%`.
_IN_ORDER = re.compile(r"%(?!\d{1,2}\$|L?\d{1,2}$|[(%{]|[A-Z]{2}).*|\{(?:![a-z])?(?::.*)?\}")


def placeholder_patterns(keep: Sequence[str] = ()) -> list[re.Pattern[str]]:
    """The patterns of placeholders.

    Args:
        keep: regular expressions of further text to copy, which come first.

    Raises:
        UserError: one of them is no regular expression, or matches an empty text, or `keep` is a
            single string.

    Example:
        >>> find_placeholders("%s: see #12", placeholder_patterns(["#[0-9]+"]))
        [(0, 2), (8, 11)]
    """
    if isinstance(keep, str):
        raise UserError(f"keep must be a list of regular expressions: found the string {keep!r}")
    return [*map(_compiled, keep), _PLACEHOLDER]


def find_placeholders(text: str, patterns: Iterable[re.Pattern[str]]) -> list[Span]:
    """The start and end of each placeholder, in order. Of two that overlap, the first counts."""
    found = [
        (match.start(), rank, match.end())
        for rank, pattern in enumerate(patterns)
        for match in pattern.finditer(text)
        if match.group()
    ]
    spans: list[Span] = []
    for start, _, end in sorted(found):
        if not spans or start >= spans[-1][1]:
            spans.append((start, end))
    return spans


def without_placeholders(
    text: str, patterns: Iterable[re.Pattern[str]], copied: Sequence[Span] = ()
) -> str:
    """The text with a character that no term has in place of each placeholder.

    Args:
        text: a sentence.
        patterns: patterns of placeholders.
        copied: further parts of the sentence that are replaced first, in order.

    Example:
        >>> without_placeholders("See {name}.", placeholder_patterns())
        'See \ufffc.'
    """
    text = without_spans(text, copied)
    return without_spans(text, find_placeholders(text, patterns))


def without_spans(text: str, spans: Iterable[Span]) -> str:
    """The text with a character that no term has in place of each span; these are in order."""
    for start, end in reversed([*spans]):
        text = text[:start] + _STANDS_FOR_ONE + text[end:]
    return text


def filled_in_order(placeholders: Iterable[str]) -> list[str]:
    """Returns the placeholders that a program fills in order, so that their order must stay.

    Example:
        >>> filled_in_order(["%s", "%1$s", "%(n)d", "%.2f", "%%", "{}", "{:d}", "{x}"])
        ['%s', '%.2f', '{}', '{:d}']
    """
    return [one for one in placeholders if _IN_ORDER.fullmatch(one)]


def _compiled(expression):
    try:
        pattern = re.compile(expression)
    except re.error as error:
        raise UserError(f"keep={expression!r} is no regular expression: {error}") from None
    if pattern.search(""):
        raise UserError(f"keep={expression!r} matches an empty text: say what it must contain")
    return pattern
