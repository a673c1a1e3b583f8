"""The options of training: one frozen, validated record."""

import dataclasses
from typing import Any

from keras_transformer.options.records import Record, field
from keras_transformer.presets import training_of

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker")
"""The names of strategies: the choices of `--strategy`."""
OPTIMIZERS = ("adam", "muon")
"""The names of optimizers: the choices of `--optimizer`."""
# The fields that may differ when a run is resumed: all others determine the trained weights. With
# `steps`, `cooldown_steps` decides only how the run ends.
MAY_CHANGE = frozenset(
    (
        "steps",
        "cooldown_steps",
        "jit_compile",
        "report_steps",
        "validation_steps",
        "checkpoint_steps",
        "checkpoint_minutes",
        "keep_checkpoints",
        "average_checkpoints",
        "stop_patience",
        "max_skipped_updates",
        "device_flops",
    )
)


@dataclasses.dataclass(frozen=True)
class TrainingOptions(Record):
    """Options of training (paper, section 5). Every field is a flag of `train`.

    Raises:
        UserError: a value has the wrong type or is out of range.
    """

    steps: int = field(6000, "number of updates")
    tokens_per_batch: int = field(
        4096, "maximum number of source tokens, and of target tokens, in a batch, including padding"
    )
    max_length: int = field(256, "drop pairs whose source or target has more tokens than this")
    learning_rate: float | None = field(
        None,
        "peak learning rate, reached at the end of warm-up; default: the paper's, which "
        "depends on d_model",
    )
    warmup_steps: int = field(
        4000, "updates of linear warm-up; the rate then decays with the inverse square root"
    )
    cooldown_steps: int = field(
        0, "number of last updates, during which the rate falls linearly to zero; 0: none"
    )
    optimizer: str = field(
        "adam",
        "adam, as in the paper; muon: learns more from each batch, by nearly orthogonal updates of "
        "matrices, for one machine",
        OPTIMIZERS,
    )
    beta_1: float = field(0.9, "Adam's beta_1, the decay rate of the mean of gradients")
    beta_2: float = field(0.98, "Adam's beta_2, the decay rate of the mean of squared gradients")
    adam_epsilon: float = field(1e-9, "Adam's epsilon")
    bidirectional_steps: int = field(
        0,
        "number of initial updates that train both directions, on each pair and on the pair with "
        "its sides exchanged; half of their text is then in the other direction",
    )
    r_drop: float = field(
        0.0,
        "weight of the R-Drop loss, for which each step runs the batch twice with different "
        "dropout; 0 disables it",
    )
    clip_norm: float = field(
        0.0, "maximum global norm of the gradient; a larger one is scaled down; 0 disables clipping"
    )
    ema_decay: float = field(
        0.0,
        "decay rate of the moving average of the weights, which commands may use; 0 keeps no "
        "average",
    )
    num_microbatches: int = field(
        1,
        "number of micro-batches that each batch is split into, computed one after another: less "
        "memory, same update",
    )
    parallel_parts: int | None = field(
        None,
        "number of parts of a batch to compute in parallel; default: on a CPU with a d_model of at "
        "most 256, one for each core, of at least 1,024 tokens; else 1",
    )
    dtype_policy: str = field(
        "float32",
        "precision of matrix products; weights and updates stay in float32; auto: bfloat16 if this "
        "machine is faster with it, which is measured",
        ("auto", "float32", "mixed_bfloat16", "mixed_float16"),
    )
    lowercase: bool = field(
        False, "convert all text, also translations, to lower case; validation then ignores case"
    )
    bpe_dropout: float = field(
        0.0,
        "share of BPE merges skipped at random when training text is tokenised, anew in each epoch",
    )
    word_dropout: float = field(
        0.0,
        "word dropout p of a parser: a word seen n times in training is replaced by the unknown "
        "word with probability p / (p + n)",
    )
    seed: int = field(
        1,
        "seed of initial weights, dropout, the order of pairs, and the sample of text for learning "
        "the vocabulary",
        largest=2**32 - 1,
    )
    jit_compile: bool = field(
        False, "compile the training step with XLA, once for each batch shape"
    )
    report_steps: int = field(100, "number of updates between progress reports")
    validation_steps: int = field(1000, "number of updates between validations")
    checkpoint_steps: int = field(1000, "number of updates between checkpoints")
    checkpoint_minutes: float = field(
        10.0, "maximum number of minutes between checkpoints; 0 for no limit"
    )
    keep_checkpoints: int = field(20, "number of last checkpoints to keep")
    average_checkpoints: int = field(
        5, "number of last checkpoints in the mean, one of the weights that commands may use"
    )
    best_by: str = field(
        "score",
        "figure that decides which validation is best, and which weights commands use: score "
        "(BLEU, or F1 of a parser) or loss",
        ("score", "loss"),
    )
    stop_patience: int = field(
        0,
        "stop after this many validations in a row without improvement; 0 disables early stopping",
    )
    max_skipped_updates: int = field(
        200,
        "stop once more than this many updates were skipped because the gradient was not finite",
    )
    device_flops: float | None = field(
        None,
        "floating-point operations per second that a device sustains, to estimate training cost",
    )

    def __post_init__(self):
        super().__post_init__()
        at_least_one = (
            "steps",
            "tokens_per_batch",
            "warmup_steps",
            "report_steps",
            "validation_steps",
            "checkpoint_steps",
            "keep_checkpoints",
            "average_checkpoints",
            "num_microbatches",
        )
        for name in at_least_one:
            self.expect(name, getattr(self, name) >= 1, "at least 1")
        parts = self.parallel_parts
        self.expect("parallel_parts", parts is None or parts >= 1, "at least 1")
        self.expect("seed", 0 <= self.seed < 2**32, "in [0, 2^32)")
        self.expect("max_length", self.max_length >= 2, "at least 2")
        is_last = 0 <= self.cooldown_steps <= self.steps
        self.expect("cooldown_steps", is_last, f"at least 0 and at most steps={self.steps}")
        is_first = 0 <= self.bidirectional_steps < self.steps
        self.expect("bidirectional_steps", is_first, f"at least 0 and below steps={self.steps}")
        self.expect(
            "learning_rate", self.learning_rate is None or self.learning_rate > 0, "positive"
        )
        self.expect("adam_epsilon", self.adam_epsilon > 0, "positive")
        self.expect("r_drop", self.r_drop >= 0, "at least 0")
        self.expect("clip_norm", self.clip_norm >= 0, "at least 0")
        for name in ("beta_1", "beta_2", "bpe_dropout", "word_dropout", "ema_decay"):
            self.expect(name, 0 <= getattr(self, name) < 1, "in [0, 1)")
        for name in ("stop_patience", "max_skipped_updates"):
            self.expect(name, getattr(self, name) >= 0, "at least 0")
        self.expect("device_flops", self.device_flops is None or self.device_flops > 0, "positive")
        self.expect("checkpoint_minutes", self.checkpoint_minutes >= 0, "at least 0")
        self.expect(
            "average_checkpoints",
            self.average_checkpoints <= self.keep_checkpoints,
            f"at most keep_checkpoints={self.keep_checkpoints}",
        )

    @classmethod
    def from_preset(cls, name: str, **given: Any) -> "TrainingOptions":
        """Makes the training options of a preset, with some fields replaced.

        With other `steps`, the phases of a preset keep their share of the run: its steps in both
        directions, those of its cool-down, and the checkpoints that are averaged at its end.

        Args:
            name: a key of `PRESETS`, such as "tiny" or "base".
            **given: fields that differ from the preset.

        Raises:
            UserError: there is no such preset, or a value is invalid.

        Example:
            >>> TrainingOptions.from_preset("tiny", steps=2200).average_checkpoints
            5
        """
        return cls(**training_of(name, given))
