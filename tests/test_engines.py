"""CTranslate2 translates where it can do what is asked; else TensorFlow does, for one reason."""

import io
import re

import numpy as np
import pytest
from command_lines import refused, run
from helpers import lively_model, run_python

import keras_transformer as kt
from keras_transformer import engines
from keras_transformer.ctranslate2 import CTranslate2Translator, converted
from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.machine import gpu
from keras_transformer.options import SearchOptions
from keras_transformer.parsing import ParsingTokenizer
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

SENTENCES = ["The girls sleep.", "", "A horse!", "He will not buy a small lamp."]
LIMITED = {"extra_length": 4}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


@pytest.fixture(scope="module")
def path(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "en-de"
    model = lively_model(1, tokenizer.vocab_size)
    ModelDir(path).create_trained(model, tokenizer, "de", "made by a test")
    return path


@pytest.fixture
def model_dir(tokenizer, tmp_path):
    """Makes a model_dir whose model has these fields, without weights: none are read."""

    def make(**fields):
        config = kt.TransformerConfig.from_preset("tiny", vocab_size=340, **fields)
        ModelDir(tmp_path / "model").create(config, tokenizer, {})
        return tmp_path / "model"

    return make


@pytest.fixture(scope="module")
def parser(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "parser"
    parses = ParsingTokenizer.learn([("Dogs bark .", "(S X X .)")], vocab_size=100)
    ModelDir(path).create_trained(lively_model(1, parses.vocab_size), parses, None, "by a test")
    return path


# The choice.


def test_ctranslate2_translates_if_nothing_else_is_asked(path):
    options = {"beam_size": 5, "n_best": 5, "alpha": 1.0, "patience": 2.0, "max_length": 9}
    assert engines.why_tensorflow([path], "int8", options) is None
    assert engines.why_tensorflow([path], "float32", {"workers": 3, "tokens_per_batch": 9}) is None


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"sample": True}, "sample=True with a seed for each sentence"),
        ({"no_repeat_ngram": 3}, "no_repeat_ngram=3"),
        ({"min_length": 2}, "min_length=2"),
        ({"length_penalty": "gnmt"}, "length_penalty=gnmt, only power"),
        ({"patience": None}, "patience=None"),
        ({"constraint": print}, f"constraint={print}"),
        ({"extra_length": 2000}, "translations of more than 2,048 tokens, as extra_length=2000 a"),
        ({"max_source_length": 2040}, "translations of more than 2,048 tokens, as extra_length=50"),
        (
            {"max_source_length": 4096, "max_length": 9},
            "sentences of more than 2,048 tokens, as max",
        ),
        ({"jit_compile": True}, "jit_compile"),
    ],
    ids=str,
)
def test_tensorflow_does_what_ctranslate2_lacks(options, what, path):
    reason = engines.why_tensorflow([path], "float32", options)
    assert reason.startswith(f"CTranslate2 does not support {what}")


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({"layer_type": "restricted", "radius": 2}, "layer_type=restricted, only attention"),
        ({"layer_type": "recurrent"}, "layer_type=recurrent, only attention"),
        ({"positions": "rotary"}, "positions=rotary, only sinusoidal, "),
    ],
    ids=str,
)
def test_tensorflow_computes_models_that_ctranslate2_lacks(fields, what, model_dir):
    reason = engines.why_tensorflow([model_dir(**fields)], "float32", {})
    assert reason.startswith(f"CTranslate2 does not support {what}")


def test_tensorflow_computes_ensembles_and_parsers(path, parser):
    ensemble = engines.why_tensorflow([path, path], "float32", {})
    assert ensemble == "CTranslate2 does not support ensembles: found 2 folders"
    parsing = engines.why_tensorflow([parser], "float32", {})
    assert parsing == "CTranslate2 does not support models for parsing"


def test_tensorflow_computes_in_a_precision_that_the_processor_lacks(path, monkeypatch):
    monkeypatch.setattr(converted, "precisions", lambda: {"float32"})
    reason = engines.why_tensorflow([path], "bfloat16", {})
    assert reason == "CTranslate2 does not support precision=bfloat16 on this processor"


@pytest.mark.parametrize(
    ("visible", "has_gpu"), [(None, True), ("0", True), ("", False), ("-1", False)]
)
def test_tensorflow_computes_on_a_gpu_unless_it_is_hidden(
    visible, has_gpu, path, tmp_path, monkeypatch
):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpu, "_GPU_FILES", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.setattr(gpu, "_CUDNN_PACKAGE", "json")  # a package that is there
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    reason = engines.why_tensorflow([path], "float32", {})
    assert reason == ("this machine has a GPU" if has_gpu else None)
    assert isinstance(kt.load(path), Translator if has_gpu else CTranslate2Translator)


def test_ctranslate2_translates_beside_a_gpu_that_tensorflow_cannot_use(
    path, tmp_path, monkeypatch, capsys
):
    (tmp_path / "nvidia0").touch()
    monkeypatch.setattr(gpu, "_GPU_FILES", str(tmp_path / "nvidia[0-9]*"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpu, "_CUDNN_PACKAGE", "nowhere.cudnn")
    monkeypatch.setattr(gpu, "_CUDNN_LIBRARY", "libnowhere.so.9")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"A horse!\n")))
    run("translate", model_dir=path, **LIMITED)
    said = "CTranslate2 on the CPU: TensorFlow lacks the libraries for this machine's GPU\n"
    assert f"Translating with {said}" in capsys.readouterr().err
    monkeypatch.setattr(gpu, "_CUDNN_LIBRARY", "libc.so.6")  # a library that is there
    assert engines.why_tensorflow([path], "float32", {}) == "this machine has a GPU"


# The commands.


@pytest.fixture
def said(path, monkeypatch, capfd):
    """Runs `translate` in this process; returns its output, and its first lines on standard error.

    Models that have learned nothing repeat phrases, of which the last line tells.
    """

    def translated(**options):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"A horse!\n")))
        run("translate", **{"model_dir": path, **LIMITED, **options})
        captured = capfd.readouterr()
        lines = captured.err.splitlines(keepends=True)
        return captured.out, "".join(line for line in lines if "repeat a phrase" not in line)

    return translated


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({}, "Translating with CTranslate2\n"),
        ({"beam_size": 2, "scores": True, "alignment": True}, "Translating with CTranslate2\n"),
        ({"jit_compile": False, "min_length": 1}, "Translating with CTranslate2\n"),
        (
            {"sample": True, "seed": 1},
            "Translating with TensorFlow: CTranslate2 does not support --sample with a seed for "
            "each sentence\n",
        ),
        ({"mbr": 2, "seed": 1, "top_k": 3}, "Translating with CTranslate2\n"),
        (
            {"mbr": 2, "min_length": 2},
            "Translating with TensorFlow: CTranslate2 does not support --min_length=2\n",
        ),
        (
            {"patience": "none"},
            "Translating with TensorFlow: CTranslate2 does not support --patience=none\n",
        ),
        ({"engine": "ctranslate2"}, ""),
    ],
    ids=str,
)
def test_translate_says_in_one_line_which_engine_it_has_chosen_and_why(flags, line, said):
    out, err = said(**flags)
    assert err == line
    assert out.count("\n") == 1


def test_a_prefix_is_for_tensorflow(said, tmp_path):
    (tmp_path / "prefix").write_text("Ein\n")
    out, err = said(prefix=tmp_path / "prefix")
    assert err == "Translating with TensorFlow: CTranslate2 does not support --prefix\n"
    assert out.startswith("Ein")


def test_both_engines_write_the_same_lines(said):
    flags = {"n_best": 2, "alignment": True, "max_length": 9}

    def fields(line):
        number, text, score, links = line.split(" ||| ")
        return number, text, pytest.approx(float(score), abs=1e-4), links

    (found, line), (expected, nothing) = (
        said(engine=engine, **flags) for engine in ("auto", "tensorflow")
    )
    assert (line, nothing) == ("Translating with CTranslate2\n", "")
    assert [*map(fields, found.splitlines())] == [*map(fields, expected.splitlines())]


def test_a_mistake_is_a_mistake_for_every_engine(path):
    assert refused("translate", model_dir=path, beam_size=0).startswith("beam_size must be in")
    message = refused("translate", model_dir="nowhere")
    assert message.startswith("nowhere/config.json: No such file or directory: choose the folder")


# From Python.


def assert_same(found, expected):
    assert [t.text for best in found for t in best] == [t.text for best in expected for t in best]
    scores = [[t.score for best in both for t in best] for both in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)


def test_both_engines_translate_score_and_align_alike(path):
    found, expected = (
        kt.load(path, engine=engine, n_best=2, **LIMITED) for engine in ("auto", "tensorflow")
    )
    assert (type(found), type(expected)) == (CTranslate2Translator, Translator)
    assert found(SENTENCES) == expected(SENTENCES)
    assert_same(found.translate_n(SENTENCES), expected.translate_n(SENTENCES))
    assert_same([found.translate(SENTENCES)], [expected.translate(SENTENCES)])
    targets = ["Die Mädchen schlafen.", "Ja.", "", "Er kauft keine Lampe."]
    scores = [translator.score(SENTENCES, targets) for translator in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)
    aligned = found.align(SENTENCES, targets)
    assert aligned == expected.align(SENTENCES, targets)
    assert len({source for source, _ in aligned[0].links}) > 1


def test_options_choose_the_engine(path):
    assert isinstance(kt.load(path, no_repeat_ngram=3), Translator)
    assert isinstance(kt.load([path]), CTranslate2Translator)
    assert len(kt.load([path, path]).models) == 2
    assert kt.load(path, workers=3, tokens_per_batch=9).workers == 3
    assert kt.load(path, precision="int8").options == SearchOptions()


def test_a_parser_has_its_own_search(parser):
    translator = kt.load(parser)
    assert isinstance(translator, Translator)
    assert translator.options.beam_size == 21
    assert kt.load(parser, beam_size=2).options.beam_size == 2


@pytest.mark.parametrize("engine", engines.ENGINES)
def test_fields_given_by_name_differ_from_given_options(engine, path):
    options = SearchOptions(beam_size=2, extra_length=4)
    assert kt.load(path, engine=engine, options=options).options == options
    found = kt.load(path, engine=engine, options=options, beam_size=3).options
    assert found == SearchOptions(beam_size=3, extra_length=4)


def test_given_options_decide_the_engine_and_the_whole_search_of_a_parser(path, parser):
    assert isinstance(kt.load(path, options=SearchOptions(min_length=2)), Translator)
    assert kt.load(parser, options=SearchOptions(beam_size=2)).options.beam_size == 2


def test_a_step_may_be_an_integer(path):
    assert isinstance(kt.load(path, weights=0), CTranslate2Translator)


@pytest.mark.parametrize(
    "model_dir", [None, 3, b"runs/en-de", "", [""], ["runs/en-de", None]], ids=str
)
def test_what_is_no_path_of_a_folder_is_refused_in_one_line(model_dir):
    message = f"model_dir must be the path of a folder, or a list of paths: found {model_dir!r}"
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        kt.load(model_dir)


def test_no_folder_at_all_is_refused():
    with pytest.raises(UserError, match=r"^model_dir must name at least one folder: found none$"):
        kt.load([])


@pytest.mark.parametrize("engine", engines.ENGINES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_source_length": "9"}, "max_source_length must be an integer of at least 2: found '"),
        (
            {"max_source_length": None},
            "max_source_length must be an integer of at least 2: found N",
        ),
        ({"workers": True}, "workers must be an integer of at least 1: found True"),
        ({"average": "2"}, "average must be 1 to 1, .*: found '2'"),
        ({"average": 1.0}, "average must be 1 to 1, .*: found 1.0"),
        ({"average": True}, "average must be 1 to 1, .*: found True"),
        ({"weights": 7}, "weights must be auto, .*: found 7"),
    ],
    ids=str,
)
def test_a_value_of_another_type_is_refused_by_every_engine(options, message, engine, path):
    with pytest.raises(UserError, match=f"^{message}"):
        kt.load(path, engine=engine, **options)


def test_what_ctranslate2_lacks_is_refused_with_advice_for_commands_and_for_python(path):
    translator = kt.load(path, engine="ctranslate2")
    advice = re.escape('use TensorFlow (--engine=tensorflow, or engine="tensorflow" in kt.load)')
    with pytest.raises(UserError, match=f"{advice}$"):
        translator.translate(["A horse!"], ["Ein"])
    with pytest.raises(UserError, match=f"{advice}$"):
        kt.load(path, engine="ctranslate2", jit_compile=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"engine": "tf"}, "engine must be one of auto, tensorflow, ctranslate2: found 'tf'"),
        ({"engine": "ctranslate2", "jit_compile": True}, "CTranslate2 does not support jit_comp"),
        ({"engine": "ctranslate2", "min_length": 2}, "CTranslate2 does not support min_length=2: "),
        ({"beam_size": 0}, "beam_size must be in"),
        ({"weights": "7"}, "weights must be auto, mean"),
    ],
    ids=str,
)
def test_mistakes_are_refused_in_one_line(options, message, path):
    with pytest.raises(UserError, match=f"^{message}") as error:
        kt.load(path, **options)
    assert "\n" not in str(error.value)


def test_an_ensemble_is_refused_by_ctranslate2(path):
    with pytest.raises(UserError, match=r"^CTranslate2 does not support ensembles: found 2"):
        kt.load([path, path], engine="ctranslate2")


def test_a_model_is_loaded_and_translates_without_tensorflow(path):
    script = """
import sys
import keras_transformer as kt

translator = kt.load(sys.argv[1], extra_length=4)
print(*translator(["A horse!"]))
print(translator.align(["A horse!"], ["Ja."])[0].links)
assert {"keras", "tensorflow"}.isdisjoint(sys.modules)
"""
    translator = kt.load(path, extra_length=4)
    [alignment] = translator.align(["A horse!"], ["Ja."])
    expected = [*translator(["A horse!"]), str(alignment.links)]
    assert run_python(script, path).splitlines() == expected


def test_a_forked_process_is_told_to_load_a_translator_of_its_own(path):
    script = """
import os, sys
import keras_transformer as kt
from keras_transformer.errors import UserError

translator = kt.load(sys.argv[1], extra_length=4)
translator(["A horse!"])
if os.fork():
    os.wait()
    print(len(translator(["A horse!"])))
else:
    for call in (translator, lambda texts: translator.align(texts, ["Ja."])):
        try:
            call(["A horse!"])
        except UserError as error:
            print(error)
    print(len(kt.load(sys.argv[1], extra_length=4)(["A horse!"])), flush=True)
    os._exit(0)  # as multiprocessing does
"""
    *errors, in_child, in_parent = run_python(script, path).splitlines()
    assert [error.startswith("the process that loaded this") for error in errors] == [True] * 2
    assert (in_child, in_parent) == ("1", "1")


def test_tensorflow_translates_only_in_the_process_that_loaded_it(path, monkeypatch):
    translator = kt.load(path, engine="tensorflow", **LIMITED)
    monkeypatch.setattr("os.getpid", lambda: 0)
    for call in (translator, lambda texts: translator.score(texts, ["Ja."])):
        with pytest.raises(UserError, match="was forked"):
            call(["A horse!"])
