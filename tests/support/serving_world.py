"""A tiny model that translates every sentence differently, and a running server for it."""

import contextlib
import threading

from helpers import lively_model

from keras_transformer.data import BuiltinPairs
from keras_transformer.options import ServingOptions
from keras_transformer.serving.app import create_app
from keras_transformer.serving.http import HttpServer, listen
from keras_transformer.serving.servable import signature_defs
from keras_transformer.serving.server import Server
from keras_transformer.serving.versions import Model
from keras_transformer.text import SubwordTokenizer
from keras_transformer.translator import Translator

SOON = 120.0  # maximum wait of a test, in seconds
SENTENCES = [
    "The girls sleep.",
    "He will not buy a small lamp, because it is dear.",
    "",
    "A horse!",
    "Yes",
    "house " * 5,
    "\t \u3000",
]


def tiny_translator(seed: int = 1, **options) -> Translator:
    """A translator that translates every sentence differently, in small batches."""
    tokenizer = SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)
    model = lively_model(seed, tokenizer.vocab_size)
    options = {"tokens_per_batch": 200, "max_source_length": 64, "extra_length": 5, **options}
    return Translator(model, tokenizer, **options)


def only_version(name: str, servable) -> Model:
    """A loaded model, whose only version is 1."""
    model = Model(name, lambda: {1: None}, lambda version: servable)
    model.refresh()
    return model


class Doing:
    """A servable that a test can hold; its translations are the reversed texts.

    Batches wait from `hold` until `go_on`.
    """

    task, engine, attention = "translation", "tensorflow", None
    max_tokens, options, source_lang = 1000, None, None
    languages = glossary = translator_with = None
    copies_parts = True

    def __init__(self):
        self.signatures = signature_defs(1, ["serving_default", "nbest", "score"])
        self._begun, self._may_go_on = threading.Semaphore(0), threading.Event()
        self._may_go_on.set()

    def joins(self, signature):
        return True

    def count_tokens(self, texts):
        return [len(text.split()) for text in texts]

    def predict(self, signature, rows):
        self._begun.release()
        assert self._may_go_on.wait(SOON)
        one = {"score": 0.0, "translations": [""], "scores": [0.0]}
        return [{**one, "translation": text[::-1]} for text, *_ in rows]

    def hold(self):
        self._begun = threading.Semaphore(0)
        self._may_go_on.clear()

    def go_on(self):
        self._may_go_on.set()

    def wait_until_begun(self):
        assert self._begun.acquire(timeout=SOON)


@contextlib.contextmanager
def running(server: Server, options: ServingOptions, **app_options):
    """Runs the server on a free port of this machine; gives its `HttpServer` and port."""
    sock = listen("127.0.0.1", 0)
    http = HttpServer(create_app(server, **app_options), options, server.note_refused)
    thread = threading.Thread(target=http.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        yield http, sock.getsockname()[1]
    finally:
        http.stop()
        thread.join(SOON)
        assert not thread.is_alive()
