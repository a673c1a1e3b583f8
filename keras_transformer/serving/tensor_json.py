"""Bodies of `:predict` as in TensorFlow Serving: rows of inputs, or columns."""

import base64
import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tensorflow.core.framework.types_pb2 import DT_STRING, DataType
from tensorflow.core.protobuf.meta_graph_pb2 import SignatureDef

from keras_transformer.errors import UserError

_JSON_TYPES = {
    type(None): "Null",
    bool: "Bool",
    dict: "Object",
    list: "Array",
    str: "String",
    int: "Number",
    float: "Number",
}


class PredictRequest(NamedTuple):
    """A request of `:predict`.

    Attributes:
        signature: the name of the signature.
        rows: for each sentence, a value for each input, in the order of the inputs' names.
        is_columns: whether the inputs, and therefore the outputs, are columns.
    """

    signature: str
    rows: list[tuple[Any, ...]]
    is_columns: bool


def parse_json(body: bytes) -> Any:
    """Parses strict JSON.

    Raises:
        UserError: the body is not strict JSON.
    """
    if not body:
        raise UserError("JSON Parse error: The document is empty")
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(
            text, parse_constant=_refuse_constant, parse_int=_integer, parse_float=_float
        )
        json.dumps(value, ensure_ascii=False).encode()  # fails for half a surrogate pair
    except UnicodeDecodeError as error:
        raise UserError(f"JSON Parse error: not UTF-8 at offset: {error.start}") from None
    except UnicodeEncodeError:
        raise UserError("JSON Parse error: The surrogate pair in string is invalid.") from None
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" at")
        raise UserError(f"JSON Parse error: {what} at offset: {error.pos}") from None
    except RecursionError:
        raise UserError("JSON Parse error: Nested too deeply") from None
    except ValueError as error:
        raise UserError(f"JSON Parse error: {error}") from None
    return value


def write_json(value: Any) -> bytes:
    """Writes strict JSON; NaN or infinity is an error of the program."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def parse_predict(value: Any, signatures: Mapping[str, SignatureDef]) -> PredictRequest:
    """Parses the body of a `:predict` request.

    Raises:
        UserError: the body is not in the format of TensorFlow Serving.
    """
    if not isinstance(value, dict):
        raise UserError(f"JSON Value: {_shown(value)} Is not object")
    name = value.get("signature_name", "serving_default")
    if not isinstance(name, str):
        raise UserError(
            f"JSON Value: {_shown(value)} not formatted correctly. 'signature_name' key must be a "
            "string value."
        )
    name = name or "serving_default"
    if name not in signatures or not signatures[name].inputs:
        raise UserError(f'Serving signature name: "{_shown(name)}" not found in signature def')
    inputs = {key: signatures[name].inputs[key].dtype for key in sorted(signatures[name].inputs)}
    if "instances" in value and "inputs" in value:
        raise UserError(
            f"JSON Value: {_shown(value)} Not formatted correctly expecting only one of 'inputs' "
            "or 'instances' keys to exist "
        )
    if "instances" in value:
        return PredictRequest(name, _instances(value["instances"], inputs), False)
    if "inputs" in value:
        return PredictRequest(name, _columns(value["inputs"], inputs), True)
    raise UserError("Missing 'inputs' or 'instances' key")


def predict_response(
    request: PredictRequest, signature: SignatureDef, outputs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The body of the answer, from the outputs of each row; a single output has no name."""
    names = sorted(signature.outputs)
    if request.is_columns:
        columns = {name: [row[name] for row in outputs] for name in names}
        return {"outputs": columns if len(names) > 1 else columns[names[0]]}
    if len(names) > 1:
        return {"predictions": [{name: row[name] for name in names} for row in outputs]}
    return {"predictions": [row[names[0]] for row in outputs]}


def _instances(instances, inputs):
    if not isinstance(instances, list):
        raise UserError("Excepting 'instances' to be an list/array")
    if not instances:
        raise UserError("No values in 'instances' array")
    is_named = _is_object(instances[0])
    if len(inputs) > 1 and not is_named:
        raise UserError(
            "instances is a plain list, but expecting list of objects as multiple input tensors "
            "required as per tensorinfo_map"
        )
    rows = []
    for index, item in enumerate(instances):
        if is_named != _is_object(item):
            expected, found = ("object", "list") if is_named else ("value/list", "object")
            raise UserError(f"Expecting {expected} but got {found} at item {index} of input list")
        row = item if is_named else {next(iter(inputs)): item}
        if row.keys() != inputs.keys():
            raise UserError(
                f"Failed to process element: {index} of 'instances' list. JSON object: "
                f"{_shown(item)} keys must be equal to: {','.join(inputs)}"
            )
        for name, dtype in inputs.items():
            try:
                row = {**row, name: _value(row[name], dtype, 0)}
            except UserError as error:
                raise UserError(
                    f"Failed to process element: {index} key: {name} of 'instances' list. "
                    f"Error: {error}"
                ) from None
        rows.append(tuple(row[name] for name in inputs))
    return rows


def _columns(value, inputs):
    if not _is_object(value):
        if len(inputs) > 1:
            raise UserError(
                "inputs is a plain value/list, but expecting an object as multiple input tensors "
                "required as per tensorinfo_map"
            )
        value = {next(iter(inputs)): value}
    columns = []
    for name, dtype in inputs.items():
        if name not in value:
            raise UserError(f"Missing named input: {name} in 'inputs' object.")
        if not isinstance(value[name], list):
            raise UserError(f"input {name} must be a list: found {_shown(value[name])}")
        columns.append([_value(item, dtype, 1) for item in value[name]])
    sizes = {len(column) for column in columns}
    if len(sizes) > 1:
        raise UserError(f"all inputs must have the same size: found {sorted(sizes)}")
    return list(zip(*columns, strict=True))


def _is_object(value):
    return isinstance(value, dict) and not _is_base64(value)


def _is_base64(value):
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def _value(value, dtype, level):
    """A value for an input of our signatures: a string, bytes or a 32-bit integer."""
    if isinstance(value, list):
        raise UserError(f"Encountered list at unexpected level: {level} expected < {level}")
    if dtype == DT_STRING:
        if isinstance(value, str):
            return value
        if _is_base64(value):
            return _decoded(value["b64"])
        if isinstance(value, dict):
            raise UserError(f"JSON Value: {_shown(value)} not formatted correctly for base64 data")
    elif type(value) is int and -(2**31) <= value < 2**31:
        return value
    expected = DataType.Name(dtype).removeprefix("DT_").lower()
    raise UserError(
        f"JSON Value: {_shown(value)} Type: {_JSON_TYPES[type(value)]} is not of expected type: "
        f"{expected}"
    )


def _decoded(text):
    """Decodes base64 as TensorFlow Serving does: ignores white space; padding may be left out."""
    text = "".join(text.split())
    if not text.endswith("="):
        text += "=" * (-len(text) % 4)
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:  # other letters or other padding
        raise UserError("Unable to base64 decode") from None


def _refuse_constant(name):
    raise ValueError(f"Invalid value: {name}")


def _float(text):
    number = float(text)
    if math.isinf(number):
        raise ValueError("Number too big to be stored in double.")
    return number


def _integer(text):
    _float(text)  # refuses thousands of digits in TensorFlow Serving's words, not in Python's
    return int(text)


def _shown(value, limit=80):
    """The beginning of a value for a message, however long or deeply nested it is."""
    chunks = [value] if isinstance(value, str) else json.JSONEncoder().iterencode(value)
    text = "".join(itertools.islice(chunks, limit))
    return text if len(text) <= limit else f"{text[:limit]}..."
