"""Conversion of any iterable of sentences to a list."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from keras_transformer.errors import UserError
from keras_transformer.text.plain_text import plain_text, with_final_sigmas


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
    return list(each(sentences, what))


def each(sentences: Iterable[str | bytes], what: str = "sentences") -> Iterator[Any]:
    """Yields the sentences that `as_list` would list; raises the same errors, when it is read."""
    if hasattr(sentences, "__array__"):
        sentences = sentences.__array__().tolist()
    if isinstance(sentences, str | bytes):
        raise UserError(f"{what} must be a list of strings: found a single string")
    if not isinstance(sentences, Iterable):
        raise UserError(f"{what} must be a list of strings: found {type(sentences).__name__}")
    for number, sentence in enumerate(sentences):
        if not isinstance(sentence, str | bytes):
            kind = type(sentence).__name__
            raise UserError(f"{what} must be strings: found {kind} at index {number}")
        yield sentence


def one_for_each(sentences: Sequence[Any], others: Iterable[str | bytes], what: str) -> list[Any]:
    """Lists `others` as `as_list` does.

    Raises:
        UserError: there is not one of them for each sentence, or `as_list` raises it.
    """
    listed = as_list(others, what)
    if len(listed) != len(sentences):
        raise UserError(
            f"there must be {len(sentences)} {what}, one for each sentence: found {len(listed)}"
        )
    return listed


def as_text(
    sentences: Iterable[str | bytes], what: str = "sentences", errors: str = "replace"
) -> list[str]:
    """Lists sentences like `as_list`, as plain text (`plain_text`), with bytes decoded."""
    return [
        plain_text(sentence.decode("utf-8", errors) if isinstance(sentence, bytes) else sentence)
        for sentence in as_list(sentences, what)
    ]


def utf_8(sentence: str | bytes, for_lowercase: bool = False) -> bytes:
    """Encodes a sentence in UTF-8, as plain text (`plain_text`).

    Args:
        sentence: a string, in which a lone surrogate becomes a question mark, or bytes, of which
            those that are not UTF-8 become U+FFFD.
        for_lowercase: whether a vocabulary will lower-case it (`with_final_sigmas`).
    """
    text = sentence.decode("utf-8", "replace") if isinstance(sentence, bytes) else sentence
    text = plain_text(text)
    if for_lowercase:
        text = with_final_sigmas(text)
    return text.encode("utf-8", "replace")
