"""Table 2 of the paper: translation quality and training cost, published and counted."""

from typing import NamedTuple

from keras_transformer.config import TransformerConfig
from keras_transformer.options.training import TrainingOptions
from keras_transformer.training.cost import estimated_flops, training_flops

LENGTH = 25  # tokens per sentence: twice as many add 1% of operations


class Published(NamedTuple):
    """A row of Table 2: BLEU on newstest2014, and floating-point operations of training."""

    model: str
    bleu_de: float | None = None
    bleu_fr: float | None = None
    flops_de: float | None = None
    flops_fr: float | None = None


TABLE_2 = (
    Published("ByteNet", 23.75),
    Published("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Published("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Published("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Published("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Published("Deep-Att + PosUnk ensemble", None, 40.4, None, 8.0e20),
    Published("GNMT + RL ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Published("ConvS2S ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Published("Transformer (base)", 27.3, 38.1, 3.3e18),
    Published("Transformer (big)", 28.4, 41.8, 2.3e19),
)

_PRESETS = {"Transformer (base)": "base", "Transformer (big)": "big"}
_HOURS = {"base": 12, "big": 3.5 * 24}  # on 8 P100 (section 5.2)


def table2() -> str:
    """Formats Table 2 as published, with an estimate and an exact count for our presets.

    The estimate uses the paper's own formula and training time. The count is that of the matrix
    products in all training steps.

    Example:
        >>> print(table2().splitlines()[-1])
        Transformer (big)            28.40  41.80  2.3e+19           2.3e+19  9.7e+18
    """
    titles = ("model", "EN-DE", "EN-FR", "EN-DE", "EN-FR", "estimate", "count")
    lines = [
        f"{'':26}  {'BLEU':^14}  {'training FLOPs':^16}  {'ours, EN-DE':^16}",
        _line(*titles),
    ]
    for row in TABLE_2:
        preset = _PRESETS.get(row.model)
        estimate = estimated_flops(_HOURS[preset] * 3600, 8, "P100") if preset else None
        lines.append(
            _line(
                row.model,
                *(f"{bleu:.2f}" if bleu else "" for bleu in (row.bleu_de, row.bleu_fr)),
                *(_flops(flops) for flops in (row.flops_de, row.flops_fr, estimate)),
                _flops(counted_flops(preset) if preset else None),
            )
        )
    return "\n".join(lines)


def counted_flops(preset: str) -> int:
    """Counts the operations of all training steps of a preset, on sentences of 25 tokens."""
    options = TrainingOptions.from_preset(preset)
    batch = options.tokens_per_batch // LENGTH
    config = TransformerConfig.from_preset(preset)
    return options.steps * training_flops(config, batch, LENGTH, LENGTH)


def _line(model, bleu_de, bleu_fr, *flops):
    columns = "  ".join(f"{text:>7}" for text in flops)
    return f"{model:26}  {bleu_de:>6}  {bleu_fr:>6}  {columns}"


def _flops(flops: float | None) -> str:
    return f"{flops:.1e}" if flops else ""
