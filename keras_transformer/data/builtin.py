"""The built-in corpus: English-German sentence pairs that a small grammar makes on the spot.

It lets a model be trained, judged and tested without a download. The language is small, the
translation is not word by word: German verbs go to the second or the last place and split in two,
articles and adjectives agree in case and gender, "forty-three" is "dreiundvierzig".
"""

from collections.abc import Iterator
from hashlib import blake2b
from random import Random

from keras_transformer.data.builtin_grammar import SENTENCES
from keras_transformer.errors import UserError

# The hundredths of all sentences that belong to each split.
SPLITS = {"train": range(0, 90), "validation": range(90, 95), "test": range(95, 100)}


def num_distinct_pairs() -> int:
    """The number of sentence pairs in all splits together."""
    return SENTENCES.count


def builtin_pairs(split: str, num_pairs: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Distinct English-German sentence pairs, the same for the same arguments on every machine.

    A hash of the English sentence decides the split, so no sentence is in two of them, whatever
    the seeds.

    Args:
        split: "train", "validation" or "test".
        num_pairs: how many pairs; some 100 bytes of memory each keep them distinct.
        seed: decides which pairs, in which order; fewer pairs are the beginning of more.

    Returns:
        An iterator over pairs (English, German).

    Raises:
        UserError: the split is unknown or num_pairs negative.

    Example:
        >>> english, german = next(builtin_pairs("train", 1))
    """
    if split not in SPLITS:
        raise UserError(f"split: expected one of {', '.join(SPLITS)}, found {split!r}")
    if num_pairs < 0:
        raise UserError(f"num_pairs: expected 0 or more, found {num_pairs}")
    return _draw_pairs(SPLITS[split], num_pairs, seed)


def _draw_pairs(hundredths: range, num_pairs: int, seed: int) -> Iterator[tuple[str, str]]:
    # Random.random is the one method whose sequence Python promises to keep.
    random = Random(seed).random
    seen: set[int] = set()
    while len(seen) < num_pairs:
        english, german = SENTENCES.draw(random)
        digest = int.from_bytes(blake2b(english.encode(), digest_size=8).digest(), "big")
        if digest % 100 in hundredths and digest not in seen:
            seen.add(digest)
            yield english, german
