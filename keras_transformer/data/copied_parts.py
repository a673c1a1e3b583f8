"""Whether the targets of a corpus copy the placeholders and long numbers of their sources."""

from keras_transformer.data.sources import SentencePairs
from keras_transformer.text.numbers import long_numbers, lost_numbers, with_ascii_digits
from keras_transformer.text.placeholders import find_placeholders, placeholder_patterns

_SAMPLED = 20_000  # pairs, evenly spread over the corpus
_LEAST = 0.01  # share of the pairs with such parts from which on they tell about the others


def share_copied(pairs: SentencePairs, num_pairs: int) -> float | None:
    """The share of the pairs with such parts in the source whose targets have all of them.

    In translations, it is about 0.98. Pairs of other tasks may replace them, such as e-mail
    addresses by a symbol, or dates by those of another form.

    Args:
        pairs: the corpus.
        num_pairs: about how many pairs it has, of which 20,000 are read.

    Returns:
        The share; None if fewer than 1% of the pairs have such parts.
    """
    patterns = placeholder_patterns()
    step = max(1, num_pairs // _SAMPLED)
    num_read = num_with = num_copied = 0
    for block in pairs.blocks():
        for source, target in zip(block.source[::step], block.target[::step], strict=True):
            text = with_ascii_digits(source.decode("utf-8"))
            translation = with_ascii_digits(target.decode("utf-8"))
            placeholders = [text[slice(*span)] for span in find_placeholders(text, patterns)]
            numbers = long_numbers(text)
            num_read += 1
            if placeholders or numbers:
                num_with += 1
                num_copied += all(one in translation for one in placeholders) and not lost_numbers(
                    numbers, translation
                )
    return num_copied / num_with if num_with > _LEAST * num_read else None
