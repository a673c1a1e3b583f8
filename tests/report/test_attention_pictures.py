"""Pictures of attention: they show what the model computes, and no text can break them."""

import base64
import html.parser
import json
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from command_lines import refused, run
from helpers import lively_model, small_model
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.ft2font import FT2Font

from keras_transformer import InverseSquareRootSchedule
from keras_transformer.attention_maps import attention_maps
from keras_transformer.cli import visualize
from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.layers import LearnedPositions, PositionalEncoding
from keras_transformer.report.attention_figures import (
    grid_figure,
    head_colours,
    heat_figure,
    line_figure,
)
from keras_transformer.report.attention_page import attention_page
from keras_transformer.report.fonts import fonts_for
from keras_transformer.report.paper_figures import positions_figure, schedule_figure
from keras_transformer.report.word_attention import WordAttention, pair_attention, readable
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir, TrainingOptions
from keras_transformer.translator import Translator

SOURCE, TARGET = "The girls sleep.", "Die Mädchen schlafen."
HOSTILE = 'He said "$x^2$" & </script><script>alert(1)</script><!-- שלום 😀 \\frac{{ATTENTION}} 你'


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 1000).sentences(), 600)


@pytest.fixture(scope="module")
def model(tokenizer):
    return lively_model(seed=1, vocab_size=tokenizer.vocab_size)


@pytest.fixture(scope="module")
def maps(model, tokenizer):
    return pair_attention(model, tokenizer, SOURCE, TARGET)


@pytest.fixture(scope="module")
def hostile(model, tokenizer):
    return pair_attention(model, tokenizer, HOSTILE, HOSTILE)


# Words and weights.


def test_words_are_those_of_the_sentences(maps):
    for side, sentence in (("keys", SOURCE), ("queries", TARGET)):
        labels = getattr(maps["memory"], side)
        words = "".join(label[1:] if label[0] == "·" else f" {label}" for label in labels[:-1])
        assert words.replace("▁", "").replace(" .", ".").strip() == sentence
        assert labels[-1] == "</s>"
    assert maps["encoder"].queries == maps["encoder"].keys == maps["memory"].keys
    # The decoder reads a word one step after predicting it.
    assert maps["decoder"].queries == ["<s>", *maps["memory"].queries[:-1]]


def test_weights_are_the_models_and_sum_to_one(maps, model, tokenizer):
    source = [*tokenizer.tokenize([SOURCE]).to_list()[0], 2]
    target = [1, *tokenizer.tokenize_target([TARGET]).to_list()[0]]
    padded = attention_maps(model, [source + [0] * 3], [target])
    for name, layers in padded._asdict().items():
        attention = maps[name]
        shape = len(layers), 2, len(attention.queries), len(attention.keys)
        assert attention.weights.shape == shape
        np.testing.assert_allclose(attention.weights.sum(-1), 1, rtol=1e-5)
        for weights, layer in zip(attention.weights, layers, strict=True):
            expected = np.array(layer)[0, :, : shape[2], : shape[3]]
            np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_subwords_and_bytes_are_readable():
    pieces = ["▁rid", "ing", "▁", "<0xF0>", "<0x9F>", "<0x98>", "<0x80>", "<0x3C>", ".", "</s>"]
    bytes_ = ["😀 1/4", "😀 2/4", "😀 3/4", "😀 4/4", "<"]
    assert readable(pieces) == ["rid", "·ing", "▁", *bytes_, ".", "</s>"]
    assert readable(["▁फ़ाइल", "ों", "।"]) == ["फ़ाइल", "·ों", "।"]


def test_bytes_that_spell_nothing_stay_as_they_are():
    pieces = ["<0xC3>", "<0xC3>", "<0xA9>", "<0x0A>", "<0xFF>"]
    assert readable(pieces) == ["<0xC3>", "é 1/2", "é 2/2", "<0x0A>", "<0xFF>"]


# Two horses, or a riding café-owner's été rid हिन्दी हि. .
WORDS = ["▁T wo ▁h or ses , ▁or ▁a ▁rid ing ▁caf <0xC3> <0xA9> - owner ' s"]
WORDS += ["▁ <0xC3> <0xA9> t <0xC3> <0xA9> ▁rid ▁हि न्दी ▁हि . ▁. </s>"]
SENTENCE = " ".join(WORDS).split()


@pytest.mark.parametrize(
    ("word", "pieces"),
    [
        ("or", ["▁or"]),
        ("horses", ["▁h", "or", "ses"]),
        ("riding", ["▁rid", "ing"]),
        ("rid", ["▁rid"]),
        ("café", ["▁caf", "<0xC3>", "<0xA9>"]),
        ("café-owner", ["▁caf", "<0xC3>", "<0xA9>", "-", "owner"]),
        ("owner's", ["owner", "'", "s"]),
        ("été", ["<0xC3>", "<0xA9>", "t", "<0xC3>", "<0xA9>"]),
        (",", [","]),
        (".", ["."]),
        ("a riding", ["▁a", "▁rid", "ing"]),
        ("हिन्दी", ["▁हि", "न्दी"]),
        ("हि", ["▁हि"]),
        ("</s>", ["</s>"]),
    ],
)
def test_a_word_is_found_as_a_whole_with_all_its_subwords(word, pieces):
    labels = readable(SENTENCE)
    attention = WordAttention(
        "encoder self-attention", labels, labels, np.zeros(0), SENTENCE, SENTENCE
    )
    found = attention.find(word)
    assert [SENTENCE[position] for position in found] == pieces
    assert found == list(range(found[0], found[-1] + 1))
    if word in ("rid", "हि"):  # not the one within "riding" or "हिन्दी"
        assert found[0] > SENTENCE.index("ing" if word == "rid" else "न्दी")


@pytest.mark.parametrize(
    "word", ["cow", "ors", "wo", "é", "ca", "caf", "tw", "S", "/s", "हिन", "", " ", "*"]
)
def test_a_word_that_is_not_there_is_refused(word):
    labels = readable(SENTENCE)
    attention = WordAttention(
        "encoder self-attention", labels, labels, np.zeros(0), SENTENCE, SENTENCE
    )
    with pytest.raises(UserError, match=re.escape("among T ·wo h ·or ·ses , or a")) as error:
        attention.find(word)
    assert str(error.value).endswith(f"found {word!r}")


@pytest.mark.parametrize("sentence", ["", "  ", "house " * 500])
def test_sentences_that_cannot_be_drawn_are_refused(model, tokenizer, sentence):
    with pytest.raises(UserError, match=r"^target must be a sentence of 1 to 400 tokens: found"):
        pair_attention(model, tokenizer, SOURCE, sentence)


# Pictures.


def lines(figure):
    [collection] = [c for c in figure.axes[0].collections if isinstance(c, LineCollection)]
    return collection.get_segments(), collection.get_colors()


def test_a_line_for_each_weight_as_opaque_as_it_is_great(maps):
    attention, colours = maps["memory"], head_colours(2)
    segments, rgba = lines(line_figure(attention, layer=0))
    drawn = sorted((*colour[:3].round(3), colour[3]) for colour in rgba)
    expected = sorted(
        (*np.round(to_rgb(colours[head]), 3), weight)
        for head, weights in enumerate(attention.weights[0])
        for weight in weights.ravel()
        if weight >= 0.02
    )
    np.testing.assert_allclose(drawn, expected, atol=1e-3)
    assert len(segments) == len(drawn)


def test_lines_of_one_word_and_one_head(maps):
    attention = maps["encoder"]
    segments, rgba = lines(line_figure(attention, layer=0, heads=[1], words=[2]))
    expected = np.sort(attention.weights[0, 1, 2])
    np.testing.assert_allclose(rgba[:, 3], expected[expected >= 0.02], rtol=1e-5)
    starts = {tuple(start) for start, _ in segments}
    assert len(starts) == 1


@pytest.mark.parametrize("figure", [line_figure, heat_figure])
@pytest.mark.parametrize(
    ("heads", "title"),
    [
        ([0, 0], "head 1"),
        ([1, 1, 0, 1], "all heads"),
        ([0], "head 1"),
        (None, "all heads"),
    ],
)
def test_a_head_that_is_named_twice_is_drawn_once(maps, figure, heads, title):
    page = figure(maps["memory"], 0, heads).axes[0]
    assert page.texts[0].get_text().removesuffix(title).endswith((", ", ", mean of "))
    once = figure(maps["memory"], 0, heads and sorted(set(heads))).axes[-1]
    twice = figure(maps["memory"], 0, heads).axes[-1]
    assert len(twice.collections) == len(once.collections)
    assert len(twice.patches) == len(once.patches)


def words_drawn(figure):
    """Each text inside the axes, with its box in pixels."""
    FigureCanvasAgg(figure).draw()
    return [(text.get_text(), text.get_window_extent()) for text in figure.axes[0].texts]


@pytest.mark.slow
@pytest.mark.parametrize("words", [None, [3]])
def test_words_neither_overlap_nor_leave_the_page(maps, words):
    long = [f"{word}{'n' * (place % 23)}" for place, word in enumerate(["längste"] * 60)]
    weights = np.full((1, 16, 60, 60), 1 / 60)
    attention = WordAttention("encoder self-attention", long, long, weights, long, long)
    for drawn in (attention, maps["memory"]):
        figure = line_figure(drawn, layer=0, words=words)
        texts = words_drawn(figure)
        assert [text for text, _ in texts][-len(drawn.keys) :] == drawn.keys
        page = figure.bbox
        for i, (text, box) in enumerate(texts):
            assert page.x0 <= box.x0 and box.x1 <= page.x1, text
            assert page.y0 <= box.y0 and box.y1 <= page.y1, text
            assert not any(box.overlaps(other) for _, other in texts[i + 1 :]), text


def test_the_heat_map_is_the_mean_of_the_heads(maps):
    attention = maps["memory"]
    plot = heat_figure(attention, layer=0, heads=[0, 1]).axes[1]
    np.testing.assert_allclose(plot.images[0].get_array(), attention.weights[0].mean(0), rtol=1e-6)
    assert [label.get_text() for label in plot.get_xticklabels()] == attention.keys
    assert [label.get_text() for label in plot.get_yticklabels()] == attention.queries


def test_the_grid_has_every_head_of_every_layer(maps):
    attention = maps["memory"]
    plots = grid_figure(attention).axes[:-1]  # the last is the colour bar
    weights = attention.weights.reshape(-1, *attention.weights.shape[2:])
    for plot, expected in zip(plots, weights, strict=True):
        np.testing.assert_array_equal(plot.images[0].get_array(), expected)


@pytest.mark.parametrize("words", [["$$", "$_$"], ["\\$", "$ $"]])
def test_dollar_signs_are_text(words):
    attention = WordAttention("memory", words, words, np.full((1, 1, 2, 2), 0.5), words, words)
    for figure in (heat_figure(attention, 0), line_figure(attention, 0), grid_figure(attention)):
        FigureCanvasAgg(figure).draw()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph")
def test_hostile_text_is_drawn(hostile, tmp_path):
    attention = hostile["memory"]
    figures = line_figure(attention, 0, words=[1]), heat_figure(attention, 0)
    for figure in (*figures, grid_figure(attention)):
        figure.savefig(tmp_path / "drawn.svg")
    assert "$" in [text for text, _ in words_drawn(line_figure(hostile["encoder"], 0))]


def test_a_letter_is_drawn_by_the_installed_font_that_has_it():
    default = FT2Font(font_manager.findfont("DejaVu Sans")).get_charmap()
    stix = FT2Font(font_manager.findfont("STIXGeneral")).get_charmap()
    character = chr(min(stix.keys() - default.keys()))
    families, missing = fonts_for(f"a {character}")
    assert not missing and len(families) == 2
    attention = WordAttention(
        "memory", [character, "a"], ["b", "c"], np.ones((1, 1, 2, 2)) / 2, [], []
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for figure in (heat_figure(attention, 0), line_figure(attention, 0)):
            FigureCanvasAgg(figure).draw()
    assert fonts_for("a \U0010fffe")[1] == "\U0010fffe"


def test_each_head_has_a_colour_of_its_own():
    assert len(set(head_colours(32))) == 32
    assert all(re.fullmatch("#[0-9a-f]{6}", colour) for colour in head_colours(32))


@pytest.mark.parametrize("layer", [PositionalEncoding(8), LearnedPositions(8, max_length=30)])
def test_the_positional_encoding_is_what_the_layer_adds(layer):
    encoding, alike = positions_figure(layer, length=20).axes[:2]
    np.testing.assert_allclose(encoding.images[0].get_array(), layer(np.zeros((1, 20, 8)))[0])
    np.testing.assert_allclose(np.diag(alike.images[0].get_array()), 1, rtol=1e-5)


def test_the_schedule_is_drawn_from_the_first_update_on():
    figure = schedule_figure({"base": InverseSquareRootSchedule(512)}, steps=10_000)
    [curve] = figure.axes[0].lines
    rates = dict(zip(*curve.get_data(), strict=True))
    assert rates[1] == pytest.approx(512**-0.5 * 4000**-1.5)
    assert rates[10_000] == pytest.approx(512**-0.5 * 10_000**-0.5)


def test_a_schedule_may_have_any_name():
    names = ["base", "_mine", "$_$", ""]
    figure = schedule_figure(dict.fromkeys(names, InverseSquareRootSchedule(512)), steps=10)
    FigureCanvasAgg(figure).draw()
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == names


def test_the_options_of_training_have_the_schedule():
    schedule_of = InverseSquareRootSchedule.from_options
    assert float(schedule_of(TrainingOptions(warmup_steps=10), 16)(9)) == pytest.approx(160**-0.5)
    given = schedule_of(TrainingOptions(warmup_steps=10, learning_rate=0.5), 16)
    assert float(given(9)) == pytest.approx(0.5)


# The page.


class Scripts(html.parser.HTMLParser):
    """The scripts of a page, and all addresses that it names."""

    def __init__(self, page):
        super().__init__()
        self.found, self.addresses = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "script":
            self.found.append("")
        self.addresses += [value for name, value in attributes if name in ("src", "href")]

    def handle_data(self, data):
        if self.lasttag == "script":
            self.found[-1] += data


def test_the_page_holds_all_weights_and_needs_nothing_else(maps, hostile):
    for shown in (maps, hostile):
        page = attention_page(shown)
        scripts = Scripts(page)
        data, _ = scripts.found
        assert not scripts.addresses
        assert "http://" not in page.replace("http://www.w3.org", "") and "https://" not in page
        assert "url(" not in page and "@import" not in page
        for kind, attention in zip(json.loads(data)["kinds"], shown.values(), strict=True):
            assert kind["queries"] == attention.queries
            assert kind["keys"] == attention.keys
            weights = np.frombuffer(base64.b64decode(kind["weights"]), "<u2") / 65535
            np.testing.assert_allclose(weights, attention.weights.ravel(), atol=1e-5)


@pytest.fixture
def opened(page, addresses, tmp_path):
    """Opens the page of some maps from a file."""
    path = tmp_path / "attention.html"

    def open_page(maps):
        path.write_text(attention_page(maps), encoding="utf-8")
        page.goto(f"file://{path}")
        return page

    yield open_page
    assert set(addresses) == {f"file://{path}"}


def opacities(page):
    lines = page.locator(".drawing line").all()
    return sorted(float(line.get_attribute("stroke-opacity")) for line in lines)


def test_in_a_browser_a_word_shows_what_it_looks_at(opened, maps):
    page = opened(maps)
    page.get_by_text("encoder-decoder attention").click()
    attention = maps["memory"]
    assert page.locator(".queries bdi").all_inner_texts() == attention.queries
    page.locator(".queries li").nth(1).hover()
    weights = attention.weights[0, :, 1]
    np.testing.assert_allclose(opacities(page), np.sort(weights[weights >= 0.02]), atol=1e-3)
    mean = weights.mean(axis=0)
    best = attention.keys[int(mean.argmax())]
    said = re.sub("[\u2068\u2069]", "", page.locator(".says").inner_text())
    assert said.startswith(f"{attention.queries[1]} looks at {best} ")
    assert said.endswith("(mean of 2 heads)")


def test_in_a_browser_a_word_shows_what_looks_at_it(opened, maps):
    page = opened(maps)
    page.locator(".keys li").nth(2).click()
    page.mouse.move(0, 0)
    weights = maps["encoder"].weights[0, :, :, 2]
    np.testing.assert_allclose(opacities(page), np.sort(weights[weights >= 0.02]), atol=1e-3)
    page.locator(".keys li").nth(2).press("Escape")
    page.locator(".keys li").nth(2).blur()
    assert len(opacities(page)) == (maps["encoder"].weights[0] >= 0.02).sum()


def test_in_a_browser_heads_and_layers_are_chosen(opened, maps):
    page = opened(maps)
    page.locator(".heads label").nth(0).click()
    weights = maps["encoder"].weights[0, 1]
    np.testing.assert_allclose(opacities(page), np.sort(weights[weights >= 0.02]), atol=1e-3)
    page.get_by_text("none", exact=True).click()
    assert opacities(page) == []
    page.get_by_text("all", exact=True).click()
    assert len(opacities(page)) == (maps["encoder"].weights[0] >= 0.02).sum()
    deeper = {
        name: attention._replace(weights=np.concatenate([attention.weights[:, ::-1]] * 3))
        for name, attention in maps.items()
    }
    deeper["encoder"].weights[2] = np.eye(len(maps["encoder"].keys))
    page = opened(deeper)
    assert page.locator(".layers :checked").count() == 1
    page.locator(".layers label").nth(2).click()
    assert opacities(page) == [1.0] * 2 * len(maps["encoder"].keys)


def test_in_a_browser_hostile_text_is_text(opened, hostile):
    page = opened(hostile)
    assert page.locator(".queries bdi").all_inner_texts() == hostile["encoder"].queries
    assert page.locator("script").count() == 2


# The command line.


@pytest.fixture(scope="module")
def model_dir(model, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "lively"
    ModelDir(folder).create_trained(model, tokenizer, target_lang=None, command="")
    return folder


@pytest.mark.slow
def test_visualize_draws_every_attention_and_writes_over_nothing(model_dir, tmp_path, capsys):
    options = {"model_dir": model_dir, "average": 1, "source": SOURCE, "output": tmp_path / "new"}
    run("visualize", **options)
    pictures = [f"{a}-{k}.png" for a in ("encoder", "decoder", "memory") for k in KINDS]
    files = {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    assert sorted(files) == sorted(["attention.html", *pictures])
    assert all(files[name].startswith(b"\x89PNG") for name in pictures)
    printed = capsys.readouterr().out
    assert f"source  {SOURCE}\ntarget  " in printed
    assert str(tmp_path / "new" / "memory-grid.png") in printed
    message = refused("visualize", **options, kind="grid")
    assert message.endswith("encoder-grid.png exists already: --overwrite replaces it")
    assert files == {path.name: path.read_bytes() for path in (tmp_path / "new").iterdir()}
    run("visualize", **options, kind="html", target="Ja", overwrite=True)
    page = (tmp_path / "new" / "attention.html").read_text()
    words = json.loads(Scripts(page).found[0])["kinds"][2]["queries"]
    assert re.sub("[▁·]", "", "".join(words)) == "Ja</s>"


KINDS = ("lines", "heatmap", "grid")


def test_characters_without_a_font_are_named_below_their_figure(tmp_path, monkeypatch, capsys):
    class Figure:
        def savefig(self, path, **options):
            path.touch()
            warnings.warn("Glyph 35486 (CJK) missing from font(s) DejaVu Sans.", stacklevel=1)

    monkeypatch.setattr(visualize, "FLAGS", SimpleNamespace(format="png"))
    visualize.save(Figure(), tmp_path / "a.png")
    note = "  (no font on this machine has 語: install one, such as Noto Sans CJK)"
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "a.png"), note]


def test_visualize_takes_the_weights_that_it_is_asked_for(model_dir, tmp_path):
    message = refused(
        "visualize", model_dir=model_dir, kind="positions", weights="best", output=tmp_path
    )
    assert message.startswith(f"{model_dir} has no best checkpoint: ")


def test_a_model_without_self_attention_has_pictures_of_its_cross_attention(tokenizer, tmp_path):
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "layer_type": "recurrent"}
    model = small_model(vocab_size=tokenizer.vocab_size, **layers)
    ModelDir(tmp_path / "run").create_trained(model, tokenizer, target_lang=None, command="")
    options = {"model_dir": tmp_path / "run", "source": "Yes", "target": "Ja"}
    options["output"] = tmp_path / "new"
    message = refused("visualize", **options, kind="grid,html")
    assert message == (
        "--attention=encoder needs self-attention, which a model of layer_type=recurrent does not "
        "have: use --attention=memory"
    )
    run("visualize", **options, kind="html")
    [kind] = json.loads(Scripts((tmp_path / "new" / "attention.html").read_text()).found[0])[
        "kinds"
    ]
    assert kind["title"] == "encoder-decoder attention"


def test_visualize_draws_a_recipe(model_dir, tmp_path):
    run("visualize", preset="C-d256", output=tmp_path, format="svg")
    run("visualize", model_dir=model_dir, kind="positions,schedule", output=tmp_path)
    names = ["positions.png", "positions.svg", "schedule.png", "schedule.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "--source is required: the sentence that the model reads"),
        ({"preset": "base"}, "give either --model_dir or, for --kind=positions,schedule, --preset"),
        ({"kind": "pie"}, "--kind must be some of lines,heatmap,grid,html,positions,schedule"),
        ({"kind": ""}, "--kind must be some of lines"),
        ({"attention": "cross"}, "--attention must be some of encoder,decoder,memory: found"),
        ({"kind": "schedule", "source": "a"}, "--source has no effect with --kind=schedule"),
        ({"kind": "html", "source": "a", "word": "a"}, "--word has no effect with --kind"),
        (
            {"source": "Yes", "target": "Ja", "layer": 2},
            "--layer must be from 1 to 1 in encoder self-attention",
        ),
        (
            {"source": "Yes", "target": "Ja", "heads": "1,0"},
            "--heads must be from 1 to 2 in encoder self-attention",
        ),
        (
            {"source": "Yes", "target": "Ja", "heads": "x"},
            "--heads must be from 1 to 2 in encoder self-attention",
        ),
        (
            {"source": "Yes", "target": "Ja", "word": "No"},
            "encoder self-attention: word must be among",
        ),
        (
            {"source": " ", "target": "Ja"},
            "source must be a sentence of 1 to 400 tokens: found 0",
        ),
    ],
)
def test_visualize_refuses(model_dir, tmp_path, options, message):
    output = tmp_path / "new"
    said = refused("visualize", **{"model_dir": model_dir, "output": output, **options})
    assert message in said
    assert not output.exists()


@pytest.mark.parametrize(("flag", "value"), [("weights", "best"), ("average", 3)])
def test_a_preset_has_no_weights_to_choose(tmp_path, flag, value):
    said = refused("visualize", preset="tiny", output=tmp_path / "new", **{flag: value})
    assert said == f"--{flag} has no effect with --preset, which has no weights: leave it out"
    assert not (tmp_path / "new").exists()


def test_a_sentence_that_is_translated_to_nothing_needs_a_target(model_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(Translator, "__call__", lambda self, sentences: [""] * len(sentences))
    options = {"model_dir": model_dir, "output": tmp_path, "source": SOURCE}
    assert "translation is empty: give --target" in refused("visualize", **options)


def test_visualize_refuses_to_write_into_a_file(model_dir, tmp_path):
    (tmp_path / "file").write_text("mine")
    output = tmp_path / "file"
    message = refused("visualize", model_dir=model_dir, source="Yes", output=output)
    assert message == f"{output} must be a folder to write to: found a file"
