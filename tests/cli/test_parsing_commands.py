"""Parsing from the command lines: treebank in, a parser, its scores, trees out."""

import io
import json

import numpy as np
import pytest
from command_lines import begin, refused, run
from helpers import ROOT, small_model

from keras_transformer.data import BuiltinPairs
from keras_transformer.parsing import ParsingTokenizer, parse_tree, words
from keras_transformer.report import pair_attention
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir

pytestmark = pytest.mark.slow

TREES = """
( (S (NP-SBJ (DT The) (NNS dogs)) (VP (VBD chased) (NP (CD 12) (NNS cats))) (. .)) )
( (S (NP-SBJ (-NONE- *)) (VP (VB Go) (ADVP (RB home))) (. .)) )
"""
TINY_PARSER = {
    "task": "parsing",
    "preset": "parsing-small",
    "linearization": "words",
    "vocab_size": 200,
    "target_vocab_size": 50,
    "num_encoder_layers": 1,
    "num_decoder_layers": 1,
    "d_model": 16,
    "d_ff": 16,
    "num_heads": 2,
    "dtype_policy": "float32",  # the same on every machine
    "steps": 2,
    "checkpoint_steps": 1,
    "average_checkpoints": 2,
}


@pytest.fixture(scope="module")
def treebank(tmp_path_factory):
    path = tmp_path_factory.mktemp("treebank") / "trees.mrg"
    path.write_text(TREES)
    return path


@pytest.fixture(scope="module")
def trained(treebank, tmp_path_factory):
    """A model_dir, and the output of `train`."""
    model_dir = tmp_path_factory.mktemp("runs") / "parser"
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        patch.setattr("builtins.print", lambda text="", **_: lines.append(text))
        run(
            "train",
            **TINY_PARSER,
            train_source=treebank,
            valid_source=treebank,
            extra_source=treebank,
            extra_weight=2,
            substituted=1,
            model_dir=model_dir,
        )
    return model_dir, "\n".join(lines)


def test_training_makes_a_parser_and_says_how_good_it_is(trained):
    model_dir, said = trained
    assert isinstance(ModelDir(model_dir).load_tokenizer(), ParsingTokenizer)
    # Two trees, a copy of each, and both of them twice as extra trees.
    assert "8 pairs" in said
    assert "validation" in said and "F1" in said
    assert "2 sentences" in said and "exact match" in said
    assert "reference    (S (NP (DT The) (NNS dogs))" in said


def test_training_and_evaluation_read_the_files_of_a_pattern(trained, tmp_path, monkeypatch, capfd):
    """As in `--train_source='wsj/0[2-9]/*.mrg'`."""
    for section, tree in zip(("02", "03"), TREES.strip().splitlines(), strict=True):
        (tmp_path / section).mkdir()
        (tmp_path / section / "trees.mrg").write_text(tree)
    pattern = tmp_path / "0[2-9]" / "*.mrg"
    monkeypatch.setattr("keras_transformer.training.train", begin)
    unreported = {**TINY_PARSER, "substituted": 0, "report": False}
    run("train", **unreported, train_source=pattern, model_dir=tmp_path / "runs")
    assert ModelDir(tmp_path / "runs").load_training()["data"]["kept"] == 2
    run("evaluate", task="parsing", model_dir=trained[0], source=pattern, beam_size=2)
    assert "2 sentences" in capfd.readouterr().out


def test_evaluate_scores_it_and_writes_its_trees(trained, treebank, tmp_path, capfd):
    files = {"output": tmp_path / "out.mrg", "json": tmp_path / "scores.json"}
    run("evaluate", task="parsing", model_dir=trained[0], source=treebank, **files)
    printed = capfd.readouterr().out
    figures = json.loads(files["json"].read_text())
    assert f"{figures['f1']:6.2f}" in printed
    assert (figures["sentences"], figures["failed"], figures["expected"]) == (2, 0, 7)
    assert (figures["beam_size"], figures["alpha"]) == (21, 0.3)
    trees = [parse_tree(line) for line in files["output"].read_text().splitlines()]
    assert [words(tree) for tree in trees] == [
        ["The", "dogs", "chased", "12", "cats", "."],
        ["Go", "home", "."],
    ]


@pytest.mark.parametrize(
    ("option", "value"), [("compare", "runs/other"), ("reference", "a.de"), ("target_lang", "de")]
)
def test_evaluate_refuses_for_parsers_what_compares_translations(tmp_path, option, value):
    options = {"task": "parsing", "model_dir": tmp_path, "source": "a.mrg", option: value}
    message = refused("evaluate", **options)
    assert message == f"--{option} has no effect with --task=parsing: leave it out"


def test_parse_writes_a_tree_for_each_line_that_it_reads(trained, monkeypatch, capfdbinary):
    lines = [b"The dogs go .", b"", b"caf\xe9 ( \xff )", b" \t", b"\r", "é \u2028 \x85".encode()]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\n".join(lines))))
    run("parse", model_dir=trained[0], beam_size=2, lines_at_once=4)
    out = capfdbinary.readouterr().out.split(b"\n")
    assert len(out) == len(lines) + 1 and out[-1] == b""
    assert out[1] == out[3] == out[4] == b""
    assert words(parse_tree(out[0].decode())) == ["The", "dogs", "go", "."]
    for word in (b" caf\xe9)", b" -LRB-)", b" \xff)", b" -RRB-)"):
        assert word in out[2]


def test_a_picture_of_a_parser_ends_where_its_search_does(tmp_path, capsys):
    pairs = [("Dogs bark", "(S(NP NNS/1 (VP VBP/2")]
    tokenizer = ParsingTokenizer.learn(pairs, 100, two_a_word=True)
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = small_model(vocab_size=100, tie_output=False, **layers)
    norm = model.decoder.layers[-1].feed_forward_norm
    norm.gamma.assign(np.zeros(16))
    norm.beta.assign(np.eye(16)[0])
    kernel = np.zeros((16, 100))
    kernel[0, [4, tokenizer.end_id]] = 30, 15  # always the same symbol; the end comes second
    model.output_projection.kernel.assign(kernel)
    ModelDir(tmp_path / "parser").create_trained(model, tokenizer, None, "")
    files = {"model_dir": tmp_path / "parser", "output": tmp_path / "pictures"}
    run("visualize", **files, source="Dogs bark", kind="html")
    _, target = capsys.readouterr().out.splitlines()[:2]
    assert 1 < len(target.split()) <= 1 + 2 * 2  # two symbols for each of two words


@pytest.mark.parametrize("two_a_word", [False, True])
def test_a_picture_of_a_parser_shows_whole_words(two_a_word):
    symbols = "(S(NP NNS/1 (VP VBP/2" if two_a_word else "(S (NP XX NP) (VP XX VP) S)"
    tokenizer = ParsingTokenizer.learn([("Dogs bark", symbols)] * 2, 100, two_a_word)
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = small_model(vocab_size=100, **layers)
    attention = pair_attention(model, tokenizer, "Dogs bark", symbols)
    assert attention["memory"].queries == [*symbols.split(), "</s>"]
    classes = ["<Aa_>", "<aa_>"] if two_a_word else ["", ""]
    expected = ["Dogs", classes[0], "bark", classes[1], "</s>"]
    assert attention["memory"].keys == [label for label in expected if label]
    assert attention["encoder"].find("bark") == [attention["memory"].keys.index("bark")]


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    """The model_dir of a translation model with the configuration of the parser."""
    sizes = {"vocab_size": 340, "d_model": 16, "d_ff": 16, "num_heads": 2}
    model = small_model(**sizes, num_encoder_layers=1, num_decoder_layers=1)
    tokenizer = SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 200).sentences(), 340)
    path = tmp_path_factory.mktemp("runs") / "en-de"
    ModelDir(path).create_trained(model, tokenizer, None, "")
    return path


@pytest.fixture
def commands(treebank, tmp_path, monkeypatch):
    """Commands for models of each task, with the flags that they need beside --model_dir."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"Yes.\n")))
    return {
        "translation": {
            "translate": {},
            "evaluate": {"source": treebank, "reference": treebank},
            "export": {"format": "saved_model", "output": tmp_path / "out"},
        },
        "parsing": {"parse": {}, "evaluate": {"task": "parsing", "source": treebank}},
    }


def test_commands_for_translation_refuse_a_parser(trained, commands):
    for command, options in commands["translation"].items():
        message = refused(command, model_dir=trained[0], **options)
        assert message == (
            f"{trained[0]} is a model for parsing, not for translation: "
            "use `keras-transformer parse`, or `evaluate` with --task=parsing"
        )


def test_commands_for_parsing_refuse_a_translator(translator, commands):
    for command, options in commands["parsing"].items():
        message = refused(command, model_dir=translator, **options)
        assert message == (
            f"{translator} is a model for translation, not for parsing: "
            "use `keras-transformer translate`, or `evaluate` without --task=parsing"
        )


def test_training_refuses_a_model_of_the_other_task(trained, translator, treebank, tmp_path):
    text = {"train_source": treebank, "train_target": treebank}  # any text will do
    trees = {"task": "parsing", "train_source": treebank}
    new = tmp_path / "runs"
    message = "has a model for parsing, but the data are for translation"
    assert refused("train", **text, start_from=trained[0], model_dir=new) == (
        f"start_from={trained[0]} {message}"
    )
    assert refused("train", **text, model_dir=trained[0]) == f"model_dir {trained[0]} {message}"
    assert refused("train", **trees, start_from=translator, model_dir=new) == (
        f"start_from={translator} has a model for translation, but the data are for parsing"
    )
    assert not new.exists()


def test_training_refuses_a_parser_that_writes_trees_otherwise(trained, treebank, tmp_path):
    flags = {"task": "parsing", "train_source": treebank, "model_dir": tmp_path / "runs"}
    message = refused("train", **flags, start_from=trained[0], linearization="brackets")
    assert message == (
        f"start_from={trained[0]} was made with linearization=words: set linearization to that "
        "(now brackets)"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_target": "a.de"}, "--train_target has no effect with --task=parsing"),
        ({"tfds": "wmt"}, "--tfds has no effect with --task=parsing"),
        ({"lowercase": True}, "lowercase must be False for a parser: found True"),
        ({"bpe_dropout": 0.1}, "--bpe_dropout has no effect with --task=parsing"),
        ({"vocab_type": "bpe"}, "--vocab_type has no effect with --task=parsing"),
        ({"normalization": "none"}, "--normalization has no effect with --task=parsing"),
        ({"extra_weight": 2}, "--extra_weight has no effect without --extra_source"),
        ({"substituted": 0, "substituted_share": 0.5}, "--substituted_share has no effect"),
        ({"substituted": -1}, "substituted must be at least 0: found -1"),
        ({"linearization": "words", "vocab_size": 60}, "vocab_size must be at least"),
        ({"train_source": "nothing.mrg"}, "nothing.mrg: cannot read the file"),
    ],
)
def test_flags_that_make_no_parser_are_refused(treebank, tmp_path, options, message):
    flags = {**TINY_PARSER, "train_source": treebank, "model_dir": tmp_path / "runs", **options}
    assert message in refused("train", **flags)
    assert not (tmp_path / "runs").exists()


def test_a_tree_that_is_none_is_refused_with_its_line(tmp_path):
    broken = tmp_path / "broken.mrg"
    broken.write_text(f"{TREES}\n(S (NP))\n")
    flags = {**TINY_PARSER, "train_source": broken, "model_dir": tmp_path / "runs"}
    assert refused("train", **flags).startswith(f"{broken}:5: expected a word or a bracket")


def test_flags_of_parsing_are_refused_without_it(tmp_path):
    for name, value in (("linearization", "words"), ("extra_source", "a.mrg"), ("word_dropout", 0)):
        message = refused("train", model_dir=tmp_path / "runs", **{name: value})
        assert f"--{name} has no effect without --task=parsing" in message


def test_evaluate_refuses_what_a_parser_does_not_use(trained, treebank):
    flags = {"task": "parsing", "model_dir": trained[0], "source": treebank}
    message = refused("evaluate", **flags, reference=treebank)
    assert "--reference has no effect with --task=parsing" in message


def test_several_trees_of_a_sentence_are_refused(trained, treebank):
    message = refused("parse", model_dir=trained[0], n_best=2)
    assert message == "--n_best=2 has no effect: parse writes the best tree of each sentence"
    flags = {"task": "parsing", "model_dir": trained[0], "source": treebank}
    assert "--n_best=2 has no effect" in refused("evaluate", **flags, n_best=2)
