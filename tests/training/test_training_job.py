"""A `TrainingJob` is checked once, when it is made, before any work."""

import dataclasses
import re

import pytest
from quick_run import CONFIG, OPTIONS

from keras_transformer.data import BuiltinPairs, WeightedPairs
from keras_transformer.errors import UserError
from keras_transformer.options import ParsingOptions, TrainingOptions
from keras_transformer.parsing import TreebankPairs
from keras_transformer.presets import PAIRS_BELOW, preset_for
from keras_transformer.training import TrainingJob

TRAIN, VALID = BuiltinPairs("train", 10), BuiltinPairs("validation", 5)


@pytest.fixture
def trees(tmp_path):
    (tmp_path / "train.mrg").write_text("(S (NP (NNS Dogs)) (VP (VBP bark)) (. .))\n")
    return TreebankPairs([tmp_path / "train.mrg"], ParsingOptions())


def job(**fields):
    return TrainingJob(**{"model_dir": "runs/new", "train": TRAIN, "config": CONFIG, **fields})


def refused(**fields):
    with pytest.raises(UserError) as error:
        job(**fields)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"train": "train.en"}, "train must be SentencePairs: found 'train.en'"),
        ({"options": {"steps": 3}}, "options must be TrainingOptions: found {'steps': 3}"),
        ({"exact_vocab_size": 1}, "exact_vocab_size must be bool: found 1"),
        ({"vocab_type": "words"}, "vocab_type must be bpe or unigram: found words"),
        (
            {"normalization": "nfkc"},
            "normalization must be source, both or none: found nfkc",
        ),
        ({"source_lang": "English"}, "source_lang must be a language code such as de"),
        ({"target_lang": "German"}, "target_lang must be a language code such as de"),
        ({"symbols": ("%s",), "vocabulary": "a"}, "symbols has no effect with vocabulary=a"),
        ({"symbols": ("%s",), "start_from": "a"}, "symbols has no effect with start_from=a"),
        ({"vocab_type": "bpe", "vocabulary": "a"}, "vocab_type has no effect with vocabulary=a"),
        ({"vocab_type": "bpe", "start_from": "a"}, "vocab_type has no effect with start_from=a"),
        ({"symbols": ["%s"]}, "symbols must be "),
        ({"vocabulary": "a.model", "start_from": "runs/a"}, "vocabulary=a.model has no effect"),
        (
            {"config": dataclasses.replace(CONFIG, positions="learned", max_positions=20)},
            "max_length must be at most the 20 learned positions: found 256",
        ),
        (
            # A resumed run has it from its record, where it cannot be left out.
            {"options": dataclasses.replace(OPTIONS, stop_patience=3)},
            "stop_patience=3 needs a validation set: give one, or set stop_patience to 0",
        ),
    ],
)
def test_a_field_that_does_not_fit_is_named(fields, message):
    assert refused(**fields).startswith(message)


def test_all_pairs_are_for_one_task(trees):
    of_trees = f"{trees.description} is for parsing, but the training set is for translation"
    assert refused(valid=trees) == f"valid: {of_trees}"
    assert refused(test=trees) == f"test: {of_trees}"
    job(train=trees, valid=trees)


def test_a_parser_has_no_type_or_normalization_of_subwords(trees):
    assert refused(train=trees, vocab_type="bpe").startswith("vocab_type=bpe: a parser's")
    message = refused(train=trees, normalization="both")
    assert message == "normalization=both: a parser's vocabulary has no normalization: leave it out"
    assert "a parser's vocabulary has no symbols" in refused(train=trees, symbols=("%s",))


def test_a_job_that_changes_is_checked_again():
    made = job(valid=VALID, options=dataclasses.replace(OPTIONS, stop_patience=3))
    with pytest.raises(UserError, match=re.escape("stop_patience=3 needs a validation set")):
        dataclasses.replace(made, valid=None)


def test_options_of_a_preset_have_its_training_and_the_given_fields():
    options = TrainingOptions.from_preset("tiny", steps=2200, seed=7)
    assert (options.warmup_steps, options.seed) == (1000, 7)
    assert (options.bidirectional_steps, options.average_checkpoints) == (700, 5)
    with pytest.raises(UserError, match="unknown preset 'huge'"):
        TrainingOptions.from_preset("huge")


def test_the_size_of_a_corpus_chooses_a_preset():
    *limits, _ = PAIRS_BELOW.values()
    assert [preset_for(int(limit) - 1) for limit in limits] == ["tiny", "small"]
    assert [preset_for(int(limit)) for limit in limits] == ["small", "base"]


def test_all_treebanks_write_trees_alike(trees):
    in_words = TreebankPairs(trees.files, ParsingOptions(linearization="words"))
    message = f"valid: {in_words.description} has linearization=words: set it to brackets"
    assert refused(train=trees, valid=in_words).startswith(message)
    with pytest.raises(
        UserError, match="corpora must have one linearization: found brackets, words"
    ):
        WeightedPairs([trees, in_words], [1, 1])
    job(train=WeightedPairs([trees, trees], [1, 1]), valid=trees)
