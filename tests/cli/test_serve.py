"""`keras-transformer serve`, started and ended like by a user."""

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import types
import warnings

import httpx2
import pytest
from command_lines import arguments, refused, run
from serving_world import SOON, Doing, tiny_translator
from starlette.testclient import TestClient

import keras_transformer as kt
from keras_transformer.cli import serve
from keras_transformer.options import ServingOptions
from keras_transformer.parsing import ParsingTokenizer
from keras_transformer.serving.app import create_app
from keras_transformer.serving.http import listen
from keras_transformer.serving.server import Server
from keras_transformer.serving.versions import Model
from keras_transformer.translation import TermsWarning, Translation
from keras_transformer.translator import Translator


@pytest.fixture(autouse=True)
def loggers_as_they_were():
    """Undoes what `serve` does to the loggers of this process, which other tests read."""
    ours = ("keras_transformer.serving", "keras_transformer.serving.access")
    loggers = [logging.getLogger(name) for name in (*ours, "uvicorn", "asyncio", "absl")]
    before = [(logger.level, logger.handlers, logger.propagate) for logger in loggers]
    yield
    for logger, (level, handlers, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.handlers, logger.propagate = handlers, propagate


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two model_dirs, en-de and parser, and a folder that looks like it holds SavedModels."""
    folder = tmp_path_factory.mktemp("runs")
    translator = tiny_translator()
    [model] = translator.models
    kt.ModelDir(folder / "en-de").create_trained(model, translator.tokenizer, None, "")
    pairs = [("Dogs bark", "(S (NP XX NP) (VP XX VP) S)")]
    tokenizer = ParsingTokenizer.learn(pairs, 340)
    kt.ModelDir(folder / "parser").create_trained(model, tokenizer, None, "")
    (folder / "export" / "1").mkdir(parents=True)
    return folder


def test_loading_tensorflow_for_a_request_is_logged_with_its_seconds(monkeypatch, caplog):
    def load_translator(task, paths, workers, engine, precision):
        assert [record.message for record in caplog.records] == ["loading"]
        return task, paths, workers, engine, precision

    monkeypatch.setattr(serve, "load_translator", load_translator)
    monkeypatch.setattr(serve, "FLAGS", types.SimpleNamespace(precision="bfloat16"))
    with caplog.at_level("INFO", logger="keras_transformer.serving"):
        found = serve.load_in_tensorflow("en-de", ["runs/en-de"])
    assert found == (None, ["runs/en-de"], 1, "tensorflow", "bfloat16")
    loading, loaded = caplog.records
    assert loading.fields == {"model": "en-de", "engine": "tensorflow"}
    assert loaded.message == "loaded"
    assert 0 <= loaded.fields.pop("seconds") < SOON
    assert loaded.fields == loading.fields


def test_tensorflow_computes_what_is_left_of_int8_in_float32(runs, monkeypatch):
    def start(models, *args, **options):  # while there are flags
        serve.load_in_tensorflow("en-de", [str(runs / "en-de")])

    loaded = {}
    monkeypatch.setattr("keras_transformer.serving.run.serve", start)
    monkeypatch.setattr("keras_transformer.serving.logs.log_to_stderr", lambda access: None)
    monkeypatch.setattr("keras_transformer.engines.load", lambda paths, **how: loaded.update(how))
    run("serve", model_dir=runs / "en-de", precision="int8")
    assert (loaded["engine"], loaded["precision"]) == ("tensorflow", "float32")


def test_flags_that_do_not_fit_are_refused_in_one_line(runs, tmp_path):
    en_de, export = runs / "en-de", runs / "export"
    assert refused("serve") == "--model_dir or --model is required"
    assert "choose the folder of a trained model" in refused("serve", model_dir=tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    assert "Too many levels of symbolic links" in refused("serve", model_dir=tmp_path / "loop")
    assert "only model_dirs form an ensemble, not SavedModels" in refused(
        "serve", model_dir=f"{en_de},{export}"
    )
    assert "two models have the name en-de" in refused(
        "serve", model_dir=en_de, model=f"en-de={en_de}"
    )
    assert "NAME=PATH" in refused("serve", model=en_de)
    assert "--sample" in refused("serve", model_dir=en_de, sample=True)
    assert "max_queue" in refused("serve", model_dir=en_de, max_queue=0)
    assert "found nan" in refused("serve", model_dir=en_de, poll_seconds="nan")
    assert "max_connections_per_address" in refused(
        "serve", model_dir=en_de, max_connections_per_address=0
    )
    message = refused("serve", model_dir=en_de, port=0, allowed_hosts="https://a.org")
    assert message.startswith("--allowed_hosts must be names such as translate.example")
    message = refused("serve", model_dir=en_de, port=0, cors_origin="https://b.org,https://A.org/")
    assert message.endswith("such as https://a.org: found 'https://A.org/'")
    assert "No such file" in refused("serve", model_dir=en_de, api_key_file=tmp_path / "none")
    for flag in ({"beam_size": 2}, {"weights": "best"}, {"engine": "ctranslate2"}):
        message = refused("serve", model_dir=export, **flag)
        expected = f"the SavedModel in {export} does not support --{next(iter(flag))}: leave it out"
        assert message.startswith(expected)
    message = refused("serve", model_dir=en_de, poll_seconds=3)
    assert message.startswith("--poll_seconds has no effect without a SavedModel")


@pytest.fixture(scope="module")
def with_terms(runs, tmp_path_factory):
    """A client of the server that `serve --glossary` would start."""
    served = []

    def load(models, *args, **options):  # while there are flags
        served.extend(models)
        served[0].refresh()

    terms = tmp_path_factory.mktemp("glossary") / "terms.tsv"
    terms.write_text("horse\tRoss\tRosse\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.serving.run.serve", load)
        patch.setattr("keras_transformer.serving.logs.log_to_stderr", lambda access: None)
        run("serve", model_dir=runs / "en-de", glossary=terms)
    server = Server(served, ServingOptions())
    yield TestClient(create_app(server))
    server.batcher.close()


@pytest.mark.slow
def test_translations_have_the_terms_of_the_glossary_on_every_route(with_terms):
    def post(path, **body):
        response = with_terms.post(path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def predicted(text, **fields):
        [row] = post("/v1/models/en-de:predict", instances=[text], **fields)["predictions"]
        return row["translation"]

    def translated(text, **fields):
        asked = {"q": text, "source": "en", "target": "de", **fields}
        return post("/translate", **asked)["translatedText"]

    with_a_placeholder = "The horse {name} sleeps."
    html = "<p>The <b>horse</b> sleeps.</p>"
    [[best]] = post("/api/models/en-de:translate", text=[with_a_placeholder])["translations"]
    for translation in (
        predicted("A horse!"),
        translated("A horse!"),
        best["text"],
        translated(with_a_placeholder),
        predicted(html, format="html"),
        translated(html, format="html"),
    ):
        assert re.search(r"\bRosse?\b", translation), translation
    assert "{name}" in best["text"]
    assert re.fullmatch("<p>.*<b>.+</b>.*</p>", translated(html, format="html"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::keras_transformer.translation.TermsWarning")
def test_translations_without_room_for_their_terms_are_logged(with_terms, caplog, monkeypatch):
    def without_room(self, sentences, prefixes=None, terms=None):
        warnings.warn(TermsWarning([row for row, each in enumerate(terms) if each]), stacklevel=2)
        return [[Translation(sentence, 0.0)] for sentence in sentences]

    monkeypatch.setattr(Translator, "translate_n", without_room)
    body = {"text": ["A horse!", "Yes", "{horse}"], "options": {"max_length": 2}}
    with caplog.at_level("WARNING", logger="keras_transformer.serving"):
        with_terms.post("/api/models/en-de:translate", json=body)
    [fields] = [record.fields for record in caplog.records if record.message == "terms"]
    assert fields == {"path": "/api/models/en-de:translate", "sentences": 3, "without_terms": 1}


def test_a_port_in_use_is_one_line(runs):
    with listen("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        message = refused("serve", model_dir=runs / "en-de", port=port)
        assert message.endswith("cannot listen there: Address already in use")


def test_a_model_that_cannot_be_loaded_ends_the_server_with_one_line(runs):
    message = refused("serve", model_dir=runs / "export", port=0)
    assert message == f"model export: {runs}/export/1/saved_model.pb: No such file or directory"


def test_what_is_not_installed_is_named(runs, monkeypatch):
    import keras_transformer.serving.run  # so that the next line can remove it

    monkeypatch.delitem(sys.modules, "keras_transformer.serving.run")
    monkeypatch.delattr(keras_transformer.serving, "run")
    monkeypatch.setitem(sys.modules, "keras_transformer.serving.http", None)
    message = refused("serve", model_dir=runs / "en-de")
    assert message.endswith("pip install '.[serve]' in a checkout of keras-transformer")


# TensorFlow computes a parser, and CTranslate2 the other model, which is served sooner.
@pytest.mark.parametrize(
    ("number", "has_parser"),
    [(signal.SIGTERM, True), (signal.SIGINT, False), (signal.SIGHUP, False)],
)
@pytest.mark.slow
def test_a_server_serves_until_a_signal_and_ends_well(runs, number, has_parser):
    options = {"model_dir": runs / "en-de", "port": 0}
    options |= {"model": f"trees={runs}/parser"} if has_parser else {}
    command = [sys.executable, "-m", "keras_transformer", "serve", *arguments(options)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with (
        subprocess.Popen(command, preexec_fn=heed_signals, **pipes) as process,
        contextlib.ExitStack() as at_the_end,
    ):
        at_the_end.callback(process.kill)  # if it goes on serving
        log = []
        reader = threading.Thread(target=lambda: log.extend(process.stderr))
        reader.start()
        url = process.stdout.readline().split()[-1]
        client = httpx2.Client(base_url=url, timeout=SOON)
        while client.get("/readyz").status_code != 200:
            assert process.poll() is None
        if has_parser:
            body = {"instances": ["Dogs bark"]}
            [row] = client.post("/v1/models/trees:predict", json=body).json()["predictions"]
            assert row["translation"].startswith("(TOP")
        answer, before = threading.Event(), metrics(client)["tokens_total"]

        def ask():
            many = {"instances": ["The girls sleep."] * 100}
            response = httpx2.post(f"{url}/v1/models/en-de:predict", json=many, timeout=SOON)
            assert len(response.json()["predictions"]) == 100
            answer.set()

        asking = threading.Thread(target=ask)
        asking.start()
        while metrics(client)["tokens_total"] == before and not metrics(client)["queued_requests"]:
            pass  # until the request waits or is computed
        process.send_signal(number)
        assert process.wait(SOON) == 0
        assert answer.wait(SOON)
        reader.join(SOON)
    lines = [json.loads(line) for line in log]
    engines = [line for line in lines if line["event"] == "engine"]
    of_parser = ("trees", "tensorflow", "CTranslate2 does not support models for parsing")
    assert [(line["model"], line["engine"], line.get("reason")) for line in engines] == [
        ("en-de", "ctranslate2", None),
        *[of_parser] * has_parser,
    ]
    # A random model may repeat itself.
    assert {line["event"] for line in lines} - {"repetition"} == {"engine", "request"}
    requests = [line for line in lines if line["event"] == "request"]
    asked = [line["path"] for line in requests if line["status"] == 200 and "sentences" in line]
    assert asked == [*["/v1/models/trees:predict"] * has_parser, "/v1/models/en-de:predict"]


def test_a_server_that_ends_while_a_model_loads_leaves_python_at_once(runs, monkeypatch):
    begun, may_go_on, statuses = threading.Event(), threading.Event(), []

    def load(version):
        begun.set()
        assert may_go_on.wait(SOON)
        return Doing()

    def run_until_begun(server, sockets):
        assert begun.wait(SOON)
        sockets[0].close()

    monkeypatch.setattr(serve, "open_model", lambda *_: Model("en-de", lambda: {1: None}, load))
    monkeypatch.setattr("keras_transformer.serving.logs.log_to_stderr", lambda access: None)
    monkeypatch.setattr("keras_transformer.serving.http.HttpServer.run", run_until_begun)
    monkeypatch.setattr(os, "_exit", statuses.append)
    run("serve", model_dir=runs / "en-de", port=0)
    may_go_on.set()
    assert statuses == [0]


def heed_signals():
    """Undoes what `nohup`, or `&` in a script, has told this process to ignore."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def metrics(client):
    """The metrics without labels."""
    lines = client.get("/metrics").text.splitlines()
    pairs = [line.rsplit(" ", 1) for line in lines if line[0] != "#" and "{" not in line]
    return {name.removeprefix("keras_transformer_"): float(value) for name, value in pairs}
