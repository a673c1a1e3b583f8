"""Conversion of any iterable of sentences to a list."""

from collections.abc import Iterable
from typing import Any

from keras_transformer.errors import UserError


def as_list(sentences: Iterable[str | bytes], what: str = "sentences") -> list[Any]:
    """Lists the sentences of any iterable: a list, a generator, an open file, an array, a tensor.

    Args:
        sentences: strings or UTF-8 bytes.
        what: name of the argument in messages.

    Raises:
        UserError: `sentences` is a single string or not an iterable, or an item is not a string.

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
    """Lists sentences like `as_list`, with bytes decoded from UTF-8."""
    return [
        sentence.decode("utf-8", errors) if isinstance(sentence, bytes) else sentence
        for sentence in as_list(sentences, what)
    ]
