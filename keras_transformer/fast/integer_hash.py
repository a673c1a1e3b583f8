"""A hash of 32-bit integers: random bits that are a function of what they are drawn for."""

from keras import ops

# Odd numbers whose products mix the bits of a 32-bit integer well.
_MULTIPLIERS = (-1640531527, 0x21F0AAAD, 0x735A2D97)


def hashed(x, words):
    """Hashes integers in one round for each word: add the word, then mix the bits.

    Args:
        x: int32, of any shape.
        words: two or three int32 of shapes that broadcast with that of `x`. Other words give
            another hash.

    Returns:
        int32, all bits of which are random.
    """
    for word, multiplier in zip(words, _MULTIPLIERS[-len(words) :], strict=True):
        x = x + word
        x = (x ^ high_bits(x, 16)) * multiplier
    return x ^ high_bits(x, 16)


def high_bits(x, count):
    """The highest `count` bits of int32, as a number; a shift alone would repeat the sign bit."""
    return ops.bitwise_and(ops.right_shift(x, 32 - count), 2**count - 1)
