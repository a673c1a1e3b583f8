"""The cost of training a model, in floating-point operations (paper, section 6.1 and Table 2)."""

import dataclasses
from typing import NamedTuple

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.options.records import LARGEST_FLOAT
from keras_transformer.parameter_count import parameter_count

# Sustained single-precision operations per second, as the paper assumes (footnote 5).
SUSTAINED_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}


class ForwardFlops(NamedTuple):
    """Operations of the matrix products of a forward pass; multiplications and additions count.

    Attributes:
        projections: projections to queries, keys and values, and from the heads to the output.
        scores: queries times keys, and weights times values, masked positions included.
        feed_forward: both products of the feed-forward networks.
        logits: the projection before the softmax.
    """

    projections: int
    scores: int
    feed_forward: int
    logits: int

    @property
    def total(self) -> int:
        """The operations of all parts."""
        return sum(self)


def forward_flops(
    config: TransformerConfig, batch: int, source_length: int, target_length: int
) -> ForwardFlops:
    """Counts the operations of one forward pass over a batch, part by part.

    Only matrix products count; looking up embeddings is not one.

    Args:
        config: configuration of the model.
        batch: number of sentence pairs.
        source_length, target_length: positions per sentence, padding included.

    Raises:
        UserError: another type of layer takes the place of self-attention.

    Example:
        >>> forward_flops(TransformerConfig(), 1000, 25, 25).logits  # 2 x 25,000 x 512 x 37,000
        947200000000
    """
    if config.layer_type != "attention":
        raise UserError(
            f"layer_type must be attention to count operations: found {config.layer_type}"
        )
    source, target = batch * source_length, batch * target_length
    encoders, decoders = config.num_encoder_layers, config.num_decoder_layers
    d_k, d_v = config.d_k, config.d_v
    assert d_k and d_v  # `TransformerConfig` fills them in
    heads_width = config.num_heads * (d_k + d_v)

    # Two projections of d_model x heads_width: queries and outputs, keys and values.
    projected = encoders * 2 * source + decoders * (2 * target + target + source)
    # Pairs of a query position and a value position.
    attended = encoders * source * source_length + decoders * target * (
        target_length + source_length
    )
    positions = encoders * source + decoders * target
    return ForwardFlops(
        projections=2 * projected * config.d_model * heads_width,
        scores=2 * attended * heads_width,
        feed_forward=2 * positions * 2 * config.d_model * config.d_ff,
        logits=2 * target * config.d_model * config.output_vocab_size,
    )


def training_flops(
    config: TransformerConfig, batch: int, source_length: int, target_length: int
) -> int:
    """Counts the operations of one training step: three times those of the forward pass.

    For each product of the forward pass, the backward pass computes two: the gradients of both
    factors. Arguments are those of `forward_flops`.

    Example:
        >>> f"{training_flops(TransformerConfig(), 1000, 25, 25):.2e}"
        '9.52e+12'
    """
    return 3 * forward_flops(config, batch, source_length, target_length).total


def sustained_flops(hardware: str) -> float:
    """Returns a device's operations per second, from its name in the paper or from a number.

    Raises:
        UserError: the name is unknown, or the number is not positive.
    """
    if hardware in SUSTAINED_FLOPS:
        return SUSTAINED_FLOPS[hardware]
    try:
        rate = float(hardware)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise UserError(
            f"hardware must be one of {', '.join(SUSTAINED_FLOPS)}, or a number of operations a "
            f"second such as 1.5e13: found {hardware!r}"
        )
    return rate


def estimated_flops(seconds: float, devices: int, hardware: str) -> float:
    """Estimates training operations as the paper does: time x devices x sustained rate (Table 2).

    Example:
        >>> f"{estimated_flops(12 * 3600, 8, 'P100'):.1e}"  # the base model
        '3.3e+18'
    """
    return seconds * devices * sustained_flops(hardware)


@dataclasses.dataclass(frozen=True)
class Workload:
    """The work of a training: its model, batches and steps.

    Args:
        config: configuration of the model.
        steps: number of updates.
        tokens_per_batch: maximum source tokens, and target tokens, per step over all devices.
        source_length, target_length: tokens per sentence.
        passes: number of times that a step runs its batch: 1, or 2 with R-Drop.

    Raises:
        UserError: a number is not positive or is too large, or a batch has no room for a sentence.
    """

    config: TransformerConfig
    steps: int
    tokens_per_batch: int
    source_length: int
    target_length: int
    passes: int = 1

    def __post_init__(self):
        _expect_positive(self, "steps", "tokens_per_batch", "source_length", "target_length")
        if self.pairs < 1:
            raise UserError(
                f"tokens_per_batch must have room for a sentence of "
                f"{max(self.source_length, self.target_length)} tokens: "
                f"found {self.tokens_per_batch}"
            )

    @property
    def pairs(self) -> int:
        """The number of sentence pairs in a batch."""
        return self.tokens_per_batch // max(self.source_length, self.target_length)

    def forward_flops(self) -> ForwardFlops:
        """Counts the operations of the forward pass of a step."""
        rows = self.passes * self.pairs
        return forward_flops(self.config, rows, self.source_length, self.target_length)

    def step_flops(self) -> int:
        """Counts the operations of a step."""
        rows = self.passes * self.pairs
        return training_flops(self.config, rows, self.source_length, self.target_length)


@dataclasses.dataclass(frozen=True)
class Hardware:
    """The devices that train.

    Args:
        name: key of `SUSTAINED_FLOPS`, or operations per second of a device, as text.
        devices: number of devices.
        seconds_per_step: measured time of a step, or None.

    Raises:
        UserError: the name is unknown, or a number is not positive or is too large.
    """

    name: str = "P100"
    devices: int = 8
    seconds_per_step: float | None = None

    def __post_init__(self):
        sustained_flops(self.name)
        _expect_positive(self, "devices", "seconds_per_step")

    def __str__(self) -> str:
        name = self.name if self.name in SUSTAINED_FLOPS else "device" + "s" * (self.devices > 1)
        return f"{self.devices} {name} x {sustained_flops(self.name) / 1e12:g} TFLOPS"


def _expect_positive(record, *names):
    for name in names:
        value = getattr(record, name)
        if value is not None and not 0 < value <= LARGEST_FLOAT:
            raise UserError(f"{name} must be positive and at most {LARGEST_FLOAT}: found {value}")


def cost_report(work: Workload, hardware: Hardware = Hardware()) -> str:
    """Makes a report of the cost of training, as lines to print.

    Args:
        work: what the training computes.
        hardware: the devices that train; without `seconds_per_step`, the report gives only the
            time at the full rate.

    Example:
        >>> work = Workload(TransformerConfig(), 100_000, 25_000, 25, 25)
        >>> print(cost_report(work, Hardware(seconds_per_step=0.4)))
        parameters              63.0 million
        ...
        time                    11.1 hours at 0.4 s a step
        ...
    """
    forward, total = work.forward_flops(), work.steps * work.step_flops()
    shares = ", ".join(
        f"{name.replace('_', '-')} {part / forward.total:.0%}"
        for name, part in forward._asdict().items()
    )
    lines = {
        "parameters": f"{parameter_count(work.config) / 1e6:.1f} million",
        "forward pass of a step": f"{forward.total:.2e} FLOPs: {shares}",
        "training step": f"{work.step_flops():.2e} FLOPs: {work.pairs:,} pairs of "
        f"{work.source_length} + {work.target_length} tokens"
        + ", twice (R-Drop)"
        * (work.passes == 2),
        f"{work.steps:,} steps": f"{total:.2e} FLOPs by count",
        **_time_and_estimate(work, hardware, total),
    }
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {text}" for name, text in lines.items())


def _time_and_estimate(work, hardware, total):
    """The lines about time, and the paper's estimate if the time of a step was measured."""
    if hardware.seconds_per_step is None:
        least = total / (hardware.devices * sustained_flops(hardware.name))
        return {"time": f"at least {_time(least)}: count / ({hardware})"}
    seconds = work.steps * hardware.seconds_per_step
    estimate = estimated_flops(seconds, hardware.devices, hardware.name)
    return {
        "time": f"{_time(seconds)} at {hardware.seconds_per_step:g} s a step",
        "the paper's estimate": f"{estimate:.2e} FLOPs: time x {hardware}",
        "count / estimate": f"{total / estimate:.0%}",
    }


def _time(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
