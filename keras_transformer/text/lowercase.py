"""SentencePiece's rule of normalisation for vocabularies in lower case."""

import contextlib
import tempfile
from collections.abc import Iterator

from sentencepiece import SentencePieceNormalizer


@contextlib.contextmanager
def lowercase_rule() -> Iterator[str]:
    """Yields the path of a file with the rule `nmt_nfkc`, whose results are then in lower case.

    SentencePiece's own `nmt_nfkc_cf` folds case, to compare text: the final sigma U+03C2 becomes
    U+03C3, and "İ" stays. The new rule has for each character what `str.lower` gives for it alone;
    `plain_text.with_final_sigmas` does what depends on other characters.
    """
    rules = dict(SentencePieceNormalizer(rule_name="nmt_nfkc").Decompile())
    for character in map(chr, range(0x110000)):
        if character.lower() != character:
            rules.setdefault(character, character)
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as file:
        for characters, normalized in rules.items():
            lower = _lower(rules.get(_lower(characters), normalized))
            file.write(f"{_codes(characters)}\t{_codes(lower)}\n")
        file.flush()
        yield file.name


def _lower(characters):
    return "".join(map(str.lower, characters))


def _codes(characters):
    return " ".join(f"{ord(character):X}" for character in characters)
