"""Reads what the description of an OpenNMT-tf model says and its weights do not, never running it.

OpenNMT-tf keeps the description in the folder of the run: the name of a model of its catalog, or a
Python file.
"""

import ast
import dataclasses
import re
from pathlib import Path

from keras_transformer.errors import UserError
from keras_transformer.files import read_utf_8

FILE = "model_description.py"
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
_POSITIONS = re.compile(r"\b(SinusoidalPositionEncoder|PositionEmbedder)\b")


@dataclasses.dataclass(frozen=True)
class Description:
    """Options of an OpenNMT-tf model that do not follow from its weights.

    Attributes:
        num_heads: number of attention heads; None if unknown.
        activation: activation of feed-forward networks, as in `TransformerConfig`; None if unknown.
        dropout, attention_dropout, activation_dropout: the rates of the training.
        source_end: whether `--auto_config` lets the encoder read an end symbol.
    """

    num_heads: int | None = None
    activation: str | None = "relu"
    dropout: float = 0.1
    attention_dropout: float = 0.1
    activation_dropout: float = 0.1
    source_end: bool = False


_BASE, _BIG = Description(8), Description(16)
_CATALOG = {
    "Transformer": _BASE,
    "TransformerBase": _BASE,
    "TransformerBaseSharedEmbeddings": _BASE,
    "TransformerBig": _BIG,
    "TransformerBigSharedEmbeddings": _BIG,
    "TransformerTiny": Description(2),
    "ScalingNmtEnDe": Description(16, "relu", 0.3, 0.1, 0.0, source_end=True),
    "ScalingNmtEnFr": Description(16, "relu", 0.1, 0.0, 0.0, source_end=True),
}


def description_path(folder: Path) -> Path:
    """The `model_description.py` of a folder of checkpoints.

    OpenNMT-tf writes averaged checkpoints to a folder within that of their run, without the file.
    """
    beside, above = folder / FILE, folder.absolute().parent / FILE
    return above if above.exists() and not beside.exists() else beside


def read_description(path: Path) -> Description:
    """Reads a `model_description.py`, if there is one.

    Raises:
        UserError: the file is not Python, or describes positions that are not supported.
    """
    if not path.exists():
        return Description()
    text = read_utf_8(path)
    if name := re.search(r"""get_model_from_catalog\(\s*["'](\w+)["']""", text):
        return _CATALOG.get(name[1], Description())
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        raise UserError(f"{path}: not a Python file") from error
    arguments: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg is not None:
            arguments.setdefault(node.arg, set()).add(ast.unparse(node.value))
    positions = arguments.get("position_encoder_class", set())
    if other := [value for value in positions if not _POSITIONS.search(value) and value != "None"]:
        raise UserError(f"{path}: position_encoder_class={other[0]} is not supported")
    return Description(
        _number_of_heads(arguments.get("num_heads", set())),
        _activation(arguments.get("ffn_activation", {"tf.nn.relu"})),
    )


def _number_of_heads(values):
    return int(*values) if len(values) == 1 and min(values).isdecimal() else None


def _activation(values):
    """The one activation; None if it is not one of TensorFlow's: `opennmt.layers.gelu` is not."""
    name = re.fullmatch(r"(?:tf|tensorflow)\.(?:nn|keras\.activations)\.(\w+)", "".join(values))
    return _ACTIVATIONS.get(name[1]) if name else None
