"""Bodies of `:predict` equal those of TensorFlow Serving, and JSON is strict both ways."""

import base64

import pytest

from keras_transformer.errors import UserError
from keras_transformer.serving.servable import signature_defs
from keras_transformer.serving.tensor_json import (
    parse_json,
    parse_predict,
    predict_response,
    write_json,
)

SIGNATURES = signature_defs(2, ["serving_default", "nbest", "score"])


def parsed(**body):
    return parse_predict(body, SIGNATURES)


def refused(**body):
    with pytest.raises(UserError) as error:
        parsed(**body)
    return str(error.value)


def not_json(body):
    with pytest.raises(UserError, match=r"^JSON Parse error: ") as error:
        parse_json(body)
    message = str(error.value)
    assert "\n" not in message and len(message) < 200
    return message


def test_rows_may_be_values_or_objects_of_named_inputs():
    assert parsed(instances=["a", "b"]) == ("serving_default", [("a",), ("b",)], False)
    assert parsed(instances=[{"text": "a"}]).rows == [("a",)]
    pairs = [{"text": "a", "translation": "x"}, {"translation": "y", "text": "b"}]
    request = parsed(signature_name="score", instances=pairs)
    assert request == ("score", [("a", "x"), ("b", "y")], False)


def test_columns_may_be_a_list_or_an_object_of_named_inputs():
    assert parsed(inputs=["a", "b"]) == ("serving_default", [("a",), ("b",)], True)
    assert parsed(inputs={"text": ["a"]}).rows == [("a",)]
    pairs = {"text": ["a", "b"], "translation": ["x", "y"]}
    assert parsed(signature_name="score", inputs=pairs).rows == [("a", "x"), ("b", "y")]
    assert parsed(inputs=[]).rows == []


def test_base64_stands_for_bytes():
    value = {"b64": base64.b64encode(b"caf\xe9").decode()}
    assert parsed(instances=[value]).rows == [(b"caf\xe9",)]
    assert parsed(instances=[{"text": value}]).rows == [(b"caf\xe9",)]
    assert parsed(inputs={"text": [value, "a"]}).rows == [(b"caf\xe9",), ("a",)]
    for other in ("?", "é", "YQ=", "YWJjZ"):
        assert "Unable to base64 decode" in refused(instances=[{"b64": other}])


def test_base64_may_be_wrapped_and_without_padding():
    wrapped = base64.encodebytes(b"caf\xe9 " * 40).decode()  # lines, as the command base64 writes
    for value in (wrapped, wrapped.rstrip("=\n")):
        assert parsed(instances=[{"b64": value}]).rows == [(b"caf\xe9 " * 40,)]


def test_an_empty_signature_name_is_the_default():
    assert parsed(signature_name="", instances=["a"]).signature == "serving_default"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "Missing 'inputs' or 'instances' key"),
        ({"instances": []}, "No values in 'instances' array"),
        ({"instances": "a"}, "Excepting 'instances' to be an list/array"),
        ({"instances": ["a"], "inputs": ["a"]}, "expecting only one of 'inputs' or 'instances'"),
        ({"instances": [1]}, "JSON Value: 1 Type: Number is not of expected type: string"),
        ({"instances": [None]}, "Type: Null is not of expected type: string"),
        ({"instances": [True]}, "Type: Bool is not of expected type: string"),
        ({"instances": [["a"]]}, "Encountered list at unexpected level: 0"),
        ({"instances": [{"text": "a"}, "b"]}, "Expecting object but got list at item 1"),
        ({"instances": ["a", {"text": "b"}]}, "Expecting value/list but got object at item 1"),
        ({"instances": [{"words": "a"}]}, "keys must be equal to: text"),
        ({"instances": [{"text": "a", "more": "b"}]}, "keys must be equal to: text"),
        ({"inputs": "a"}, "input text must be a list"),
        ({"inputs": {"words": ["a"]}}, "Missing named input: text in 'inputs' object."),
        ({"inputs": {"text": [["a"]]}}, "Encountered list at unexpected level: 1"),
        ({"inputs": [{"a": 1}]}, "not formatted correctly for base64 data"),
        ({"signature_name": 1, "inputs": ["a"]}, "'signature_name' key must be a string value."),
        ({"signature_name": "x"}, 'Serving signature name: "x" not found in signature def'),
        ({"signature_name": "score", "instances": ["a"]}, "instances is a plain list, but"),
        ({"signature_name": "score", "inputs": ["a"]}, "inputs is a plain value/list, but"),
        (
            {"signature_name": "score", "inputs": {"text": ["a"], "translation": []}},
            "all inputs must have the same size: found [0, 1]",
        ),
    ],
)
def test_another_body_is_refused_as_tensorflow_serving_does(body, message):
    assert message in refused(**body)


def test_a_body_is_an_object():
    for value in ([], "a", 1, None):
        with pytest.raises(UserError, match="Is not object"):
            parse_predict(value, SIGNATURES)


def test_a_message_shows_the_beginning_of_a_long_value():
    assert len(refused(instances=[{"words": "x" * 100_000}])) < 300
    assert len(refused(signature_name="x" * 100_000)) < 300


def test_one_output_needs_no_name():
    scores = [{"score": -1.0}, {"score": -2.0}]
    request = parsed(signature_name="score", instances=[{"text": "a", "translation": "x"}] * 2)
    assert predict_response(request, SIGNATURES["score"], scores) == {"predictions": [-1.0, -2.0]}
    columns = request._replace(is_columns=True)
    assert predict_response(columns, SIGNATURES["score"], scores) == {"outputs": [-1.0, -2.0]}


def test_several_outputs_are_objects_of_rows_or_an_object_of_columns():
    outputs = [{"translation": "x", "score": -1.0}, {"translation": "y", "score": -2.0}]
    rows, columns = parsed(instances=["a", "b"]), parsed(inputs=["a", "b"])
    signature = SIGNATURES["serving_default"]
    assert predict_response(rows, signature, outputs) == {"predictions": outputs}
    by_name = {"translation": ["x", "y"], "score": [-1.0, -2.0]}
    assert predict_response(columns, signature, outputs) == {"outputs": by_name}
    assert predict_response(columns, signature, []) == {"outputs": {"translation": [], "score": []}}


def test_json_is_strict():
    assert "NaN" in not_json(b'{"inputs": [NaN]}')
    assert "Infinity" in not_json(b'{"inputs": [-Infinity]}')
    assert "The document is empty" in not_json(b"")
    assert not_json(b"{").endswith("property name enclosed in double quotes at offset: 1")
    assert not_json(b'["a').endswith("Unterminated string starting at offset: 1")
    for body in (b"{}x", b"\x00", b"{'a': 1}", b"[1,]", b'"a\nb"', b"1" * 5000, b"\xff\xfe{\0"):
        not_json(body)
    with pytest.raises(ValueError):
        write_json({"score": float("-inf")})


@pytest.mark.parametrize(
    "number", ["1e999", "-1e999", "9" * 5000, "-" + "9" * 400, "1e" + "9" * 30]
)
@pytest.mark.parametrize("body", ['{"instances": ["a"], "x": %s}', "[[%s]]", "%s"])
def test_a_number_beyond_double_precision_is_refused_wherever_it_stands(body, number):
    message = not_json((body % number).encode())
    assert message == "JSON Parse error: Number too big to be stored in double."


def test_numbers_within_double_precision_are_read():
    whole = "9" * 308
    assert parse_json(f"[{whole}, -1e308, 1e-999, 0]".encode()) == [int(whole), -1e308, 0.0, 0]


def test_text_is_utf_8_without_halves_of_characters():
    assert "not UTF-8 at offset: 2" in not_json(b'["\xff"]')
    assert "surrogate" in not_json(b'["\\ud800"]')
    assert "surrogate" in not_json(b'{"\\udfff": 1}')
    assert parse_json(b'["\\ud83d\\ude00 \\u0000"]') == ["😀 \0"]
    assert parse_json("\ufeff[]".encode()) == []
    assert write_json(["😀 \0"]) == '["😀 \\u0000"]'.encode()


def test_nesting_of_any_depth_is_an_answer():
    for opening in (b"[", b'{"a":'):
        not_json(opening * 100_000)
    for depth in range(500, 1000, 50):
        body = b'{"instances": [' + b"[" * depth + b"]" * depth + b"]}"
        with pytest.raises(UserError):
            parse_predict(parse_json(body), SIGNATURES)
