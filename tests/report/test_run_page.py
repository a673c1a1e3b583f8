"""The report of runs: read from model_dirs, finished or not, and complete."""

import base64
import itertools
import json
import re
import shutil
from html.parser import HTMLParser

import pytest
from command_lines import refused, run
from helpers import small_model
from matplotlib.backends.backend_agg import FigureCanvasAgg

from keras_transformer.errors import UserError
from keras_transformer.report import RunHistory, read_history, write_report
from keras_transformer.report.attention_figures import heat_figure
from keras_transformer.report.run_figures import run_figures
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.training.run_state import RunState, TrainingTotals
from keras_transformer.translator import Translator

SENTENCES = ["A man rides a horse.", "Ein Mann reitet auf einem Pferd."]
HOSTILE = "<script>alert(1)</script> {{OPTIONS}} & <b>"


@pytest.fixture(scope="module", autouse=True)
def one_translator():
    """Reports translate in one graph, as all models here are equal: tracing it takes seconds."""
    made = []

    def translator(*arguments, **options):
        made[:] = made or [Translator(*arguments, **options)]
        return made[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.report.run_page.Translator", translator)
        yield


def model_dir_of(path, entries, starts=(1000.0,), **options):
    """A model_dir whose log has these entries: (time, step, split, figures)."""
    tokenizer = SubwordTokenizer.train_from_sentences(SENTENCES, 300)
    model_dir = ModelDir(path)
    model = small_model(0, vocab_size=300, num_encoder_layers=1, num_decoder_layers=1)
    model_dir.create_trained(model, tokenizer, "de", "train <here>")
    training = model_dir.load_training()
    training["starts"] = [{"time": time, "processor": "a <processor>"} for time in starts]
    training["commands"] = ["train <here>"] * len(training["starts"])
    training["options"] |= {"steps": 300, **options}
    model_dir.save_training(training)
    model_dir.logs.mkdir()
    lines = [
        json.dumps({"time": time, "step": step, "split": split, **figures})
        for time, step, split, figures in entries
    ]
    (model_dir.logs / "log.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return model_dir


ENTRIES = [
    (1000.0, 100, "train", {"loss": 3.0, "perplexity": 9.0, "gradient_norm": None}),
    (4600.0, 200, "train", {"loss": 2.0, "perplexity": 4.0, "gradient_norm": 0.5}),
    (4700.0, 200, "validation", {"loss": 2.5, "perplexity": 5.0, "BLEU": 20.0}),
    (90000.0, 300, "train", {"loss": 1.0, "perplexity": 2.0, "gradient_norm": 0.25}),
    (90100.0, 300, "validation", {"loss": 2.2, "perplexity": 4.5, "BLEU": 19.0}),
]


def samples(*rows):
    columns = ("source", "translation", "reference")
    return {"rows": [dict(zip(columns, row, strict=True)) for row in rows]}


class Page(HTMLParser):
    """The text of a page, its images, and the text in <del> and <ins>."""

    def __init__(self, path):
        super().__init__()
        self.text, self.images, self.tags, self.marked = "", {}, [], []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "img":
            attributes = dict(attributes)
            self.images[attributes["alt"]] = attributes["src"]

    def handle_data(self, data):
        self.text += data
        if self.tags and self.tags[-1] in ("del", "ins"):
            self.marked.append((self.tags[-1], data))

    def handle_endtag(self, tag):
        self.tags.append(f"/{tag}")


def test_figures_are_over_steps_and_over_hours_without_the_pauses_between_starts(tmp_path):
    run = read_history(model_dir_of(tmp_path / "run", ENTRIES, starts=(400.0, 86400.0)))
    assert run.series("train", "loss") == ([100, 200, 300], [3.0, 2.0, 1.0])
    hours, _ = run.series("train", "loss", over="hours")
    # 4,200 s of the first start up to step 200, 100 s of validation, 3,600 s of the second start.
    assert hours == pytest.approx([600 / 3600, 4200 / 3600, 7900 / 3600])
    assert run.series("train", "gradient_norm") == ([200, 300], [0.5, 0.25])  # only finite ones
    assert run.scores == ["BLEU"]


def test_a_clock_that_is_set_back_takes_no_hours_away(tmp_path):
    figures = {"loss": 1.0}
    entries = [(time, step, "train", figures) for step, time in enumerate((3600, 7200, 0, 1800))]
    run = read_history(model_dir_of(tmp_path / "run", entries, starts=(0.0,)))
    assert [entry["hours"] for entry in run.figures["train"]] == [1.0, 2.0, 2.0, 2.5]


def test_half_a_line_of_a_killed_run_is_left_out(tmp_path):
    model_dir = model_dir_of(tmp_path / "run", ENTRIES)
    with open(model_dir.logs / "log.jsonl", "a") as log:
        log.write('{"time": 90200.0, "st')
    hours, _ = read_history(model_dir).series("train", "loss", over="hours")
    assert hours == pytest.approx([0.0, 1.0, 89000 / 3600])


def test_the_page_shows_each_picture_and_loads_nothing(tmp_path):
    page = write_report([model_dir_of(tmp_path / "run", ENTRIES)])
    assert page == tmp_path / "run" / "report" / "index.html"
    found = Page(page)
    pictures = {path.stem: path.read_bytes() for path in page.parent.glob("*.png")}
    # What was not logged, such as learning rates, has no picture.
    assert pictures.keys() == {"BLEU", "loss", "perplexity", "gradient_norm"}
    for name, content in pictures.items():
        assert content.startswith(b"\x89PNG")
        data = base64.b64encode(content).decode()
        assert found.images[name.replace("_", " ")] == f"data:image/png;base64,{data}"
    assert not re.search(r"(?:src|href)=(?!\"data:)", page.read_text())
    assert "BLEU 20.00 at step 200" in found.text  # the best
    assert "perplexity 4.50, BLEU 19.00" in found.text  # the last
    assert "300 of 300" in found.text


def test_a_run_that_has_logged_nothing_yet_has_the_progress_of_its_checkpoint(tmp_path):
    model_dir = model_dir_of(tmp_path / "run", [])
    totals = TrainingTotals(
        7200.0, pairs=4, source_tokens=6, target_tokens=6, rows_by_length={4: 2}
    )
    model = model_dir.load_model()
    model_dir.checkpoints.save(model, 88, RunState(88, totals).to_json())
    model_dir.best.save_weights(model, 44)
    model_dir.save_choice("best", "BLEU", {})
    page = write_report([model_dir])
    assert "<td>best<td>2.00" in page.read_text()  # the weights that commands use, and hours
    found = Page(page)
    assert "88 of 300" in found.text and "25.0%" in found.text and "2.00" in found.text
    assert [*found.images] == ["lengths"]


def test_a_new_run_has_no_pictures(tmp_path):
    found = Page(write_report([model_dir_of(tmp_path / "run", [])]))
    assert not found.images and "Nothing is logged yet." in found.text


def test_steps_are_whole_numbers(tmp_path):
    figure = run_figures([history("run", [{"step": 3, "hours": 0.1, "loss": 2.0}])])["loss"]
    FigureCanvasAgg(figure).draw()
    ticks = figure.axes[0].xaxis.get_major_ticks()
    assert all(tick.get_loc() == round(tick.get_loc()) for tick in ticks)


@pytest.mark.parametrize("last", [3, 300, 2_500, 8_800, 20_000, 100_000, 1_000_000])
def test_numbers_below_a_plot_do_not_overlap(last):
    entries = [{"step": step, "hours": 1.76 * step / last, "loss": 2.0} for step in (1, last)]
    figure = run_figures([history("run", entries)])["loss"]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        boxes = [
            tick.label1.get_window_extent(canvas.get_renderer())
            for tick in axes.xaxis.get_major_ticks()
            if low <= tick.get_loc() <= high
        ]
        assert len(boxes) >= 2
        assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes))


def history(name, entries):
    """The history of a run whose training and validations have the same figures."""
    figures = {"train": entries, "validation": entries}
    return RunHistory(name, 1, 0.5, figures, [], {8: 1}, 0.0, "mean", {}, {})


@pytest.mark.parametrize(
    "perplexities", [[8.5, 5.0, 4.0], [4.3, 4.2, 4.1], [300.0, 40.0, 5.0], [2400.0, 140.0]]
)
def test_the_scale_of_a_logarithmic_plot_has_numbers(perplexities):
    entries = [
        {"step": step, "hours": step / 10, "perplexity": perplexity}
        for step, perplexity in enumerate(perplexities)
    ]
    figure = run_figures([history("run", entries)])["perplexity"]
    FigureCanvasAgg(figure).draw()
    axes = figure.axes[0]
    low, high = axes.get_ylim()
    ticks = [*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()]
    numbers = [tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high]
    assert 2 <= len(list(filter(None, numbers))) <= 9


def test_each_run_is_in_the_legend_whatever_its_name():
    entry = {"step": 1, "hours": 0.5, "loss": 1.0, "padding_share": 0.1}
    names = ["_old", "$_$", "new"]
    drawn = run_figures([history(name, [entry]) for name in names])
    for name in ("loss", "padding", "lengths"):
        [legend] = drawn[name].legends
        assert [text.get_text() for text in legend.get_texts()] == names
        FigureCanvasAgg(drawn[name]).draw()


@pytest.mark.parametrize("length", [3, 25, 200])
@pytest.mark.parametrize("count", [2, 12])
def test_the_names_of_runs_are_inside_the_picture_and_outside_its_plots(length, count):
    entries = [{"step": step, "hours": step / 9, "loss": 2.0} for step in (1, 9)]
    names = [f"{'long-' * 40}"[: length - 2] + f"{run:02}" for run in range(count)]
    figure = run_figures([history(name, entries) for name in names])["loss"]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    [legend] = figure.legends
    for text in legend.get_texts():
        box = text.get_window_extent(canvas.get_renderer())
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0
        assert all(box.y1 < axes.bbox.y0 for axes in figure.axes)
    assert all(axes.bbox.height > 100 for axes in figure.axes)
    shown = [text.get_text() for text in legend.get_texts()]
    assert len(set(shown)) == count  # also where names were cut


def test_several_runs_differ_without_colours():
    entries = [{"step": step, "hours": step / 9, "loss": 2.0} for step in (1, 9)]
    figure = run_figures([history(str(run), entries) for run in range(8)])["loss"]
    solid = [line for line in figure.axes[0].lines if line.get_linestyle() == "-"]
    assert len({line.get_marker() for line in solid}) == len(solid) == 8
    assert not run_figures([history("one", entries)])["loss"].legends


@pytest.mark.slow
def test_samples_show_the_words_that_differ_from_the_reference(tmp_path):
    entries = [
        *ENTRIES[:3],
        (4701.0, 200, "samples", samples(("two dogs", "zwei rote Hunde", "zwei Hunde laufen"))),
    ]
    found = Page(write_report([model_dir_of(tmp_path / "run", entries)]))
    assert found.marked[-2:] == [("del", "rote"), ("ins", "laufen")]
    assert "attention" in found.images


@pytest.mark.slow
def test_pictures_and_title_name_each_of_several_runs(tmp_path, monkeypatch):
    titles = []

    def draw(attention, layer):
        titles.append(attention.title)
        return heat_figure(attention, layer=layer)

    monkeypatch.setattr("keras_transformer.report.run_page.heat_figure", draw)
    entries = [*ENTRIES[:3], (4701.0, 200, "samples", samples(("two dogs", "zwei", "Hunde")))]
    model_dirs = [model_dir_of(tmp_path / name, entries) for name in ("one", "two", "three")]
    found = Page(write_report(model_dirs))
    assert "Training of one, two and three" in found.text
    assert [title.rpartition(" of ")[2] for title in titles] == ["one", "two", "three"]


@pytest.mark.slow
def test_letters_without_a_font_are_named_and_not_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformer.report.run_page.fonts_for", lambda text: ([], "検索"))
    entries = [*ENTRIES[:3], (4701.0, 200, "samples", samples(("two dogs", "zwei", "Hunde")))]
    found = Page(write_report([model_dir_of(tmp_path / "run", entries)]))
    assert "no font on this machine has letters such as 検 索: install one" in found.text
    assert "loss" in found.images and "attention" not in found.images


@pytest.mark.slow
def test_a_sample_too_long_for_a_picture_of_its_attention_has_none(tmp_path, monkeypatch):
    monkeypatch.setattr("keras_transformer.report.word_attention.MAX_LENGTH", 2)
    entries = [*ENTRIES[:3], (4701.0, 200, "samples", samples(("two dogs", "zwei", "Hunde")))]
    found = Page(write_report([model_dir_of(tmp_path / "run", entries)]))
    assert "two dogs" in found.text
    assert "loss" in found.images and "attention" not in found.images


@pytest.mark.slow
def test_text_of_a_run_stays_text(tmp_path):
    entries = [*ENTRIES[:3], (4701.0, 200, "samples", samples((HOSTILE, HOSTILE, "b")))]
    model_dir = model_dir_of(tmp_path / "run", entries, starts=(400.0,))
    training = model_dir.load_training()
    training["commands"] = ["train <here> caf\udce9"]  # the name of a file that is not UTF-8
    model_dir.save_training(training)
    page = write_report([model_dir])
    found = Page(page)
    assert "script" not in found.tags and "b" not in found.tags
    assert HOSTILE in found.text
    assert "train <here> caf\\udce9" in found.text and "a <processor>" in found.text


@pytest.mark.slow
def test_several_runs_are_side_by_side_and_what_differs_is_first(tmp_path):
    others = [(time, step, split, {"loss": 1.5}) for time, step, split, _ in ENTRIES[:2]]
    dirs = [
        model_dir_of(tmp_path / "one", ENTRIES),
        model_dir_of(tmp_path / "two", others, learning_rate=0.5),
    ]
    page = write_report(dirs, tmp_path / "both")
    assert page == tmp_path / "both" / "index.html"
    text = page.read_text().partition("Configuration and options")[2]
    rows = re.findall(r'<tr( class="different")?><th scope="row">(\w+)(?:<td>[^<]*){2}(?=<)', text)
    assert rows.pop(0) == (' class="different"', "learning_rate")
    assert len(rows) > 40 and not any(marked for marked, _ in rows)
    assert not (tmp_path / "one" / "report").exists()


@pytest.mark.slow
def test_runs_of_the_same_name_are_told_apart_by_their_folders(tmp_path):
    dirs = [model_dir_of(tmp_path / folder / "model", ENTRIES) for folder in "ab"]
    text = Page(write_report(dirs, tmp_path / "both")).text
    for model_dir in dirs:
        assert str(model_dir.path) in text


def test_samples_are_set_in_the_direction_of_their_script(tmp_path):
    entries = [*ENTRIES[:3], (4701.0, 200, "samples", samples(("two dogs.", "كلبان.", "كلبان.")))]
    model_dir = model_dir_of(tmp_path / "run", entries)
    shutil.rmtree(model_dir.path / "checkpoints")  # so that the report translates nothing
    page = write_report([model_dir]).read_text(encoding="utf-8")
    assert re.findall(r"<dd[^>]*>", page) == ["<dd dir=auto>"] * 3


def test_a_model_that_was_not_trained_here_has_no_report(tmp_path):
    model_dir = model_dir_of(tmp_path / "run", ENTRIES)
    (model_dir.logs / "log.jsonl").unlink()
    with pytest.raises(UserError, match=r"log\.jsonl: cannot read the log of the training: No"):
        write_report([model_dir])
    assert not (model_dir.path / "report").exists()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"model_dir": ""}, "--model_dir is missing or empty: give it a value"),
        ({"model_dir": "a,"}, "--model_dir is missing or empty: give it a value"),
        ({"model_dir": "a,b"}, "--output, the folder of the report, is required"),
        ({"model_dir": "none"}, "none/config.json: No such file or directory: choose the folder"),
        ({"model_dir": "none", "output": ""}, "--output is missing or empty"),
        ({"model_dir": "none", "output": "file"}, "file must be a folder to write to"),
        ({"model_dir": "none", "output": "there"}, "there/index.html exists already: --overwrite"),
    ],
)
def test_what_the_command_cannot_do_is_said_in_a_line(flags, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "index.html").write_text("mine")
    with pytest.raises(UserError, match=f"^{re.escape(message)}") as error:
        run("report", **flags)
    assert "\n" not in str(error.value)
    assert (tmp_path / "there" / "index.html").read_text() == "mine"


def test_a_picture_of_the_user_is_replaced_only_if_asked(tmp_path):
    model_dir = model_dir_of(tmp_path / "run", ENTRIES)
    (tmp_path / "there").mkdir()
    picture = tmp_path / "there" / "loss.png"
    picture.write_text("mine")
    with pytest.raises(UserError, match=r"loss\.png exists already: --overwrite"):
        run("report", model_dir=model_dir.path, output=tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == [picture] and picture.read_text() == "mine"
    write_report([model_dir], tmp_path / "there", overwrite=True)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_command_prints_the_page(tmp_path, capsys):
    model_dir = model_dir_of(tmp_path / "run", ENTRIES)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "index.html").write_text("mine")
    run("report", model_dir=model_dir.path, output=tmp_path / "there", overwrite=True)
    assert capsys.readouterr().out == f"{tmp_path / 'there' / 'index.html'}\n"
    assert "BLEU" in (tmp_path / "there" / "index.html").read_text()


def test_nothing_is_to_be_overwritten_in_the_model_dir(tmp_path):
    message = refused("report", model_dir=tmp_path, overwrite=True)
    assert message == "--overwrite has no effect without --output: leave it out"
