"""What is in the place of a file of a model_dir: one line that names it, soon, and no traceback."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import random
import re
import shutil
import signal
import threading
from pathlib import Path

import keras
import numpy as np
import pytest
from command_lines import FEW_STEPS, TINY_MODEL, ended, run
from helpers import small_model
from marian_folder import sentencepiece_model, vocabulary_of

import keras_transformer as kt
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.errors import UserError
from keras_transformer.files import LARGEST_WHOLE
from keras_transformer.parameter_count import parameter_count
from keras_transformer.training import Checkpoints, ModelDir, TrainableTransformer
from keras_transformer.training.run_state import RunState

SECONDS = 60  # until a test counts as hanging: each part needs a few on a busy machine
READ_BY_ALL = (
    "config.json",
    "training.json",
    "weights.json",
    "vocabulary.model",
    "checkpoints/step-00000002/manifest.json",
    "checkpoints/step-00000002/state.npz",
    "checkpoints/step-00000002/progress.json",
)
READ_BY_TRAIN = ("logs/log.jsonl",)
HAVE_CHECKSUMS = (
    "config.json",
    "vocabulary.model",
    "checkpoints/step-00000002/state.npz",
    "checkpoints/step-00000002/progress.json",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    for name, side in zip(("en", "de"), zip(*builtin_pairs("train", 40), strict=True), strict=True):
        (folder / f"train.{name}").write_text("".join(f"{line}\n" for line in side))
    return folder


def training(corpus, model_dir):
    options = {**TINY_MODEL, **FEW_STEPS, "keep_checkpoints": 1, "average_checkpoints": 1}
    files = {"train_source": corpus / "train.en", "train_target": corpus / "train.de"}
    return {**options, **files, "report": False, "model_dir": model_dir}


@pytest.fixture(scope="module")
def trained(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "trained"
    run("train", **training(corpus, path))
    ModelDir(path).save_choice("mean", "BLEU", {"mean": 20.0})
    return path


@pytest.fixture
def model_dir(trained, tmp_path):
    return Path(shutil.copytree(trained, tmp_path / "model"))


class NoEnd(BaseException):
    """A block has not ended in time; no command catches it."""


@contextlib.contextmanager
def soon():
    """Ends a block that waits for ever with an error."""

    def fail(number, frame):
        raise NoEnd(f"after {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def put_link(path):
    path.symlink_to("/dev/zero")


def put_huge_file(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)  # it takes no space on the disk


ODD_FILES = {
    "a pipe": os.mkfifo,
    "an endless device": put_link,
    "a folder": Path.mkdir,
    "an empty file": Path.touch,
    "a huge file": put_huge_file,
}


def serve(path):
    """Loads a model as a server does; returns 2 and the reason if it cannot."""
    from keras_transformer.serving import model_sources as sources

    said = []

    def load(paths):
        try:
            model_dir = ModelDir(*paths)
            return kt.Translator(model_dir.load_model(), model_dir.load_tokenizer())
        except UserError as error:
            said.append(str(error))
            raise

    try:
        model = sources.trained_model("demo", [str(path)], load)
    except UserError as error:
        return 2, str(error)
    model.refresh()
    return (0, "") if model.current else (2, *said)


def all_commands(model_dir, corpus, monkeypatch, capfd):
    """The status and the message of each command that reads a model_dir, by its name."""
    pair = {"source": corpus / "train.en", "reference": corpus / "train.de"}
    of_command = {
        # CTranslate2 reads the model that it has converted, and no checkpoint.
        "translate": {"model_dir": model_dir, "engine": "tensorflow"},
        "evaluate": {"model_dir": model_dir, "engine": "tensorflow", **pair},
        "train": {**training(corpus, model_dir), "steps": 3},
    }
    for command, options in of_command.items():
        with soon():
            yield command, *ended(command, options, monkeypatch, capfd)
    with soon():
        yield "serve", *serve(model_dir)


@pytest.mark.parametrize(
    "kind",
    [
        kind if kind == "a pipe" else pytest.param(kind, marks=pytest.mark.slow)
        for kind in ODD_FILES
    ],
)
@pytest.mark.parametrize("name", READ_BY_ALL)
def test_no_command_waits_for_or_reads_without_end_what_is_no_file_of_a_model_dir(
    name, kind, model_dir, corpus, monkeypatch, capfd
):
    path = model_dir / name
    path.unlink()
    ODD_FILES[kind](path)
    for command, status, said in all_commands(model_dir, corpus, monkeypatch, capfd):
        assert (command, status, said.count("\n") <= 1) == (command, 2, True), said
        assert str(path) in said, said


@pytest.mark.parametrize("kind", ["a pipe", "an endless device", "a folder", "a huge file"])
@pytest.mark.parametrize("name", READ_BY_TRAIN)
def test_a_training_is_not_resumed_with_a_log_that_is_no_file(
    name, kind, model_dir, corpus, monkeypatch, capfd
):
    path = model_dir / name
    path.unlink()
    ODD_FILES[kind](path)
    with soon():
        options = {**training(corpus, model_dir), "steps": 3}
        status, said = ended("train", options, monkeypatch, capfd)
    assert status == 2 and f"{path}: the log cannot be written: " in said


def test_what_is_in_the_place_of_a_file_is_said(model_dir):
    path = model_dir / "config.json"
    for kind, said in {
        "a pipe": "is a pipe, not a regular file",
        "an endless device": "is a device, not a regular file",
        "a folder": "is a folder, not a regular file",
        "a huge file": rf"has 1,099,511,627,776 bytes, more than the {LARGEST_WHOLE:,} that it",
    }.items():
        path.rmdir() if path.is_dir() else path.unlink()
        ODD_FILES[kind](path)
        with pytest.raises(UserError, match=f"^{path}: {said}"):
            ModelDir(model_dir).load_config()


def test_a_lock_that_is_a_pipe_is_refused(model_dir, corpus, monkeypatch, capfd):
    (model_dir / ".lock").unlink()
    os.mkfifo(model_dir / ".lock")
    with soon():
        status, said = ended("train", training(corpus, model_dir), monkeypatch, capfd)
    assert status == 2 and "/.lock: " in said


# Configurations and checkpoints that claim too much.

CLAIMS = {
    "learned positions": {"positions": "learned", "max_positions": 2**24},
    "a kernel": {"layer_type": "convolutional", "kernel_size": 2**16},
    "layers": {"num_encoder_layers": 1000, "num_decoder_layers": 1000},
    "a vocabulary": {"vocab_size": 2**24},
    "a width": {"d_ff": 2**20, "d_model": 2**16},
}


def change_config(model_dir, **fields):
    """Changes fields of the configuration, of which the record no longer has a digest."""
    path = model_dir / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))
    change_record(model_dir, config=None)


def change_record(model_dir, **fields):
    path = model_dir / "training.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_configuration_of_another_size_than_the_checkpoint_is_refused_before_a_model_is_made(
    claim, model_dir, monkeypatch
):
    change_config(model_dir, **CLAIMS[claim])
    monkeypatch.setattr(kt, "Transformer", None)  # not even begun
    with pytest.raises(UserError, match=r"state\.npz: state of another model: it has "):
        ModelDir(model_dir).load_model()


def test_a_run_is_not_resumed_with_a_configuration_of_another_size(
    model_dir, corpus, monkeypatch, capfd
):
    change_config(model_dir, **CLAIMS["learned positions"])
    monkeypatch.setattr("keras_transformer.training.trainer.compiled_model", None)
    options = {**training(corpus, model_dir), "steps": 3}
    del options["preset"]
    status, said = ended("train", options, monkeypatch, capfd)
    assert status == 2 and ", the configuration 536," in said


@pytest.mark.parametrize(
    "fields",
    [
        {"positions": "learned", "pre_norm": True, "attention_bias": True},
        {"layer_type": "restricted", "radius": 2, "d_k": 3, "d_v": 5},
        {"layer_type": "recurrent", "output_bias": True},
        {"layer_type": "convolutional", "kernel_size": 3, "tie_output": False},
        {"layer_type": "separable", "kernel_size": 5, "tie_output": False, "output_bias": True},
        {"share_embeddings": False, "target_vocab_size": 7, "output_bias": True},
        {"share_embeddings": False, "target_vocab_size": 7, "tie_output": False},
        {"num_encoder_layers": 3, "num_decoder_layers": 1},
    ],
    ids=str,
)
def test_the_number_of_parameters_is_that_of_the_model(fields):
    model = small_model(**fields)
    assert parameter_count(model.config) == model.count_params()


def write_state(model_dir, content):
    """Replaces the arrays of the checkpoint, with the right checksum."""
    folder = model_dir / "checkpoints/step-00000002"
    (folder / "state.npz").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["state.npz"] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def arrays_of(model_dir):
    with np.load(model_dir / "checkpoints/step-00000002/state.npz") as state:
        return dict(state)


def saved(arrays, save=np.savez):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


def test_an_array_larger_than_its_file_is_refused_before_it_is_read(model_dir):
    arrays = arrays_of(model_dir)
    name = "weights/source_embedding/embeddings"
    bomb = saved({**arrays, name: np.zeros((1 << 24, 2), "float32")}, np.savez_compressed)
    shape = repr(arrays[name].shape).encode()
    huge = saved(arrays).replace(shape, f"({10**30},)".encode().ljust(len(shape)), 1)
    for content in (bomb, huge, huge.replace(b"}" + b" " * 30, b"}" + b" " * 7)):
        write_state(model_dir, content)
        with pytest.raises(UserError, match=r"state\.npz: the checkpoint is damaged: it is not"):
            ModelDir(model_dir).load_model()


@pytest.mark.parametrize("dtype", ["int8", "bool", "complex64", "S4", "datetime64[s]"])
def test_weights_are_numbers_with_a_fraction(dtype, model_dir):
    arrays = arrays_of(model_dir)
    name = "weights/source_embedding/embeddings"
    write_state(model_dir, saved({**arrays, name: np.zeros(arrays[name].shape, dtype)}))
    with pytest.raises(UserError, match=f"{name} has numbers of type .* here, float32 in"):
        ModelDir(model_dir).load_model()


# Weights that are not finite.


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused_by_every_command(
    value, model_dir, corpus, monkeypatch, capfd
):
    arrays = arrays_of(model_dir)
    name = "weights/encoder/layer_0/self_attention/query/kernel"
    arrays[name][0, 0] = value
    write_state(model_dir, saved(arrays))
    for command, status, said in all_commands(model_dir, corpus, monkeypatch, capfd):
        assert (command, status) == (command, 2)
        assert f"state.npz: {name} is not finite (NaN or infinity)" in said


@pytest.mark.slow
def test_a_training_that_has_diverged_says_so_and_writes_no_checkpoint(
    model_dir, corpus, monkeypatch, capfd
):
    update = TrainableTransformer._update

    def diverge(self, *arguments):
        update(self, *arguments)
        self.trainable_weights[0].assign(self.trainable_weights[0] * np.inf)

    monkeypatch.setattr(TrainableTransformer, "_update", diverge)
    status, said = ended("train", {**training(corpus, model_dir), "steps": 3}, monkeypatch, capfd)
    assert status == 2 and "step 3: the training has diverged: weights/source_embedding" in said
    assert ModelDir(model_dir).checkpoints.steps() == [2]


# A model that is read while it is trained.


@pytest.mark.parametrize("weights", ["mean", "best"])
def test_checkpoints_that_are_replaced_while_they_are_read_are_read_anew(
    weights, model_dir, monkeypatch
):
    model = ModelDir(model_dir).load_model()
    checkpoints = getattr(ModelDir(model_dir), "best" if weights == "best" else "checkpoints")
    checkpoints.save(model, 2)
    replaced, read = [], Checkpoints._arrays

    def replace_and_read(self, step, like):
        if len(replaced) < 3:  # the training is faster three times
            replaced.append(step)
            checkpoints.save(model, step + 1)
            checkpoints.remove(step)
        return read(self, step, like)

    monkeypatch.setattr(Checkpoints, "_arrays", replace_and_read)
    loaded = ModelDir(model_dir).load_model(weights=weights)
    assert replaced == [2, 3, 4]
    np.testing.assert_array_equal(loaded.weights[0], model.weights[0])


def test_a_checkpoint_that_a_training_always_removes_first_is_reported(model_dir, monkeypatch):
    model = ModelDir(model_dir).load_model()
    checkpoints = ModelDir(model_dir).checkpoints

    def replace(self, step, like):
        checkpoints.save(model, step + 1)
        checkpoints.remove(step)
        raise UserError("it has gone")

    monkeypatch.setattr(Checkpoints, "_arrays", replace)
    with pytest.raises(UserError, match=r"checkpoints: a training replaced these checkpoints 10 t"):
        ModelDir(model_dir).load_model()


# Damage.


def test_a_changed_configuration_is_noticed(model_dir):
    path = model_dir / "config.json"
    fields = json.loads(path.read_text())
    for changed in ({"activation": "gelu"}, {"scale_embeddings": False}, {"dropout": 0.5}):
        path.write_text(json.dumps({**fields, **changed}))
        with pytest.raises(UserError, match=f"^{path}: changed since the model was made"):
            ModelDir(model_dir).load_config()
    change_record(model_dir, config=None)  # as the message says
    assert ModelDir(model_dir).load_config().dropout == 0.5


def test_a_name_that_a_configuration_has_twice_is_refused(model_dir):
    path = model_dir / "config.json"
    path.write_text(path.read_text().replace("{", '{"dropout": 0.5,', 1))
    with pytest.raises(UserError, match=f'^{path}: "dropout" occurs more than once$'):
        ModelDir(model_dir).load_config()


def damaged(content, seed):
    """Copies of a file with bytes cut off, changed, added, and with JSON of other types."""
    draw = random.Random(seed)
    for _ in range(12):
        place = draw.randrange(len(content))
        yield content[:place]
        yield content[:place] + bytes([draw.randrange(256)]) + content[place + 1 :]
        yield content[:place] + content[place + draw.randrange(1, 9) :]
    yield from (b"", b"\xff\xfe", b"null", b"[]", b'""', b"[" * 100_000, b"9" * 5000, b"{" * 999)
    try:
        value = json.loads(content)
    except ValueError:
        return
    for change in changes_of(value):
        yield json.dumps(change).encode()


def changes_of(value, depth=2):
    """A JSON value with another type in the place of each part of it."""
    yield from (None, [], {}, "x", -1, 0.5, True, 10**400, float("nan"), [[None]], {"x": {}})
    if isinstance(value, dict) and depth:
        for name in value:
            yield {key: part for key, part in value.items() if key != name}
            for change in changes_of(value[name], depth - 1):
                yield {**value, name: change}


def reads(path, name):
    """What commands read of this file of a model_dir before they compute."""
    model_dir = ModelDir(path)
    variables = {"weights/source_embedding/embeddings": keras.Variable(np.zeros((340, 16)))}
    return {
        "config.json": [
            model_dir.load_config,
            lambda: model_dir.checkpoints.check_fits(model_dir.load_config(), 2),
        ],
        "training.json": [
            model_dir.load_training,
            model_dir.load_config,
            lambda: model_dir.chosen_checkpoints(weights="best"),
            lambda: kt.report.read_history(model_dir),
        ],
        "weights.json": [model_dir.resolved_weights],
        "vocabulary.model": [model_dir.load_tokenizer],
        "state.npz": [
            lambda: model_dir.checkpoints.check_fits(model_dir.load_config(), 2),
            lambda: model_dir.checkpoints._read(2, variables),
        ],
        "log.jsonl": [lambda: kt.report.read_history(model_dir)],
    }.get(name, [lambda: RunState.load(model_dir.checkpoints, 2)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "has_right_checksum"),
    [
        *((name, False) for name in (*READ_BY_ALL, *READ_BY_TRAIN)),
        *((name, True) for name in HAVE_CHECKSUMS),
    ],
)
def test_no_damage_to_a_file_is_a_traceback(name, has_right_checksum, model_dir):
    path = model_dir / name
    if has_right_checksum:
        data = ModelDir(model_dir).load_training()["data"]
        change_record(model_dir, config=None, data={**data, "vocabulary": None})
    refused = 0
    for content in damaged(path.read_bytes(), seed=name):
        path.write_bytes(content)
        if has_right_checksum and name.startswith("checkpoints"):
            manifest = path.with_name("manifest.json")
            sums = json.loads(manifest.read_text())
            sums[path.name] = hashlib.sha256(content).hexdigest()
            manifest.write_text(json.dumps(sums))
        for read in reads(model_dir, path.name):
            try:
                read()
            except UserError as error:
                refused += 1
                said = str(error)
                assert "\n" not in said and str(model_dir) in said, said
                assert not re.search(r"Error\(|Traceback|object at|0x|set_int_max", said), said
    assert refused


def vocabularies():
    pairs = [("Dogs bark", "(S (NP XX NP) (VP XX VP) S)"), ("Dogs", "(S XX S)")]
    yield kt.parsing.ParsingTokenizer.learn(pairs, vocab_size=100)
    model = sentencepiece_model(["A man rides a horse.", "Ein Mann reitet."], 60)
    yield kt.MarianTokenizer(model, model, vocabulary_of(model, model))
    yield kt.OpenNMTTokenizer(model, model, ["<blank>", "<s>", "</s>", "a", "<unk>", "b"])


@pytest.mark.slow
def test_no_damage_to_a_vocabulary_of_another_kind_is_a_traceback(tmp_path):
    for tokenizer in vocabularies():
        path = tmp_path / tokenizer.file_name
        for content in damaged(tokenizer.to_bytes(), seed=path.name):
            path.write_bytes(content)
            try:
                tokenizer.load(path)
            except UserError as error:
                assert str(error).startswith(f"{path}: ")
                assert "\n" not in str(error)


# Corpora and flags.

FIRST_LINE = b"(S (NNS Dogs))\n"


@pytest.mark.parametrize("kind", ["a pipe", "an endless device"])
def test_a_corpus_that_is_no_file_is_refused(kind, corpus, tmp_path, monkeypatch, capfd):
    path = tmp_path / "source"
    ODD_FILES[kind](path)
    with soon():
        options = {**training(corpus, tmp_path / "new"), "train_source": path}
        status, said = ended("train", options, monkeypatch, capfd)
    assert status == 2 and f"{path} is read more than once, so it must be a file: found" in said


@pytest.mark.parametrize("name", ["text", "text.gz"])
@pytest.mark.parametrize("command", ["train", "evaluate", "translate", "parse"])
def test_a_text_without_line_feeds_is_not_read_into_one_line(
    command, name, trained, corpus, tmp_path, monkeypatch, capfd
):
    path = tmp_path / name
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(FIRST_LINE + bytes(1 << 25), 1))
    else:
        with open(path, "wb") as file:
            file.write(FIRST_LINE)
            file.truncate(1 << 40)
    options = {
        "train": {**training(corpus, tmp_path / "new"), "train_source": path},
        "evaluate": {"model_dir": trained, "source": path, "reference": corpus / "train.de"},
        "translate": {"model_dir": trained, "score": path},
        "parse": {"task": "parsing", "model_dir": trained, "source": path},
    }[command]
    stdin = b"A horse!\n" * 3
    with soon():
        name = "evaluate" if command == "parse" else command
        status, said = ended(name, options, monkeypatch, capfd, stdin)
    assert status == 2 and f"{path}:2: this line is longer than 16," in said


def test_a_pipe_that_is_read_once_may_be_a_file_of_translations(
    trained, tmp_path, monkeypatch, capfd
):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=("Ja.\n",))
    writer.start()
    with soon():
        options = {"model_dir": trained, "score": path}
        assert ended("translate", options, monkeypatch, capfd)[0] == 0
    writer.join()


@pytest.mark.parametrize("kind", ["an endless device", "a huge file", "a folder"])
def test_flags_are_not_read_from_what_never_ends(kind, tmp_path, capfd):
    from keras_transformer.cli.main import main

    path = tmp_path / "flags"
    ODD_FILES[kind](path)
    for given in ([f"--flagfile={path}"], ["--flagfile", str(path)]):
        with soon(), pytest.raises(SystemExit) as end, unchanged_flags():
            main(["cost", *given])
        assert end.value.code == 2
        assert str(path) in capfd.readouterr().err


@contextlib.contextmanager
def unchanged_flags():
    from absl import flags

    from keras_transformer.cli.flags import GROUPS

    known, headings = set(flags.FLAGS), dict(GROUPS)
    try:
        yield
    finally:
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)
        GROUPS.clear()
        GROUPS.update(headings)
