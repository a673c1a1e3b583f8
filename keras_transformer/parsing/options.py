"""How trees are learnt: one frozen, validated record."""

import dataclasses

from keras_transformer.records import Record, field


@dataclasses.dataclass(frozen=True)
class ParsingOptions(Record):
    """How a parser sees its treebank. Every field is a flag of `train.py`.

    Raises:
        UserError: a value has the wrong type or is out of range.
    """

    linearization: str = field(
        "brackets",
        "trees as brackets, as in the paper, or as two symbols a word: for few trees",
        ("brackets", "words"),
    )
    extra_weight: float = field(1.0, "how often a tree of --extra_source comes, for once of others")
    substituted: int = field(0, "copies of each tree with constituents of other trees put in")
    substituted_share: float = field(0.1, "share of constituents replaced in such a copy")

    def __post_init__(self):
        super().__post_init__()
        self.expect("extra_weight", self.extra_weight > 0, "positive")
        self.expect("substituted", self.substituted >= 0, "at least 0")
        self.expect("substituted_share", 0 < self.substituted_share <= 1, "in (0, 1]")
