"""Every flag of every command with hostile values: one line of error, no traceback."""

import dataclasses
import functools
import re

import pytest
from absl import flags
from command_lines import FEW_STEPS, TINY_MODEL, ended_with_flags, module_of, own_flags
from helpers import small_model

import keras_transformer as kt
from keras_transformer.cli.main import COMMANDS
from keras_transformer.data import BuiltinPairs
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.options import SearchOptions
from keras_transformer.parsing import ParsingTokenizer
from keras_transformer.report.word_attention import pair_attention
from keras_transformer.text import SubwordTokenizer
from keras_transformer.translator import Translation

LOSS = {"loss": 1.0, "perplexity": 2.0}
OF_SEARCH = {field.name for field in dataclasses.fields(SearchOptions)}
OF_SEARCH -= {"max_length", "seed", "constraint"}
HUGE = 10**30
NUMBERS = ["", "x", "nan", "0", "-1", "1.5", str(2**31 - 1), str(2**31), str(HUGE), f"-{HUGE}"]
VALUES = {
    "int": NUMBERS,
    "float": [*NUMBERS, "inf", "-inf", "1e300", "-1e300", "1e-300"],
    "bool": ["", "x", "2"],
    "string": ["", " ", "/", "nan", "-1", "x" * 5000, "/dev/null/x"],
    "commaseparatedlistofstrings": ["", ",", "nan", "/", "x" * 5000],
}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory):
    config = kt.TransformerConfig(
        vocab_size=340, num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=16, num_heads=2
    )
    sentences = BuiltinPairs("train", 200).sentences()
    tokenizer = SubwordTokenizer.train_from_sentences(sentences, config.vocab_size)
    path = tmp_path_factory.mktemp("runs") / "en-de"
    kt.ModelDir(path).create_trained(small_model(**config.to_dict()), tokenizer, None, "")
    return path


@pytest.fixture(scope="module")
def parser(tmp_path_factory):
    sizes = {"vocab_size": 100, "d_model": 16, "d_ff": 16, "num_heads": 2}
    model = small_model(num_encoder_layers=1, num_decoder_layers=1, **sizes)
    pairs = [("Dogs bark", "(S (NP XX NP) (VP XX VP) S)")]
    path = tmp_path_factory.mktemp("runs") / "parser"
    kt.ModelDir(path).create_trained(model, ParsingTokenizer.learn(pairs, 100), None, "")
    return path


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for name, side in zip(("en", "de"), zip(*builtin_pairs("train", 20), strict=True), strict=True):
        (folder / f"train.{name}").write_text("".join(f"{line}\n" for line in side))
    return folder


@pytest.fixture(scope="module")
def models(model_dir, parser):
    return {path: kt.ModelDir(path).load_model() for path in (model_dir, parser)}


@pytest.fixture(scope="module")
def maps(model_dir, models):
    """The maps of attention of a pair of sentences."""
    tokenizer = kt.ModelDir(model_dir).load_tokenizer()
    return functools.cache(functools.partial(pair_attention, models[model_dir], tokenizer))


@pytest.fixture
def without_work(monkeypatch, models, maps, tmp_path):
    """Skips the slow parts after all flags have been checked."""
    load = kt.ModelDir.load_model

    def load_model(self, average=None, weights="mean"):
        if self.path in models and average is None and weights in ("auto", "mean"):
            return models[self.path]
        return load(self, average, weights)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kt.ModelDir, "load_model", load_model)
    monkeypatch.setattr("keras_transformer.training.train", lambda *_, **__: None)
    for name, result in (("translate_n", [Translation("x", 0.0)]), ("score", 0.0)):
        for engine in (kt.Translator, kt.CTranslate2Translator):
            monkeypatch.setattr(
                engine, name, lambda self, texts, *_, result=result: [result for _ in texts]
            )
    monkeypatch.setattr("keras_transformer.evaluation.ReferenceLoss", lambda *_: lambda: LOSS)
    monkeypatch.setattr("keras_transformer.data.Batches.epoch", lambda *_, **__: None)
    monkeypatch.setattr(
        "keras_transformer.report.pair_attention", lambda model, tokenizer, *pair: maps(*pair)
    )
    for name in ("export.export_saved_model", "ctranslate2.export_ctranslate2"):
        monkeypatch.setattr(f"keras_transformer.{name}", lambda *_: "")
    monkeypatch.setattr("keras_transformer.serving.run.serve", lambda *_, **__: None)
    monkeypatch.setattr("keras_transformer.serving.logs.log_to_stderr", lambda *_, **__: None)
    monkeypatch.setattr("keras_transformer.training.cost.parameter_count", lambda _: 1)
    monkeypatch.setattr("keras_transformer.cli.visualize.save", lambda *_: None)
    monkeypatch.setattr("keras_transformer.report.write_report", lambda *_: "")
    for name in ("grid", "heat", "line", "positions", "schedule"):
        monkeypatch.setattr(f"keras_transformer.report.{name}_figure", lambda *_: None)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_value_of_a_flag_is_a_traceback(
    command, model_dir, parser, corpus, tmp_path, without_work, monkeypatch, capfd
):
    pair = {"source": corpus / "train.en", "reference": corpus / "train.de"}
    usual = {
        "train": {
            **{"train_source": pair["source"], "train_target": pair["reference"]},
            **{**TINY_MODEL, **FEW_STEPS, "report": False, "model_dir": tmp_path / "new"},
        },
        "evaluate": {"model_dir": model_dir, **pair},
        "translate": {"model_dir": model_dir},
        "serve": {"model_dir": model_dir},
        "export": {"model_dir": model_dir, "format": "saved_model", "output": tmp_path / "export"},
        "import-marian": {"source": corpus, "model_dir": tmp_path / "new"},
        "import-opennmt": {
            **{"source": corpus, "config": corpus / "train.en", "model_dir": tmp_path / "new"}
        },
        "import-m2m100": {"source": corpus, "model_dir": tmp_path / "new"},
        "parse": {"model_dir": parser},
        "corpus": {
            **{"source": pair["source"], "target": pair["reference"], "overwrite": True},
            **{"output_source": tmp_path / "out.en", "output_target": tmp_path / "out.de"},
        },
        "cost": {"preset": "tiny"},
        "visualize": {"model_dir": model_dir, "source": "Yes.", "output": tmp_path / "figures"},
        "report": {"model_dir": model_dir, "output": tmp_path / "report"},
    }[command]
    known = set(flags.FLAGS)
    problems = []
    with own_flags():
        module_of(command).define_flags()
        names = sorted(set(flags.FLAGS) - known)
        if command != "translate":  # they are the same flags
            names = [name for name in names if name not in OF_SEARCH]
        assert names
        for name in names:
            kind = flags.FLAGS[name].flag_type()
            for value in VALUES.get(kind.replace(" ", ""), VALUES["string"]):
                options = {**usual, name: value}
                try:
                    status, said = ended_with_flags(command, options, monkeypatch, capfd)
                except Exception as error:
                    problems.append(f"--{name}={value[:40]}: {type(error).__name__}: {error}"[:300])
                    continue
                said = re.sub(r"\A(Translating|Parsing) with .*\n", "", said)
                if status not in (0, 1, 2) or len(said.splitlines()) > 1 or (status and not said):
                    problems.append(f"--{name}={value[:40]}: status {status}: {said[:300]}")
    assert not problems, "\n".join(problems)
