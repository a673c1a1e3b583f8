"""The cost of training a model, in floating-point operations (paper, section 6.1 and Table 2)."""

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
        raise UserError(f"expected layer_type=attention to count, found {config.layer_type}")
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


def cost_report(
    config: TransformerConfig,
    steps: int,
    tokens_per_batch: int,
    source_length: int,
    target_length: int,
    hardware: str = "P100",
    devices: int = 8,
    seconds_per_step: float | None = None,
    passes: int = 1,
) -> str:
    """Makes a report of the cost of training, as lines to print.

    Args:
        config: configuration of the model.
        steps: number of updates.
        tokens_per_batch: maximum source tokens, and target tokens, per step over all devices.
        source_length, target_length: tokens per sentence.
        hardware: key of `SUSTAINED_FLOPS`, or operations per second.
        devices: number of devices.
        seconds_per_step: measured time of a step; without it, the report gives only the time at
            the full rate.
        passes: number of times that a step runs its batch: 1, or 2 with R-Drop.

    Raises:
        UserError: a number is not positive or is too large, or a batch has no room for a sentence.

    Example:
        >>> print(cost_report(TransformerConfig(), 100_000, 25_000, 25, 25, seconds_per_step=0.4))
        parameters              63.0 million
        ...
        time                    11.1 hours at 0.4 s a step
        ...
    """
    rate = sustained_flops(hardware)
    numbers: dict[str, float | None] = {
        "steps": steps,
        "tokens_per_batch": tokens_per_batch,
        "source_length": source_length,
        "target_length": target_length,
        "devices": devices,
        "seconds_per_step": seconds_per_step,
    }
    for name, value in numbers.items():
        if value is not None and not 0 < value <= LARGEST_FLOAT:
            raise UserError(f"{name} must be positive and at most {LARGEST_FLOAT}: found {value}")
    batch = tokens_per_batch // max(source_length, target_length)
    if batch < 1:
        raise UserError(
            f"tokens_per_batch must have room for a sentence of "
            f"{max(source_length, target_length)} tokens: found {tokens_per_batch}"
        )
    forward = forward_flops(config, passes * batch, source_length, target_length)
    step = training_flops(config, passes * batch, source_length, target_length)
    shares = ", ".join(
        f"{name.replace('_', '-')} {part / forward.total:.0%}"
        for name, part in forward._asdict().items()
    )
    name = hardware if hardware in SUSTAINED_FLOPS else "device" + "s" * (devices > 1)
    machine = f"{devices} {name} x {rate / 1e12:g} TFLOPS"
    lines = {
        "parameters": f"{parameter_count(config) / 1e6:.1f} million",
        "forward pass of a step": f"{forward.total:.2e} FLOPs: {shares}",
        "training step": f"{step:.2e} FLOPs: {batch:,} pairs of "
        f"{source_length} + {target_length} tokens" + ", twice (R-Drop)" * (passes == 2),
        f"{steps:,} steps": f"{steps * step:.2e} FLOPs by count",
    }
    if seconds_per_step is None:
        lines["time"] = f"at least {_time(steps * step / (devices * rate))}: count / ({machine})"
    else:
        seconds = steps * seconds_per_step
        estimate = estimated_flops(seconds, devices, hardware)
        lines["time"] = f"{_time(seconds)} at {seconds_per_step:g} s a step"
        lines["the paper's estimate"] = f"{estimate:.2e} FLOPs: time x {machine}"
        lines["count / estimate"] = f"{steps * step / estimate:.0%}"
    width = max(map(len, lines))
    return "\n".join(f"{name:{width}}  {text}" for name, text in lines.items())


def _time(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
