"""The configuration of a Transformer: a frozen, validated record with JSON input and output."""

import dataclasses
import json
import os
from typing import Any

from keras_transformer.errors import UserError
from keras_transformer.json_files import parse_json
from keras_transformer.options.records import Record, field
from keras_transformer.presets import find_preset


@dataclasses.dataclass(frozen=True)
class TransformerConfig(Record):
    """The shape of a Transformer and the loss it is trained with (paper, sections 3 and 5.4).

    The defaults are the paper's base model; every field is also a flag of `train`, except the ids
    of special symbols. `d_k` and `d_v` default to the paper's choice, `d_model / num_heads`.

    Raises:
        UserError: a field has the wrong type or an invalid value.

    Example:
        >>> config = TransformerConfig.from_preset("tiny", vocab_size=10_000, dropout=0.2)
        >>> config.d_model, config.d_k
        (128, 32)
        >>> TransformerConfig.from_json(config.to_json()) == config
        True
    """

    vocab_size: int = field(
        37_000, "size of the vocabulary that source and target share", largest=2**24
    )
    target_vocab_size: int | None = field(
        None,
        "number of ids that can be generated, the first ones of the vocabulary; default: all",
        largest=2**24,
    )
    num_encoder_layers: int = field(6, "number of encoder layers (N)", largest=1000)
    num_decoder_layers: int = field(6, "number of decoder layers (N)", largest=1000)
    d_model: int = field(512, "width of embeddings and of the output of each layer", largest=2**16)
    d_ff: int = field(2048, "width of the hidden layer of feed-forward networks", largest=2**20)
    activation: str = field(
        "relu", "activation function of feed-forward networks", ("relu", "gelu", "swish")
    )
    num_heads: int = field(8, "number of attention heads (h)", largest=2**16)
    d_k: int | None = field(
        None, "width of queries and keys in each head; default: d_model / num_heads", largest=2**16
    )
    d_v: int | None = field(
        None, "width of values in each head; default: d_model / num_heads", largest=2**16
    )
    attention_bias: bool = field(False, "add biases to the projections of attention")
    dropout: float = field(
        0.1, "dropout rate on embeddings and on the output of each sub-layer (P_drop)"
    )
    attention_dropout: float = field(0.0, "dropout rate on attention weights")
    activation_dropout: float = field(
        0.0, "dropout rate on the hidden layer of feed-forward networks"
    )
    label_smoothing: float = field(0.1, "label smoothing of the loss (epsilon_ls)")
    pre_norm: bool = field(False, "normalise the input of each sub-layer instead of its output")
    positions: str = field(
        "sinusoidal",
        "position encoding: sinusoidal, as in the paper; sinusoidal_split, with all sines "
        "before all cosines; sinusoidal_opennmt and sinusoidal_fairseq, the same from position 1 "
        "and 2 on, with a last frequency of 1/10000; learned, a table; rotary, which rotates "
        "queries and keys; sinusoidal_rotary, sinusoidal and rotary",
        (
            "sinusoidal",
            "sinusoidal_split",
            "sinusoidal_opennmt",
            "sinusoidal_fairseq",
            "learned",
            "rotary",
            "sinusoidal_rotary",
        ),
    )
    max_positions: int = field(
        1024, "number of learned positions; other position encodings have no limit", largest=2**24
    )
    share_embeddings: bool = field(True, "share one embedding matrix between source and target")
    scale_embeddings: bool = field(True, "multiply embeddings by sqrt(d_model)")
    tie_output: bool = field(True, "use the target embedding matrix as the output projection")
    output_bias: bool = field(False, "add a bias to the output projection")
    layer_norm_epsilon: float = field(1e-6, "epsilon of layer normalisation")
    layer_type: str = field(
        "attention",
        "type of the layers that relate positions of a sequence to each other (Table 1): "
        "self-attention, or what replaces it",
        ("attention", "restricted", "recurrent", "convolutional", "separable"),
    )
    radius: int | None = field(
        None, "number of positions on either side that restricted attention reaches (r)"
    )
    kernel_size: int | None = field(
        None,
        "width of the kernels of convolutional and separable layers, in positions (k)",
        largest=2**16,
    )
    source_end: bool = field(True, "let the encoder read the end symbol of source sentences")
    pad_id: int = field(0, "id of padding")
    start_id: int = field(1, "id of the start symbol")
    end_id: int = field(2, "id of the end symbol")

    def __post_init__(self):
        super().__post_init__()
        for name in ("d_k", "d_v"):
            if getattr(self, name) is None:
                if self.num_heads < 1 or self.d_model % self.num_heads:
                    raise UserError(
                        f"d_model must be a multiple of num_heads where {name} is not given: "
                        f"found d_model={self.d_model}, num_heads={self.num_heads}"
                    )
                object.__setattr__(self, name, self.d_model // self.num_heads)
        self._check_values()

    def _check_values(self):
        sizes = ("vocab_size", "num_encoder_layers", "num_decoder_layers", "d_model", "d_ff")
        for name in (*sizes, "num_heads", "d_k", "d_v", "max_positions"):
            self.expect(name, getattr(self, name) >= 1, "at least 1")
        for name, types in (
            ("radius", ("restricted",)),
            ("kernel_size", ("convolutional", "separable")),
        ):
            value, needed = getattr(self, name), self.layer_type in types
            expected = "at least 1" if needed else "left out"
            holds = value is not None and value >= 1 if needed else value is None
            self.expect(name, holds, f"{expected} where layer_type is {self.layer_type}")
        for name in ("dropout", "attention_dropout", "activation_dropout", "label_smoothing"):
            self.expect(name, 0 <= getattr(self, name) < 1, "in [0, 1)")
        self.expect("layer_norm_epsilon", self.layer_norm_epsilon > 0, "above 0")
        if self.target_vocab_size is not None:
            self.expect("target_vocab_size", self.target_vocab_size >= 1, "at least 1")
            self.expect("share_embeddings", not self.share_embeddings, "off with target_vocab_size")
        for name in ("pad_id", "start_id", "end_id"):
            in_vocabulary = 0 <= getattr(self, name) < self.output_vocab_size
            size = "vocab_size" if self.target_vocab_size is None else "target_vocab_size"
            self.expect(name, in_vocabulary, f"an id below {size}={self.output_vocab_size}")
        self.expect("end_id", self.end_id != self.pad_id, f"another id than pad_id={self.pad_id}")
        if self.positions.startswith("sinusoidal"):
            self.expect("d_model", self.d_model % 2 == 0, "even, for pairs of sine and cosine")
        if self.positions in ("sinusoidal_opennmt", "sinusoidal_fairseq"):
            self.expect("d_model", self.d_model > 2, f"above 2 where positions is {self.positions}")
        if self.rotary:
            self.expect("d_k", self.d_k % 2 == 0, f"even where positions is {self.positions}")
            has_attention = self.layer_type in ("attention", "restricted")
            self.expect(
                "layer_type", has_attention, "attention or restricted with rotary positions"
            )

    @property
    def rotary(self) -> bool:
        """Whether self-attention rotates queries and keys by their position."""
        return self.positions in ("rotary", "sinusoidal_rotary")

    @property
    def output_vocab_size(self) -> int:
        """Number of ids that can be generated, and of logits: `target_vocab_size`, or all ids."""
        return min(self.vocab_size, self.target_vocab_size or self.vocab_size)

    @property
    def alignment_layer(self) -> int:
        """Index of the decoder layer whose attention to the source links words best.

        The last but one is closest to human alignments (Garg et al., 2019); of two layers, it is
        the last (measured in docs/translating.md).
        """
        return min(self.num_decoder_layers - 1, max(1, self.num_decoder_layers - 2))

    @classmethod
    def from_preset(cls, name: str, **overrides) -> "TransformerConfig":
        """Makes the configuration of a preset, with some fields replaced.

        Args:
            name: a key of `PRESETS`: "base", "big", "tiny", a row of Table 3 such as "B-dk16".
            **overrides: fields that differ from the preset.

        Raises:
            UserError: the preset or a field is unknown, or a value is invalid.
        """
        return cls.from_dict({**find_preset(name).model, **overrides})

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> "TransformerConfig":
        """Makes a configuration from its fields.

        Raises:
            UserError: a field is unknown, or a value is invalid.
        """
        known = [field_.name for field_ in dataclasses.fields(cls)]
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise UserError(
                f"unknown configuration field {unknown[0]!r}: use one of {', '.join(known)}"
            )
        return cls(**fields)

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields by name, as plain values."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(
        cls, text: str, where: str | os.PathLike = "configuration"
    ) -> "TransformerConfig":
        """Reads the result of `to_json`; `where` names the text in errors.

        Raises:
            UserError: the text is not a JSON object, or a field is unknown or invalid.
        """
        fields = parse_json(text, where)
        if not isinstance(fields, dict):
            raise UserError(f"{where} must be a JSON object: found {type(fields).__name__}")
        try:
            return cls.from_dict(fields)
        except UserError as error:
            raise UserError(f"{where}: {error}") from None

    def to_json(self) -> str:
        """Writes JSON text with one field per line."""
        return json.dumps(self.to_dict(), indent=2) + "\n"
