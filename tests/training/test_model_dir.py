"""The folder of a model: its contents, and refusals."""

import dataclasses
import errno
import functools
import json
import os
import re

import numpy as np
import pytest
import tensorflow as tf
from helpers import small_model

from keras_transformer.errors import UserError
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir, TrainingOptions
from keras_transformer.training.model_dir import digest_of
from keras_transformer.training.resumption import check_same_model, check_same_run

SENTENCES = ["A man rides a horse.", "Ein Mann reitet auf einem Pferd."]
TRAINING = {
    "options": dataclasses.asdict(TrainingOptions(average_checkpoints=2)),
    "data": {"kept": 300},
    "vocab_type": "bpe",
    "linearization": None,
    "preset": None,
    "source_lang": None,
    "copies_parts": True,
    "target_lang": None,
    "config": None,
    "commands": [],
    "starts": [],
}


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(SENTENCES, 300)


@functools.cache
def fixed_model(seed=0):
    """A model that no test changes."""
    return small_model(seed, vocab_size=300, num_encoder_layers=1, num_decoder_layers=1)


@pytest.fixture
def model_dir(tmp_path, tokenizer):
    model_dir = ModelDir(tmp_path / "runs" / "demo")
    model_dir.create(fixed_model().config, tokenizer, TRAINING)
    return model_dir


def test_what_was_created_is_read_back(model_dir, tokenizer):
    again = ModelDir(str(model_dir.path))
    assert again.exists()
    assert again.load_config() == fixed_model().config
    recorded = {"config": digest_of((again.path / "config.json").read_bytes())}
    assert again.load_training() == {**TRAINING, **recorded}
    ids = again.load_tokenizer().tokenize(tf.constant(SENTENCES))
    assert ids.to_list() == tokenizer.tokenize(tf.constant(SENTENCES)).to_list()
    files = sorted(path.name for path in model_dir.path.iterdir())
    assert files == ["config.json", "training.json", "vocabulary.model"]


def test_its_name_is_text_for_readers(tmp_path):
    assert ModelDir(os.fsdecode(b"runs/caf\xe9/")).name == "caf\ufffd"
    (tmp_path / "last").symlink_to("en-de")
    assert ModelDir(tmp_path / "last").name == "en-de"


def test_only_its_own_files_are_owned(tmp_path):
    owned = ("config.json", "best", "best/new", "logs/../.lock")
    for path in (*owned, ".", "..", "report/index.html", "mine"):
        assert ModelDir(tmp_path / "en-de").owns(tmp_path / "en-de" / path) == (path in owned)


def test_a_trained_model_fits_into_an_empty_folder_and_through_a_link(tmp_path, tokenizer):
    folder, link = tmp_path / "volume", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    inode = folder.stat().st_ino  # a volume that is mounted there cannot be replaced
    ModelDir(link).create_trained(fixed_model(), tokenizer, None, "")
    assert link.is_symlink() and folder.stat().st_ino == inode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "volume"]
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["checkpoints", "config.json", "training.json", "vocabulary.model"]
    assert ModelDir(folder).load_model().count_params() == fixed_model().count_params()


def test_the_languages_of_a_trained_model_are_recorded(tmp_path, tokenizer):
    model_dir = ModelDir(tmp_path / "en-de")
    with pytest.raises(UserError, match=r"^source_lang must be a language code such as de"):
        model_dir.create_trained(fixed_model(), tokenizer, "de", "", source_lang="English")
    model_dir.create_trained(fixed_model(), tokenizer, "de", "", source_lang="en")
    record = model_dir.load_training()
    assert (record["source_lang"], record["target_lang"]) == ("en", "de")


def test_a_trained_model_that_cannot_be_written_leaves_the_folder_empty(
    tmp_path, tokenizer, monkeypatch
):
    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr("numpy.savez", fail)
    with pytest.raises(UserError, match="No space left"):
        ModelDir(tmp_path).create_trained(fixed_model(), tokenizer, None, "")
    assert list(tmp_path.iterdir()) == []


def test_new_or_empty_folder_holds_no_model(tmp_path):
    assert not ModelDir(tmp_path / "new").exists()
    assert not ModelDir(tmp_path).exists()


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    message = f"{tmp_path / 'run'}: cannot lock the folder (Function not implemented): choose one"
    with pytest.raises(UserError, match=re.escape(message)), ModelDir(tmp_path / "run").locked():
        pass


def test_other_content_is_refused_and_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UserError, match=f"{tmp_path} has thesis.tex but no model: choose the"):
        ModelDir(tmp_path).exists()
    with pytest.raises(UserError, match=r"thesis\.tex is not a folder: choose one$"):
        ModelDir(tmp_path / "thesis.tex").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_failure_before_the_configuration_leaves_no_model(tmp_path, tokenizer, monkeypatch):
    model_dir = ModelDir(tmp_path)

    def fail(training):
        raise OSError("No space left on device")

    monkeypatch.setattr(model_dir, "save_training", fail)
    with pytest.raises(OSError, match="No space left"):
        model_dir.create(fixed_model().config, tokenizer, TRAINING)
    assert not (tmp_path / "config.json").exists()


def test_a_vocabulary_of_the_user_is_not_written_over(tmp_path, tokenizer):
    path = tmp_path / "vocabulary.model"
    for content in (b"mine", tokenizer.to_bytes()):
        path.write_bytes(content)
        with pytest.raises(
            UserError, match=r"has vocabulary\.model but no model: .*; --vocabulary takes one"
        ):
            ModelDir(tmp_path).exists()
        with pytest.raises(UserError, match=r"has vocabulary\.model but no model"):
            ModelDir(tmp_path).create_trained(fixed_model(), tokenizer, None, "")
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {path.name: content}


def test_what_a_killed_process_has_left_gives_way_and_a_users_file_beside_it_does_not(
    tmp_path, tokenizer
):
    training = {**TRAINING, "data": {"vocabulary": digest_of(tokenizer.to_bytes())}}
    model_dir = ModelDir(tmp_path)
    with model_dir.locked():  # leaves the file of the lock
        pass
    model_dir.save_training(training)
    assert not model_dir.exists()
    (tmp_path / ".vocabulary.model.1.partial").write_bytes(b"half")
    tokenizer.save(tmp_path / tokenizer.file_name)
    assert not model_dir.exists()
    model_dir.create(fixed_model().config, tokenizer, training)
    assert model_dir.exists()

    (tmp_path / "config.json").unlink()
    (tmp_path / tokenizer.file_name).write_bytes(b"mine")
    with pytest.raises(UserError, match=r"has vocabulary\.model but no model"):
        model_dir.exists()
    tokenizer.save(tmp_path / tokenizer.file_name)
    (tmp_path / "training.json").write_text('{"mine": 1}')
    with pytest.raises(UserError, match=r"has training\.json but no model"):
        model_dir.exists()


def test_a_folder_without_a_name_is_none():
    with pytest.raises(UserError, match="--model_dir is missing or empty: give it a value"):
        ModelDir("")


def test_a_url_is_no_model_dir():
    with pytest.raises(UserError, match=r"^gs://bucket/run must be a local folder: found a URL$"):
        ModelDir("gs://bucket/run")


def test_difference_of_configuration_is_named(model_dir):
    config = model_dir.load_config()
    check_same_model(model_dir, dataclasses.replace(config))
    other = dataclasses.replace(config, d_ff=99, dropout=0.25)
    with pytest.raises(UserError, match=r"d_ff=24 \(now 99\), dropout=0\.0 \(now 0\.25\)$"):
        check_same_model(model_dir, other)


@pytest.mark.parametrize(
    ("average", "averaged"), [(None, (3, 4)), (1, (4,)), (3, (2, 3, 4)), (4, (1, 2, 3, 4))]
)
def test_the_model_is_the_mean_of_the_last_checkpoints(model_dir, average, averaged):
    models = {step: fixed_model(seed=step) for step in (1, 2, 3, 4)}
    for step, model in models.items():
        model_dir.checkpoints.save(model, step)
    loaded = model_dir.load_model(average)
    for index, weight in enumerate(loaded.weights):
        mean = np.mean([models[step].weights[index].numpy() for step in averaged], axis=0)
        np.testing.assert_allclose(weight.numpy(), mean, rtol=1e-6, atol=1e-7)


def test_one_checkpoint_is_enough_where_no_number_is_asked_for(model_dir):
    model = fixed_model(seed=3)
    model_dir.checkpoints.save(model, 1)
    loaded = model_dir.load_model()
    for found, expected in zip(loaded.weights, model.weights, strict=True):
        np.testing.assert_array_equal(found.numpy(), expected.numpy())


def test_one_checkpoint_may_be_chosen(model_dir):
    models = {step: fixed_model(seed=step) for step in (1, 2, 3)}
    for step in (2, 3):
        model_dir.checkpoints.save(models[step], step)
    model_dir.best.save_weights(models[1], 1)
    for chosen, step in (("best", 1), ("last", 3), ("2", 2), ("3", 3)):
        loaded = model_dir.load_model(weights=chosen)
        for found, expected in zip(loaded.weights, models[step].weights, strict=True):
            np.testing.assert_array_equal(found.numpy(), expected.numpy())
    for chosen in ("1", "first"):
        with pytest.raises(UserError, match=f"one of the steps 2, 3: found {chosen}"):
            model_dir.load_model(weights=chosen)
    with pytest.raises(UserError, match="weights=best takes one checkpoint: found average=2"):
        model_dir.load_model(average=2, weights="best")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"kept": 300}, "its training had no --valid_source"),
        ({"kept": 300, "validation": "5eed"}, "no validation of its training has had a finite"),
        ({}, "it was not trained by `train`"),
    ],
)
def test_why_there_is_no_best_checkpoint_is_said(model_dir, data, reason):
    model_dir.save_training({**TRAINING, "data": data})
    with pytest.raises(UserError, match=rf"demo has no best checkpoint: {reason}"):
        model_dir.load_model(weights="best")


@pytest.mark.parametrize("average", [0, -1, 3, "2", 2.0, True])
def test_more_checkpoints_than_there_are_are_refused(model_dir, average):
    for step in (1, 2):
        model_dir.checkpoints.save(fixed_model(), step)
    with pytest.raises(UserError, match=f"average must be 1 to 2, .*: found {average!r}"):
        model_dir.load_model(average)


def test_model_without_a_checkpoint_is_refused(model_dir):
    with pytest.raises(UserError, match=r"demo/checkpoints has no checkpoint yet"):
        model_dir.load_model()


@pytest.mark.parametrize("read", ["load_model", "load_config", "load_tokenizer", "load_training"])
def test_folder_without_a_model_is_named(tmp_path, read):
    with pytest.raises(UserError, match=rf"{tmp_path}/no_model/\S+: .*No such file or directory"):
        getattr(ModelDir(tmp_path / "no_model"), read)()


@pytest.mark.parametrize(
    ("name", "read"), [("config.json", "load_config"), ("training.json", "load_training")]
)
def test_damaged_file_is_named(model_dir, name, read):
    (model_dir.path / name).write_text('{\n  "vocab_size": ,')
    with pytest.raises(UserError, match=rf"{name}:2: not JSON"):
        getattr(model_dir, read)()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model_type": "marian"},
            "a model of Transformers, not a model_dir: import it by import-m",
        ),
        ({"model_type": "m2m_100"}, "not a model_dir: import it by import-m2m100"),
        ({"model_type": ["t5"]}, "not a model_dir: models of its type cannot be imported"),
        (
            {"add_source_bos": False},
            "a model for CTranslate2's own library, not a model_dir: choose",
        ),
    ],
)
def test_a_folder_of_another_program_is_said_to_be_one(tmp_path, config, message):
    (tmp_path / "config.json").write_text(json.dumps(config))
    for read in ("load_config", "load_tokenizer", "load_vocabulary"):
        with pytest.raises(UserError, match=f"^{tmp_path}: .*{message}"):
            getattr(ModelDir(tmp_path), read)()


def test_another_vocabulary_than_the_models_is_refused(model_dir, tokenizer):
    path = model_dir.path / "vocabulary.model"
    recorded = {"vocabulary": digest_of(tokenizer.to_bytes())}
    model_dir.save_training({**TRAINING, "data": recorded})
    assert model_dir.load_tokenizer().pieces == tokenizer.pieces
    path.write_bytes(path.read_bytes().replace(b"e", b"f"))
    with pytest.raises(UserError, match=f"{path}: not the vocabulary that the model was"):
        model_dir.load_tokenizer()


def test_training_is_recorded_anew(model_dir):
    model_dir.save_training({**TRAINING, "commands": ["train"]})
    assert json.loads((model_dir.path / "training.json").read_text())["commands"] == ["train"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"options": {**TRAINING["options"], "seed": 2}}, "seed=1 (now 2)"),
        ({"options": {**TRAINING["options"], "beta_2": 0.9}}, "beta_2=0.98 (now 0.9)"),
        ({"data": {"kept": 299}}, "kept=300 (now 299)"),
        ({"vocab_type": "unigram"}, "vocab_type=bpe (now unigram)"),
    ],
)
def test_a_run_that_would_end_with_other_weights_is_refused(tmp_path, changed, message):
    model_dir = ModelDir(tmp_path)
    model_dir.save_training(TRAINING)
    now = {**TRAINING, **changed}
    with pytest.raises(UserError) as error:
        check_same_run(model_dir, now["options"], now["data"], now["vocab_type"])
    assert str(error.value) == (
        f"model_dir {tmp_path} holds a run with other options or data: {message}; "
        "resume it with the recorded ones, or begin a new run from its weights: "
        f"--start_from={tmp_path} --model_dir=NEW"
    )


def test_an_option_that_a_record_lacks_had_its_default(tmp_path):
    model_dir = ModelDir(tmp_path)
    options = dict(TRAINING["options"])
    del options["clip_norm"]
    model_dir.save_training({**TRAINING, "options": options})
    check_same_run(model_dir, TRAINING["options"], TRAINING["data"], "bpe")
    with pytest.raises(UserError, match=r"clip_norm=0.0 \(now 0.25\);"):
        check_same_run(model_dir, {**options, "clip_norm": 0.25}, TRAINING["data"], "bpe")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"options": None}, "options: found None"),
        ({"options": {"steps": "many"}}, "steps must be int: found 'many'"),
        (
            {"options": {"average_checkpoints": 0}},
            "average_checkpoints must be at least 1: found 0",
        ),
        ({"data": []}, "data: found []"),
        ({"commands": None}, "commands: found None"),
        ({"source_lang": 1}, "source_lang: found 1"),
        ({"target_lang": 1}, "target_lang: found 1"),
        ({"data": {"kept": 0}}, "data: found {'kept': 0}"),
        (
            {"data": {"kept": 1, "source_tokens": "2"}},
            "data: found {'kept': 1, 'source_tokens': '2'}",
        ),
        ({"commands": [1]}, "commands: found [1]"),
        ({"commands": ["train"], "starts": [{}]}, "starts: found [{}]"),
        ({"commands": ["train"], "starts": [{"time": 1e300}]}, "starts: found [{'time': 1e+300}]"),
        (
            {"commands": ["train"], "starts": [{"time": float("nan")}]},
            "starts: found [{'time': nan}]",
        ),
        (
            {"commands": ["train"], "starts": [{"time": 10**400}]},
            f"starts: found [{{'time': {10**400}}}]",
        ),
        ({"starts": [{"time": 1.0}]}, "starts: found [{'time': 1.0}]"),  # of no command
    ],
)
def test_a_training_record_of_other_values_is_refused(tmp_path, changed, message):
    model_dir = ModelDir(tmp_path)
    model_dir.save_training({**TRAINING, **changed})
    with pytest.raises(UserError) as error:
        model_dir.load_training()
    assert str(error.value) == f"{tmp_path / 'training.json'}: {message}"


def test_a_record_of_version_0_2_names_no_source_language(tmp_path):
    model_dir = ModelDir(tmp_path)
    model_dir.save_training({name: TRAINING[name] for name in TRAINING if name != "source_lang"})
    assert model_dir.load_training()["source_lang"] is None


def test_an_option_of_a_later_version_does_not_keep_a_model_from_use(tmp_path):
    model_dir = ModelDir(tmp_path)
    model_dir.save_training({**TRAINING, "options": {**TRAINING["options"], "later": 1}})
    assert (
        model_dir.load_training()["options"]
        == TrainingOptions(average_checkpoints=2, parallel_parts=None).__dict__
    )


def test_a_training_record_without_its_fields_is_refused(tmp_path):
    model_dir = ModelDir(tmp_path)
    (tmp_path / "training.json").write_text("{}")
    with pytest.raises(UserError, match=r"training\.json must be an object with the fields"):
        model_dir.load_training()
