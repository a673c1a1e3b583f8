"""Whoever cuts a sentence says so: which lines, and how many tokens it read of them."""

import io
import re
import warnings

import numpy as np
import pytest
from command_lines import run
from helpers import small_model

import keras_transformer as kt
from keras_transformer.data import BuiltinPairs
from keras_transformer.parsing import ParsingTokenizer
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

POSITIONS = 12  # a sentence has at most 11 tokens
SHORT, LONG = "Yes", "Yes " * 12
LINES = [SHORT, LONG, "", SHORT, LONG, LONG, SHORT]
CUT = "Read only the first 11 tokens of 3 lines of {} (2, 5, 6)\n"
GREEDY = {"beam_size": 1, "extra_length": 2}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


def learned(tokenizer):
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return small_model(
        3, vocab_size=tokenizer.vocab_size, positions="learned", max_positions=POSITIONS, **layers
    )


@pytest.fixture(scope="module")
def path(tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "en-de"
    ModelDir(path).create_trained(learned(tokenizer), tokenizer, "de", "made by a test")
    return path


@pytest.fixture
def translator(path):
    model_dir = ModelDir(path)
    return Translator(model_dir.load_model(), model_dir.load_tokenizer(), **GREEDY)


@pytest.fixture
def said(monkeypatch, capfd, tmp_path):
    """What a command writes to standard error, except the engine, with these lines as input."""

    def said(command, lines=LINES, **options):
        text = "".join(f"{line}\n" for line in lines)
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        (tmp_path / "lines").write_text(text)
        run(command, **options)
        captured = capfd.readouterr()
        assert "Read only" not in captured.out
        return re.sub(r"\A(Translating|Scoring|Parsing) with .*\n", "", captured.err)

    return said


@pytest.mark.parametrize(
    "options",
    [
        {"lines_at_once": 2},
        pytest.param({"engine": "tensorflow", "lines_at_once": 2}, marks=pytest.mark.slow),
        pytest.param({"alignment": True}, marks=pytest.mark.slow),
        pytest.param({"n_best": 2, "beam_size": 2, "alignment": True}, marks=pytest.mark.slow),
    ],
)
def test_translate_says_once_which_lines_it_cut(said, path, options):
    options = {**GREEDY, **options}
    assert said("translate", model_dir=path, **options) == CUT.format("the input")
    assert said("translate", [SHORT] * 3, model_dir=path, **options) == ""


def test_scoring_says_which_lines_of_both_files_it_cut(said, path, tmp_path):
    given = tmp_path / "lines"
    found = said("translate", model_dir=path, score=given, lines_at_once=3)
    assert found == CUT.format(f"the input (2, 5, 6) and of 3 lines of {given}")


@pytest.mark.slow
def test_only_the_first_of_many_lines_are_named(said, path):
    found = said("translate", [LONG] * 8, model_dir=path, lines_at_once=3, **GREEDY)
    assert found == "Read only the first 11 tokens of 8 lines of the input (1, 2, 3, 4, 5, ...)\n"


@pytest.mark.slow
def test_an_error_later_on_hides_nothing(said, path, tmp_path, capfd):
    (tmp_path / "prefixes").write_text("A\nA\n")
    with pytest.raises(kt.UserError, match="must have a line for each line of input"):
        said("translate", model_dir=path, prefix=tmp_path / "prefixes", lines_at_once=2, **GREEDY)
    assert "1 line of the input (2)" in capfd.readouterr().err


@pytest.mark.slow
def test_evaluate_says_which_lines_it_cut(said, path, tmp_path):
    files = dict.fromkeys(("source", "reference"), tmp_path / "lines")
    assert said("evaluate", model_dir=path, **files, **GREEDY) == CUT.format(tmp_path / "lines")


@pytest.mark.slow
def test_parse_says_which_lines_it_cut(said, tmp_path):
    tokenizer = ParsingTokenizer.learn([("Dogs bark", "(S(NP NNS/1 (VP VBP/2")], 100)
    ModelDir(tmp_path / "parser").create_trained(learned(tokenizer), tokenizer, None, "by a test")
    lines = ["Dogs bark", "Dogs bark " * 9, "", "Dogs bark", *["Dogs bark " * 9] * 2]
    options = {"model_dir": tmp_path / "parser", "lines_at_once": 4, "beam_size": 1}
    assert said("parse", lines, **options) == CUT.format("the input")


def test_in_python_it_is_a_warning(translator):
    message = "first 11 tokens of 3 of the sentences, at index 1, 4, 5$"
    with pytest.warns(kt.CutWarning, match=message) as found:
        translator.score(LINES, [SHORT] * 7)
    assert (found[0].message.indices, found[0].message.limit) == ([1, 4, 5], POSITIONS - 1)
    with pytest.warns(kt.CutWarning, match="1 of the translations, at index 1$"):
        translator.align([SHORT, SHORT], [SHORT, LONG])
    with warnings.catch_warnings(action="error"):
        translator.score([SHORT], [SHORT])
        with pytest.raises(kt.CutWarning):
            translator([LONG])


def test_other_warnings_pass():
    from keras_transformer.cli.line_messages import CutLines

    with pytest.warns(UserWarning, match="something else"), CutLines(sentences="the input"):
        warnings.warn("something else", stacklevel=1)


@pytest.mark.slow
def test_sentences_are_aligned_together_as_each_is_alone(tokenizer):
    model = small_model(5, vocab_size=tokenizer.vocab_size)
    translator = Translator(model, tokenizer)
    english, german = map(list, zip(*BuiltinPairs("test", 16), strict=True))
    english[3] = german[5] = ""
    english[7:9] = ["house " * 200, "A horse! " * 40]
    together = translator.align(english, german)
    alone = [translator.align([a], [b])[0] for a, b in zip(english, german, strict=True)]
    assert together == alone
    assert together[3].links == together[5].links == [] and together[3].target
    assert all(len(found.links) == len(found.target) for found in together[6:9])
    assert len({tuple(np.ravel(found.links)) for found in together}) > 10
