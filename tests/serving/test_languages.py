"""Models for several languages: requests of each interface name the languages."""

import pytest
from helpers import lively_model
from starlette.testclient import TestClient

from keras_transformer.data import BuiltinPairs
from keras_transformer.options import ServingOptions
from keras_transformer.serving.app import create_app
from keras_transformer.serving.languages import served_code
from keras_transformer.serving.servable import TranslatorServable
from keras_transformer.serving.server import Server
from keras_transformer.serving.versions import Model
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.languages import Languages
from keras_transformer.translator import Translator

PREDICT = "/v1/models/many:predict"
SENTENCES = ["A horse!", "Yes"]


@pytest.fixture(scope="module")
def translator():
    tokenizer = SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)
    tokenizer = tokenizer.with_languages(["de", "fr"])
    model = lively_model(1, tokenizer.vocab_size)
    return Translator(model, tokenizer, extra_length=5, tokens_per_batch=200)


@pytest.fixture(scope="module")
def client(translator):
    servable = TranslatorServable(translator, source_lang="en")
    several = translator.languages
    model = Model("many", lambda: {1: None}, lambda version: servable, ("en", None), several)
    model.refresh()
    server = Server([model], ServingOptions())
    with TestClient(create_app(server), raise_server_exceptions=False) as made:
        yield made
    server.batcher.close()


@pytest.fixture(scope="module")
def expected(translator):
    return {code: translator.with_languages(code)(SENTENCES) for code in ("de", "fr")}


@pytest.mark.parametrize("code", ["de", "fr"])
def test_a_request_names_the_target_language(client, code, expected):
    answer = client.post(PREDICT, json={"instances": SENTENCES, "target_lang": code}).json()
    assert [one["translation"] for one in answer["predictions"]] == expected[code]
    body = {"text": SENTENCES, "target_lang": code}
    answer = client.post("/api/models/many:translate", json=body).json()
    assert [best["text"] for [best] in answer["translations"]] == expected[code]
    body = {"q": SENTENCES, "source": "en", "target": code}
    assert client.post("/translate", json=body).json()["translatedText"] == expected[code]


def test_the_oldest_pair_of_languages_is_forgotten(translator, expected, monkeypatch):
    monkeypatch.setattr("keras_transformer.serving.servable._MOST_DIRECTIONS", 1)
    servable = TranslatorServable(translator)
    rows = [(sentence,) for sentence in SENTENCES]
    german, french, again = (servable.in_languages(code, None) for code in ("de", "fr", "de"))
    assert again is not german and again is servable.in_languages("de", None)
    for one, code in ((german, "de"), (french, "fr"), (again, "de")):
        found = [row["translation"] for row in one.predict("serving_default", rows)]
        assert found == expected[code]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "this model is for several languages: give target_lang, one of de, fr"),
        ({"target_lang": "deu"}, "did you mean de?"),
        ({"target_lang": ["de"]}, "target_lang must be the code of a language"),
        ({"target_lang": "de", "source_lang": "en"}, "source_lang=en has no effect"),
    ],
)
def test_other_languages_are_refused_in_a_sentence(client, fields, message):
    answer = client.post(PREDICT, json={"instances": ["Two dogs."], **fields})
    assert answer.status_code == 400 and message in answer.json()["error"]


def test_clients_of_libretranslate_see_its_pairs(client):
    codes = {one["code"]: one["targets"] for one in client.get("/languages").json()}
    assert codes == {"de": ["de"], "en": ["de", "en", "fr"], "fr": ["fr"]}


@pytest.mark.parametrize(
    ("source", "targets", "expected"),
    [
        ("en-us", ["de", "zh-hant"], {"en": ["de", "en", "zh-Hant"]}),
        ("ast", ["de", "fr"], None),  # its source has no code here
        (None, ["de", "fr"], {"de": ["de", "fr"], "fr": ["de", "fr"]}),
    ],
)
def test_the_source_of_its_pairs_is_that_of_the_training(source, targets, expected):
    several = Languages({code: f"<2{code}>" for code in targets}, in_target=False)
    found = pairs_of(Model("many", dict, lambda version: None, (source, None), several))
    assert found == expected


def test_a_model_for_two_languages_may_be_trained_with_those_of_regions():
    model = Model("base", dict, lambda version: None, ("en_us", "pt-br"))
    assert pairs_of(model) == {"en": ["en", "pt-BR"]}


def pairs_of(model):
    """The targets of each source that clients of LibreTranslate see; None without any."""
    server = Server([model], ServingOptions())
    with TestClient(create_app(server)) as client:
        answer = client.get("/languages")
    server.batcher.close()
    if answer.status_code == 400:
        return None
    return {one["code"]: one["targets"] for one in answer.json() if len(one["targets"]) > 1}


def test_the_page_knows_the_languages(client):
    [model] = client.get("/api/models").json()
    assert model["languages"] == {"codes": ["de", "fr"], "has_source": False}


def test_attention_leaves_the_symbol_without_a_word(client):
    body = {"text": "A horse!", "translation": "Pferd!", "target_lang": "de"}
    answer = client.post("/api/models/many:attention", json=body).json()
    words = answer["words"]["source"]
    assert words[0] is None and min(word for word in words if word is not None) == 0


@pytest.mark.parametrize(
    ("code", "expected"),
    {
        "fra_Latn": "fr",
        "zho_Hant": "zh-Hant",
        "zho_Hans": "zh-Hans",
        "zh": "zh-Hans",
        "zh-hant": "zh-Hant",
        "zh_tw": "zh-Hant",
        "zh-cn": "zh-Hans",
        "pt-br": "pt-BR",
        "en-us": "en",
    }.items(),
)
def test_codes_of_a_model_become_those_of_the_server(code, expected):
    assert served_code(code) == expected
    assert served_code("ace_Arab") is None
