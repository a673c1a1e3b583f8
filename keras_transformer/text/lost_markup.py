"""Marks of HTML and Markdown that a translation of a plain line has lost or changed."""

import collections
import re

# Tags of common elements only: `<branch>`, as in a message of git, is not HTML.
_TAG = (
    r"</?(?:abbr|[abipqsu]|big|br|cite|code|del|div|em|font|h[1-6]|ins|kbd|li|mark|ol|pre|samp|small"
    r"|span|strike|strong|su[bp]|table|t[dhrt]|ul|var)(?:\s[^<>]{0,1000})?/?>"
)
# Code in backquotes, and the end of a link with its destination.
_MARK = r"(?<!`)`[^`\s](?:[^`]{0,200}[^`\s])?`(?!`)|\]\([^()\s]{1,1000}\)"
_MARKS = {"html": re.compile(_TAG, re.IGNORECASE), "markdown": re.compile(_MARK)}


def lost_markup(source: str, translation: str) -> tuple[str, str] | None:
    """Finds a tag, code in backquotes or the destination of a link that a translation lacks.

    Args:
        source: a line.
        translation: its translation.

    Returns:
        The format that has such marks, "html" or "markdown", and the first of the missing marks;
        or None.

    Example:
        >>> lost_markup("Press <b>Enter</b>.", "Drücken Sie die Eingabetaste</b>.")
        ('html', '<b>')
        >>> lost_markup("Run `ls`.", "Führen Sie »ls« aus.")
        ('markdown', '`ls`')
    """
    for format_, pattern in _MARKS.items():
        marks = pattern.findall(source)
        if marks:
            missing = collections.Counter(marks) - collections.Counter(pattern.findall(translation))
            if missing:
                return format_, next(mark for mark in marks if mark in missing)
    return None
