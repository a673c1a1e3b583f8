"""Imports Transformers of OpenNMT-tf from its checkpoints; needs TensorFlow, which reads them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf.trackable_object_graph_pb2 import TrackableObjectGraph

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError, reason_of
from keras_transformer.importers.assignment import against_names, assign, path_of
from keras_transformer.importers.opennmt_data import OpenNMTData, read_data
from keras_transformer.importers.opennmt_description import (
    Description,
    description_path,
    read_description,
)
from keras_transformer.model import Transformer
from keras_transformer.text.opennmt import OpenNMTTokenizer
from keras_transformer.text.vocabulary import UNKNOWN

_SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"
_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
_SOURCE, _TARGET = (
    f"examples_inputter/{side}_inputter/embedding" for side in ("features", "labels")
)
_OUTPUT = "decoder/output_layer"
_FIRST = "encoder/layers/0"
_SUBLAYERS = {"memory_attention": "attention/0", "feed_forward": "ffn"}
_PARTS = {
    "query": "linear_queries",
    "key": "linear_keys",
    "value": "linear_values",
    "output": "linear_output",
    "feed_forward/hidden": "inner",
    "feed_forward/output": "outer",
}
# The options of OpenNMT-tf that our model lacks, and weights that tell of them.
_UNSUPPORTED = {
    "relative positions (maximum_relative_position)": r"relative_position_keys",
    "several sources (ParallelInputter)": r"encoder/encoders/|inputters/\d|/attention/1/",
}


def import_opennmt(
    source: str | os.PathLike,
    config: str | os.PathLike,
    num_heads: int | None = None,
    activation: str | None = None,
) -> tuple[Transformer, OpenNMTTokenizer]:
    """Reads a Transformer that OpenNMT-tf 2 trained.

    The weights tell the size of the model and which of them are shared. They do not tell the number
    of heads, the activation, nor the formula of positions: `model_description.py`, which OpenNMT-tf
    keeps in the folder of a run, is read for these, and never run.

    Args:
        source: the folder of a run, of which the last checkpoint is read, the folder of an averaged
            checkpoint, or one checkpoint, such as `run/ckpt-5000`.
        config: the YAML file with the run's `data`: vocabularies and tokenization.
        num_heads: number of attention heads; default: that of the model's description.
        activation: activation of the feed-forward networks, "relu", "gelu" or "swish"; default:
            that of the model's description.

    Returns:
        The model, in float32, and its tokenizer.

    Raises:
        UserError: a file is missing or damaged, or the model has an option that is not supported.

    Example:
        >>> model, tokenizer = import_opennmt("run", "run/data.yml")
        >>> [french] = Translator(model, tokenizer)(["A man rides a horse."])
    """
    checkpoint = _checkpoint(Path(source))
    arrays = _read_checkpoint(checkpoint)
    path = description_path(checkpoint.parent)
    description = read_description(path)
    if num_heads is None and (num_heads := description.num_heads) is None:
        raise UserError(f"{path} does not give the number of attention heads: give num_heads")
    if activation is None and (activation := description.activation) is None:
        raise UserError(
            f"{path}: ffn_activation is not one of TensorFlow's relu, gelu and swish: if it is the "
            "same function, give activation"
        )
    data = read_data(config)
    pieces, source_rows = _joined(data)
    try:
        tokenizer = OpenNMTTokenizer(data.source_model, data.target_model, pieces)
        ours = _configuration(arrays, tokenizer, description, data, num_heads, activation)
        model = Transformer(ours, name="transformer")
        _set_weights(model, arrays, source_rows)
    except UserError as error:
        raise UserError(f"{checkpoint}: cannot import this model: {error}") from error
    return model, tokenizer


def _checkpoint(source: Path) -> Path:
    """The path that all files of a checkpoint begin with."""
    if source.is_dir():
        try:
            latest = tf.train.latest_checkpoint(source)
        except ValueError:  # the file `checkpoint`, which names the last one, is empty
            latest = None
        if latest is not None:
            return Path(latest)
        if found := sorted(source.glob("*.index")):
            raise UserError(
                f"{source}: its file `checkpoint` names no checkpoint of this folder: give one, "
                f"such as {found[-1].with_suffix('')}"
            )
        raise UserError(f"{source}: there is no checkpoint of OpenNMT-tf")
    source = source.with_name(re.sub(r"\.(index|data-\d+-of-\d+)$", "", source.name))
    if not source.with_name(f"{source.name}.index").exists():
        raise UserError(f"{source}: there is no such checkpoint of OpenNMT-tf")
    return source


def _read_checkpoint(checkpoint) -> dict[str, np.ndarray]:
    """The weights of the model by name; raises `UserError` if our model lacks one of its parts."""
    try:
        reader = tf.train.load_checkpoint(str(checkpoint))
        arrays = {
            name.removeprefix("model/").removesuffix(_SUFFIX): reader.get_tensor(name)
            for name in reader.get_variable_to_shape_map()
            if name.startswith("model/") and name.endswith(_SUFFIX) and "OPTIMIZER" not in name
        }
        graph = reader.get_tensor(_GRAPH) if arrays else b""
    except (tf.errors.OpError, IndexError, ValueError, RuntimeError) as error:
        reason = reason_of(error) if isinstance(error, tf.errors.OpError) else str(error)
        raise UserError(f"{checkpoint}: cannot read the checkpoint: {reason}") from error
    if not arrays:
        raise UserError(
            f"{checkpoint}: not a checkpoint of OpenNMT-tf 2, whose weights begin with model/; one "
            "of version 1 is upgraded when version 2 opens it"
        )
    lacking = _unsupported(arrays, _has(graph, "model", "encoder", "position_encoder"))
    if lacking is not None:
        raise UserError(f"{checkpoint}: cannot import this model: {lacking}")
    return arrays


def _unsupported(arrays, has_positions) -> str | None:
    """Names what our model lacks; None if nothing."""
    for option, pattern in _UNSUPPORTED.items():
        if any(re.search(pattern, name) for name in arrays):
            return f"{option} are not supported"
    if f"{_FIRST}/self_attention/layer/linear_queries/kernel" not in arrays:
        return "its encoder is not a SelfAttentionEncoder: only Transformers are supported"
    if not has_positions:
        return "position_encoder_class=None is not supported"
    if _SOURCE not in arrays:
        return "source_inputter is not a WordEmbedder, which alone is supported"
    return None


def _has(graph, *path) -> bool:
    """Whether a checkpoint has an object at a path, even one without weights."""
    nodes = TrackableObjectGraph.FromString(graph).nodes
    node = nodes[0]
    for name in path:
        children = {child.local_name: child.node_id for child in node.children}
        if name not in children:
            return False
        node = nodes[children[name]]
    return True


def _joined(data: OpenNMTData) -> tuple[list[str], list[int]]:
    """Joins the vocabularies of both sides: the target's tokens, `<unk>`, the source's others.

    Returns:
        The piece of each id, and the row that it has in the source's embeddings. A token that the
        source lacks has the row of `<unk>` there, because OpenNMT-tf would read it so.
    """
    rows = {token: row for row, token in enumerate([*data.source_tokens, UNKNOWN])}
    pieces = [*dict.fromkeys([*data.target_tokens, UNKNOWN, *data.source_tokens])]
    return pieces, [rows.get(piece, rows[UNKNOWN]) for piece in pieces]


def _configuration(
    arrays: Mapping[str, np.ndarray],
    tokenizer: OpenNMTTokenizer,
    description: Description,
    data: OpenNMTData,
    num_heads: int,
    activation: str,
) -> TransformerConfig:
    """Derives the configuration from the weights; raises `UserError` if the data do not fit."""
    share = _TARGET not in arrays
    for name, tokens, side in (
        (_SOURCE, data.source_tokens, "source"),
        (_SOURCE if share else _TARGET, data.target_tokens, "target"),
    ):
        if len(arrays[name]) != len(tokens) + 1:
            raise UserError(
                f"the {side} embeddings have {len(arrays[name]):,} rows, but {side}_vocabulary has "
                f"{len(tokens):,} tokens and <unk>: it is not the vocabulary of this model"
            )
    if share and data.source_tokens != data.target_tokens:
        raise UserError(
            "it shares embeddings, so source_vocabulary and target_vocabulary must agree"
        )
    d_ff, d_model = arrays[f"{_FIRST}/ffn/layer/outer/kernel"].shape
    table = arrays.get("encoder/position_encoder/position_embedding")
    return TransformerConfig(
        vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.target_vocab_size,
        num_encoder_layers=_number_of_layers("encoder", arrays),
        num_decoder_layers=_number_of_layers("decoder", arrays),
        d_model=d_model,
        d_ff=d_ff,
        activation=activation,
        num_heads=num_heads,
        attention_bias=f"{_FIRST}/self_attention/layer/linear_queries/bias" in arrays,
        dropout=description.dropout,
        attention_dropout=description.attention_dropout,
        activation_dropout=description.activation_dropout,
        pre_norm="encoder/layer_norm/gamma" in arrays,
        positions="sinusoidal_opennmt" if table is None else "learned",
        max_positions=TransformerConfig.max_positions if table is None else len(table) - 1,
        share_embeddings=share,
        tie_output=f"{_OUTPUT}/kernel" not in arrays,
        output_bias=f"{_OUTPUT}/bias" in arrays,
        layer_norm_epsilon=1e-3,  # Keras's default
        source_end=description.source_end if data.source_end is None else data.source_end,
        pad_id=tokenizer.pad_id,
        start_id=tokenizer.start_id,
        end_id=tokenizer.end_id,
    )


def _number_of_layers(side, arrays):
    found = {name.split("/")[2] for name in arrays if name.startswith(f"{side}/layers/")}
    return len(found)


def _set_weights(model, arrays, source_rows):
    """Assigns every weight; raises `UserError` with every reason against it."""
    values, missing, reasons, known = {}, [], [], set()
    for weight in model.weights:
        path = path_of(weight)
        name = _their_name(path, model.config)
        known.add(name)
        if name not in arrays:
            missing.append(name)
            continue
        array = arrays[name]
        if name == _SOURCE:
            array = array[source_rows]
        elif path.endswith("_positions/table"):
            array = array[1:]  # positions count from 1
        if array.shape != tuple(weight.shape):
            reasons.append(f"{name} must have {tuple(weight.shape)} values: found {array.shape}")
        elif not np.isfinite(array).all():
            reasons.append(f"{name} must be finite numbers")
        values[path] = array
    reasons += against_names(missing, [name for name in arrays if name not in known])
    if reasons:
        raise UserError("; ".join(reasons))
    assign(model, values)


def _their_name(path: str, config: TransformerConfig) -> str:
    """The name of one of our weights in their checkpoints."""
    outside = {
        "source_embedding/embeddings": _SOURCE,
        "target_embedding/embeddings": _TARGET,
        "source_embedding/bias": f"{_OUTPUT}/bias",
        "target_embedding/bias": f"{_OUTPUT}/bias",
        "output_projection/kernel": f"{_OUTPUT}/kernel",
        "output_projection/bias": f"{_OUTPUT}/bias",
        "source_positions/table": "encoder/position_encoder/position_embedding",
        "target_positions/table": "decoder/position_encoder/position_embedding",
    }
    if path in outside:
        return outside[path]
    if norm := re.fullmatch(r"(encoder|decoder)/norm/(\w+)", path):
        return f"{norm[1]}/layer_norm/{norm[2]}"
    layer = re.fullmatch(r"(encoder|decoder)/layer_(\d+)/(\w+?)(_norm|/\w+)/(\w+)", path)
    assert layer, path
    side, number, sublayer, part, weight = layer.groups()
    theirs = f"{side}/layers/{number}/{_SUBLAYERS.get(sublayer, sublayer)}"
    if part == "_norm":
        return f"{theirs}/{'input' if config.pre_norm else 'output'}_layer_norm/{weight}"
    part = part[1:]
    return f"{theirs}/layer/{_PARTS.get(f'{sublayer}/{part}') or _PARTS[part]}/{weight}"
