"""Lists of sentences, whatever iterable a caller has them in."""

from collections.abc import Iterable
from typing import Any

from keras_transformer.errors import UserError


def as_list(sentences: Iterable[str | bytes], what: str = "sentences") -> list[Any]:
    """The sentences of any iterable: a list, a generator, an open file, an array, a tensor.

    Args:
        sentences: strings, or bytes of UTF-8.
        what: the name of the argument in messages.

    Raises:
        UserError: `sentences` is a single string, is no iterable, or has an item that is no string.

    Example:
        >>> as_list(line.upper() for line in ["yes", "no"])
        ['YES', 'NO']
    """
    if hasattr(sentences, "__array__"):
        sentences = sentences.__array__().tolist()
    if isinstance(sentences, str | bytes):
        raise UserError(f"expected a list of {what}, found a single string")
    if not isinstance(sentences, Iterable):
        raise UserError(f"expected a list of {what}, found {type(sentences).__name__}")
    sentences = list(sentences)
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str | bytes):
            kind = type(sentence).__name__
            raise UserError(f"expected {what} that are strings, found {kind} at index {number}")
    return sentences


def as_text(
    sentences: Iterable[str | bytes], what: str = "sentences", errors: str = "replace"
) -> list[str]:
    """The sentences of `as_list`, bytes decoded from UTF-8."""
    return [
        sentence.decode("utf-8", errors) if isinstance(sentence, bytes) else sentence
        for sentence in as_list(sentences, what)
    ]
