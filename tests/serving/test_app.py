"""A server answers like TensorFlow Serving, with the translations of its model."""

import asyncio
import base64
import dataclasses
import gzip
import json
import re
import threading
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from helpers import run_python
from serving_world import SENTENCES, SOON, Doing, only_version, tiny_translator
from starlette.testclient import TestClient
from tensorflow_serving.apis.get_model_status_pb2 import GetModelStatusResponse
from word_translator import Words

from keras_transformer.errors import UserError
from keras_transformer.options import SearchOptions, ServingOptions
from keras_transformer.search import NO_HYPOTHESIS
from keras_transformer.serving import app
from keras_transformer.serving.app import create_app
from keras_transformer.serving.body import Body
from keras_transformer.serving.keys import read_keys
from keras_transformer.serving.middleware import check_origins, host_names
from keras_transformer.serving.servable import TranslatorServable
from keras_transformer.serving.server import Predict, Server
from keras_transformer.serving.tensor_json import parse_predict
from keras_transformer.serving.versions import Model
from keras_transformer.text.glossary import Glossary

EN_DE = "/v1/models/en-de"


@pytest.fixture(scope="module")
def translator():
    return tiny_translator(n_best=3)


@pytest.fixture(scope="module")
def model(translator):
    return only_version("en-de", TranslatorServable(translator))


@pytest.fixture(scope="module")
def client(model):
    server = Server([model])
    with TestClient(create_app(server)) as made:
        yield made
    server.batcher.close()


@pytest.fixture(scope="module")
def expected(model):
    """The translations, by the search of the signature, so that no other graph is traced."""
    _, servable = model.current
    best = servable.translate_n(SENTENCES, dataclasses.replace(servable.options, n_best=1))
    return [translations[0]._asdict() for translations in best]


def serving(servable, **options):
    """A client of a server of one model, and the server."""
    server = Server([only_version("en-de", servable)], ServingOptions(**options))
    return TestClient(create_app(server), raise_server_exceptions=False), server


def as_dict(row):
    return {"text": row["translation"], "score": pytest.approx(row["score"], rel=1e-4)}


def error_of(response):
    """The status of an error, and its message, which is the whole body."""
    body = response.json()
    assert set(body) == {"error"} and "\n" not in body["error"]
    return response.status_code, body["error"]


def ask(client, path=EN_DE, **body):
    return client.post(f"{path}:predict", json=body)


def test_rows_and_columns_have_the_translations_of_the_translator(client, expected):
    rows = ask(client, instances=SENTENCES).json()["predictions"]
    assert [as_dict(row) for row in rows] == expected
    columns = ask(client, inputs={"text": SENTENCES}).json()["outputs"]
    assert columns["translation"] == [one["text"] for one in expected]
    named = ask(client, instances=[{"text": text} for text in SENTENCES[:1]]).json()["predictions"]
    assert [row["translation"] for row in named] == columns["translation"][:1]
    assert ask(client, inputs=[]).json() == {"outputs": {"translation": [], "score": []}}


def test_nbest_fills_up_the_slots_that_no_translation_fills(client, translator):
    rows = ask(client, signature_name="nbest", instances=["A horse!", ""]).json()["predictions"]
    found = translator.translate_n(["A horse!"])[0]
    assert rows[0]["translations"] == [translation.text for translation in found]
    assert rows[0]["scores"] == pytest.approx([translation.score for translation in found])
    assert rows[1] == {"translations": ["", "", ""], "scores": [0.0] + 2 * [NO_HYPOTHESIS]}


def test_score_has_one_output_without_a_name(client, translator):
    pairs = [{"text": "Yes", "translation": "ja"}, {"text": "", "translation": "nein"}]
    scores = ask(client, signature_name="score", instances=pairs).json()["predictions"]
    assert scores == pytest.approx(translator.score(["Yes", ""], ["ja", "nein"]), rel=1e-4)
    assert scores[1] == NO_HYPOTHESIS


def test_bytes_that_are_not_text_are_translated_as_the_translator_does(client, translator):
    for content in (b"caf\xe9 au lait", b"\xff\xfe", b"a\x00b"):
        value = {"b64": base64.b64encode(content).decode()}
        [row] = ask(client, instances=[value]).json()["predictions"]
        assert row["translation"] == translator.translate([content])[0].text
    [row] = ask(client, instances=["a\0b"]).json()["predictions"]
    assert row["translation"] == translator.translate(["a\0b"])[0].text


def test_an_answer_does_not_depend_on_its_company(model, expected):
    server = Server([model], ServingOptions(batch_wait_ms=200))
    with TestClient(create_app(server)) as client, ThreadPoolExecutor(16) as pool:
        order = [index for index in range(len(SENTENCES)) for _ in range(3)]
        rows = list(pool.map(lambda index: ask(client, instances=[SENTENCES[index]]), order))
        for index, row in zip(order, rows, strict=True):
            assert as_dict(row.json()["predictions"][0]) == expected[index]
        batches = metric(client, "batch_sentences_count")
    assert batches < len(order)  # some requests shared a batch
    server.batcher.close()


def test_the_version_may_be_named(client):
    path = f"{EN_DE}/versions/1"
    assert ask(client, path, instances=["Yes"]).json() == ask(client, instances=["Yes"]).json()
    assert client.get(path).json() == client.get(EN_DE).json()
    assert client.get(f"{path}/metadata").json() == client.get(f"{EN_DE}/metadata").json()


def test_the_status_is_that_of_tensorflow_serving(client):
    ok = {"error_code": "OK", "error_message": ""}
    versions = [{"version": "1", "state": "AVAILABLE", "status": ok}]
    assert client.get(EN_DE).json() == {"model_version_status": versions}


def test_the_metadata_say_which_inputs_and_outputs_there_are(client):
    body = client.get(f"{EN_DE}/metadata").json()
    assert body["model_spec"] == {"name": "en-de", "signature_name": "", "version": "1"}
    signatures = body["metadata"]["signature_def"]["signature_def"]
    assert {name: sorted(one["inputs"]) for name, one in signatures.items()} == {
        "serving_default": ["text"],
        "nbest": ["text"],
        "score": ["text", "translation"],
    }
    scores = signatures["nbest"]["outputs"]["scores"]
    assert scores["dtype"] == "DT_FLOAT"
    assert [one["size"] for one in scores["tensor_shape"]["dim"]] == ["-1", "3"]


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/models/x:predict", (404, "Servable not found for request: Latest(x)")),
        (
            f"{EN_DE}/versions/2:predict",
            (404, "Servable not found for request: Specific(en-de, 2)"),
        ),
        (f"{EN_DE}/versions/{'9' * 5000}:predict", 400),
        (f"{EN_DE}/versions/x:predict", 400),
        (f"{EN_DE}:classify", (400, f"Malformed request: POST {EN_DE}:classify")),
        ("/v1/x", (400, "Malformed request: POST /v1/x")),
        ("/x", (404, "Not Found")),
        ("/healthz", (405, "Method Not Allowed")),
    ],
)
def test_another_path_is_refused(client, path, error):
    found = error_of(client.post(path, json={"instances": ["Yes"]}))
    assert (found if isinstance(error, tuple) else found[0]) == error


def test_unknown_models_and_versions_have_no_status(client):
    assert error_of(client.get("/v1/models/x")) == (404, "Could not find any versions of model x")
    missing = 404, "Could not find version 7 of model en-de"
    assert error_of(client.get(f"{EN_DE}/versions/7")) == missing
    assert error_of(client.get(f"{EN_DE}:predict"))[0] == 400


def test_a_model_that_is_yet_to_be_loaded_has_no_status(client, model, monkeypatch):
    monkeypatch.setattr(model, "status", GetModelStatusResponse)
    error = 404, "Could not find any versions of model en-de"
    assert error_of(client.get(EN_DE)) == error


HOSTILE = {
    "empty": b"",
    "no JSON": b"{",
    "no object": b"[]",
    "NaN": b'{"instances": [NaN]}',
    "deep": b'{"instances": ' + b"[" * 100_000,
    "half as deep": b'{"instances": ' + b"[" * 900 + b"]" * 900 + b"}",
    "half a character": b'{"instances": ["\\ud800"]}',
    "not UTF-8": b'{"instances": ["\xff"]}',
    "NUL": b"\0" * 100,
    "UTF-16": '{"instances": ["Yes"]}'.encode("utf-16"),
    "a long number": b'{"instances": [' + b"9" * 10_000 + b"]}",
    "no text": b'{"instances": [1, null, {}]}',
    "bad base64": b'{"instances": [{"b64": "@"}]}',
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_body_is_a_sentence_and_the_server_goes_on(kind):
    client, server = serving(Doing())
    status, _ = error_of(client.post(f"{EN_DE}:predict", content=HOSTILE[kind]))
    assert status == 400
    assert ask(client, instances=["ab"]).json()["predictions"][0]["translation"] == "ba"
    server.batcher.close()


def test_limits_are_answered_by_their_status():
    client, server = serving(
        Doing(), max_body_bytes=1000, max_sentences=3, max_characters=20, max_sentence_tokens=5
    )
    assert ask(client, instances=["a b c d e"] * 3).status_code == 200
    refusals = {
        "a request must have at most 3 sentences: found 4": ["a"] * 4,
        "a sentence must have at most 20 characters: found 21 at index 1": ["a", "x" * 21],
        "a sentence must have at most 5 tokens: found 6 at index 0": ["a b c d e f"],
    }
    for message, instances in refusals.items():
        assert error_of(ask(client, instances=instances)) == (400, message)
    too_large = 413, "the body is larger than the limit of 1000 bytes"
    assert error_of(ask(client, instances=["x" * 1000])) == too_large
    server.batcher.close()


def test_a_text_in_base64_may_have_as_many_characters_as_one_without():
    client, server = serving(Doing(), max_characters=3)
    three, four = ({"b64": base64.b64encode(text.encode()).decode()} for text in ("äöü", "äöüß"))
    pairs = [{"text": three, "translation": "äöü"}]
    assert ask(client, signature_name="score", instances=pairs).status_code == 200
    assert ask(client, instances=[three, "äöü"], split="sentences").status_code == 200
    for split in ("none", "sentences"):
        for text in (four, "äöüß"):
            status, message = error_of(ask(client, instances=[text], split=split))
            assert status == 400 and message.endswith("3 characters: found 4 at index 0")
    server.batcher.close()


def test_placeholders_are_sought_within_the_limits_while_others_are_answered(monkeypatch):
    sought = []

    def find(text, patterns):
        with pytest.raises(RuntimeError):  # the loop is that of another thread
            asyncio.get_running_loop()
        sought.append(text)
        return []

    monkeypatch.setattr("keras_transformer.serving.server.find_placeholders", find)
    client, server = serving(Doing(), max_characters=20, max_sentences=2)
    path = "/api/models/en-de:translate"
    assert error_of(client.post(path, json={"text": ["{{" * 11]}))[0] == 400
    assert error_of(client.post(path, json={"text": ["{{"] * 3}))[0] == 400
    assert not sought
    client.post(path, json={"text": ["{{"]})
    assert sought == ["{{"]
    server.batcher.close()


def test_a_body_may_be_compressed_by_gzip_like_for_tensorflow_serving():
    client, server = serving(Doing(), max_body_bytes=1000)
    whole = gzip.compress(b'{"instances": ["ab"]}')

    def post(content, *codings):
        headers = [("Content-Encoding", coding) for coding in codings]
        return client.post(f"{EN_DE}:predict", content=content, headers=headers)

    for codings in (["gzip"], ["GZIP"], ["x-gzip"], ["identity", "gzip"], ["identity, gzip"]):
        assert post(whole, *codings).json()["predictions"][0]["translation"] == "ba"
    assert post((bytes([byte]) for byte in whole), "gzip").status_code == 200
    for broken, message in {
        whole[:-1]: "the body is cut off",
        whole + b"x": "the body goes on after its end",
        b"": "the body is cut off",
        b"{}": "the body is not gzip",
    }.items():
        status, error = error_of(post(broken, "gzip"))
        assert status == 400 and error.startswith(message)
    for codings in (["br"], ["deflate"], ["gzip", "gzip"], ["identity", "br"], ["gzip, br"]):
        response = post(whole, *codings)
        assert error_of(response)[0] == 415 and response.headers["Accept-Encoding"] == "gzip"
    server.batcher.close()


def test_a_compressed_body_is_expanded_up_to_its_limit_and_no_further():
    limit = 100_000
    body, size = Body(["gzip"], limit), 0
    bomb = gzip.compress(bytes(10**8))
    assert len(bomb) < limit
    tracemalloc.start()
    for start in range(0, len(bomb), 1000):
        if not body.takes(bomb[start : start + 1000]):
            size = start + 1000
            break
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0 < size < 2000 and most < 5 * limit
    client, server = serving(Doing(), max_body_bytes=limit)
    headers = {"Content-Encoding": "gzip"}
    response = client.post(f"{EN_DE}:predict", content=bomb, headers=headers)
    assert error_of(response)[0] == 413
    server.batcher.close()


def test_a_path_with_a_slash_too_many_is_not_redirected():
    client, server = serving(Doing())
    response = client.get("/healthz/", headers={"Host": "elsewhere"}, follow_redirects=False)
    assert error_of(response) == (404, "Not Found")
    server.batcher.close()


def test_a_body_is_counted_as_it_comes():
    client, server = serving(Doing(), max_body_bytes=1000)
    taken = []

    def body():
        for number in range(10_000):
            taken.append(number)
            yield b" " * 100

    status, _ = error_of(client.post(f"{EN_DE}:predict", content=body()))
    assert status == 413
    server.batcher.close()


def test_a_long_body_is_read_while_the_loop_answers_others(client, monkeypatch):
    def parse(body, signatures):
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return parse_predict(body, signatures)

    monkeypatch.setattr(app, "parse_predict", parse)
    assert client.post(f"{EN_DE}:predict", json={"instances": ["Yes."]}).status_code == 200


def test_a_full_queue_and_too_little_time_are_answered_by_their_status():
    servable = Doing()
    client, server = serving(servable, max_queue=1, request_timeout=0.2)
    servable.hold()
    timed_out = (
        504,
        "timed out after 0.2 seconds: send fewer sentences in a request, or try again later",
    )
    with ThreadPoolExecutor() as pool:
        first = pool.submit(ask, client, instances=["a"])
        servable.wait_until_begun()
        waiting = server.batcher.submit(Predict(servable, "serving_default"), [("b",)], 1)
        response = ask(client, instances=["c"])
        assert error_of(response) == (429, "the queue of 1 is full: try again later")
        assert response.headers["Retry-After"] == "1"
        waiting.cancel()
        response = ask(client, instances=["d"])
        assert error_of(response) == timed_out and response.headers["Retry-After"] == "10"
        assert len(server.batcher) == 0  # requests that timed out have left the queue
        assert error_of(first.result(SOON)) == timed_out
    servable.go_on()
    server.batcher.close()


def test_a_request_whose_client_has_gone_leaves_the_queue():
    """Calls the application itself, because a test client cannot disconnect."""
    servable = Doing()
    _, server = serving(servable)
    servable.hold()
    server.batcher.submit(Predict(servable, "serving_default"), [("first",)], 1)
    servable.wait_until_begun()

    async def ask_and_go():
        messages = [{"type": "http.request", "body": b'{"instances": ["a"]}', "more_body": False}]
        sent = []

        async def receive():
            if messages:
                return messages.pop()
            while not len(server.batcher):
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": f"{EN_DE}:predict", "headers": []}
        await create_app(server)(scope | {"query_string": b"", "state": {}}, receive, send)
        return sent[0]["status"]

    assert asyncio.run(ask_and_go()) == 499
    assert len(server.batcher) == 0
    servable.go_on()
    server.batcher.close()


def test_an_internal_error_is_one_sentence_without_details():
    servable = Doing()
    client, server = serving(servable)
    servable.predict = None
    message = "the server failed to answer this request"
    assert error_of(ask(client, instances=["a"])) == (500, message)
    server.batcher.close()


def metric(client, name, **labels):
    """The value of a metric with exactly these labels."""
    text = ",".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    key = f"keras_transformer_{name}{{{text}}}" if labels else f"keras_transformer_{name}"
    lines = client.get("/metrics").text.splitlines()
    [value] = [line.split()[-1] for line in lines if line.rsplit(" ", 1)[0] == key]
    return float(value)


def test_predictions_of_paragraphs_are_those_of_their_sentences():
    client, server = serving(Doing())
    texts = ["Ab.  Cd!\n- Ef", "", {"b64": "R2gu"}]
    found = ask(client, instances=texts, split="sentences").json()
    translations = [one["translation"] for one in found["predictions"]]
    assert translations == [".bA  !dC\n- fE", "", ".hG"]
    found = ask(client, inputs={"text": ["Ab. Cd."]}, split="sentences").json()
    assert found == {"outputs": {"translation": [".bA .dC"], "score": [0.0]}}
    [one] = ask(client, instances=[">>x<< Ab. Cd."], split="sentences").json()["predictions"]
    assert one["translation"] == ".bA <<x>> .dC <<x>>"
    whole = ask(client, instances=["Ab. Cd."], split="none").json()
    assert whole["predictions"][0]["translation"] == ".dC .bA"
    server.batcher.close()


def test_a_split_that_has_no_meaning_is_refused():
    client, server = serving(Doing())
    for body, message in [
        ({"split": "words"}, "split must be none or sentences: found 'words'"),
        (
            {"split": "sentences", "signature_name": "nbest"},
            "split=sentences is for the signature serving_default: leave out one of them",
        ),
    ]:
        assert error_of(ask(client, instances=["a"], **body)) == (400, message)
    server.models["en-de"].current[1].task = "parsing"
    message = "split=sentences is for translation: leave it out for a parser"
    assert error_of(ask(client, instances=["a"], split="sentences")) == (400, message)
    server.batcher.close()


class Aligned(Doing):
    """Translates word for word to capitals, with an alignment."""

    options = SearchOptions()

    def translator_with(self, options):
        return Words()


def test_predictions_of_html_have_its_tags():
    client, server = serving(Aligned())
    texts = ["<p>One. <b>Two</b> three</p>", ""]
    found = ask(client, instances=texts, format="html", split="sentences").json()
    assert found["predictions"] == [
        {"translation": "<p>ONE. <b>TWO</b> THREE</p>", "score": -2.0},
        {"translation": "", "score": 0.0},
    ]
    [found] = ask(client, instances=["# One *two*"], format="markdown").json()["predictions"]
    assert found["translation"] == "# ONE *TWO*"
    assert ask(client, instances=texts, format="text").json()["predictions"][1]["score"] == 0.0
    for body, message in [
        ({"format": "xml"}, "format must be text, html or markdown: found 'xml'"),
        (
            {"format": "html", "signature_name": "nbest"},
            "format=html is for the signature serving_default: leave out one of them",
        ),
    ]:
        assert error_of(ask(client, instances=["a"], **body)) == (400, message)
    server.batcher.close()
    client, server = serving(Doing())
    status, message = error_of(ask(client, instances=["a"], format="html"))
    assert status == 400 and message.startswith("format=html needs the alignment of words, which")
    server.batcher.close()


def test_metrics_count_requests_batches_and_tokens():
    client, server = serving(Doing())
    ask(client, instances=["a b", "c"])
    ask(client, instances=[1])
    ask(client, "/v1/models/unknown", instances=["a"])
    of_model = {"model": "en-de", "method": "predict"}
    assert metric(client, "requests_total", code=200, **of_model) == 1
    assert metric(client, "requests_total", code=400, **of_model) == 1
    assert metric(client, "requests_total", code=404, model="", method="predict") == 1
    assert metric(client, "request_seconds_count", **of_model) == 2
    assert metric(client, "batch_sentences_sum") == 2
    assert metric(client, "batch_tokens_sum") == metric(client, "tokens_total") == 3
    assert metric(client, "queued_requests") == 0
    server.batcher.close()


def test_each_request_is_a_line_of_the_log(caplog):
    client, server = serving(Doing())
    with caplog.at_level("INFO", logger="keras_transformer.serving.access"):
        ask(client, instances=["a b", "c"])
    [record] = caplog.records
    line = record.fields
    assert line.pop("seconds") >= 0
    assert line == {
        "client": "testclient",
        "method": "POST",
        "path": f"{EN_DE}:predict",
        "status": 200,
        "sentences": 2,
        "tokens": 3,
    }
    server.batcher.close()


def test_translations_that_repeat_a_phrase_are_logged_without_their_text(caplog):
    client, server = serving(Doing())  # which reverses texts
    ask(client, instances=["a b", "kola kola kola kola", "c"])
    assert not caplog.records  # the text repeats it too
    server.models["en-de"].current[1].predict = lambda signature, rows: [
        {"translation": "Salat Salat Salat", "score": 0.0} for _ in rows
    ]
    with caplog.at_level("WARNING", logger="keras_transformer.serving"):
        ask(client, instances=["a salad", "a b"])
    [record] = caplog.records
    assert record.message == "repetition"
    assert record.fields == {
        "path": f"{EN_DE}:predict",
        "sentences": 2,
        "repeated": 2,
        "try": "no_repeat_ngram=3",
    }
    server.batcher.close()


def test_a_term_in_an_element_that_is_copied_is_not_missing_in_the_log(caplog):
    servable = Aligned()
    servable.glossary = Glossary({"light": "Licht"})
    client, server = serving(servable)
    texts = ["Press <kbd>light</kbd> or {light}", "Press <kbd>x</kbd> light"]
    with caplog.at_level("WARNING", logger="keras_transformer.serving"):
        ask(client, instances=texts, format="html")
    [fields] = [record.fields for record in caplog.records if record.message == "terms"]
    assert fields == {"path": f"{EN_DE}:predict", "sentences": 2, "without_terms": 1}
    server.batcher.close()


def test_libraries_log_lines_of_json_too():
    script = """
import logging, sys
from absl import logging as of_tensorflow
from keras_transformer.serving.logs import log_to_stderr
sys.stderr = sys.stdout
log_to_stderr()
of_tensorflow.warning("many\\ngraphs")
logging.getLogger("asyncio").error("a lost connection")
"""
    lines = [json.loads(line) for line in run_python(script).splitlines()]
    found = [(line["level"], line["event"]) for line in lines]
    assert found == [("warning", "many\ngraphs"), ("error", "a lost connection")]


def test_a_model_that_loads_is_not_ready():
    loaded = threading.Event()

    def load(version):
        assert loaded.wait(SOON)
        return Doing()

    model = Model("en-de", lambda: {1: None}, load)
    server = Server([model])
    client = TestClient(create_app(server))
    thread = threading.Thread(target=model.refresh)
    assert client.get("/healthz").status_code == 200
    assert error_of(client.get("/readyz")) == (503, "models are loading")
    assert error_of(ask(client, instances=["a"])) == (503, "model en-de is loading")
    thread.start()
    loaded.set()
    thread.join(SOON)
    assert client.get("/readyz").status_code == 200
    assert ask(client, instances=["ab"]).json()["predictions"][0]["translation"] == "ba"
    server.batcher.close()


def test_a_key_is_asked_for_where_there_are_keys(tmp_path):
    (tmp_path / "keys").write_text("# of the tests\n\nfirst\n  second  \n")
    server = Server([only_version("en-de", Doing())])
    client = TestClient(create_app(server, read_keys(str(tmp_path / "keys"))))
    statuses = {
        key: client.get(EN_DE, headers={"Authorization": key}).status_code
        for key in (
            "Bearer first",
            "bearer second",
            "Bearer third",
            "first",
            "Bearer ",
            b"Bearer \xe9",
        )
    }
    assert list(statuses.values()) == [200, 200, 401, 401, 401, 401]
    response = client.get(EN_DE)
    assert error_of(response)[0] == 401 and response.headers["WWW-Authenticate"] == "Bearer"
    assert client.get("/metrics").status_code == 401
    assert client.get("/healthz").status_code == client.get("/readyz").status_code == 200
    server.batcher.close()


def test_keys_have_no_byte_order_mark(tmp_path):
    (tmp_path / "keys").write_bytes(b"\xef\xbb\xbffirst\r\n# none\r\nsecond\r\n")
    assert read_keys(str(tmp_path / "keys")) == ["first", "second"]


def test_a_bad_file_of_keys_is_one_line(tmp_path):
    for content, message in {
        b"# none\n": " has no key: write one a line",
        b"good\ntwo words\n": "line 2: a key must be ASCII without spaces",
        b"\xff": "not UTF-8",
    }.items():
        (tmp_path / "keys").write_bytes(content)
        with pytest.raises(UserError, match=message):
            read_keys(str(tmp_path / "keys"))
    with pytest.raises(UserError, match="No such file"):
        read_keys(str(tmp_path / "none"))


def test_pages_of_other_hosts_may_ask_only_if_they_are_named():
    server = Server([only_version("en-de", Doing())])
    origin = {"Origin": "https://a.org", "Access-Control-Request-Method": "POST"}
    name = "Access-Control-Allow-Origin"
    closed = TestClient(create_app(server))
    opened = TestClient(create_app(server, ["key"], ["https://a.org"]))
    assert name not in closed.get(EN_DE, headers=origin).headers
    assert opened.options(EN_DE, headers=origin).headers[name] == "https://a.org"
    assert name not in opened.options(EN_DE, headers={**origin, "Origin": "https://b.org"}).headers
    refused = opened.get(EN_DE, headers=origin)
    assert refused.status_code == 401  # with a key all the same
    assert refused.headers["Access-Control-Expose-Headers"] == "Retry-After"
    server.batcher.close()


def test_a_page_that_may_ask_may_send_any_header_and_another_is_refused_in_json():
    server = Server([only_version("en-de", Doing())])
    headers = "content-encoding, x-requested-with, traceparent"
    asked = {
        "Origin": "https://a.org",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": headers,
    }
    for origins in (["https://a.org"], ["*"]):
        client = TestClient(create_app(server, cors_origins=origins))
        answer = client.options(f"{EN_DE}:predict", headers=asked)
        allowed = answer.headers["Access-Control-Allow-Headers"]
        assert (answer.status_code, allowed) == (200, headers)
    client = TestClient(create_app(server, cors_origins=["https://a.org"]))
    for change, what in [
        ({"Origin": "https://b.org"}, "origin"),
        ({"Access-Control-Request-Method": "PUT"}, "method"),
    ]:
        message = f"Disallowed CORS {what}: --cors_origin adds origins, for GET and POST"
        assert error_of(client.options(EN_DE, headers=asked | change)) == (400, message)
    server.batcher.close()


def test_a_server_for_one_machine_has_only_the_names_of_this_machine():
    server = Server([only_version("en-de", Doing())])
    hosts = host_names([], "127.0.0.1", "127.0.0.1")
    client = TestClient(create_app(server, hosts=hosts))

    def status(host, path=EN_DE):
        return client.get(path, headers={"Host": host}).status_code

    for host in ("localhost", "LOCALHOST:8501", "127.0.0.1", "127.0.0.1:8501", "[::1]:8501"):
        assert status(host) == 200
    for host in (
        "evil.example",
        "evil.example:8501",
        "localhost.evil.example",
        "",
        "<script>",
        ":",
    ):
        for path in (EN_DE, "/", "/metrics", "/api/models"):
            assert status(host, path) == 421
        assert status(host, "/healthz") == status(host, "/readyz") == 200
    message = "Host 'evil.example' is not a name of this server: --allowed_hosts adds names"
    assert error_of(client.get("/", headers={"Host": "evil.example"})) == (421, message)
    server.batcher.close()


def test_the_names_of_a_server_may_be_chosen():
    assert host_names([], "0.0.0.0", "0.0.0.0") == host_names(["*"], "localhost", "::1") == set()
    assert "a.example" in host_names(["A.example"], "localhost", "127.0.0.1")
    assert "localhost" in host_names(["a.example"], "0.0.0.0", "0.0.0.0")
    assert "[::1]" in host_names(["[::1]"], "::1", "::1")
    for name in ("https://a.example", "a.example:80", "a b", "", "a/b", "::1"):
        with pytest.raises(UserError, match="--allowed_hosts must be names such as"):
            host_names([name], "localhost", "127.0.0.1")


@pytest.mark.parametrize(
    ("origin", "right"),
    [
        ("https://b.org/", "https://b.org"),
        ("http://b.org:8080/page?x#y", "http://b.org:8080"),
        ("b.org", "https://b.org"),
        ("HTTPS://B.org", "https://b.org"),
        ("https://b.org:443", "https://b.org"),
        ("http://b.org:80", "http://b.org"),
        *((one, "https://a.org") for one in ("", "https://", "*.b.org", "https://ü.org", "a b")),
    ],
)
def test_an_origin_that_no_browser_sends_is_refused(origin, right):
    message = f"such as {right}: found {origin!r}"
    with pytest.raises(UserError, match=f"^--cors_origin must be .*{re.escape(message)}$"):
        check_origins(["https://a.org", origin])


def test_origins_of_browsers_are_taken():
    check_origins(
        ["*", "null", "https://a.org", "http://a.org:8080", "http://[::1]:80443", "app://x"]
    )


def test_a_page_of_another_site_makes_the_server_compute_nothing():
    server = Server([only_version("en-de", Doing())])
    body = json.dumps({"instances": ["ab"]})

    def status(origin, kind, origins=()):
        client = TestClient(create_app(server, cors_origins=origins))
        headers = {"Content-Type": kind, "Origin": origin, "Host": "a.org:80"}
        headers = {name: value for name, value in headers.items() if value is not None}
        return client.post(f"{EN_DE}:predict", content=body, headers=headers).status_code

    simple = ("text/plain", "text/plain;application/json", "application/x-www-form-urlencoded", "")
    for kind in simple:
        for other in ("https://b.org", "null", "http://a.org:8080", "http://a.org:80.b.org"):
            assert status(other, kind) == 415
        assert status(None, kind) == 200  # not a browser, such as curl
        assert status("http://a.org:80", kind) == 200  # the server's own page
        assert status("https://b.org", kind, ["https://b.org"]) == 200
        assert status("https://b.org", kind, ["*"]) == 200
    # A browser asks first, see above, and is told no.
    assert status("https://b.org", "application/json; charset=utf-8") == 200
    server.batcher.close()


def test_a_request_may_change_the_search_within_bounds(translator):
    server = Server([])
    servable = TranslatorServable(translator)
    assert server.search_options(servable, {}) is servable.options
    changed = server.search_options(servable, {"beam_size": 5, "alpha": 2, "max_length": 9})
    assert changed == SearchOptions(beam_size=5, alpha=2.0, max_length=9, n_best=3, extra_length=5)
    paper = {"length_penalty": "gnmt", "patience": None}
    changed = server.search_options(servable, paper)
    assert changed == SearchOptions(**paper, n_best=3, extra_length=5)
    for changes, message in [
        ({"length_penalty": "plain"}, "^length_penalty must be one of power, gnmt: found plain$"),
        ({"length_penalty": 1}, "^length_penalty must be str: found 1$"),
        ({"patience": 11}, "^patience must be at most 10: found 11$"),
        ({"patience": "none"}, "^patience must be float"),
        ({"beam_size": 33}, "beam_size must be at most 32: found 33"),
        ({"beam_size": 10**30}, "beam_size must be at most 32"),
        ({"n_best": 9}, "n_best must be"),
        ({"beam_size": "5"}, "beam_size must be int"),
        ({"sample": True}, "options must be among"),
        ({"x" * 1000: 1}, "options must be among"),
    ]:
        with pytest.raises(UserError, match=message):
            server.search_options(servable, changes)
    with pytest.raises(UserError, match="fixed"):
        server.search_options(Doing(), {"beam_size": 5})
    server.batcher.close()


@pytest.mark.slow
def test_changed_options_are_those_of_the_search(model, translator):
    _, servable = model.current
    greedy = SearchOptions(beam_size=1, extra_length=5)
    [[found]] = servable.translate_n(["A horse!"], greedy)
    assert [found] == translator.with_options(greedy).translate(["A horse!"])


def test_graphs_of_the_signatures_stay_whatever_requests_choose(translator):
    servable = TranslatorServable(translator)

    def searches():
        both = (servable.options, servable.options.best_only())
        return [weakref.ref(translator.with_options(options)._search) for options in both]

    before = searches()
    for beam_size in range(servable.options.n_best, 30):
        servable.translate_n([], dataclasses.replace(servable.options, beam_size=beam_size))
    assert None not in [search() for search in before]
    assert searches() == before
