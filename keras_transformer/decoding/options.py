"""What is searched for: one frozen, validated record."""

import dataclasses

from keras import ops

from keras_transformer.records import Record, field


@dataclasses.dataclass(frozen=True)
class SearchOptions(Record):
    """Which target sequences are searched for, and when the search ends (paper, section 6.1).

    Every field is a flag of `translate.py` and `evaluate.py`. Lengths are in tokens, the end symbol
    included.

    Raises:
        UserError: a value has the wrong type or is out of range, or two of them exclude each other.

    Example:
        >>> SearchOptions(beam_size=5, alpha=1.0).n_best
        1
    """

    beam_size: int = field(4, "live beams of a sentence; 1 is greedy decoding")
    alpha: float = field(0.6, "exponent of the length penalty; 0 ranks by probability alone")
    plain_length_penalty: bool = field(
        False, "divide by |Y|^alpha; otherwise by ((5 + |Y|) / 6)^alpha, GNMT's formula"
    )
    patience: float | None = field(
        None,
        "a search ends once patience * beam_size hypotheses have ended, as in CTranslate2 and "
        "fairseq with 1; default: once no other can become better",
    )
    n_best: int = field(1, "translations returned of each sentence, at most beam_size")
    extra_length: int = field(50, "a translation has at most this many tokens more than its source")
    max_length: int | None = field(None, "a translation has at most this many tokens")
    min_length: int = field(1, "a translation has at least this many tokens, if the limits allow")
    no_repeat_ngram: int = field(0, "no sequence of this many tokens comes twice; 0 allows it")
    sample: bool = field(False, "draw beam_size translations at random instead of searching")
    temperature: float = field(1.0, "of sampling: logits are divided by it")
    top_k: int = field(0, "of sampling: only this many likeliest tokens are drawn; 0 for all")
    top_p: float = field(1.0, "of sampling: only the likeliest tokens of this joint probability")
    seed: int | None = field(None, "of sampling; default: another one each time")

    def __post_init__(self):
        super().__post_init__()
        self.expect("beam_size", self.beam_size >= 1, "at least 1")
        self.expect("alpha", self.alpha >= 0, "a number of 0 or more")
        self.expect("patience", self.patience is None or self.patience > 0, "positive")
        fits = 1 <= self.n_best <= self.beam_size
        self.expect("n_best", fits, f"in [1, beam_size={self.beam_size}]")
        self.expect("extra_length", self.extra_length >= 0, "at least 0")
        self.expect("max_length", self.max_length is None or self.max_length >= 1, "at least 1")
        self.expect("min_length", self.min_length >= 1, "at least 1")
        self.expect("no_repeat_ngram", self.no_repeat_ngram >= 0, "at least 0")
        self.expect("temperature", self.temperature > 0, "positive")
        self.expect("top_k", self.top_k >= 0, "at least 0")
        self.expect("top_p", 0 < self.top_p <= 1, "in (0, 1]")
        self.expect("seed", self.seed is None or 0 <= self.seed < 2**31, "in [0, 2^31)")
        if self.sample:
            self.expect("patience", self.patience is None, "given without sample only")
        else:
            for name in ("temperature", "top_k", "top_p", "seed"):
                default = type(self).__dataclass_fields__[name].default
                self.expect(name, getattr(self, name) == default, "given with sample only")

    def longest(self, source_length):
        """The most tokens a translation of a source of so many tokens may have, both with the end.

        Args:
            source_length: an integer, or an integer tensor of any shape.
        """
        longest = source_length + self.extra_length
        if self.max_length is None:
            return longest
        if isinstance(longest, int):
            return min(longest, self.max_length)
        return ops.minimum(longest, self.max_length)
