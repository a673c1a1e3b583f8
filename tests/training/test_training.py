"""Training: the contents of the model_dir, the output, and resuming."""

import contextlib
import dataclasses
import io
import json
import random
import re
import shutil
import sys
import types

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from command_lines import begin
from helpers import run_python, small_model
from quick_run import CONFIG, OPTIONS
from tensorflow.core.util import event_pb2

import keras_transformer as kt
from keras_transformer.ctranslate2 import ConvertedModel
from keras_transformer.data import (
    Batches,
    Block,
    BuiltinPairs,
    Corpus,
    SentencePairs,
    TextPairs,
    WeightedPairs,
)
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss, translation_scores
from keras_transformer.machine.product_speed import Precision
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import (
    ModelDir,
    TrainingJob,
    TrainingOptions,
    judging,
    make_strategy,
    parallel_parts,
    train,
)
from keras_transformer.training.model_dir import digest_of
from keras_transformer.training.precision_choice import chosen_precision, with_precision
from keras_transformer.training.preparation import _target_lang, prepare
from keras_transformer.training.trainer import record_start, restore

TRAIN, VALID = BuiltinPairs("train", 300), BuiltinPairs("validation", 60)


def job_in(path, options=OPTIONS, **fields):
    fields = {"train": TRAIN, "config": CONFIG, **fields}
    return TrainingJob(model_dir=path, options=options, **fields)


def run(path, options=OPTIONS, **fields):
    return train(job_in(path, options, **fields))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A model_dir of 6 steps, what training printed, and the model that it returned."""
    path = tmp_path_factory.mktemp("runs") / "trained"
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        model = run(path, valid=VALID, target_lang="de", command="train.py --steps=6")
    return ModelDir(path), printed.getvalue().splitlines(), model


def scalars(folder):
    """The scalars that TensorBoard shows: {name: {step: value}}."""
    found = {}
    for path in folder.glob("events.out.tfevents.*"):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = event_pb2.Event.FromString(record)
            for value in event.summary.value:
                if value.metadata.plugin_data.plugin_name != "scalars":
                    continue
                number = float(tf.make_ndarray(value.tensor))
                found.setdefault(value.tag, {})[event.step] = number
    return found


def corpus_of(model_dir, pairs=TRAIN):
    return Corpus.build(pairs, model_dir.load_tokenizer(), OPTIONS.max_length)


def counts_of(model_dir):
    return corpus_of(model_dir).counts


@pytest.mark.slow
def test_the_end_of_a_training_converts_the_model_for_ctranslate2(trained, capfd):
    model_dir, _, _ = trained
    [folder] = model_dir.path.glob("ctranslate2/[!.]*")
    assert folder == ConvertedModel(model_dir.path).path
    written = folder.stat().st_mtime_ns
    assert kt.load(model_dir.path)(["A horse."]) is not None
    assert [*model_dir.path.glob("ctranslate2/[!.]*")] == [folder]
    assert folder.stat().st_mtime_ns == written


@pytest.mark.slow
def test_the_model_dir_holds_all_about_the_model(trained):
    model_dir, _, model = trained
    assert model_dir.load_config() == CONFIG
    assert model_dir.load_tokenizer().vocab_size == CONFIG.vocab_size
    training = model_dir.load_training()
    assert training["data"].items() > dataclasses.asdict(counts_of(model_dir)).items()
    [start] = training["starts"]
    assert {"time", "tensorflow", "processor"} <= start.keys()
    assert training == {
        "starts": [start],
        "options": dataclasses.asdict(OPTIONS),
        "data": training["data"],
        "vocab_type": "bpe",
        "linearization": None,
        "preset": None,
        "source_lang": None,
        "target_lang": "de",
        "copies_parts": True,
        "config": digest_of((model_dir.path / "config.json").read_bytes()),
        "commands": ["train.py --steps=6"],
    }
    for found, expected in zip(model_dir.load_model().weights, model.weights, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


@pytest.mark.slow
def test_only_the_last_checkpoints_are_kept(trained):
    assert trained[0].checkpoints.steps() == [4, 6]


@pytest.mark.slow
def test_training_says_what_it_does(trained):
    model_dir, lines, model = trained
    counts = counts_of(model_dir)
    assert lines[0] == (
        f"Training {CONFIG.num_encoder_layers} + {CONFIG.num_decoder_layers} layers of width "
        f"{CONFIG.d_model} on the built-in English-German corpus (train): 6 steps of 256 tokens, "
        f"in {model_dir.path}"
    )
    assert (
        f"{model.count_params():,} parameters, {counts.kept:,} pairs, {counts.source_tokens:,} "
        f"source and {counts.target_tokens:,} target tokens, 1 device"
    ) in lines
    assert lines[1] == "Precision: float32"
    assert "Compiling the training step" in lines
    reports = [line for line in lines if " loss " in line and " rate " in line]
    # The first step is reported at once; the time left is known once a batch length comes again.
    assert [line.split()[1] for line in reports] == ["1/6", "2/6", "4/6", "6/6"]
    assert [re.search(r"tokens/s(?:, \d+:\d\d:\d\d left)?$", line)[0] for line in reports]
    assert [line.endswith(" left") for line in reports] == [False, False, False, True]
    assert reports[-1].endswith(", 0:00:00 left")
    assert [line.split(": ")[0] for line in lines if "validation loss" in line] == [
        "step 3",
        "step 6",
    ]
    # BLEU is 0 at both validations, and the loss falls.
    assert f"The best checkpoint (step 6) on {VALID.description}:" in lines


@pytest.mark.slow
def test_pairs_left_out_are_counted(trained):
    model_dir, lines, _ = trained
    tokenizer = model_dir.load_tokenizer()
    sides = [tokenizer.tokenize(list(side)) for side in zip(*TRAIN, strict=True)]
    longest = np.maximum(*(side.row_lengths().numpy() + 1 for side in sides))
    is_too_long = longest > OPTIONS.max_length
    too_long = is_too_long.sum()
    first, second, third = np.flatnonzero(is_too_long)[:3] + 1
    assert 0 < too_long < 300
    assert lines[1] == "Precision: float32"
    assert lines[2] == (
        f"Dropped from {TRAIN.description}: {too_long} pairs with a side of "
        f"more than 60 tokens (pair {first}, pair {second}, pair {third}, ...)"
    )
    assert counts_of(model_dir).kept == 300 - too_long


@pytest.mark.slow
def test_figures_are_written_for_tensorboard(trained):
    figures = scalars(trained[0].logs)
    assert {name: sorted(values) for name, values in figures.items()} == {
        "train/loss": [2, 4, 6],
        "train/perplexity": [2, 4, 6],
        "train/learning_rate": [2, 4, 6],
        "train/padding_share": [2, 4, 6],
        "train/gradient_norm": [2, 4, 6],
        "train/skipped_updates": [2, 4, 6],
        "train/tokens_per_second": [2, 4, 6],
        "validation/loss": [3, 6],
        "validation/perplexity": [3, 6],
        "validation/BLEU": [3, 6],
    }
    assert figures["train/loss"][6] < figures["train/loss"][2]
    for step, rate in figures["train/learning_rate"].items():
        # The rate of the update that follows (section 5.3).
        assert rate == pytest.approx(16**-0.5 * (step + 1) * 10**-1.5)


@pytest.mark.parametrize(("microbatches", "replicas"), [(1, 1), (4, 1), (1, 4), (2, 2)])
def test_a_validation_computes_no_more_tokens_at_a_time_than_a_step(
    monkeypatch, microbatches, replicas
):
    """A batch that fits into memory only in parts would not fit in a validation."""
    largest = []

    def reference_loss(model, batches):
        largest.append(max(labels.shape.num_elements() for _, labels in batches))

    monkeypatch.setattr(judging, "ReferenceLoss", reference_loss)
    tokenizer = SubwordTokenizer.train_from_sentences(VALID.sentences(), CONFIG.vocab_size)
    strategy = types.SimpleNamespace(num_replicas_in_sync=replicas)
    model = types.SimpleNamespace(config=CONFIG, distribute_strategy=strategy)
    options = dataclasses.replace(OPTIONS, tokens_per_batch=1024, num_microbatches=microbatches)
    judging.judge_of(model, tokenizer, options, VALID, Corpus.build(VALID, tokenizer), None)
    size = 1024 // (microbatches * replicas)
    assert size / 2 < largest[0] <= size


@pytest.mark.slow
def test_validation_is_that_of_the_model_at_its_step(trained):
    model_dir, _, _ = trained
    batches = Batches(corpus_of(model_dir, VALID), shuffle=False).epoch()
    expected = ReferenceLoss(model_dir.load_model(average=1), batches)()
    figures = scalars(model_dir.logs)
    for name in ("loss", "perplexity"):
        assert figures[f"validation/{name}"][6] == pytest.approx(expected[name], rel=1e-4)


@pytest.mark.slow
def test_loss_and_perplexity_of_references_are_those_of_the_logits():
    model = small_model(vocab_size=13, label_smoothing=0.2)
    rng = np.random.default_rng(0)
    batches, losses, log_likelihoods = [], [], []
    for rows, length in ((1, 4), (3, 7), (2, 5)):
        source_ids, target_ids, labels = rng.integers(3, 13, size=(3, rows, length), dtype="int32")
        labels[0, 2:] = source_ids[-1, 3:] = 0
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        batches.append((inputs, labels))
        logits = model(inputs).numpy().astype("float64")
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        for row, column in zip(*np.nonzero(labels), strict=True):
            of_label = log_probs[row, column, labels[row, column]]
            of_others = log_probs[row, column].sum() - of_label
            losses.append(-0.8 * of_label - 0.2 / 12 * of_others)
            log_likelihoods.append(of_label)
    found = ReferenceLoss(model, batches)()
    assert found["loss"] == pytest.approx(np.mean(losses), rel=1e-5)
    assert found["perplexity"] == pytest.approx(np.exp(-np.mean(log_likelihoods)), rel=1e-5)


@pytest.mark.slow
def test_a_run_left_to_chance_goes_on_as_if_it_had_not_been_stopped(tmp_path, capsys):
    config = dataclasses.replace(CONFIG, dropout=0.3)
    for folder, steps in (("whole", 6), ("stopped", 3), ("stopped", 6)):
        options = dataclasses.replace(OPTIONS, steps=steps, bpe_dropout=0.2)
        arguments = {"data_cache": tmp_path / "cache", "command": f"train.py --steps={steps}"}
        run(tmp_path / folder, options, config=config, **arguments)
    assert "Resuming from step 3" in capsys.readouterr().out.splitlines()
    assert len(list((tmp_path / "cache").iterdir())) == 1

    stopped = ModelDir(tmp_path / "stopped")
    assert stopped.checkpoints.steps() == [4, 6]
    assert stopped.load_training()["commands"] == ["train.py --steps=3", "train.py --steps=6"]
    assert sorted(scalars(stopped.logs)["train/loss"]) == [2, 3, 4, 6]
    assert_same_end(stopped, ModelDir(tmp_path / "whole"))


@pytest.mark.slow
def test_a_run_stopped_and_not_validated_ends_as_one_that_was_validated(trained, tmp_path):
    for steps in (3, 6):
        run(tmp_path / "runs", dataclasses.replace(OPTIONS, steps=steps))
    assert_same_end(ModelDir(tmp_path / "runs"), trained[0])


def assert_same_end(found, expected):
    """The last checkpoints of two model_dirs hold the same weights, bit by bit."""
    weights = [model_dir.load_model(average=1).weights for model_dir in (found, expected)]
    for left, right in zip(*weights, strict=True):
        np.testing.assert_array_equal(left.numpy(), right.numpy())


@pytest.mark.slow
def test_a_finished_run_is_not_trained_again(trained, tmp_path, capsys):
    done, _, model = trained
    model_dir = ModelDir(shutil.copytree(done.path, tmp_path / "again"))
    before = {path: path.stat().st_mtime_ns for path in model_dir.checkpoints.folder.rglob("*")}
    again = run(model_dir.path)
    after = {path: path.stat().st_mtime_ns for path in model_dir.checkpoints.folder.rglob("*")}
    assert after == before
    for found, expected in zip(again.weights, model.weights, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())
    printed = capsys.readouterr().out
    assert "step 6" in printed
    assert " loss " not in printed


def lines_of(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def files_of(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


@pytest.mark.slow
def test_another_configuration_is_refused_and_nothing_changed(trained):
    model_dir, _, _ = trained
    before = files_of(model_dir.path)
    with pytest.raises(UserError, match=r"d_ff=16 \(now 32\)"):
        run(model_dir.path, config=dataclasses.replace(CONFIG, d_ff=32))
    assert files_of(model_dir.path) == before


@pytest.mark.slow
def test_another_corpus_of_as_many_pairs_and_tokens_is_refused(trained):
    model_dir, _, _ = trained
    before = files_of(model_dir.path)
    pairs = list(TRAIN)

    class Backwards(SentencePairs):
        description = "the same sentences in another order"

        def blocks(self):
            source, target = zip(*reversed(pairs), strict=True)
            yield Block([s.encode() for s in source], [t.encode() for t in target])

    with pytest.raises(UserError, match="other options or data: other training pairs;"):
        run(model_dir.path, train=Backwards())
    assert files_of(model_dir.path) == before


@pytest.mark.slow
def test_another_validation_set_is_refused_since_scores_would_be_compared(trained):
    model_dir, _, _ = trained
    before = files_of(model_dir.path)
    with pytest.raises(UserError, match="other options or data: other validation pairs;"):
        run(model_dir.path, valid=BuiltinPairs("validation", 30))
    assert files_of(model_dir.path) == before


@pytest.mark.slow
@pytest.mark.parametrize("valid", [VALID, None])
def test_workers_compare_the_validation_sets_that_they_were_given(valid, trained, monkeypatch):
    def expect_same(strategy, values):
        compared.append(values["validation"])
        raise UserError("compared")

    model_dir, _, _ = trained
    compared = []
    monkeypatch.setattr("keras_transformer.training.preparation.expect_same", expect_same)
    with pytest.raises(UserError, match=r"^compared$"):
        run(model_dir.path, valid=valid)
    recorded = model_dir.load_training()["data"]["validation"]
    assert compared == [recorded if valid else None]


@pytest.mark.slow
def test_a_new_run_starts_from_the_vocabulary_and_weights_of_another(
    trained, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained[0].path, "own")
    options = dataclasses.replace(OPTIONS, steps=1, learning_rate=1e-30)
    others = {
        "config": dataclasses.replace(CONFIG, dropout=0.3),
        "train": BuiltinPairs("train", 200),
    }
    run("tuned", options, start_from="own", **others)
    tuned = ModelDir("tuned")
    for ours, theirs in zip(
        tuned.load_model().weights, trained[0].load_model().weights, strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)
    assert tuned.load_tokenizer().to_bytes() == trained[0].load_tokenizer().to_bytes()

    # It resumes only with the same command, and from its own weights, without the other folder.
    for start_from in (None, "other"):
        with pytest.raises(UserError, match=rf"start_from=own \(now {start_from}\)"):
            run("tuned", options, start_from=start_from, **others)
    shutil.rmtree("own")
    run("tuned", dataclasses.replace(options, steps=2), start_from="./own", **others)
    assert tuned.checkpoints.steps() == [1, 2]
    assert tuned.load_training()["data"]["start_from"] == "own"


def test_a_new_run_has_the_languages_of_the_model_it_starts_from_unless_given(trained, tmp_path):
    start = shutil.copytree(trained[0].path, tmp_path / "start")
    ModelDir(start).save_training({**ModelDir(start).load_training(), "source_lang": "en"})
    for given, expected in (
        ({}, ("en", "de")),
        ({"target_lang": "fr"}, ("en", "fr")),
        ({"source_lang": "nl", "target_lang": "de"}, ("nl", "de")),
    ):
        with contextlib.ExitStack() as until_trained:
            job = job_in(tmp_path / "runs", start_from=start, **given)
            prepared = prepare(job, make_strategy(), until_trained)
        record = prepared.record
        assert (record["source_lang"], record["target_lang"]) == expected
        assert prepared.job.target_lang == expected[1]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    """A vocabulary file that was learned from other text."""
    path = tmp_path_factory.mktemp("vocabularies") / "ours.model"
    SubwordTokenizer.train_from_sentences(TRAIN.sentences(), 340, "unigram").save(path)
    return path


def test_a_vocabulary_of_the_users_own_is_used_and_kept(vocabulary, tmp_path):
    copy = shutil.copy(vocabulary, tmp_path / "copy.model")
    job, strategy = job_in(tmp_path / "runs", vocabulary=copy), make_strategy("one_device")
    begin(job, strategy)
    model_dir = ModelDir(tmp_path / "runs")
    assert model_dir.load_tokenizer().to_bytes() == vocabulary.read_bytes()
    assert model_dir.load_training()["vocab_type"] == "unigram"

    other = SubwordTokenizer.train_from_sentences(VALID.sentences(), 340)
    other.save(copy)
    with pytest.raises(UserError, match=r"runs has another vocabulary than .*copy\.model: to"):
        begin(job, strategy)
    copy.unlink()  # the model_dir has a copy
    begin(job, strategy)
    assert len(model_dir.load_training()["starts"]) == 2


@pytest.mark.parametrize(
    ("content", "config", "options", "message"),
    [
        (None, {}, {}, "ours.model: cannot read the vocabulary: No such file or directory"),
        (b"text", {}, {}, "ours.model: not a SentencePiece model"),
        ("valid", {"vocab_size": 350}, {}, "the model must have vocab_size=340"),
        (
            "valid",
            {},
            {"lowercase": True},
            "ours.model was made with lowercase=False: set lowercase",
        ),
        ("ids", {}, {}, "spm_train makes one with --pad_id=0 --bos_id=1 --eos_id=2 --unk_id=3"),
    ],
)
def test_a_vocabulary_of_no_use_is_refused(vocabulary, tmp_path, content, config, options, message):
    path = tmp_path / "ours.model"
    if content == "ids":
        with open(path, "wb") as file:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=TRAIN.sentences(), model_writer=file, vocab_size=340,
                byte_fallback=True, minloglevel=2,
            )  # fmt: skip
    elif content is not None:
        path.write_bytes(vocabulary.read_bytes() if content == "valid" else content)
    options, config = dataclasses.replace(OPTIONS, **options), dataclasses.replace(CONFIG, **config)
    with pytest.raises(UserError, match=re.escape(message)) as error:
        run(tmp_path / "runs", options, config=config, vocabulary=path)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_the_record_has_the_type_of_a_vocabulary_that_was_not_learned(vocabulary, tmp_path):
    model = small_model(vocab_size=340)
    unigram = SubwordTokenizer.load(vocabulary)
    ModelDir(tmp_path / "own").create_trained(model, unigram, None, "fit")
    for given in ({"start_from": tmp_path / "own"}, {"vocabulary": vocabulary}):
        job = job_in(tmp_path / "runs", config=model.config, **given)
        with contextlib.ExitStack() as until_trained:
            prepared = prepare(job, make_strategy("one_device"), until_trained)
        assert prepared.record["vocab_type"] == "unigram"


def test_a_vocabulary_and_a_model_to_start_from_exclude_each_other(vocabulary, tmp_path):
    with pytest.raises(
        UserError, match=r"^vocabulary=\S+ours\.model has no effect with start_from="
    ):
        run(tmp_path / "runs", vocabulary=vocabulary, start_from=tmp_path / "other")
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_an_imported_model_is_started_from_and_not_trained_in_place(trained, tmp_path):
    imported = ModelDir(tmp_path / "imported")
    imported.create_trained(trained[2], trained[0].load_tokenizer(), "de", "import-marian")
    assert parallel_parts(imported.path, CONFIG, TrainingOptions()) >= 1
    before = files_of(imported.path)
    with pytest.raises(UserError, match=r"has an imported model, .* start_from=") as error:
        run(imported.path)
    assert "\n" not in str(error.value)
    assert {**files_of(imported.path), imported.path / ".lock": b""} == {
        **before,
        imported.path / ".lock": b"",
    }
    with contextlib.ExitStack() as until_trained:
        job = job_in(tmp_path / "tuned", start_from=imported.path)
        tuned = restore(prepare(job, make_strategy("one_device"), until_trained)).model
    for ours, theirs in zip(tuned.weights, trained[2].weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        ({"d_ff": 32}, {}, "model of another configuration: d_ff=16 (now 32)"),
        (
            {},
            {"lowercase": True},
            "was made with lowercase=False: set lowercase to that (now True)",
        ),
    ],
)
def test_a_model_of_another_kind_is_nothing_to_start_from(
    trained, tmp_path, config, options, message
):
    options, config = dataclasses.replace(OPTIONS, **options), dataclasses.replace(CONFIG, **config)
    with pytest.raises(UserError, match=re.escape(message)):
        run(tmp_path / "runs", options, config=config, start_from=trained[0].path)
    assert not (tmp_path / "runs").exists()


ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def test_pairs_of_which_none_can_be_learnt_are_refused(tmp_path):
    lines = ["", " ", f"{ALPHABET} " * 3]
    pairs = TextPairs(*(lines_of(tmp_path / name, *lines) for name in ("a.en", "a.de")))
    config = dataclasses.replace(CONFIG, vocab_size=288)
    with pytest.raises(UserError, match="2 have an empty side, 1 are too long"):
        run(tmp_path / "runs", config=config, train=pairs)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("side", "lines"),
    [
        ("valid", []),
        ("valid", ["", " "]),
        ("valid", [ALPHABET * 3]),
        ("test", []),
    ],
)
def test_no_usable_pair_to_validate_or_test_on_is_refused_before_training(tmp_path, side, lines):
    empty = TextPairs(*(lines_of(tmp_path / "empty", *lines),) * 2)
    with pytest.raises(UserError, match="empty"):
        run(tmp_path / "runs", dataclasses.replace(OPTIONS, steps=1), **{side: empty})
    assert not ModelDir(tmp_path / "runs").checkpoints.steps()


def test_bpe_dropout_of_another_vocabulary_is_refused_at_once(tmp_path):
    options = dataclasses.replace(OPTIONS, bpe_dropout=0.1)
    with pytest.raises(UserError, match="bpe_dropout") as error:
        run(tmp_path / "runs", options, vocab_type="unigram")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_word_dropout_is_refused_for_translation(tmp_path):
    options = dataclasses.replace(OPTIONS, word_dropout=0.1)
    with pytest.raises(UserError, match=r"^word_dropout is for parsing: set it to 0 for transl"):
        run(tmp_path / "runs", options)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_lowercase_model_is_evaluated_without_case_and_stays_lowercase(tmp_path, capsys):
    options = dataclasses.replace(OPTIONS, lowercase=True, steps=1, validation_steps=1)
    run(tmp_path / "runs", options, valid=VALID)
    assert "lowercased BLEU" in capsys.readouterr().out
    assert ModelDir(tmp_path / "runs").load_tokenizer().lowercase
    with pytest.raises(UserError, match=re.escape("lowercase=True (now False)")):
        run(tmp_path / "runs")


def test_more_tokens_than_learned_positions_are_refused_at_once(tmp_path):
    config = dataclasses.replace(CONFIG, positions="learned", max_positions=20)
    with pytest.raises(UserError, match="at most the 20 learned positions: found 60"):
        run(tmp_path / "runs", config=config)
    assert not (tmp_path / "runs").exists()


def test_translation_has_one_vocabulary_for_both_languages(tmp_path, monkeypatch):
    monkeypatch.delattr(SubwordTokenizer, "train_from_sentences")  # refused before the work
    config = dataclasses.replace(CONFIG, target_vocab_size=100, share_embeddings=False)
    with pytest.raises(
        UserError, match=r"^target_vocab_size=100 is for parsing only: leave it out"
    ):
        run(tmp_path / "runs", config=config)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("beta_2", 1.0),
        ("learning_rate", 0.0),
        ("average_checkpoints", 21),
        ("bidirectional_steps", 6000),
        ("cooldown_steps", 6001),
    ],
)
def test_option_out_of_range_is_refused(field, value):
    with pytest.raises(UserError, match=f"{field} must be .*: found {value}"):
        TrainingOptions(**{field: value})


@pytest.mark.slow
def test_record_is_plain_json(trained):
    assert json.loads((trained[0].path / "training.json").read_text())["options"]["steps"] == 6


@pytest.mark.parametrize(
    ("policy", "slowdowns", "line"),
    [
        ("float32", {}, None),  # nothing is measured
        ("mixed_bfloat16", {"bfloat16": 0.6}, None),
        ("mixed_bfloat16", {"bfloat16": 0.95}, "bfloat16 takes 0.95 .* dtype_policy=float32$"),
        ("mixed_bfloat16", {"bfloat16": 1.34}, "bfloat16 takes 1.3 .* dtype_policy=float32$"),
        ("mixed_float16", {"float16": 0.7}, None),
        (
            "mixed_float16",
            {"float16": 1.1, "bfloat16": 0.6},
            "float16 takes 1.1 .* dtype_policy=mixed_bfloat16$",
        ),
        (
            "mixed_float16",
            {"float16": 1.1, "bfloat16": 1.2},
            "float16 takes 1.1 .* dtype_policy=float32$",
        ),
    ],
)
def test_a_precision_that_is_slower_than_float32_has_a_warning(
    policy, slowdowns, line, monkeypatch, tmp_path, capsys
):
    monkeypatch.setattr(
        "keras_transformer.training.precision_choice.slowdown",
        lambda dtype, width, units: slowdowns[dtype],
    )
    options = dataclasses.replace(OPTIONS, dtype_policy=policy)
    nothing = TextPairs(*(lines_of(tmp_path / "empty"),) * 2)
    with pytest.raises(UserError, match="has no pair"):  # before training
        run(tmp_path / "runs", options, valid=nothing)
    printed = capsys.readouterr().out.splitlines()
    assert printed[1] == f"Precision: {policy.removeprefix('mixed_')}"
    warnings = [text for text in printed if "Warning" in text]
    assert len(warnings) == (line is not None)
    assert not warnings or re.search(line, warnings[0])


FASTEST = "keras_transformer.training.precision_choice.fastest_precision"


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "float32"])
def test_the_automatic_precision_is_the_fastest_for_the_model(policy, monkeypatch, tmp_path):
    def fastest(width, units):
        assert (width, units) == (CONFIG.d_model, CONFIG.d_ff)
        return Precision(policy, "measured")

    monkeypatch.setattr(FASTEST, fastest)
    options = dataclasses.replace(OPTIONS, dtype_policy="auto")
    assert chosen_precision(job_in(tmp_path / "new", options)) == (policy, "measured")


def test_a_run_keeps_its_automatic_precision_on_another_machine(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(
        "keras_transformer.training.precision_choice.slowdown", lambda dtype, width, units: 1.6
    )
    options = dataclasses.replace(OPTIONS, dtype_policy="auto")
    for policy in ("mixed_bfloat16", "float32"):
        monkeypatch.setattr(FASTEST, lambda *_, policy=policy: Precision(policy, "measured"))
        strategy = make_strategy("one_device")
        begin(with_precision(job_in(tmp_path / "run", options), strategy), strategy)
        recorded = ModelDir(tmp_path / "run").load_training()["options"]
        assert recorded["dtype_policy"] == "mixed_bfloat16"
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if line.startswith(("Precision", "Warning"))] == [
        "Precision: bfloat16 (measured)",
        "Precision: bfloat16",
        "Warning: a product in bfloat16 takes 1.6 times as long as in float32 on this processor: "
        "a new run is faster with dtype_policy=float32",
    ]


@pytest.mark.parametrize(("microbatches", "parts"), [(1, 4), (2, 2), (4, 1), (8, 1)])
def test_each_part_of_a_micro_batch_has_enough_tokens(monkeypatch, tmp_path, microbatches, parts):
    monkeypatch.setattr("keras_transformer.machine.cores.number_of_cores", lambda: 4)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: [])  # no GPU
    options = TrainingOptions(tokens_per_batch=4096, num_microbatches=microbatches)
    assert parallel_parts(tmp_path / "new", CONFIG, options) == parts


@pytest.mark.slow
def test_two_devices_train_and_go_on(tmp_path):
    """The pipeline, the callbacks and a restored checkpoint under `MirroredStrategy`."""
    script = """
import sys
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
import tests.support.untuned
from keras_transformer import TransformerConfig
from keras_transformer.data import BuiltinPairs
from keras_transformer.training import TrainingJob, TrainingOptions, train

config = TransformerConfig.from_preset(
    "tiny", vocab_size=400, num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=16,
    num_heads=2, dropout=0.0,
)
for steps in (15, 30):
    options = TrainingOptions(
        steps=steps, tokens_per_batch=512, max_length=40, learning_rate=0.01, warmup_steps=10,
        report_steps=15, jit_compile=False, average_checkpoints=1,
    )
    pairs = BuiltinPairs("train", 200)
    train(TrainingJob(model_dir=sys.argv[1], train=pairs, config=config, options=options))
"""
    lines = run_python(script, tmp_path / "run").splitlines()
    assert any(line.endswith(", 2 devices") for line in lines)
    assert "Resuming from step 15" in lines
    first, last = (
        float(line.split("perplexity ")[1].split(",")[0])
        for line in lines
        if line.startswith(("step 15/15", "step 30/30"))
    )
    assert last < first / 2
    assert ModelDir(tmp_path / "run").checkpoints.steps() == [15, 30]


@pytest.mark.slow
def test_validations_score_chinese_by_character(tmp_path, monkeypatch):
    hypotheses, references = ["我爱吃苹果。"] * 4, ["我爱吃红苹果。"] * 4
    for name, lines in (("en", ["I like red apples."] * 4), ("zh", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    pairs = TextPairs(tmp_path / "en", tmp_path / "zh")
    tokenizer = SubwordTokenizer.train_from_sentences(pairs.sentences(), 290)
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = small_model(vocab_size=tokenizer.vocab_size, **layers)
    corpus = Corpus.build(pairs, tokenizer, OPTIONS.max_length)
    monkeypatch.setattr(judging, "translation_by", lambda *_: lambda sources: hypotheses)
    figures, _ = judging.judge_of(model, tokenizer, OPTIONS, pairs, corpus, "zh")()
    expected = translation_scores(hypotheses, references, "zh")["bleu"].value
    assert figures["BLEU"] == expected > 30


@pytest.mark.slow
def test_what_is_not_the_code_of_a_language_is_refused_and_not_recorded(trained, tmp_path):
    with pytest.raises(UserError, match=r"^target_lang must be .* found 'german'; two or"):
        run(tmp_path / "run", target_lang="german")
    with pytest.raises(UserError, match=r"^target_lang must be .* found 'German'; two or"):
        ModelDir(tmp_path / "run").create_trained(
            trained[2], trained[0].load_tokenizer(), "German", "my_script.py"
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recorded", "message"),
    [("german", r"^target_lang must be .* found 'german'; two or"), ("ja", "^cannot sc")],
)
def test_the_recorded_language_is_checked_before_a_run_resumes(
    trained, tmp_path, monkeypatch, recorded, message
):
    """A record edited by hand, or a run that began on a machine with a segmenter of Japanese."""
    monkeypatch.setitem(sys.modules, "MeCab", None)
    copy = ModelDir(shutil.copytree(trained[0].path, tmp_path / "run"))
    copy.save_training({**copy.load_training(), "target_lang": recorded})
    before = files_of(copy.path)
    with pytest.raises(UserError, match=message):
        run(copy.path, dataclasses.replace(OPTIONS, steps=7), valid=VALID)
    assert files_of(copy.path) == before


@pytest.mark.slow
def test_a_run_keeps_the_language_that_its_validations_are_scored_by(trained, tmp_path):
    copy = ModelDir(shutil.copytree(trained[0].path, tmp_path / "run"))
    before = files_of(copy.path)
    for language in ("fr", "zh"):  # it is complete: nothing would be trained
        with pytest.raises(UserError, match=rf"target_lang=de \(now {language}\): leave out targe"):
            run(copy.path, valid=VALID, target_lang=language)
    assert _target_lang(copy, "deu") == "de"  # another code of it
    assert files_of(copy.path) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("validation", "language", "may"),
    [("5eed", "fr", True), ("5eed", "zh", False), (None, "zh", True)],
)
def test_a_run_without_a_language_may_get_one_that_scores_its_validations_alike(
    validation, language, may, trained, tmp_path
):
    copy = ModelDir(shutil.copytree(trained[0].path, tmp_path / "run"))
    record = copy.load_training()
    data = {**record["data"], "validation": validation}
    copy.save_training({**record, "data": data, "target_lang": None})
    if may:
        assert _target_lang(copy, language) == language
    else:
        with pytest.raises(UserError, match=r"holds a run of target_lang=None \(now zh\): leave"):
            _target_lang(copy, language)


@pytest.mark.slow
@pytest.mark.parametrize("other_name", ["run/../run", "link"])
def test_a_run_does_not_start_from_its_own_folder(other_name, trained, tmp_path):
    path = shutil.copytree(trained[0].path, tmp_path / "run")
    (tmp_path / "link").symlink_to(path)
    before = files_of(path)
    for options in (OPTIONS, dataclasses.replace(OPTIONS, steps=7)):
        with pytest.raises(UserError, match=rf"^start_from=\S+ is model_dir {path} itself: give"):
            run(path, options, start_from=tmp_path / other_name)
    assert files_of(path) == before


def test_training_pairs_that_are_also_the_validation_set_have_a_warning(tmp_path, capsys):
    pairs = BuiltinPairs("train", 60)
    for valid, warnings in ((BuiltinPairs("train", 60), 1), (VALID, 0)):
        job = job_in(tmp_path / str(warnings), train=pairs, valid=valid, exact_vocab_size=False)
        with contextlib.ExitStack() as until_trained:
            prepare(job, make_strategy(), until_trained)
        lines = capsys.readouterr().out.splitlines()
        assert sum("Warning: " in line and "also the validation set" in line for line in lines) == (
            warnings
        )


def test_a_corpus_to_clean_first_has_a_warning(tmp_path, capsys):
    lines = list(zip(*BuiltinPairs("train", 60), strict=True))
    for repeats, warnings in ((2, 1), (1, 0)):
        files = [
            lines_of(tmp_path / f"{n}.{repeats}", *side * repeats) for n, side in enumerate(lines)
        ]
        job = job_in(tmp_path / "runs", train=TextPairs(*files), exact_vocab_size=False)
        with contextlib.ExitStack() as until_trained:
            prepare(job, make_strategy(), until_trained)
        said = capsys.readouterr().out
        assert said.count("60 pairs (50.0%) are suspicious (60 repeated): see") == warnings


def test_a_vocabulary_of_whole_sources_has_a_warning(tmp_path, capsys):
    """Learned of letters that are read apart, it has none."""
    draw = random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnopqrst", k=6)) for _ in range(25)] * 9
    for sources, times in ((words, 1), ([" ".join(word) for word in words], 0)):
        path = lines_of(tmp_path / f"{times}.txt", *sources)
        config = dataclasses.replace(CONFIG, vocab_size=420)
        train = TextPairs(path, path)
        job = job_in(tmp_path / f"{times}", train=train, config=config, exact_vocab_size=False)
        with contextlib.ExitStack() as until_trained:
            prepare(job, make_strategy(), until_trained)
        said = capsys.readouterr().out
        assert said.count("subwords on average: if single letters or digits matter") == times, said


def test_targets_that_are_longer_than_translations_have_a_warning(tmp_path, capsys):
    sides = zip(*BuiltinPairs("validation", 20), strict=True)
    short, long = (lines_of(tmp_path / f"{n}", *side) for n, side in enumerate(sides))
    with open(long, "a") as file:
        file.write("der " * 56 + "\n")
    with open(short, "a") as file:
        file.write("der\n")
    for valid, times in ((TextPairs(short, long), 1), (VALID, 0)):
        job = job_in(tmp_path / "runs", dataclasses.replace(OPTIONS, max_length=150), valid=valid)
        with contextlib.ExitStack() as until_trained:
            prepare(job, make_strategy(), until_trained)
        said = capsys.readouterr().out
        assert said.count("have over 50 tokens more than their sources, where") == times
        assert bool(re.search(r"--extra_length=\d+0\n", said)) == times


def test_a_corpus_that_copies_no_placeholders_is_recorded(tmp_path, capsys):
    lines = [*zip(*BuiltinPairs("train", 60), strict=True)]
    for copies, address in ((True, "me@example.org"), (False, "EMAIL")):
        sides = [
            (*side, *(f"{text} {side[0]}" for _ in range(4)))
            for side, text in zip(lines, ("me@example.org", address), strict=True)
        ]
        files = [lines_of(tmp_path / f"{n}", *side) for n, side in enumerate(sides)]
        job = job_in(tmp_path / f"run.{copies}", train=TextPairs(*files), exact_vocab_size=False)
        for start in (1, 2):  # what was found is said once, and stays in the record
            with contextlib.ExitStack() as until_trained:
                record_start(prepare(job, make_strategy(), until_trained))
            said = "100% of the training pairs with placeholders or long numbers do not copy them"
            assert capsys.readouterr().out.count(said) == (not copies and start == 1)
            assert ModelDir(job.model_dir).load_training()["copies_parts"] is copies


@pytest.mark.slow
def test_where_pairs_tell_nothing_a_model_copies_as_the_one_it_starts_from(trained, tmp_path):
    base = ModelDir(shutil.copytree(trained[0].path, tmp_path / "base"))
    base.save_training({**base.load_training(), "copies_parts": False})
    job = job_in(tmp_path / "tuned", start_from=base.path)
    with contextlib.ExitStack() as until_trained:
        assert prepare(job, make_strategy(), until_trained).record["copies_parts"] is False


def test_a_corpus_of_weight_0_does_not_tell_what_is_copied(tmp_path):
    lines = [*zip(*BuiltinPairs("train", 60), strict=True)]
    plain = TextPairs(*(lines_of(tmp_path / f"plain.{n}", *side) for n, side in enumerate(lines)))
    masked = TextPairs(
        lines_of(tmp_path / "masked.0", *(f"{text} me@x.org" for text in lines[0])),
        lines_of(tmp_path / "masked.1", *(f"{text} EMAIL" for text in lines[1])),
    )
    for weights, copies in (([1, 0], True), ([1, 1], False)):
        pairs = WeightedPairs([plain, masked], weights)
        job = job_in(tmp_path / "runs", train=pairs, exact_vocab_size=False)
        with contextlib.ExitStack() as until_trained:
            assert prepare(job, make_strategy(), until_trained).record["copies_parts"] is copies


def test_corpora_with_weights_are_checked_as_one_corpus(tmp_path, capsys):
    lines = zip(*BuiltinPairs("train", 60), strict=True)
    files = TextPairs(*(lines_of(tmp_path / f"{n}", *side) for n, side in enumerate(lines)))
    for other, warnings in ((files, 1), (TRAIN, 0)):
        pairs = WeightedPairs([files, other], [1, 3])
        job = job_in(tmp_path / "runs", train=pairs, exact_vocab_size=False)
        with contextlib.ExitStack() as until_trained:
            prepare(job, make_strategy(), until_trained)
        said = capsys.readouterr().out
        assert said.count("60 pairs (50.0%) are suspicious (60 repeated): see") == warnings


def test_a_validation_set_of_which_only_a_part_is_scored_is_named_once(tmp_path, capsys):
    job = job_in(tmp_path / "runs", valid=BuiltinPairs("train", 1200))
    for times in (1, 0):
        with contextlib.ExitStack() as until_trained:
            record_start(prepare(job, make_strategy(), until_trained))
        said = capsys.readouterr().out
        assert said.count("BLEU is of the first 1,000 of 1,200 pairs; the loss is of") == times


def test_a_validation_set_without_spaces_and_language_has_a_warning(tmp_path, capsys):
    valid = TextPairs(
        lines_of(tmp_path / "en", "I like apples."), lines_of(tmp_path / "zh", "我爱吃苹果。")
    )
    for language, times in ((None, 1), ("zh", 0)):
        job = job_in(tmp_path / "runs", valid=valid, target_lang=language)
        with contextlib.ExitStack() as until_trained:
            prepare(job, make_strategy(), until_trained)
        said = capsys.readouterr().out
        assert said.count("have no spaces between words, so BLEU without target_lang is") == times


def test_a_validation_set_of_single_words_has_a_warning(tmp_path, capsys):
    valid = TextPairs(lines_of(tmp_path / "en", "house"), lines_of(tmp_path / "de", "Haus"))
    for best_by, times in (("score", 1), ("loss", 0)):
        job = job_in(tmp_path / "runs", valid=valid).with_options(best_by=best_by)
        with contextlib.ExitStack() as until_trained:
            prepare(job, make_strategy(), until_trained)
        said = capsys.readouterr().out
        assert said.count("by chrF; the loss decides which weights are best") == times


def test_a_language_that_cannot_be_scored_is_refused_before_training(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    with pytest.raises(UserError, match=r"^cannot score 'ja'"):
        run(tmp_path / "run", valid=VALID, target_lang="ja")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_moving_average_of_a_run_begins_with_the_weights_that_it_starts_from(trained, tmp_path):
    unmoved = dataclasses.replace(OPTIONS, steps=1, learning_rate=1e-30, ema_decay=0.9)
    run(tmp_path / "tuned", unmoved, start_from=trained[0].path)
    tuned = ModelDir(tmp_path / "tuned")
    both = (tuned.load_model(weights=weights).weights for weights in ("ema", "last"))
    for average, weight in zip(*both, strict=True):
        np.testing.assert_allclose(average, weight, rtol=1e-6, atol=1e-8)


def test_a_validation_takes_each_pair_once_whatever_its_weight(tmp_path):
    valid = WeightedPairs([VALID, BuiltinPairs("test", 30)], [0, 1])
    with contextlib.ExitStack() as until_trained:
        prepared = prepare(job_in(tmp_path / "runs", valid=valid), make_strategy(), until_trained)
    batches = Batches(prepared.valid_corpus, 256, shuffle=False)
    counts = [batches.count(step).pairs for step in range(batches.batches_per_epoch)]
    assert sum(counts) == prepared.valid_corpus.counts.kept
