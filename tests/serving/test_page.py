"""The page at `/`: its requests, and its appearance in headless Chromium."""

import base64
import dataclasses
import json
import re
import subprocess
import urllib.request
from importlib import resources

import numpy as np
import pytest
from helpers import lively_model, small_model
from serving_world import Doing, only_version, running, tiny_translator
from starlette.testclient import TestClient

from keras_transformer import Translator
from keras_transformer.documents.linked_texts import word_numbers
from keras_transformer.options import ServingOptions
from keras_transformer.parsing import ParsingTokenizer, linearize, parse_tree, words
from keras_transformer.report.word_attention import pair_attention
from keras_transformer.serving.app import create_app
from keras_transformer.serving.page_routes import FILES
from keras_transformer.serving.servable import ParserServable, TranslatorServable
from keras_transformer.serving.server import Server
from keras_transformer.text.languages import Languages
from keras_transformer.text.plain_text import INVISIBLE
from keras_transformer.translator import Translation

pytestmark = pytest.mark.slow

SENTENCE, OTHER = "The girls sleep.", "He will not buy a small lamp."
OPTIONS = {"n_best": 3, "alpha": 0.0}
GERMAN = "Die Mädchen schlafen."
TREE = "(S (NP (DT The) (NNS dogs)) (VP (VBP chase) (NP (NNS cats))) (. .))"
HOSTILE = (
    """<img src=x onerror="alert('1')"></textarea><script>alert(2)</script> & ${3} \\' \u202e"""
)
NLLB = Languages({f"{code}_Latn": f"<{code}>" for code in ("deu", "eng", "fra")}, in_target=True)
LIMITS = ServingOptions(max_characters=300, max_body_bytes=2000)


class Fixed(Doing):
    """A model whose search is fixed: it reverses texts."""

    engine = "saved_model"

    def translate_n(self, texts, options=None):
        rows = self.predict("serving_default", [(text,) for text in texts])
        return [[Translation(row["translation"], row["score"])] for row in rows]


class Known(TranslatorServable):
    """A model that translates all texts alike, with its own attention."""

    def translate_n(self, texts, options=None):
        return [[Translation(GERMAN, -1.0)] for _ in texts]


class AnyPair(Doing):
    """A model for pairs of languages: its translations name the pair."""

    languages, pair = NLLB, None

    def in_languages(self, target_lang, source_lang):
        directed = AnyPair()
        directed.pair = f"{source_lang} {target_lang}"
        return directed

    def translate_n(self, texts, options=None):
        return [[Translation(f"{self.pair}: {text}", -1.0)] for text in texts]


@pytest.fixture(scope="module")
def multilingual():
    """A translator into German and French."""
    tokenizer = tiny_translator().tokenizer.with_languages(["de", "fr"])
    return Translator(lively_model(1, tokenizer.vocab_size), tokenizer, extra_length=5)


@pytest.fixture(scope="module")
def translator():
    return tiny_translator(beam_size=4)


@pytest.fixture(scope="module")
def parser():
    tree = parse_tree(TREE)
    pairs = [(" ".join(words(tree)), linearize(tree))]
    tokenizer = ParsingTokenizer.learn(pairs, vocab_size=60)
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = small_model(vocab_size=tokenizer.vocab_size, **layers)
    return Translator(model, tokenizer, beam_size=2)


@pytest.fixture(scope="module")
def server(translator, parser, multilingual):
    servables = {
        "en-de": TranslatorServable(translator),
        "parser": ParserServable(parser),
        "turned": Fixed(),
        "known": Known(translator),
        "en-many": TranslatorServable(multilingual),
        "any-pair": AnyPair(),
    }
    server = Server([only_version(*item) for item in servables.items()], LIMITS)
    yield server
    server.batcher.close()


@pytest.fixture(scope="module")
def three_best(translator):
    """The translations of both sentences with `OPTIONS`."""
    options = dataclasses.replace(translator.options, **OPTIONS)
    return translator.with_options(options).translate_n([SENTENCE, OTHER])


# Requests of the page.


@pytest.fixture(scope="module")
def client(server):
    return TestClient(create_app(server))


def test_the_models_are_described(client):
    translator, parser, turned, _, german_or_french, any_pair = client.get("/api/models").json()
    assert translator == {
        "name": "en-de",
        "task": "translation",
        "engine": "tensorflow",
        "versions": [1],
        "options": {
            "beam_size": 4,
            "n_best": 1,
            "alpha": 1.0,
            "min_length": 1,
            "max_length": None,
            "extra_length": 5,
            "no_repeat_ngram": 0,
        },
        "attention": True,
        "languages": None,
    }
    assert (parser["task"], parser["attention"]) == ("parsing", False)
    assert (turned["engine"], turned["options"]) == ("saved_model", None)
    assert german_or_french["languages"] == {"codes": ["de", "fr"], "has_source": False}
    assert any_pair["languages"] == {"codes": [*NLLB.symbols], "has_source": True}


def asked(client, verb, body, name="en-de", status=200):
    response = client.post(f"/api/models/{name}:{verb}", json=body)
    assert response.status_code == status, response.text
    return response.json()


def test_translations_are_the_translators_with_scores(client, three_best):
    found = asked(client, "translate", {"text": [SENTENCE, OTHER], "options": OPTIONS})
    for some, expected in zip(found["translations"], three_best, strict=True):
        assert [one["text"] for one in some] == [one.text for one in expected]
        scores = [one["score"] for one in some]
        np.testing.assert_allclose(scores, [one.score for one in expected], rtol=1e-5)


def test_a_request_may_ask_for_the_search_of_the_paper(client, translator):
    paper = {"length_penalty": "gnmt", "patience": None}
    found = asked(client, "translate", {"text": [SENTENCE, OTHER], "options": paper})
    options = dataclasses.replace(translator.options, **paper)
    expected = translator.with_options(options).translate_n([SENTENCE, OTHER])
    assert [[tuple(one.values()) for one in some] for some in found["translations"]] == [
        [(text, pytest.approx(score, rel=1e-4)) for text, score in some] for some in expected
    ]


PARAGRAPH = f"- {SENTENCE}  {OTHER}"


def test_a_text_may_be_split_into_sentences(client, three_best):
    body = {"text": [PARAGRAPH, " \n"], "options": OPTIONS, "split": "sentences"}
    found = asked(client, "translate", body)
    assert found["sources"] == [
        {"sentences": [SENTENCE, OTHER], "gaps": ["- ", "  ", ""]},
        {"sentences": [], "gaps": [" \n"]},
    ]
    paragraph, blank = found["translations"]
    first, second = ([one.text for one in some] for some in three_best)
    best = paragraph[0]
    assert best["text"] == f"- {first[0]}  {second[0]}"
    assert best["sentences"] == [first[0], second[0]]
    assert best["score"] == pytest.approx(sum(some[0].score for some in three_best), rel=1e-4)
    assert len(paragraph) == 3
    assert blank == [{"text": " \n", "score": 0.0, "sentences": []}]


def test_a_text_is_a_sentence_unless_it_is_to_be_split(client):
    [[best]] = asked(client, "translate", {"text": [PARAGRAPH]})["translations"]
    assert asked(client, "translate", {"text": [PARAGRAPH], "split": "none"}) == {
        "translations": [[best]]
    }


def test_limits_count_the_sentences(client, server):
    limited = Server(server.models.values(), dataclasses.replace(LIMITS, max_sentences=2))
    client = TestClient(create_app(limited))
    body = {"text": ["One. Two. Three."], "split": "sentences"}
    message = "a request must have at most 2 sentences: found 3"
    assert asked(client, "translate", body, status=400)["error"] == message
    limited.batcher.close()


def test_a_parser_answers_with_trees(client):
    [[best]] = asked(client, "translate", {"text": ["The dogs chase ."]}, "parser")["translations"]
    assert words(parse_tree(best["text"])) == ["The", "dogs", "chase", "."]


def test_attention_is_the_models_with_the_word_of_each_subword(client, translator):
    found = asked(client, "attention", {"text": SENTENCE, "translation": GERMAN})
    maps = pair_attention(translator.models[0], translator.tokenizer, SENTENCE, GERMAN)
    assert [kind["title"] for kind in found["kinds"]] == [one.title for one in maps.values()]
    weights = np.frombuffer(base64.b64decode(found["kinds"][2]["weights"]), "<u2") / 65535
    np.testing.assert_allclose(weights, maps["memory"].weights.ravel(), atol=1e-4)
    for side, labels, text in (("source", "keys", SENTENCE), ("target", "queries", GERMAN)):
        numbers = found["words"][side]
        spelled = [""] * len(text.split())
        for number, label in zip(numbers, found["kinds"][2][labels], strict=False):
            if number is not None and not label.endswith("2/2"):
                spelled[number] += re.sub("[·▁]|ä 1/2", lambda m: m[0][3:] and "ä", label)
        assert spelled == text.split()


@pytest.mark.parametrize(
    ("verb", "body", "message"),
    [
        ("translate", ["a"], "the body must be an object of text, options, split, target_l"),
        (
            "translate",
            {"text": ["a"], "temperature": 2},
            "the body must be an object of text, options, split, target_l",
        ),
        ("translate", {}, "text must be a list of strings"),
        ("translate", {"text": "a"}, "text must be a list of strings"),
        ("translate", {"text": ["a", 1]}, "text must be a list of strings"),
        ("translate", {"text": ["a"], "options": [1]}, "options must be an object"),
        ("translate", {"text": ["a"], "options": {"n_best": 9}}, "n_best must be in [1, beam_"),
        ("translate", {"text": ["a"], "options": {"beam_size": 1.5}}, "beam_size must be int"),
        ("translate", {"text": ["a"], "options": {"beam_size": 999}}, "beam_size must be at most"),
        ("translate", {"text": ["a"], "split": True}, "split must be none or sentences: found 'T"),
        ("translate", {"text": ["a"], "split": ["a"]}, "split must be none or sentences: found"),
        (
            "translate",
            {"text": ["a" * 301], "split": "sentences"},
            "a text must have at most 300 characters: found 301 at index 0",
        ),
        ("attention", {"text": "a"}, "text and translation must be strings"),
        ("attention", {"text": "a", "translation": ["b"]}, "text and translation must be strings"),
        ("attention", {"text": "", "translation": "b"}, "source must be a sentence of 1 to 400"),
    ],
)
def test_a_request_of_something_else_is_refused_in_one_sentence(client, verb, body, message):
    assert asked(client, verb, body, status=400)["error"].startswith(message)


def test_a_fixed_search_takes_no_options(client):
    body = {"text": ["a"], "options": {"beam_size": 2}}
    assert "fixed" in asked(client, "translate", body, "turned", status=400)["error"]


def test_while_nothing_is_loaded_the_page_is_told_to_come_again(translator):
    loading = only_version("en-de", TranslatorServable(translator))
    loading._current = None
    response = TestClient(create_app(Server([loading]))).get("/api/models")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"


def test_the_page_names_no_other_host_and_runs_no_script_but_its_own(client):
    for path in FILES:
        response = client.get(path)
        assert response.status_code == 200
        policy = response.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        assert not re.search(r"//(?!www\.w3\.org)\w", response.text), path
    named = re.findall('(?:src|href)="(.*?)"', client.get("/").text)
    assert sorted(f"/{name}" for name in named) == sorted(set(FILES) - {"/"})


def test_the_page_comes_without_a_key_and_models_with_one(server):
    client = TestClient(create_app(server, keys=["secret"]))
    assert all(client.get(path).status_code == 200 for path in FILES)
    assert client.get("/api/models").status_code == 401
    known = client.get("/api/models", headers={"Authorization": "Bearer secret"})
    assert known.status_code == 200


# The page in a browser.


@pytest.fixture(scope="module")
def address(server):
    with running(server, LIMITS) as (_, port):
        yield f"http://127.0.0.1:{port}/"


@pytest.fixture
def opened(page, addresses, address):
    page.goto(address)
    page.locator(".panel").wait_for()
    yield page
    assert all(asked_for.startswith(address) for asked_for in addresses)


def choose(page, name):
    page.get_by_label("Model").first.select_option(name)


def type_and_wait(page, text):
    page.locator("#text").fill(text)
    # Waits until the rows are the new ones, and all are answered.
    count = sum(bool(line.strip()) for line in text.split("\n"))
    says = f"{count} lines done." if count > 1 else "Done."
    expect(page.locator("#status")).to_have_text(says)


def expect(locator):
    from playwright.sync_api import expect

    return expect(locator)


def shown(score):
    return f"{score:.2f}".replace("-", "\N{MINUS SIGN}")


def best_of(page):
    """The best translation of each row."""
    return page.locator(".hypothesis:first-child .words").all_inner_texts()


def test_what_is_typed_is_translated_line_by_line(opened, translator):
    type_and_wait(opened, f"{SENTENCE}\n\n  {OTHER}  ")
    assert opened.locator(".source").all_inner_texts() == [SENTENCE, OTHER]
    expected = translator.translate([SENTENCE, OTHER])
    assert best_of(opened) == [one.text for one in expected]
    scores = opened.locator(".aside span").all_inner_texts()
    assert scores == [shown(one.score) for one in expected]


def test_sentences_of_a_line_are_translated_together_and_keep_its_layout(opened, translator):
    type_and_wait(opened, f"A list:\n\n  {PARAGRAPH}\n---")
    first, second = translator([SENTENCE, OTHER])
    assert best_of(opened)[1:] == [f"- {first}  {second}", "---"]
    opened.get_by_role("button", name="Copy text").click()
    copied = opened.get_by_label("copied text").input_value()
    [heading] = translator(["A list:"])
    assert copied == f"{heading}\n\n  - {first}  {second}\n---"


def test_a_line_is_a_sentence_if_the_option_says_so(opened, translator):
    opened.get_by_role("button", name="Options").click()
    opened.get_by_label("Split lines into sentences").uncheck()
    type_and_wait(opened, PARAGRAPH)
    assert best_of(opened) == translator([PARAGRAPH])


def test_only_what_is_new_is_asked_for(opened):
    bodies = []
    opened.on("request", lambda request: bodies.append(request.post_data_json["text"]))
    type_and_wait(opened, SENTENCE)
    type_and_wait(opened, f"{OTHER}\n{SENTENCE}\n{OTHER}")
    assert bodies == [[SENTENCE], [OTHER]]
    assert best_of(opened)[0] == best_of(opened)[2] != best_of(opened)[1]


def test_typing_is_waited_for(page, address):
    page.clock.install(time=0)
    page.goto(address)
    page.locator(".panel").wait_for()
    page.clock.pause_at(3_600_000)
    bodies = []
    page.on("request", lambda request: bodies.append(request.post_data_json["text"]))
    for letters in ("The", "The girls", SENTENCE):
        page.clock.run_for(250)
        page.locator("#text").fill(letters)
    assert not bodies
    page.clock.run_for(1000)
    page.locator(".words").wait_for()
    assert bodies == [[SENTENCE]]


def test_a_request_that_is_overtaken_is_given_up(opened, server):
    turned = server.models["turned"].current[1]
    choose(opened, "turned")
    turned.hold()
    try:
        opened.locator("#text").fill("overtaken")
        turned.wait_until_begun()
        with opened.expect_event("requestfailed") as failed:
            opened.locator("#text").fill("wanted")
        assert failed.value.post_data_json == {"text": ["overtaken"], "split": "sentences"}
    finally:
        turned.go_on()
    expect(opened.locator(".words")).to_have_text("detnaw")


def test_options_change_the_search_of_this_page(opened, three_best):
    type_and_wait(opened, SENTENCE)
    opened.get_by_role("button", name="Options").click()
    opened.get_by_label("N-best").fill("3")
    opened.get_by_label("Length penalty").fill("0")
    expect(opened.locator(".hypothesis")).to_have_count(3)
    scores = opened.locator(".aside span")
    expect(scores).to_have_text([shown(one.score) for one in three_best[0]])
    found = opened.locator(".words").all_inner_texts()
    assert found == [one.text for one in three_best[0]]


def test_options_that_do_not_fit_are_explained_and_can_be_mended(opened):
    type_and_wait(opened, SENTENCE)
    opened.get_by_role("button", name="Options").click()
    opened.get_by_label("N-best").fill("9")
    expect(opened.get_by_role("alert")).to_have_text("n_best must be in [1, beam_size=4]: found 9")
    opened.get_by_label("N-best").fill("1")
    expect(opened.locator(".hypothesis")).to_have_count(1)
    expect(opened.get_by_role("alert")).to_be_hidden()


def test_options_of_a_fixed_search_are_greyed_out(opened):
    choose(opened, "turned")
    opened.get_by_role("button", name="Options").click()
    expect(opened.get_by_label("Beam size")).to_be_disabled()
    expect(opened.locator(".options p")).to_have_text("Fixed when this model was exported.")


@pytest.fixture(scope="module")
def cross(translator):
    """The attention of the translation to the sentence."""
    return pair_attention(translator.models[0], translator.tokenizer, SENTENCE, GERMAN)["memory"]


def test_a_word_that_is_pointed_at_shows_what_it_attends_to(opened, cross):
    choose(opened, "known")
    type_and_wait(opened, SENTENCE)
    opened.locator(".words span").nth(1).hover()
    says = opened.locator("#status")
    expect(says).to_contain_text("looks at")
    subwords = np.flatnonzero(np.array(word_numbers(cross.pieces[:-1], GERMAN)) == 1)
    of_words = cross.weights[0].mean(axis=0)[subwords, :-1].mean(axis=0)
    numbers = np.array(word_numbers(cross.key_pieces[:-1], SENTENCE))
    expected = [of_words[numbers == word].sum() for word in range(len(SENTENCE.split()))]
    shares = opened.locator(".source span").evaluate_all(
        "words => words.map(word => Number(word.style.getPropertyValue('--share')))"
    )
    np.testing.assert_allclose(shares, expected, atol=1e-3)
    strongest = SENTENCE.split()[int(np.argmax(expected))].strip(".")
    said = re.sub("[\u2068\u2069]", "", says.inner_text())
    assert said.startswith(f"“Mädchen” looks at “{strongest}”")


@pytest.mark.parametrize("mark", ["", "\u200f"])
def test_a_word_of_a_paragraph_attends_to_its_sentence(opened, mark):
    """Marks of direction, which no translation has, count for the places in the source alone."""
    choose(opened, "known")
    type_and_wait(opened, f"{mark * 3}{OTHER}{mark} {SENTENCE}")
    words, says = opened.locator(".words span"), opened.locator("#status")
    source = opened.locator(".source span")
    before = len(OTHER.split())
    for word, said, is_first in ((1, "Mädchen", True), (5, "schlafen", False)):
        words.nth(word).hover()
        expect(says).to_contain_text(f"“\u2068{said}\u2069” looks at")
        shares = source.evaluate_all(
            "words => words.map(word => Number(word.style.getPropertyValue('--share')))"
        )
        assert (sum(shares[:before]) > 0.5) == is_first
        assert (sum(shares[before:]) > 0.5) != is_first


def test_attention_opens_from_the_keyboard(opened, cross):
    choose(opened, "known")
    type_and_wait(opened, SENTENCE)
    words = opened.locator(".words span")
    words.first.focus()
    opened.keyboard.press("ArrowRight")
    expect(words.nth(1)).to_be_focused()
    expect(opened.locator("#status")).to_contain_text("“\u2068Mädchen\u2069” looks at")
    opened.keyboard.press("Tab")
    opened.keyboard.press("Enter")
    expect(opened.get_by_label("encoder-decoder attention")).to_be_checked()
    assert opened.locator(".queries bdi").all_inner_texts() == cross.queries
    expect(opened.locator(".drawing line")).to_have_count(int((cross.weights >= 0.02).sum()))
    opened.keyboard.press("Enter")
    expect(opened.locator(".drawing")).to_have_count(0)


def test_a_parser_shows_its_tree(opened):
    choose(opened, "parser")
    type_and_wait(opened, "The dogs chase cats .")
    opened.locator(".brackets summary").click()
    brackets = opened.locator(".brackets code").inner_text()
    tree = opened.get_by_role("img", name=brackets)
    drawn = tree.locator("text").all_text_contents()
    assert sorted(drawn) == sorted(re.findall(r"[^\s()]+", brackets))
    at = [
        float(x)
        for x in tree.locator("text:not([class])").evaluate_all(
            "leaves => leaves.map(leaf => leaf.getAttribute('x'))"
        )
    ]
    assert at == sorted(at) and len(at) == 5


def test_a_tree_is_split_at_plain_blanks_alone(opened):
    tree = "(S (NNS Dogs) (SYM \ufeff) (VBP bark) (. .))"
    found = opened.evaluate("text => readTree(text).map(node => node.word)", tree)
    assert [word for word in found if word] == words(parse_tree(tree))


def language(page, name):
    return page.get_by_role("combobox", name=name, exact=True)


def test_the_target_language_is_chosen_from_a_list(opened, multilingual):
    choose(opened, "en-many")
    expect(language(opened, "From")).to_have_count(0)
    type_and_wait(opened, SENTENCE)
    into = {code: multilingual.with_languages(code)([SENTENCE])[0] for code in ("de", "fr")}
    expect(opened.locator(".words")).to_have_text(into["de"])
    language(opened, "To").select_option("fr")
    expect(opened.locator(".words")).to_have_text(into["fr"])
    opened.locator(".words span").first.hover()
    expect(opened.locator("#status")).to_contain_text("looks at")


def test_both_languages_are_chosen_from_lists(opened):
    choose(opened, "any-pair")
    type_and_wait(opened, SENTENCE)
    expect(opened.locator(".words")).to_have_text(f"eng_Latn deu_Latn: {SENTENCE}")
    language(opened, "From").select_option("fra_Latn")
    language(opened, "To").select_option("eng_Latn")
    expect(opened.locator(".words")).to_have_text(f"fra_Latn eng_Latn: {SENTENCE}")


def test_placeholders_are_copied(opened):
    type_and_wait(opened, "The girls sleep, {name}.")
    assert best_of(opened)[0].count("{name}") == 1


def test_two_models_are_compared_side_by_side(opened, translator):
    opened.get_by_role("button", name="Compare").click()
    opened.get_by_label("Model").nth(1).select_option("turned")
    type_and_wait(opened, SENTENCE)
    first, second = opened.locator(".cell").all()
    [expected] = translator([SENTENCE])
    assert first.locator(".words").inner_text() == expected
    assert second.locator(".words").inner_text() == SENTENCE[::-1]
    assert first.bounding_box()["y"] == second.bounding_box()["y"]
    opened.get_by_role("button", name="Stop comparing").click()
    expect(opened.locator(".cell")).to_have_count(1)


def test_what_is_copied_as_curl_gives_what_the_page_shows(opened):
    choose(opened, "turned")
    type_and_wait(opened, f'{HOSTILE}\nIt\'s "quoted" $HOME')
    opened.get_by_role("button", name="Copy as curl").click()
    shown = opened.get_by_label("curl command")
    expect(shown).to_be_focused()
    as_shell_reads_it = 'curl() { printf "%s\\0" "$@"; }\n' + shown.input_value()
    command = subprocess.run(["sh", "-c", as_shell_reads_it], capture_output=True, check=True)
    url, _, header, _, body, _ = command.stdout.decode().split("\0")
    name, _, value = header.partition(": ")
    with urllib.request.urlopen(
        urllib.request.Request(url, body.encode(), {name: value}), timeout=120
    ) as response:
        answer = json.load(response)
    texts = [one["text"] for [one] in answer["translations"]]
    shown = [" ".join(text.split()) for text in best_of(opened)]
    assert [" ".join(text.split()) for text in texts] == shown


def test_hostile_text_stays_text(opened):
    choose(opened, "turned")
    type_and_wait(opened, f"{HOSTILE}\n{HOSTILE[::-1]}")
    assert opened.locator(".source").all_text_contents() == [HOSTILE, HOSTILE[::-1]]
    # A mark of direction is nothing; the space beside it stays where it is.
    seen = HOSTILE.removesuffix(" \u202e")
    assert opened.locator(".words").all_text_contents() == [f"{seen[::-1]} ", f" {seen}"]
    assert opened.locator("main img, main script").count() == 0


def test_text_from_right_to_left_is_set_so(opened):
    choose(opened, "turned")
    type_and_wait(opened, "שלום עולם")
    directions = opened.locator(".source, .words").evaluate_all(
        "lines => lines.map(line => getComputedStyle(line).direction)"
    )
    assert directions == ["rtl", "rtl"]


def test_more_lines_than_a_page_can_show_are_left_out(opened):
    choose(opened, "turned")
    opened.locator("#text").fill("\n".join(str(number) for number in range(1000, 1300)))
    expect(opened.locator("#status")).to_contain_text("The first 200 lines")
    assert opened.locator(".source").count() == 200


# Errors of the server.


def refused_once(page, status, **answer):
    """Answers the next translation in this way; the server answers later ones."""
    page.route("**/*:translate", lambda route: route.fulfill(status=status, **answer), times=1)


def test_limits_of_the_server_are_one_sentence(opened):
    for letters, message in (
        (400, "a text must have at most 300 characters: found 400"),
        (4000, "the body is larger than the limit of 2000 bytes"),
    ):
        opened.locator("#text").fill("a" * letters)
        expect(opened.get_by_role("alert")).to_have_text(message)
    type_and_wait(opened, SENTENCE)
    expect(opened.get_by_role("alert")).to_be_hidden()


def test_a_sentence_that_is_refused_keeps_no_other_from_its_translation(opened, translator):
    opened.locator("#text").fill(f"{SENTENCE}\n{'a' * 400}\n{OTHER}")
    refused = opened.locator("#rows > li").nth(1).get_by_role("alert")
    expect(refused).to_contain_text("a text must have at most 300 characters")
    expect(opened.locator(".words")).to_have_text(translator([SENTENCE, OTHER]))


def test_a_busy_server_is_asked_again(opened):
    refused_once(opened, 429, json={"error": "full"}, headers={"Retry-After": "1"})
    opened.locator("#text").fill(SENTENCE)
    expect(opened.get_by_role("alert")).to_have_text("The server is busy. Trying again …")
    expect(opened.locator("#status")).to_have_text("Done.")
    expect(opened.get_by_role("alert")).to_be_hidden()


def test_a_server_that_is_down_is_asked_again(opened):
    opened.route("**/*:translate", lambda route: route.abort(), times=1)
    opened.locator("#text").fill(SENTENCE)
    expect(opened.get_by_role("alert")).to_have_text("The server does not answer. Trying again …")
    expect(opened.locator("#status")).to_have_text("Done.")
    expect(opened.get_by_role("alert")).to_be_hidden()


def test_an_answer_that_is_no_json_is_an_error_too(opened):
    refused_once(opened, 502, body="<h1>Bad gateway</h1>")
    opened.locator("#text").fill(SENTENCE)
    expect(opened.get_by_role("alert")).to_have_text("The server answered with status 502.")


def test_a_key_is_asked_for(page, server):
    with running(server, LIMITS, keys=["secret"]) as (_, port):
        page.goto(f"http://127.0.0.1:{port}/")
        says, key = page.locator("#status"), page.get_by_label("API key")
        expect(says).to_have_text("This server asks for an API key.")
        expect(key).to_be_focused()
        key.fill("wrong")
        key.press("Enter")
        expect(says).to_have_text("The server does not know this API key.")
        key.fill("secret")
        key.press("Enter")
        expect(key).to_be_hidden()
        type_and_wait(page, SENTENCE)
        page.get_by_role("button", name="Copy as curl").click()
        command = page.get_by_label("curl command").input_value()
        assert "$API_KEY" in command and "secret" not in command


# Appearance.


def test_a_narrow_page_does_not_scroll_sideways(opened):
    opened.set_viewport_size({"width": 360, "height": 640})
    choose(opened, "known")
    opened.get_by_role("button", name="Compare").click()
    opened.get_by_label("Model").nth(1).select_option("parser")
    type_and_wait(opened, f"{SENTENCE}\n{'a' * 60}\nThe dogs chase cats .")
    opened.get_by_role("button", name="Options").first.click()
    opened.get_by_role("button", name="Copy as curl").first.click()
    opened.get_by_role("button", name="attention").first.click()
    opened.locator(".drawing").wait_for()
    expect(opened.locator(".tree svg")).to_have_count(3)
    assert opened.evaluate("document.documentElement.scrollWidth") == 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_the_page(opened, scheme):
    opened.emulate_media(color_scheme=scheme)
    opened.locator("#text").fill("a" * 4000)
    expect(opened.get_by_role("alert")).to_be_visible()
    ground = luminance(colour_of(opened, "body", "backgroundColor"))
    assert (ground < 0.1) == (scheme == "dark")
    for text in ("#text", "#status", ".cell .failure", ".name", ".about", ".source"):
        lighter, darker = sorted([ground, luminance(colour_of(opened, text, "color"))])[::-1]
        assert (lighter + 0.05) / (darker + 0.05) >= 4.5, text


def colour_of(page, selector, name):
    script = f"element => getComputedStyle(element).{name}"
    return [int(part) for part in re.findall(r"\d+", page.locator(selector).evaluate(script))]


def luminance(colour):
    """The contrast of WCAG 2, which requires 4.5 between text and background."""
    parts = [part / 255 for part in colour[:3]]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


def test_the_page_leaves_out_the_marks_that_nobody_sees():
    script = resources.files("keras_transformer.serving").joinpath("page/page.js").read_text()
    in_page = re.search(r"DIRECTION_MARKS = /(\[.*?\])/g", script)[1]
    characters = "".join(map(chr, range(0x10000)))
    assert re.findall(in_page, characters) == re.findall(INVISIBLE, characters)
