"""Arguments and results of translators on any engine, without loading a backend."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from keras_transformer.text.plain_text import plain_text


class Translation(NamedTuple):
    """A translated sentence and its score: log-probability / length penalty.

    If constraints leave no hypothesis, the text is empty and the score is
    `search.NO_HYPOTHESIS`, -1e9.
    """

    text: str
    score: float


def one_line(text: str) -> str:
    """Makes one line of text of what a model said, possibly in bytes.

    It removes line breaks and control characters, and a character at the end of which the limit of
    length cut some bytes.
    """
    return " ".join(plain_text(text.rstrip("\N{REPLACEMENT CHARACTER}")).split())


class CutWarning(UserWarning):
    """A translator has cut sentences that have more tokens than it reads.

    Attributes:
        what: the argument that the sentences are in, such as "sentences" or "translations".
        indices: their indices, from 0.
        limit: number of tokens that were read of each of them.

    Example:
        >>> warnings.simplefilter("error", kt.CutWarning)  # cut nothing: raise instead
    """

    def __init__(self, what: str, indices: Sequence[int], limit: int):
        self.what, self.indices, self.limit = what, indices, limit
        super().__init__(
            f"read only the first {limit:,} tokens of {len(indices):,} of the {what}, "
            f"at index {first_few(indices)}"
        )


def cut(tokens: Sequence[Any], limit: int, what: str) -> list[Any]:
    """Cuts sentences to `limit` tokens, and warns (`CutWarning`) if one of them has more.

    Args:
        tokens: tokens of each sentence.
        limit: maximum number of tokens.
        what: name of the sentences in the warning.
    """
    longer = [index for index, sentence in enumerate(tokens) if len(sentence) > limit]
    if longer:
        warnings.warn(CutWarning(what, longer, limit), stacklevel=2)
    return [sentence[:limit] for sentence in tokens]


def first_few(numbers: Sequence[int], most: int = 5) -> str:
    """Lists the first numbers, for a message.

    Example:
        >>> first_few([2, 3, 5, 7, 11, 13])
        '2, 3, 5, 7, 11, ...'
    """
    return ", ".join([*map(str, numbers[:most]), *["..."] * (len(numbers) > most)])
