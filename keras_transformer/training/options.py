"""How a model is trained: one frozen, validated record."""

import dataclasses

from keras_transformer.records import Record, field
from keras_transformer.schedules import InverseSquareRootSchedule

# The fields that may differ when a run goes on: all others decide what its weights become.
MAY_CHANGE = frozenset(
    (
        *("steps", "jit_compile", "report_steps", "validation_steps"),
        *("checkpoint_steps", "checkpoint_minutes", "keep_checkpoints", "average_checkpoints"),
        *("stop_patience", "max_skipped_updates", "device_flops"),
    )
)


@dataclasses.dataclass(frozen=True)
class TrainingOptions(Record):
    """How a model is trained (paper, section 5). Every field is a flag of `train.py`.

    Raises:
        UserError: a value has the wrong type or is out of range.
    """

    steps: int = field(6000, "updates in all")
    tokens_per_batch: int = field(4096, "source tokens, and target tokens, of a batch at most")
    max_length: int = field(256, "pairs with a side of more tokens are left out")
    learning_rate: float | None = field(
        None, "the highest rate, at the end of the warm-up; default: the paper's, by d_model"
    )
    warmup_steps: int = field(4000, "updates in which the rate rises, then it falls by the root")
    beta_1: float = field(0.9, "Adam's decay of the mean of gradients")
    beta_2: float = field(0.98, "Adam's decay of the mean of squared gradients")
    adam_epsilon: float = field(1e-9, "Adam's epsilon")
    r_drop: float = field(
        0.0,
        "weight of the divergence between two passes of each batch, with dropout of their own, in "
        "the loss (R-Drop): a step costs two; 0 for one pass",
    )
    clip_norm: float = field(0.0, "largest norm of a gradient, all weights together; 0 for any")
    ema_decay: float = field(
        0.0, "of a moving average of the weights, for --weights=ema of other commands; 0 for none"
    )
    num_microbatches: int = field(
        1, "parts that a batch is computed in, one after another: less memory, the same update"
    )
    parallel_parts: int | None = field(
        None,
        "parts of a batch computed at the same time; default: of models of a d_model of 256 or "
        "less, on a CPU, one for each core and 1,024 tokens, else 1",
    )
    dtype_policy: str = field(
        "float32",
        "of matrix products; weights and their updates are float32",
        ("float32", "mixed_bfloat16", "mixed_float16"),
    )
    lowercase: bool = field(
        False, "fold the case of text: translations are in lower case, and judged so in training"
    )
    bpe_dropout: float = field(
        0.0,
        "share p of merges left out when training text is tokenised; of a parser, a word seen n "
        "times is unknown with probability p / (p + n)",
    )
    seed: int = field(1, "of the weights, the dropout and the order of the pairs")
    jit_compile: bool = field(
        False, "compile the whole training step with XLA, once for each length of batch"
    )
    report_steps: int = field(100, "updates between two lines of progress")
    validation_steps: int = field(1000, "updates between two validations")
    checkpoint_steps: int = field(1000, "updates between two checkpoints")
    checkpoint_minutes: float = field(10.0, "minutes between two checkpoints; 0 for by steps only")
    keep_checkpoints: int = field(20, "number of checkpoints kept, the last ones")
    average_checkpoints: int = field(5, "number of last checkpoints averaged to judge and use")
    best_by: str = field(
        "score", "of validations: the score, BLEU or F1 of trees, or the loss", ("score", "loss")
    )
    stop_patience: int = field(
        0, "validations in a row, none better than the best, after which to stop; 0 for never"
    )
    max_skipped_updates: int = field(
        200, "updates skipped since their gradient is not finite; the next one stops training"
    )
    device_flops: float | None = field(
        None, "operations a second that a device sustains, for the cost of training"
    )

    def __post_init__(self):
        super().__post_init__()
        at_least_one = (
            "steps tokens_per_batch warmup_steps report_steps validation_steps checkpoint_steps "
            "keep_checkpoints average_checkpoints num_microbatches"
        )
        for name in at_least_one.split():
            self.expect(name, getattr(self, name) >= 1, "at least 1")
        parts = self.parallel_parts
        self.expect("parallel_parts", parts is None or parts >= 1, "at least 1")
        self.expect("seed", 0 <= self.seed < 2**32, "in [0, 2^32)")
        self.expect("max_length", self.max_length >= 2, "at least 2")
        self.expect(
            "learning_rate", self.learning_rate is None or self.learning_rate > 0, "positive"
        )
        self.expect("adam_epsilon", self.adam_epsilon > 0, "positive")
        self.expect("r_drop", self.r_drop >= 0, "at least 0")
        self.expect("clip_norm", self.clip_norm >= 0, "at least 0")
        for name in ("beta_1", "beta_2", "bpe_dropout", "ema_decay"):
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

    def schedule(self, d_model: int) -> InverseSquareRootSchedule:
        """The learning rate of each update of a model of this width."""
        if self.learning_rate is None:
            return InverseSquareRootSchedule(d_model, self.warmup_steps)
        return InverseSquareRootSchedule.with_peak(self.learning_rate, d_model, self.warmup_steps)
