"""The script that a text is written in, by the Unicode names of its letters."""

import functools
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable

UNSPACED_SCRIPTS = frozenset(("HAN", "KHMER", "LAO", "MYANMAR", "THAI", "TIBETAN"))
"""Scripts that put no space between words, by the names of `script_of`."""

UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
"""Their characters, for a regular expression."""

HANGUL = "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af"
"""The letters of Korean, whose particles follow a noun without a space."""

# Japanese mixes three scripts, of which one is Chinese too.
_HAN = {"CJK": "HAN", "HIRAGANA": "HAN", "KATAKANA": "HAN", "KATAKANA-HIRAGANA": "HAN"}
_NOT_LATIN = re.compile("[^\\x00-\u02af\u0300-\u036f\u1e00-\u1eff\u2000-\u2bff\ufe0f]")


@functools.cache
def script_of(character: str) -> str | None:
    """The script of a letter, such as "LATIN"; None if it is no letter.

    Example:
        >>> [script_of(character) for character in "aя語か7"]
        ['LATIN', 'CYRILLIC', 'HAN', 'HAN', None]
    """
    if not character.isalpha():
        return None
    first, _, rest = unicodedata.name(character, "").partition(" ")
    if first in ("FULLWIDTH", "HALFWIDTH"):  # forms for columns of equal width
        first = rest.partition(" ")[0]
    return _HAN.get(first, first)


def main_script(texts: Iterable[str]) -> str | None:
    """The script of most letters; None without letters."""
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        if script := script_of(character):
            scripts[script] += count
    return scripts.most_common(1)[0][0] if scripts else None


def script_share(text: str, script: str) -> float:
    """The share of the letters of a text that are of a script; 1 without letters.

    Example:
        >>> script_share("Я говорю: yes", "CYRILLIC")
        0.7
    """
    if script == "LATIN" and not _NOT_LATIN.search(text):  # almost all text; it is fast
        return 1.0
    letters = [found for found in map(script_of, text) if found]
    return letters.count(script) / len(letters) if letters else 1.0
