"""The cost of training a model, in floating-point operations (paper, section 6.1 and Table 2)."""

import dataclasses
import math
from typing import NamedTuple

import keras_transformer as kt
from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError

# Sustained single-precision operations a second, by which the paper estimates (its footnote 5).
SUSTAINED_FLOPS = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}


class ForwardFlops(NamedTuple):
    """Operations of the matrix products of a forward pass: a multiplication and an addition each.

    Attributes:
        projections: to queries, keys and values, and of the heads to the output.
        scores: queries times keys, and weights times values, masked positions included.
        feed_forward: both products of the feed-forward networks.
        logits: the pre-softmax projection.
    """

    projections: int
    scores: int
    feed_forward: int
    logits: int

    @property
    def total(self) -> int:
        return sum(self)


def forward_flops(
    config: TransformerConfig, batch: int, source_length: int, target_length: int
) -> ForwardFlops:
    """The operations of one forward pass over a batch, part by part.

    Only matrix products are counted; looking up embeddings is none.

    Args:
        config: the model.
        batch: pairs of sentences.
        source_length, target_length: positions of each, padding included.

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
    assert d_k and d_v  # the configuration fills them in
    heads_width = config.num_heads * (d_k + d_v)

    # A layer projects twice d_model x heads_width: of queries and outputs, of keys and values.
    projected = encoders * 2 * source + decoders * (2 * target + target + source)
    # Pairs of a query's position and a value's.
    attended = encoders * source * source_length + decoders * target * (
        target_length + source_length
    )
    positions = encoders * source + decoders * target
    return ForwardFlops(
        projections=2 * projected * config.d_model * heads_width,
        scores=2 * attended * heads_width,
        feed_forward=2 * positions * 2 * config.d_model * config.d_ff,
        logits=2 * target * config.d_model * (config.target_vocab_size or config.vocab_size),
    )


def training_flops(
    config: TransformerConfig, batch: int, source_length: int, target_length: int
) -> int:
    """The operations of one training step: three times those of the forward pass.

    Of each product of the forward pass the backward pass makes two: the gradient of either factor.
    Arguments are those of `forward_flops`.

    Example:
        >>> f"{training_flops(TransformerConfig(), 1000, 25, 25):.2e}"
        '9.52e+12'
    """
    return 3 * forward_flops(config, batch, source_length, target_length).total


def sustained_flops(hardware: str) -> float:
    """The operations a second of a device: of one that the paper names, or the number given.

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
    """The paper's estimate: training time x number of devices x their sustained rate (Table 2).

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
) -> str:
    """A report of the cost of training, as lines to print.

    Args:
        config: the model.
        steps: updates in all.
        tokens_per_batch: source tokens, and target tokens, of a step over all devices at most.
        source_length, target_length: tokens of a sentence.
        hardware: a key of `SUSTAINED_FLOPS`, or operations a second.
        devices: how many of them.
        seconds_per_step: as measured; without it the report has the time at the full rate only.

    Raises:
        UserError: a number is not positive and finite, or a batch has no room for a sentence.

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
        "source_length": source_length,
        "target_length": target_length,
        "devices": devices,
        "seconds_per_step": seconds_per_step,
    }
    for name, value in numbers.items():
        if value is not None and not 0 < value < math.inf:
            raise UserError(f"{name} must be positive and finite: found {value}")
    batch = tokens_per_batch // max(source_length, target_length)
    if batch < 1:
        raise UserError(
            f"tokens_per_batch must have room for a sentence of "
            f"{max(source_length, target_length)} tokens: found {tokens_per_batch}"
        )
    forward = forward_flops(config, batch, source_length, target_length)
    step = training_flops(config, batch, source_length, target_length)
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
        f"{source_length} + {target_length} tokens",
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


def parameter_count(config: TransformerConfig) -> int:
    """The number of trained parameters.

    Layers are alike, so models of one or two of them tell what each layer adds.
    """

    def count(encoders, decoders):
        layers = {"num_encoder_layers": encoders, "num_decoder_layers": decoders}
        model = kt.Transformer(dataclasses.replace(config, **layers))
        model.build()
        return model.count_params()

    smallest = count(1, 1)
    encoder_layer, decoder_layer = count(2, 1) - smallest, count(1, 2) - smallest
    return (
        smallest
        + (config.num_encoder_layers - 1) * encoder_layer
        + (config.num_decoder_layers - 1) * decoder_layer
    )


def _time(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
