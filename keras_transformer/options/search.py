"""The options of a search: one frozen, validated record."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from keras_transformer.options.records import Record, field

NO_HYPOTHESIS = -1e9
"""The score of a missing hypothesis: finite, so that JSON can hold it."""
LENGTH_PENALTIES = ("power", "gnmt")
# Limits far beyond any use, so that a typing mistake is an error and not an endless search.
MOST_BEAMS, MOST_ALPHA, LONGEST, LONGEST_NGRAM = 10_000, 50, 65_536, 100
OF_SAMPLING = ("temperature", "top_k", "top_p", "seed")
"""The fields of `SearchOptions` that only sampling reads."""
MBR_TEMPERATURE = 0.7
"""The default temperature of the samples of `MinimumBayesRisk`."""


@dataclasses.dataclass(frozen=True)
class SearchOptions(Record):
    """Options of a search: which hypotheses it keeps, and when it ends (paper, section 6.1).

    The defaults are those of CTranslate2 and fairseq, but for the number of beams and the patience.
    The paper's search has `alpha=0.6`, `length_penalty="gnmt"` and `patience=None`.

    Every field but the last is a flag of `translate` and `evaluate`. Lengths are in tokens,
    including the end symbol, and not those of a prefix. A translation ends at its limit: the last
    token is the end symbol. `constraint` is a function that masks the symbols that may follow,
    given those so far, see `search.Constraint`; None for no constraint.

    Raises:
        UserError: a value has the wrong type or is out of range, or two values exclude each other.

    Example:
        >>> SearchOptions(beam_size=5, alpha=0.6).n_best
        1
    """

    beam_size: int = field(4, "number of live beams for each sentence; 1 is greedy decoding")
    alpha: float = field(
        1.0, "exponent of the length penalty; 0 ranks hypotheses by probability alone"
    )
    length_penalty: str = field(
        "power",
        "divisor of log-probabilities: power, |Y|^alpha; or gnmt, ((5 + |Y|) / 6)^alpha, the "
        "paper's",
        LENGTH_PENALTIES,
    )
    patience: float | None = field(
        2.0,
        "stop once patience * beam_size hypotheses have finished; none: stop once no live beam "
        "can improve the result, as in the paper",
    )
    n_best: int = field(1, "number of translations to return for each sentence, at most beam_size")
    extra_length: int = field(
        50, "maximum number of tokens that a translation has beyond those of its source"
    )
    max_length: int | None = field(
        None,
        "maximum number of tokens of a translation, with its end symbol; default: limited by "
        "extra_length only",
    )
    min_length: int = field(
        1, "minimum number of tokens of a translation, unless extra_length allows only fewer"
    )
    no_repeat_ngram: int = field(
        0, "forbid repeating any sequence of this many tokens; 0 allows it"
    )
    sample: bool = field(False, "sample beam_size translations at random instead of searching")
    temperature: float = field(1.0, "softmax temperature used when sampling")
    top_k: int = field(0, "sample only from this many most likely tokens; 0 for all")
    top_p: float = field(
        1.0, "sample only from the most likely tokens whose total probability reaches this value"
    )
    seed: int | None = field(
        None,
        "seed of sampling; together with a sentence's number it determines the samples; "
        "default: a new one for each run",
    )

    # A hash leaves it out: a function may be an object without one.
    constraint: Callable | None = dataclasses.field(default=None, hash=False)

    def __post_init__(self):
        super().__post_init__()
        self.expect_within("beam_size", 1, MOST_BEAMS)
        self.expect("alpha", 0 <= self.alpha <= MOST_ALPHA, f"in [0, {MOST_ALPHA}]")
        patience_is_fit = self.patience is None or 0 < self.patience <= LONGEST
        self.expect("patience", patience_is_fit, f"in (0, {LONGEST}]")
        fits = 1 <= self.n_best <= self.beam_size
        self.expect("n_best", fits, f"in [1, beam_size={self.beam_size}]")
        self.expect_within("extra_length", 0, LONGEST)
        if self.max_length is not None:
            self.expect_within("max_length", 1, LONGEST)
        self.expect_within("min_length", 1, LONGEST)
        if self.max_length is not None:
            is_less = self.min_length <= self.max_length
            self.expect("min_length", is_less, f"at most max_length={self.max_length}")
        self.expect_within("no_repeat_ngram", 0, LONGEST_NGRAM)
        # Smaller temperatures would be 0 in float32.
        self.expect("temperature", self.temperature >= 1e-6, "at least 1e-6")
        self.expect("top_k", self.top_k >= 0, "at least 0")
        self.expect("top_p", 1e-6 <= self.top_p <= 1, "in [1e-6, 1]")
        self.expect("seed", self.seed is None or 0 <= self.seed < 2**31, "in [0, 2^31)")
        for name in ("patience",) if self.sample else OF_SAMPLING:
            default = type(self).__dataclass_fields__[name].default
            with_or_without = "with" if self.sample else "without"
            is_default = getattr(self, name) == default
            self.expect(name, is_default, f"left out {with_or_without} sample")

    def expect_within(self, name: str, least: int, most: int) -> None:
        """Raises `UserError` unless a field is in [least, most]."""
        self.expect(name, least <= getattr(self, name) <= most, f"in [{least}, {most}]")

    def best_only(self) -> "SearchOptions":
        """Returns options for a caller that needs only the best translation: `n_best` is 1.

        If more than `patience * beam_size` are wanted, `n_best` stays: it then decides when a
        search ends, and so which translation is the best.

        Example:
            >>> SearchOptions(n_best=3, patience=1.0).best_only().n_best
            1
            >>> SearchOptions(n_best=3, patience=0.5).best_only().n_best
            3
        """
        alone = dataclasses.replace(self, n_best=1)
        return alone if alone.enough_finished == self.enough_finished else self

    def structure(self) -> "SearchOptions":
        """Returns the options that decide which operations a search consists of.

        Their other fields have their defaults: a graph takes those as tensors, and the seed too.

        Example:
            >>> options = SearchOptions(beam_size=5, alpha=0.9, patience=1.0, max_length=30)
            >>> options.structure() == SearchOptions(beam_size=5).structure()
            True
        """
        default = SearchOptions()
        names = ("alpha", "patience", "extra_length", "max_length", "min_length", "temperature")
        return dataclasses.replace(self, seed=None, **{n: getattr(default, n) for n in names})

    @property
    def enough_finished(self) -> Any:
        """The number of finished hypotheses that ends a search; None without a `patience`."""
        if self.patience is None:
            return None
        return max(self.n_best, math.ceil(self.patience * self.beam_size))

    def room(self, source_length):
        """The number of positions after a prefix that a search needs; arguments as in `longest`."""
        return self.longest(source_length)

    def longest(self, source_length):
        """The maximum length of a translation, in tokens including the end symbol, less a prefix.

        Args:
            source_length: length of the source, in tokens including the end symbol: an integer, or
                an integer tensor of any shape.
        """
        longest = source_length + self.extra_length
        if self.max_length is None:
            return longest
        if isinstance(longest, int):
            return min(longest, self.max_length)
        from keras import ops  # here, since flags are defined without Keras

        return ops.minimum(longest, self.max_length)
