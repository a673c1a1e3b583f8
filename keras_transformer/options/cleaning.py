"""The rules that clean a corpus, and their limits: one frozen, validated record."""

import dataclasses

from keras_transformer.options.records import Record, field

RULES = {
    "empty": "a side is blank",
    "encoding": "a side has U+FFFD, or wrongly decoded text such as Ã¼ for ü",
    "letters": "a side has no letter",
    "long": "a side has more than {max_words:,} words or {max_characters:,} characters",
    "ratio": "a side is more than {max_ratio:g} times as long as usual beside the other",
    "copy": "the target is the source, perhaps with other capitals",
    "placeholder": "placeholders such as %s, {{0}}, ${{x}} or </b> differ",
    "number": "less than {min_digits:.0%} of the digits are on both sides",
    "script": "less than {min_script:.0%} of the letters of a side are of its usual script",
    "language": "a side is in another language, with a probability of {min_confidence:g} or more",
    "overlap": "a side is a line of the validation set or of the test set",
    "duplicate": "the pair repeats an earlier one",
}
"""The rules in their order, and what breaks each; the limits are those of `CleaningOptions`."""


@dataclasses.dataclass(frozen=True)
class CleaningOptions(Record):
    """Limits beyond which a pair of sentences is suspicious. Every field is a flag of `corpus`.

    Raises:
        UserError: a value has the wrong type or is out of range.
    """

    max_words: int = field(150, "rule long: maximum number of words of a side")
    max_characters: int = field(1000, "rule long: maximum number of characters of a side")
    max_ratio: float = field(
        3.0,
        "rule ratio: how many times as long as usual, beside the other side, a side may be; 10 "
        "characters are added to each side, so that short lines may differ more",
    )
    min_digits: float = field(
        1.0,
        "rule number: minimum share of digits that both sides have; numbers that the other side "
        "may have as words (up to 12) or as Roman numerals do not count",
    )
    min_script: float = field(
        0.2, "rule script: minimum share of letters that are of the usual script of the side"
    )
    min_confidence: float = field(
        0.8, "rule language: minimum probability of another language than that of the side"
    )

    def __post_init__(self):
        super().__post_init__()
        for name in ("max_words", "max_characters", "max_ratio"):
            self.expect(name, getattr(self, name) >= 1, "at least 1")
        for name in ("min_digits", "min_script", "min_confidence"):
            self.expect(name, 0 <= getattr(self, name) <= 1, "in [0, 1]")
