"""The options of a parser's training data: one frozen, validated record."""

import dataclasses

from keras_transformer.options.records import Record, field

LINEARIZATIONS = ("brackets", "words")
# Defaults of `SearchOptions` for parsers, by linearization: the paper's search (section 6.3). With
# two symbols for each word, a tree is as long as its sentence.
_PAPER = {"beam_size": 21, "alpha": 0.3, "length_penalty": "gnmt", "patience": None}
PARSER_SEARCH = {
    "brackets": {**_PAPER, "extra_length": 300},
    "words": {**_PAPER, "extra_length": 0},
}


@dataclasses.dataclass(frozen=True)
class ParsingOptions(Record):
    """Options of a parser's training data. Every field is a flag of `train`.

    Raises:
        UserError: a value has the wrong type or is out of range.
    """

    linearization: str = field(
        "brackets",
        "how trees become symbols: brackets, as in the paper; words, two symbols for each "
        "word, which a parser learns from fewer trees",
        LINEARIZATIONS,
    )
    extra_weight: float = field(
        1.0, "how often a tree of --extra_source occurs, relative to the other trees"
    )
    substituted: int = field(
        0,
        "number of augmented copies of each tree, in which constituents of other trees "
        "replace some",
    )
    substituted_share: float = field(0.1, "share of constituents to replace in an augmented copy")

    def __post_init__(self):
        super().__post_init__()
        self.expect("extra_weight", self.extra_weight > 0, "positive")
        self.expect("substituted", self.substituted >= 0, "at least 0")
        self.expect("substituted_share", 0 < self.substituted_share <= 1, "in (0, 1]")
