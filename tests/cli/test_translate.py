"""The options of `translate`: the output for each of them, and refusals in one line."""

import gzip
import html
import io
import os
import pty
import shutil
import sys

import pytest
from command_lines import refused, run, run_process
from helpers import small_model

from keras_transformer import Transformer
from keras_transformer.ctranslate2.translator import CTranslate2Translator
from keras_transformer.data import BuiltinPairs
from keras_transformer.documents.paragraphs import translate_paragraphs
from keras_transformer.minimum_bayes_risk import MinimumBayesRisk
from keras_transformer.precision import in_precision
from keras_transformer.search.compiled import CompiledSearches
from keras_transformer.text import SubwordTokenizer
from keras_transformer.text.words import split_words
from keras_transformer.training import ModelDir
from keras_transformer.translation import Translation
from keras_transformer.translator import Translator

LINES = ["The girls sleep.", "", "A horse!", "The old man sees two birds."]
STDIN = "".join(f"{line}\n" for line in LINES).encode()
SHORT = {"extra_length": 4}


def limited(options):
    """The options, with a limit of length unless they only score."""
    return options if "score" in options else {**SHORT, **options}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


@pytest.fixture(scope="module")
def models(tokenizer):
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    return [small_model(seed, vocab_size=tokenizer.vocab_size, **layers) for seed in (3, 4)]


@pytest.fixture(scope="module")
def model_dirs(models, tokenizer, tmp_path_factory):
    """Two models of one vocabulary."""
    paths = [tmp_path_factory.mktemp("runs") / "en-de" for _ in models]
    for path, model in zip(paths, models, strict=True):
        ModelDir(path).create_trained(model, tokenizer, "de", "made by a test")
    return paths


@pytest.fixture(scope="module")
def translator(models, tokenizer):
    return Translator(models[0], tokenizer, **SHORT)


@pytest.fixture(scope="module", autouse=True)
def shared_graphs(models, model_dirs):
    """Commands search in the graphs of these models that exist already: tracing takes seconds."""
    load, of_folder = ModelDir.load_model, dict(zip(model_dirs, models, strict=True))
    made = {}

    def load_model(self, *choice):
        return of_folder.get(self.path) or load(self, *choice)

    def searches(models, *arguments):
        key = *map(id, models), *arguments
        if key not in made:
            made[key] = CompiledSearches(models, *arguments)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelDir, "load_model", load_model)
        patch.setattr("keras_transformer.translator.CompiledSearches", searches)
        yield


@pytest.fixture
def translate(model_dirs, monkeypatch, capfd):
    """The lines that `translate` writes, in this process, with the first model by default."""

    def translated(stdin=STDIN, **options):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        run("translate", **{"model_dir": model_dirs[0], **limited(options)})
        out, translated.said = capfd.readouterr()
        assert out.endswith("\n")
        return out.split("\n")[:-1]

    translated.model_dir = model_dirs[0]
    return translated


@pytest.fixture
def refusal(model_dirs, monkeypatch):
    """The one-line error of `translate` for its flags or its input."""

    def message(**options):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(STDIN)))
        return refused("translate", **{"model_dir": model_dirs[0], **limited(options)})

    return message


def assert_records(lines, expected):
    """`number ||| translation ||| score` of [[Translation]]."""
    flat = [
        (str(number), text, score)
        for number, translations in enumerate(expected)
        for text, score in translations
    ]
    found = [line.split(" ||| ") for line in lines]
    assert [tuple(record[:2]) for record in found] == [record[:2] for record in flat]
    assert [float(record[2]) for record in found] == pytest.approx(
        [score for *_, score in flat], abs=1e-4
    )


# In this process, for speed.


def test_n_best_translations_of_a_line_are_numbered_and_scored(translate, models, tokenizer):
    options = {"n_best": 3, "alpha": 0.6, "length_penalty": "gnmt", "no_repeat_ngram": 2}
    expected = Translator(models[0], tokenizer, **SHORT, **options).translate_n(LINES)
    assert [len(translations) for translations in expected] == [3, 1, 3, 3]
    # Line numbers continue from one group of lines to the next.
    assert_records(translate(**options, lines_at_once=3), expected)


@pytest.mark.slow
def test_scores_come_with_the_number_of_the_line(translate, translator):
    assert_records(translate(scores=True), translator.translate_n(LINES))


def test_the_search_of_the_paper_has_flags(translate, models, tokenizer):
    paper = {"alpha": 0.6, "length_penalty": "gnmt", "patience": None}
    expected = Translator(models[0], tokenizer, **SHORT, **paper).translate_n(LINES)
    found = translate(scores=True, alpha=0.6, length_penalty="gnmt", patience="none")
    assert_records(found, expected)


GLOSSARY = "horse\tRoss\tRosse\nold man\tGreis\n"


def test_a_term_of_the_glossary_is_translated_so(translate, tmp_path):
    (tmp_path / "terms.tsv").write_text(GLOSSARY)
    plain, found = translate(), translate(glossary=tmp_path / "terms.tsv")
    said = translate.said
    assert "TensorFlow: CTranslate2 does not support --glossary" in said
    assert found[:2] == plain[:2]
    assert {"Ross", "Rosse"} & {*split_words(found[2])} and "Greis" in split_words(found[3])
    paragraph = translate(b"A horse! Yes.\n", split="sentences", glossary=tmp_path / "terms.tsv")
    assert {"Ross", "Rosse"} & {*split_words(paragraph[0])}


def test_lines_without_room_for_their_terms_are_named(translate, tmp_path):
    (tmp_path / "terms.tsv").write_text("horse\tein außergewöhnlich großes Pferd\n")
    lines = translate(glossary=tmp_path / "terms.tsv", max_length=4)
    assert len(lines) == len(LINES)
    assert "Translated 1 line of the input without their terms, which the limits of length or " in (
        translate.said
    )
    assert translate.said.endswith("(3)\n")
    paragraph, flags = b"A horse! A horse!\n", {"split": "sentences", "max_length": 4}
    translate(paragraph, glossary=tmp_path / "terms.tsv", **flags)
    assert "Translated 1 line of the input" in translate.said
    assert translate.said.endswith("(1)\n")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("horse Pferd\n", {}, "terms.tsv:1: a line must have a term, a tab and a translation"),
        (GLOSSARY, {"engine": "ctranslate2"}, "CTranslate2 does not support --glossary: leave"),
        (GLOSSARY, {"sample": True}, "--glossary has no effect with --sample"),
        (GLOSSARY, {"score": "terms.tsv"}, "--glossary has no effect with --score"),
        (None, {}, "terms.tsv: cannot read the file"),
    ],
)
def test_a_glossary_that_cannot_be_used_is_refused(refusal, content, options, message, tmp_path):
    path = tmp_path / "terms.tsv"
    if content is not None:
        path.write_text(content)
    assert message in refusal(glossary=path, **options)


def test_a_form_that_the_vocabulary_cannot_spell_is_named_by_its_line(
    refusal, tmp_path, monkeypatch
):
    (tmp_path / "terms.tsv").write_text(GLOSSARY)
    monkeypatch.setattr(Translator, "unspellable", lambda self, forms: ["Greis"])
    message = refusal(glossary=tmp_path / "terms.tsv")
    assert "terms.tsv:2: the vocabulary of the model cannot spell 'Greis': leave it out" in message


def test_score_writes_a_score_for_each_line(translate, models, tokenizer, tmp_path):
    given = ["Die Mädchen schlafen.", "", "Ein Pferd!", "Nein"]
    (tmp_path / "given.de").write_text("".join(f"{line}\n" for line in given))
    how = {"alpha": 0.6, "length_penalty": "gnmt"}
    found = translate(score=tmp_path / "given.de", **how, lines_at_once=2)
    expected = Translator(models[0], tokenizer, **how).score(LINES, given)
    assert [float(line) for line in found] == pytest.approx(expected, abs=1e-4)
    assert expected[1] == 0.0


@pytest.mark.slow
def test_translations_start_with_their_prefixes(translate, translator, tmp_path):
    prefixes = ["Die", "", "", "Der"]
    (tmp_path / "prefixes").write_text("".join(f"{line}\n" for line in prefixes))
    lines = translate(prefix=tmp_path / "prefixes")
    assert all(line.startswith(prefix) for line, prefix in zip(lines, prefixes, strict=True))
    free = translator(LINES)
    assert lines[1:3] == free[1:3]
    assert lines[0] != free[0]


@pytest.mark.slow
def test_an_ensemble_is_several_folders(translate, model_dirs, models, tokenizer):
    expected = Translator(models, tokenizer, **SHORT, beam_size=2).translate_n(LINES)
    folders = f"{model_dirs[0]},{model_dirs[1]}"
    assert_records(translate(model_dir=folders, scores=True, beam_size=2), expected)


@pytest.mark.slow
def test_a_seed_makes_what_is_drawn_repeatable(translate, models, tokenizer):
    options = {"sample": True, "temperature": 1.5, "seed": 1}
    drawn = Translator(models[0], tokenizer, **SHORT, **options)
    first = translate(**options)
    assert first == drawn(LINES)
    assert first != drawn(LINES)


@pytest.mark.slow
def test_a_line_of_a_token_is_translated_compiled_as_it_is_otherwise(
    translate, translator, tmp_path
):
    (tmp_path / "prefixes").write_text("\n")
    expected = translator(["a"])
    assert translate(b"a\n", jit_compile=True) == expected
    assert translate(b"a\n", jit_compile=True, prefix=tmp_path / "prefixes") == expected


# Paragraphs

PARAGRAPHS = b"The girls sleep.  A horse! \n\n\t- A horse!\n---\r\n The old man sees two birds.\n"


def test_sentences_of_a_line_are_translated_and_joined_with_what_stands_between_them(
    translate, translator
):
    girls, horse, birds = translator(["The girls sleep.", "A horse!", LINES[3]])
    found = translate(PARAGRAPHS, split="sentences")
    assert found == [f"{girls}  {horse} ", "", f"\t- {horse}", "---", f" {birds}"]


def test_alternatives_of_a_line_are_combinations_with_the_sum_of_scores(
    translate, models, tokenizer
):
    options = {"n_best": 3, "beam_size": 3}
    each = Translator(models[0], tokenizer, **SHORT, **options)
    paragraphs = translate_paragraphs(each, PARAGRAPHS.decode().splitlines())
    assert [len(translations) for translations in paragraphs] == [3, 1, 3, 1, 3]
    expected = [[one[:2] for one in translations] for translations in paragraphs]
    assert_records(translate(PARAGRAPHS, split="sentences", **options), expected)


def test_the_recorded_source_language_splits(model_dirs, tmp_path, translate, translator):
    sentence = "Sie kam am 3. Oktober an."
    folder = tmp_path / "de-en"
    shutil.copytree(model_dirs[0], folder)
    model_dir = ModelDir(folder)
    model_dir.save_training({**model_dir.load_training(), "source_lang": "de"})
    stdin = f"{sentence}\n".encode()
    assert translate(stdin, split="sentences", model_dir=folder) == translator([sentence])
    assert translate(stdin, split="sentences") != translator([sentence])


def test_a_long_sentence_of_a_paragraph_is_named_by_its_line(translate):
    stdin = "One.\nTwo. {}. Three.\n".format("Horse" * 600).encode()
    assert len(translate(stdin, split="sentences", beam_size=1, max_length=9)) == 2
    assert "Read only the first 1,023 tokens of 1 line of the input (2)\n" in translate.said


@pytest.mark.slow
def test_minimum_bayes_risk_has_flags(translate, translator):
    flags = {"mbr": 3, "seed": 1, "temperature": 2.0, "engine": "tensorflow"}
    risk = MinimumBayesRisk(translator, 3, seed=1, temperature=2.0)
    expected = risk.translate_n(LINES)
    assert_records(translate(**flags, scores=True), [best[:1] for best in expected])
    links = [[*one.of_words().links] for one in translator.align(LINES, risk(LINES))]
    aligned = translate(**flags, alignment=True)
    assert len(aligned) == len(links)
    assert all(" ||| " in line for line in aligned)


def test_one_line_names_the_lines_that_repeat_a_phrase(translate, monkeypatch):
    texts = iter(["Ein Salat.", "Salat Salat Salat", "ja", "und so und so und so"])
    found = [[Translation(text, -1.0)] for text in texts]
    monkeypatch.setattr(CTranslate2Translator, "translate_n", lambda *args: found)
    translate()
    said = (
        "The translation of 2 lines of the input (2, 4) may repeat a phrase, such as 'salat' for "
        "line 2: try "
    )
    assert translate.said.endswith(f"{said}--no_repeat_ngram=3\n")
    translate(engine="ctranslate2")
    assert translate.said.endswith(f"{said}--no_repeat_ngram=3 and --engine=tensorflow\n")


# Placeholders, HTML and Markdown


def test_placeholders_are_copied_and_the_lines_to_check_are_named(translate, translator):
    stdin = b"A horse!\n{name} sleeps.\nA horse!\nSee https://a.b/c (#12)\n"
    found = translate(stdin, keep="#[0-9]+", lines_at_once=3)
    assert found[0] == found[2] == translator(["A horse!"])[0]
    assert "{name}" in found[1] and "https://a.b/c" in found[3] and "#12" in found[3]
    assert translate.said.endswith(
        "Check the placeholders of 2 lines of the input (2, 4): the model did not copy them "
        "itself\n"
    )
    assert translate(stdin, placeholders=False) == translator(stdin.decode().splitlines())


def test_placeholders_are_left_to_a_model_whose_training_pairs_copied_none(
    translate, translator, models, tokenizer, tmp_path
):
    replacing = ModelDir(tmp_path / "run")
    replacing.create_trained(models[0], tokenizer, "de", "made by a test")
    replacing.save_training({**replacing.load_training(), "copies_parts": False})
    line = "{name} sleeps."
    stdin, model_dir = f"{line}\n".encode(), replacing.path
    assert translate(stdin, model_dir=model_dir) == translator([line])
    assert "{name}" in translate(stdin, model_dir=model_dir, placeholders=True)[0]
    assert "{name}" in translate(stdin, model_dir=model_dir, keep="#")[0]
    marked = {"model_dir": model_dir, "format": "markdown"}
    assert translate(stdin, **marked) == translator([line])
    assert "{name}" in translate(stdin, **marked, placeholders=True)[0]


def test_placeholders_of_a_paragraph_are_named_by_its_line(translate):
    found = translate(b"A horse!\nOne. {a} two. {b} three.\n", split="sentences")
    assert "{a}" in found[1] and "{b}" in found[1]
    assert "Check the placeholders of 1 line of the input (2): the model" in translate.said


def test_lines_that_are_not_utf8_are_named(translate):
    lines = "Ja\nMädchen\nMädchen\n".encode("latin-1")
    said = "of the input (2, 3) are not UTF-8 text, so some letters are lost: convert the input"
    formats = {"format": "html"}, {"format": "markdown"}, {"format": "html", "line_by_line": True}
    for options in ({}, {"lines_at_once": 2}, {"split": "sentences"}, *formats):
        translate(lines, **options)
        assert f"2 lines {said}" in translate.said
        assert translate.said.endswith("for example by iconv -f LATIN1 -t UTF-8\n")
    translate("Ja\n".encode("utf-16"))  # as PowerShell writes it
    assert "1 line of the input (1) is not UTF-8 text, so" in translate.said
    assert translate.said.endswith("for example by iconv -f UTF-16 -t UTF-8\n")
    translate("Mädchen\n".encode())
    assert "UTF-8" not in translate.said


def test_a_page_that_is_not_utf8_is_read_like_lines(translate):
    line = b"A caf\xe9 of two horses!\n"
    [page] = translate(line, format="html")
    assert [html.unescape(page)] == translate(line)


PAGE = b"""<!DOCTYPE html>\r
<p>The girls <b>sleep</b>.\r
 A horse!</p><img id="A horse!">\xff
"""


def test_a_document_keeps_its_markup_byte_for_byte(translate, translator, tmp_path):
    girls, horse = translator(["The girls sleep.", "A horse!"])
    page = tmp_path / "page.html.gz"
    page.write_bytes(gzip.compress(PAGE))
    run(
        "translate",
        model_dir=translate.model_dir,
        format="html",
        input=page,
        output=tmp_path / "x",
        **SHORT,
    )
    found = (tmp_path / "x").read_bytes()
    start, end = b"<!DOCTYPE html>\r\n<p>", b'</p><img id="A horse!">\xff\n'
    assert found.startswith(start) and found.endswith(end)
    text = found[len(start) : -len(end)].decode()
    assert text.count("<b>") == text.count("</b>") == 1
    plain = html.unescape(text.replace("<b>", "").replace("</b>", ""))
    assert plain == f"{girls} {horse}"


def test_a_markdown_file_keeps_its_markup_byte_for_byte(translate, translator):
    girls, horse = translator(["The girls sleep.", "A horse!"])
    page = "# The girls sleep.\n\n- A\n  horse!\n\n![A horse!](a)\n"
    found = translate(page.encode(), format="markdown")
    assert found == [f"# {girls}", "", f"- {horse}", "", f"![{horse or 'A horse!'}](a)"]


def test_a_paragraph_may_be_a_sentence_and_a_tag_that_is_not_closed_is_named(translate, translator):
    found = translate(b"A horse! A horse!\n\n<b>\n", format="html", split="none")
    whole = "\n".join(found)
    assert whole == f"{html.escape(translator(['A horse! A horse!'])[0], quote=False)}\n\n<b>"
    assert "standard input, line 3: <b> is not closed; the translation has" in translate.said


def test_placeholders_of_a_document_are_named_by_the_line_of_their_sentence(translate):
    found = translate(
        b"<p>A\nhorse!</p>\n<p>{a} <b>sleeps</b>.</p>\n<p>A {b} horse.</p>\n", format="html"
    )
    assert "{a}" in found[1] and "{b}" in found[2]
    assert "Check the placeholders of 2 lines of the input (3, 4): the model" in translate.said


def test_each_line_may_be_a_text_with_markup_of_its_own(translate, translator):
    girls, horse = translator(["The girls sleep.", "A horse!"])
    lines = b"<b>The girls sleep.</b>\n\nA horse! <i>\nA <b>horse!\n"
    first, blank, second, third = translate(lines, format="html", line_by_line=True)
    assert (first, blank, second) == (f"<b>{girls}</b>", "", f"{horse} <i>")
    assert third.count("<b>") == 1
    assert translate.said.startswith("Translating with CTranslate2\n")
    assert "standard input, line 3: <i> is not closed (and 1 more); the" in translate.said
    lines = b"# A horse!\n- The girls sleep.\n"
    options = {"format": "markdown", "line_by_line": True, "lines_at_once": 1}
    assert translate(lines, **options) == [f"# {horse}", f"- {girls}"]


def test_placeholders_of_texts_with_markup_are_named_by_their_line(translate):
    lines = b"{a} <b>sleeps</b>.\n<p>A horse!</p>\nA {b} horse.\n"
    for at_once in (1, 3):
        translate(lines, format="html", line_by_line=True, lines_at_once=at_once)
        assert "Check the placeholders of 2 lines of the input (1, 3): the model" in translate.said


def test_one_line_names_the_lines_that_lost_markup(translate, monkeypatch):
    lines = b"Press <b>Enter</b>.\nPress <b>Enter</b>.\nRun `ls` in <dir>.\nRun `ls`.\n"
    texts = iter(["<b>Eingabe</b>.", "<b>Eingabe.", "»ls« in Dir", "`ls`."])
    found = [[Translation(text, -1.0)] for text in texts]
    monkeypatch.setattr(CTranslate2Translator, "translate_n", lambda *args: found)
    translate(lines)
    for of_lines, mark, format_ in (("2", "</b>", "html"), ("3", "`ls`", "markdown")):
        said = (
            f"The translation of 1 line of the input ({of_lines}) lost or changed markup, such as "
            f"{mark}: try --format={format_} for a document, and with --line_by_line for texts of "
            "one line each\n"
        )
        assert said in translate.said


def test_an_empty_document_stays_empty(model_dirs, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    files = {"input": tmp_path / "empty", "output": tmp_path / "x"}
    run("translate", model_dir=model_dirs[0], format="html", **files)
    assert (tmp_path / "x").read_bytes() == b""


def test_blank_lines_at_the_end_of_a_file_beside_the_input_do_not_count(translate, tmp_path):
    beside = tmp_path / "beside"
    beside.write_text("Ja\n" * 4)
    plain = {flag: translate(**{flag: beside}) for flag in ("score", "prefix")}
    beside.write_text("Ja\n" * 4 + "\n \n\u00a0")
    assert plain == {flag: translate(**{flag: beside}) for flag in plain}


# Refusals.


@pytest.mark.parametrize(
    ("flag", "count", "message"),
    [
        ("score", 3, "must have a line for each line of input: found 3"),
        ("prefix", 0, "must have a line for each line of input: found 0"),
        ("score", 5, "must have 4 lines, as many as the input: found more"),
    ],
)
def test_a_file_must_have_as_many_lines_as_the_input(refusal, tmp_path, flag, count, message):
    beside = tmp_path / "beside"
    beside.write_text("Ja\n" * count)
    assert refusal(**{flag: beside}) == f"{beside} {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "x", "prefix": "y"}, "--prefix has no effect with --score"),
        ({"score": "x", "n_best": 2}, "--n_best has no effect with --score"),
        (
            {"score": "x", "workers": 2, "engine": "tensorflow"},
            "--workers has no effect with --score",
        ),
        ({"score": "x", "jit_compile": True}, "--jit_compile has no effect with --score"),
        ({"split": "sentences", "score": "x"}, "--score has no effect with --split=sentences"),
        ({"split": "sentences", "prefix": "x"}, "--prefix has no effect with --split=sentences"),
        ({"split": "sentences", "alignment": True}, "--alignment has no effect with --split"),
        ({"precision": "int8", "engine": "tensorflow"}, "--precision=int8 needs --jit_compile"),
        ({"seed": 1}, "seed must be"),
        ({"mbr": 4, "sample": True}, "--sample has no effect with --mbr"),
        ({"mbr": 4, "score": "x"}, "--mbr has no effect with --score"),
        ({"mbr": 4, "n_best": 5}, "n_best must be"),
        ({"top_p": 0.5}, "top_p must be"),
        ({"n_best": 5}, "n_best must be"),
        ({"min_length": 0}, "min_length must be"),
        ({"format": "html", "scores": True}, "--scores has no effect with --format=html"),
        ({"format": "html", "prefix": "x"}, "--prefix has no effect with --format=html"),
        ({"format": "markdown", "lines_at_once": 2}, "--lines_at_once has no effect with"),
        ({"line_by_line": True}, "--line_by_line has no effect without --format=html or"),
        ({"format": "html", "n_best": 2}, "--n_best=2 has no effect: --format=html writes one"),
        ({"keep": "("}, "--keep='(' is no regular expression: missing ), unterminated"),
        ({"keep": ""}, "--keep='' matches an empty text: say what it must contain"),
        ({"keep": "a", "placeholders": False}, "--keep has no effect with --noplaceholders"),
        ({"keep": "a", "score": "x"}, "--keep has no effect with --score"),
        ({"score": "nowhere/x"}, "nowhere/x: cannot read the file"),
        ({"prefix": "nowhere/x"}, "nowhere/x: cannot read the file"),
    ],
    ids=str,
)
def test_flags_that_exclude_each_other_or_are_wrong_are_refused_before_a_model_is_loaded(
    refusal, monkeypatch, tmp_path, options, message
):
    monkeypatch.setattr(ModelDir, "load_model", None)
    monkeypatch.chdir(tmp_path)
    for name in "xy":
        (tmp_path / name).write_text("Ja\n" * len(LINES))
    assert refusal(**options).startswith(message)


def test_models_of_two_vocabularies_are_no_ensemble(refusal, model_dirs, models, tmp_path):
    sentences = BuiltinPairs("train", 400).sentences()
    other = SubwordTokenizer.train_from_sentences(sentences, models[0].config.vocab_size)
    ModelDir(tmp_path / "other").create_trained(models[0], other, "de", "made by a test")
    message = refusal(model_dir=f"{model_dirs[0]},{tmp_path / 'other'}")
    assert message.startswith(f"{tmp_path / 'other'} must have the vocabulary of {model_dirs[0]}")


# Each in its own process, as a user runs it.


@pytest.mark.slow
def test_int8_writes_the_translations_of_a_model_in_int8_and_nothing_else(
    model_dirs, models, tokenizer
):
    lines, options = ["Yes", "", "A horse!"], {"beam_size": 2, "n_best": 2, **SHORT}
    process = run_process(
        "translate",
        model_dir=model_dirs[0],
        precision="int8",
        jit_compile=True,
        stdin="".join(f"{line}\n" for line in lines).encode(),
        **options,
    )
    assert process.returncode == 0
    said = "Translating with TensorFlow: CTranslate2 does not support --jit_compile\n"
    assert process.stderr.decode() == said
    model = Transformer(models[0].config)
    model.build()
    model.set_weights(models[0].get_weights())
    rounded = Translator(in_precision(model, "int8"), tokenizer, jit_compile=True, **options)
    expected = rounded.translate_n(lines)
    assert_records(process.stdout.decode().split("\n")[:-1], expected)
    exact = Translator(models[0], tokenizer, **options).translate_n(lines)
    assert abs(expected[0][0].score - exact[0][0].score) > 1e-3  # they were rounded


@pytest.mark.parametrize("options", [{"target_lang": "de"}, {"source_lang": "en"}])
def test_languages_do_not_hide_that_the_model_is_missing(tmp_path, options):
    message = refused("translate", model_dir=tmp_path, engine="tensorflow", **options)
    assert message.startswith(f"{tmp_path}/config.json: No such file or directory: choose")


@pytest.mark.slow
def test_too_few_lines_to_score_are_refused(model_dirs, tmp_path, monkeypatch, capfd):
    (tmp_path / "given").write_text("Ja\n")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(STDIN)))
    message = refused("translate", model_dir=model_dirs[0], score=tmp_path / "given")
    assert message == f"{tmp_path / 'given'} must have a line for each line of input: found 1"
    assert capfd.readouterr().out == ""


# Files, pipes and terminals


def test_files_are_read_and_written_compressed_by_their_names(translate, tmp_path, capfd):
    expected = translate()
    (tmp_path / "in.gz").write_bytes(gzip.compress(STDIN))
    for name, read in (("out", bytes), ("out.gz", gzip.decompress)):
        run("translate", **limited({"model_dir": translate.model_dir}), **files(tmp_path, name))
        assert read((tmp_path / name).read_bytes()).decode().split("\n")[:-1] == expected
    assert capfd.readouterr().out == ""


def files(folder, name):
    return {"input": folder / "in.gz", "output": folder / name}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"input": "missing"}, "missing: cannot read the file: No such file or directory"),
        ({"output": "no/out"}, "no/out: its folder does not exist or is not writable"),
        ({"input": "in", "output": "in"}, "in is an input or another output: choose another file"),
        ({"output": "in", "score": "in"}, "in is an input or another output: choose another file"),
        ({"output": "in", "prefix": "in"}, "in is an input or another output: choose another file"),
        ({"input": ""}, "--input is missing or empty: give it a value"),
        ({"input": "", "format": "html"}, "--input is missing or empty: give it a value"),
        ({"input": "cut.gz"}, "cut.gz: damaged gzip file: "),
    ],
)
def test_files_that_cannot_be_read_or_written_are_refused(
    refusal, options, message, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").write_bytes(STDIN)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(STDIN * 100)[:-12])
    assert refusal(**options).startswith(message)


@pytest.mark.slow
def test_a_terminal_answers_each_line_and_ends_with_one_control_d(model_dirs):
    pid, terminal = pty.fork()
    if pid == 0:
        arguments = [f"--model_dir={model_dirs[0]}", "--extra_length=5", "--engine=ctranslate2"]
        command = [sys.executable, "-m", "keras_transformer", "translate", *arguments]
        os.execve(sys.executable, command, {**os.environ, "TERM": "dumb"})
    shown = b""

    def until(text):
        nonlocal shown
        while text not in shown:
            shown += os.read(terminal, 4096)

    until(b"Ctrl-D ends the input.\r\n")
    os.write(terminal, b"A horse!\n")
    until(b"A horse!\r\n")
    shown = b""
    until(b"\r\n")  # the translation
    os.write(terminal, b"\x04")
    assert os.waitpid(pid, 0) == (pid, 0)


# Alignment


def test_alignment_is_of_words_unless_subwords_are_asked_for(translate, translator):
    found = translator.align(LINES, [text for text, _ in translator.translate(LINES)])
    for flags, alignments in (
        ({"alignment": True}, [one.of_words() for one in found]),
        ({"alignment": True, "subwords": True}, found),
    ):
        pairs = [" ".join(f"{i}-{j}" for i, j in one.links) for one in alignments]
        assert [line.rpartition(" ||| ")[2] for line in translate(**flags)] == pairs


def test_words_that_are_aligned_are_those_of_the_line(translate):
    line = "The girl¨s horse¨s asleep."  # to the vocabulary, U+00A8 is a space with an accent
    [aligned] = translate(stdin=f"{line}\n".encode(), alignment=True)
    links = [link.split("-") for link in aligned.rpartition(" ||| ")[2].split()]
    assert {int(source) for source, _ in links} <= {*range(len(line.split()))}


def test_subwords_need_an_alignment(refusal):
    assert refusal(subwords=True) == "--subwords has no effect without --alignment: leave it out"
