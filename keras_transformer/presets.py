"""Presets: named recipes of a model and the training that works for it, as plain data.

`TransformerConfig` defaults to the base model. `big` and the rows of Table 3 list only their
differences. `tiny` and `small` are for corpora of fewer pairs.
"""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from keras_transformer.errors import UserError, is_integer


class Preset(NamedTuple):
    """A recipe: a model, how to train it and how many of its checkpoints to average.

    Attributes:
        model: fields of `TransformerConfig` that differ from the base model.
        training: flags of `train` that differ from its defaults.
        parsing: for a parser, fields of `ParsingOptions` that differ from their defaults.
    """

    model: Mapping[str, Any]
    training: Mapping[str, Any]
    parsing: Mapping[str, Any] | None = None


PAIRS_BELOW: dict[str, float] = {"tiny": 100_000, "small": 1_000_000, "base": math.inf}
"""The presets among which `train` chooses by default, each for fewer pairs than this."""

_AUTO = {"dtype_policy": "auto"}
_PAPER = {**_AUTO, "steps": 100_000, "tokens_per_batch": 25_000, "warmup_steps": 4000}
_BIG = {**_PAPER, "steps": 300_000, "average_checkpoints": 20}


def _base(**model: Any) -> Preset:
    return Preset(model, _PAPER)


def _parsing(vocab_size: int) -> Preset:
    # Trees have more symbols than words; few of the treebank's trees have more than 512.
    model = {"num_encoder_layers": 4, "num_decoder_layers": 4, "d_model": 1024}
    return Preset({**model, "vocab_size": vocab_size}, {**_PAPER, "max_length": 512}, {})


PRESETS: dict[str, Preset] = {
    "base": _base(),
    "big": Preset({"d_model": 1024, "d_ff": 4096, "num_heads": 16, "dropout": 0.3}, _BIG),
    "A-h1": _base(num_heads=1, d_k=512, d_v=512),
    "A-h4": _base(num_heads=4, d_k=128, d_v=128),
    "A-h16": _base(num_heads=16, d_k=32, d_v=32),
    "A-h32": _base(num_heads=32, d_k=16, d_v=16),
    "B-dk16": _base(d_k=16),
    "B-dk32": _base(d_k=32),
    "C-N2": _base(num_encoder_layers=2, num_decoder_layers=2),
    "C-N4": _base(num_encoder_layers=4, num_decoder_layers=4),
    "C-N8": _base(num_encoder_layers=8, num_decoder_layers=8),
    "C-d256": _base(d_model=256, d_k=32, d_v=32),
    "C-d1024": _base(d_model=1024, d_k=128, d_v=128),
    "C-ff1024": _base(d_ff=1024),
    "C-ff4096": _base(d_ff=4096),
    "D-drop0.0": _base(dropout=0.0),
    "D-drop0.2": _base(dropout=0.2),
    "D-ls0.0": _base(label_smoothing=0.0),
    "D-ls0.2": _base(label_smoothing=0.2),
    "E-learned": _base(positions="learned"),
    # For tens of thousands of pairs: the model of the Multi30k literature, with the training that
    # was best on Multi30k's validation set (docs/results.md).
    "tiny": Preset(
        {
            "num_encoder_layers": 4,
            "num_decoder_layers": 4,
            "d_model": 128,
            "d_ff": 256,
            "num_heads": 4,
            "dropout": 0.3,
            "pre_norm": True,
            "vocab_size": 10_000,
        },
        {
            **_AUTO,
            "steps": 8800,
            "bidirectional_steps": 2800,
            "warmup_steps": 1000,
            "learning_rate": 0.005,
            "checkpoint_steps": 100,
            "checkpoint_minutes": 0,
            "keep_checkpoints": 50,
            "average_checkpoints": 20,
            "validation_steps": 400,
        },
    ),
    # For hundreds of thousands of pairs on a few cores: a deep encoder and a shallow decoder, which
    # is what a translation waits for (Kasai et al., 2021).
    "compact": Preset(
        {
            "num_encoder_layers": 6,
            "num_decoder_layers": 2,
            "d_model": 192,
            "d_ff": 768,
            "num_heads": 4,
            "dropout": 0.05,
            "pre_norm": True,
            "vocab_size": 8000,
        },
        {
            **_AUTO,
            "steps": 6000,
            "optimizer": "muon",
            "warmup_steps": 1000,
            "cooldown_steps": 1200,
            "learning_rate": 0.005,
            "checkpoint_steps": 100,
            "checkpoint_minutes": 0,
            "keep_checkpoints": 10,
            "average_checkpoints": 3,
            "validation_steps": 1000,
        },
    ),
    # For hundreds of thousands of pairs: fairseq's `transformer_iwslt_de_en` and its training.
    "small": Preset(
        {"d_ff": 1024, "num_heads": 4, "dropout": 0.3, "vocab_size": 10_000},
        {**_AUTO, "steps": 50_000, "learning_rate": 0.0005, "average_checkpoints": 10},
    ),
    # Section 6.3, Table 4: the Wall Street Journal alone, and with more trees.
    "parsing": _parsing(16_000),
    "parsing-semi": _parsing(32_000),
    # For thousands of trees.
    "parsing-small": Preset(
        {
            "num_encoder_layers": 3,
            "num_decoder_layers": 2,
            "d_model": 128,
            "d_ff": 256,
            "num_heads": 4,
            "dropout": 0.2,
            "attention_dropout": 0.1,
            "pre_norm": True,
            "positions": "sinusoidal_rotary",
            "share_embeddings": False,
            "vocab_size": 6000,
            "target_vocab_size": 1000,
        },
        {
            **_AUTO,
            "steps": 8000,
            "tokens_per_batch": 2048,
            "warmup_steps": 300,
            "learning_rate": 0.004,
            "clip_norm": 0.25,
            "max_length": 300,
            "word_dropout": 0.9,
            "checkpoint_steps": 50,
            "average_checkpoints": 20,
            "validation_steps": 500,
        },
        {"linearization": "words", "substituted": 24, "substituted_share": 0.1},
    ),
    # For the built-in corpus: small enough to train in minutes on two cores.
    "demo": Preset(
        {
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "d_model": 128,
            "d_ff": 256,
            "num_heads": 4,
            "dropout": 0.1,
            "vocab_size": 1000,
        },
        {
            **_AUTO,
            "steps": 900,
            "warmup_steps": 400,
            "learning_rate": 0.005,
            "checkpoint_steps": 50,
            "validation_steps": 300,
        },
    ),
}
"""The presets by name."""


def find_preset(name: str) -> Preset:
    """Finds a preset by its name.

    Raises:
        UserError: there is no such preset.
    """
    if name not in PRESETS:
        raise UserError(f"unknown preset {name!r}: use one of {', '.join(PRESETS)}")
    return PRESETS[name]


def preset_for(pairs: int) -> str:
    """Returns the name of the preset for a corpus of this many pairs.

    Example:
        >>> preset_for(29_000)
        'tiny'
    """
    return next(name for name, limit in PAIRS_BELOW.items() if pairs < limit)


def training_of(name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a preset's training with the given values; its phases keep their share of the run.

    Args:
        name: the preset.
        given: fields of `TrainingOptions` that differ from the preset.

    Raises:
        UserError: there is no such preset.

    Example: With 2,200 of the 8,800 steps of `tiny`, the first 700 of the 2,800 train both
        directions, and the last 5 of the 20 checkpoints are averaged, not those of early steps.

        >>> training_of("tiny", {"steps": 2200})["average_checkpoints"]
        5
    """
    training = find_preset(name).training
    steps = given.get("steps")
    share = steps / training["steps"] if is_integer(steps) else 1  # the options refuse others
    adapted = {}
    for phase in ("bidirectional_steps", "cooldown_steps"):
        if phase in training:
            adapted[phase] = int(share * training[phase])
    if "average_checkpoints" in training and "checkpoint_steps" not in given:
        averaged = round(min(share, 1) * training["average_checkpoints"])
        adapted["average_checkpoints"] = max(1, averaged)
    return {**training, **adapted, **given}


def vocab_size_for(pairs: int) -> int:
    """Returns the largest vocabulary for a corpus of this many pairs.

    Rare subwords are hardly learned, so small corpora take few subwords (Sennrich and Zhang, 2019):
    one for every two pairs, but at least 2,000.
    """
    return max(2000, pairs // 2)
