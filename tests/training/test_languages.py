"""Training on several target languages: the symbols in the data, validation, resuming."""

import json

import numpy as np
import pytest
from command_lines import FEW_STEPS, TINY_MODEL, refused, run
from helpers import lively_model

from keras_transformer import TransformerConfig
from keras_transformer.data import Corpus, TextPairs, WeightedPairs
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.engines import load
from keras_transformer.errors import UserError
from keras_transformer.options import TrainingOptions
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir, TrainingJob
from keras_transformer.training.judging import digest_of_scored, translation_by

FILES = {
    "train_source": "a.en,b.en",
    "train_target": "a.de,b.fr",
    "target_langs": "de,fr",
    "valid_source": "a.en,b.en",
    "valid_target": "a.de,b.fr",
}
MODEL = {**TINY_MODEL, **FEW_STEPS, "vocab_size": 360, "report": False, "validation_steps": 2}


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory):
    """English with German, and with "French", which is German spelled backwards."""
    folder = tmp_path_factory.mktemp("languages")
    for name, pairs in (("a", builtin_pairs("train", 60, 0)), ("b", builtin_pairs("test", 40, 0))):
        sides = list(zip(*pairs, strict=True))
        (folder / f"{name}.en").write_text("".join(f"{line}\n" for line in sides[0]))
        (folder / f"{name}.de").write_text("".join(f"{line}\n" for line in sides[1]))
        (folder / f"{name}.fr").write_text("".join(f"{line[::-1]}\n" for line in sides[1]))
    return folder


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def pairs_of(**more):
    return TextPairs(["a.en", "b.en"], ["a.de", "b.fr"], ["de", "fr"], **more)


def test_each_source_begins_with_its_symbol():
    pairs = pairs_of()
    plain = SubwordTokenizer.train_from_sentences(pairs.sentences(), 340)
    tokenizer = plain.with_languages(["de", "fr"])
    for source in (pairs, WeightedPairs([*map(one_file, (0, 1))], [1, 3])):
        corpus = Corpus.build(source, tokenizer)
        (starts, lengths), _ = corpus.pairs.sides(np.arange(100))
        symbols = [tokenizer.pieces[id_] for id_ in corpus.pairs.ids[starts]]
        assert symbols == ["<2de>"] * 60 + ["<2fr>"] * 40
    without = Corpus.build(TextPairs(["a.en", "b.en"], ["a.de", "b.fr"]), plain)
    assert (without.pairs.source_lengths + 1).tolist() == lengths.tolist()
    assert pairs.checksum() != TextPairs(["a.en", "b.en"], ["a.de", "b.fr"]).checksum()


def one_file(number):
    return TextPairs(
        f"{'ab'[number]}.en", f"a.{'de'}" if number == 0 else "b.fr", [["de", "fr"][number]]
    )


def test_a_pattern_has_one_language():
    pairs = TextPairs("[ab].en", "[ab].de", ["de"])
    assert {block.target_lang for block in pairs.blocks()} == {"de"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TextPairs(["a.en", "b.en"], ["a.de", "b.fr"], ["de"]), "one language for each of"),
        (lambda: TextPairs("a.en", "a.de", ["German"]), "target_langs must be a language code"),
        (
            lambda: WeightedPairs([one_file(0), TextPairs("b.en", "b.fr")], [1, 1]),
            "corpora must all have target_langs",
        ),
        (lambda: job(target_lang="de"), "target_lang=de has no effect with target_langs"),
        (lambda: job(valid=TextPairs("a.en", "a.de")), "must both have target_langs"),
        (lambda: job(valid=TextPairs("a.en", "a.de", ["it"])), "target_langs=it, which the train"),
        (
            lambda: job(options=TrainingOptions(bidirectional_steps=1)),
            "bidirectional_steps=1 has no language for the other direction",
        ),
    ],
)
def test_languages_that_do_not_fit_are_refused(make, message):
    with pytest.raises(UserError, match=message):
        make()


def job(**fields):
    config = TransformerConfig.from_preset("tiny", vocab_size=360)
    return TrainingJob(model_dir="run", train=pairs_of(), config=config, **fields)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"target_langs": "de"}, "needs one of --train_source and of --train_target for each"),
        ({"valid_source": "a.en", "valid_target": "a.de"}, "one of --valid_source and of --valid"),
        ({"target_lang": "de"}, "--target_lang has no effect with --target_langs"),
    ],
)
def test_flags_that_do_not_fit_are_refused(changed, message, tmp_path):
    assert message in refused("train", model_dir=tmp_path / "run", **{**FILES, **MODEL, **changed})


def test_a_validation_file_without_pairs_is_refused(tmp_path):
    for name in ("empty.en", "empty.fr"):
        (tmp_path / name).write_text("")
    files = {
        "valid_source": f"a.en,{tmp_path}/empty.en",
        "valid_target": f"a.de,{tmp_path}/empty.fr",
    }
    message = refused("train", model_dir=tmp_path / "run", **{**FILES, **MODEL, **files})
    assert message == (
        f"a.en, {tmp_path}/empty.en, a.de, {tmp_path}/empty.fr has no pair of sentences with "
        "target_langs=fr: give at least one"
    )
    assert not (tmp_path / "run").exists()


def test_validations_translate_into_each_language():
    tokenizer = SubwordTokenizer.train_from_sentences(pairs_of().sentences(), 340)
    tokenizer = tokenizer.with_languages(["de", "fr"])
    model = lively_model(1, tokenizer.vocab_size)
    translator = translation_by(model, tokenizer, {"beam_size": 1, "extra_length": 4}, 1).now()
    sources = ["The girls sleep.", "A horse!"]
    assert translator.with_languages("de")(sources) != translator.with_languages("fr")(sources)
    other = TextPairs(["a.en", "b.en"], ["a.de", "b.fr"], ["fr", "de"])
    assert digest_of_scored(pairs_of()) != digest_of_scored(other)


@pytest.mark.slow
def test_a_run_validates_each_language_and_resumes_with_the_same_ones(tmp_path):
    model_dir = tmp_path / "run"
    flags = {**FILES, **MODEL, "model_dir": model_dir, "report": True}
    run("train", **flags)
    assert (model_dir / "report" / "attention.png").exists()
    lines = map(json.loads, (model_dir / "logs" / "log.jsonl").read_text().splitlines())
    [validation] = [line for line in lines if line["split"] == "validation"]
    assert {"BLEU", "BLEU de", "BLEU fr"} <= validation.keys()
    mean = (validation["BLEU de"] + validation["BLEU fr"]) / 2
    assert validation["BLEU"] == pytest.approx(mean)
    assert list(ModelDir(model_dir).load_languages().symbols) == ["de", "fr"]
    sentences = ["The girls sleep."]
    for code in FILES["target_langs"].split(","):
        assert len(load(model_dir, target_lang=code)(sentences)) == 1
    message = refused("train", **{**flags, "target_langs": "fr,de"})
    assert "other training pairs" in message and "other validation pairs" in message
    message = refused("train", **{**flags, "target_langs": "de,it"})
    assert "target_langs=it is not in the vocabulary: give some of de, fr to resume" in message
    del flags["target_langs"]
    assert "give target_langs, the language of each target" in refused("train", **flags)
    asked = {"source": "a.en", "reference": "a.de", "model_dir": model_dir}
    assert "give target_lang, one of de, fr" in refused("evaluate", **asked)
    run("evaluate", **asked, target_lang="de", json=tmp_path / "scores.json")
    assert json.loads((tmp_path / "scores.json").read_text())["perplexity"] > 1


def test_a_model_of_one_pair_refuses_languages(tmp_path):
    model_dir = tmp_path / "run"
    tokenizer = SubwordTokenizer.train_from_sentences(pairs_of().sentences(), 340)
    model = lively_model(1, tokenizer.vocab_size)
    ModelDir(model_dir).create_trained(model, tokenizer, None, "fit")
    with pytest.raises(UserError, match="between two languages: leave out target_lang=de"):
        load(model_dir, target_lang="de")
    message = refused("translate", model_dir=model_dir, target_lang="de")
    assert "--target_lang has no effect with this model" in message
