"""A run that is stopped anywhere, in any way, ends as one that was not."""

import dataclasses
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import quick_run
import tensorflow as tf
from helpers import ROOT, run_python

from keras_transformer.data import Block, BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.training import ModelDir, parallel_parts, train
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.stopping import Interrupted, StopSignals

CONFIG = dataclasses.replace(quick_run.CONFIG, dropout=0.1)
OPTIONS = dataclasses.replace(
    quick_run.OPTIONS,
    steps=12,
    report_steps=4,
    checkpoint_steps=5,
    average_checkpoints=1,
    parallel_parts=2,
)
TRAIN, VALID = BuiltinPairs("train", 150), BuiltinPairs("validation", 20)


def run(path, **changed):
    options = dataclasses.replace(OPTIONS, **changed)
    return train(path, CONFIG, options, TRAIN, VALID, command="train.py")


@pytest.fixture(scope="module", autouse=True)
def quick_judge():
    """Figures that follow from the weights, for those of a search take seconds to compile."""

    def judge_of(model, *_):
        def judge():
            value = float(np.abs(model.weights[0].numpy()).mean())
            return {"loss": value, "BLEU": 100 * value}, [{"source": "a", "translation": "b"}]

        return judge

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.training.trainer._judge", judge_of)
        patch.setattr("keras_transformer.training.trainer._report", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "undisturbed"
    run(path)
    return ModelDir(path)


def assert_same_end(found, expected, step=OPTIONS.steps):
    """Bit by bit the same weights, optimizer and random state; the same checkpoints and logs."""
    assert found.checkpoints.steps()[-1] == expected.checkpoints.steps()[-1] == step
    for folder in ("checkpoints", "best"):
        last = max((expected.path / folder).glob("step-*")).name
        arrays = [np.load(m.path / folder / last / "state.npz") for m in (found, expected)]
        assert arrays[0].files == arrays[1].files
        for name in arrays[0].files:
            np.testing.assert_array_equal(arrays[0][name], arrays[1][name], err_msg=name)
    assert timeless(log_of(found)) == timeless(log_of(expected))
    assert timeless(progress_of(found, step)) == timeless(progress_of(expected, step))
    assert scalars(found) == scalars(expected)


def timeless(value):
    """What JSON holds, without what depends on how fast a machine is."""
    if isinstance(value, list):
        return [timeless(entry) for entry in value]
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not re.search("time|second", k)}
    return value


def log_of(model_dir):
    return [json.loads(line) for line in (model_dir.logs / "log.jsonl").read_text().splitlines()]


def progress_of(model_dir, step):
    return model_dir.checkpoints.load_progress(step)


def scalars(model_dir):
    """Each figure in TensorBoard's files as (tag, step, value), as often as it is there."""
    found = []
    for path in model_dir.logs.glob("events.*"):
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                if value.tag != "train/tokens_per_second":
                    found.append((value.tag, event.step, value.tensor.SerializeToString()))
    return sorted(found)


# Killed.


class Killed(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def kill_at(monkeypatch, name, step):
    """Makes a method that the callbacks call fail at a step, before it does anything."""
    owner, method = name
    original = getattr(owner, method)

    def killed(self, *arguments, **options):
        if step in arguments:
            raise Killed
        return original(self, *arguments, **options)

    monkeypatch.setattr(owner, method, killed)


def test_killed_twice_and_then_damaged_it_ends_as_if_it_had_not_been(
    undisturbed, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "run"
    for step, going_on_from in ((9, 0), (12, 5)):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            kill_at(patch, (TrainingLog, "table"), step)  # in a validation, after its figures
            run(path)
        said = capsys.readouterr().out
        assert (f"Going on from step {going_on_from}" in said) == (going_on_from > 0)

    newest = ModelDir(path).checkpoints.path(10) / "state.npz"
    newest.write_bytes(newest.read_bytes()[:1000])
    run(path)
    said = capsys.readouterr().out
    assert (
        len(re.findall(f"{newest}: .* is damaged: .*; going back to the one before\n", said)) == 1
    )
    assert "Going on from step 5" in said
    assert_same_end(ModelDir(path), undisturbed)


# Stopped by a signal.


def test_stopped_by_signals_it_saves_and_goes_on(undisturbed, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run"
    original = TrainingLog.progress

    def stop(self, text):
        os.kill(os.getpid(), number)
        original(self, text)

    for number, step in ((signal.SIGINT, 4), (signal.SIGTERM, 8)):
        with (
            monkeypatch.context() as patch,
            pytest.raises((KeyboardInterrupt, SystemExit)) as stopped,
        ):
            patch.setattr(TrainingLog, "progress", stop)  # once in 4 steps
            run(path)
        if number == signal.SIGINT:
            assert stopped.type is KeyboardInterrupt
        else:
            assert stopped.type is SystemExit
            assert stopped.value.code == 143
        assert ModelDir(path).checkpoints.steps()[-1] == step
        said = f"Saved step {step}; the same command goes on from there"
        assert capsys.readouterr().out.splitlines()[-1] == said
    run(path)
    assert_same_end(ModelDir(path), undisturbed)


def test_a_signal_leaves_a_validation_which_is_done_when_the_run_goes_on():
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        with pytest.raises(Interrupted), signals.may_interrupt():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        with pytest.raises(Interrupted), signals.may_interrupt():
            pytest.fail("a validation began after the signal")
    assert signals.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_ends_the_process_at_once():
    script = """
import os, signal, subprocess, sys
from keras_transformer.training.stopping import StopSignals

child = os.fork()
if not child:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell starts its background jobs
    with StopSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received == signal.SIGINT
        os.kill(os.getpid(), signal.SIGTERM)
        os._exit(0)
_, status = os.waitpid(child, 0)
print(os.WTERMSIG(status))
"""
    assert int(run_python(script)) == signal.SIGTERM


# What it refuses, and what it says.


def test_two_runs_do_not_write_to_one_folder(undisturbed):
    with (
        undisturbed.locked(),
        pytest.raises(UserError, match=rf"{undisturbed.path}: another training writes to it"),
    ):
        run(undisturbed.path)


def test_a_lock_leaves_no_folder_where_nothing_was_made(tmp_path):
    with ModelDir(tmp_path / "new").locked():
        assert not ModelDir(tmp_path / "new").exists()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"learning_rate": 0.5}, r"learning_rate=None \(now 0\.5\)"),
        ({"tokens_per_batch": 128}, r"tokens_per_batch=256 \(now 128\)"),
        ({"parallel_parts": 1}, r"parallel_parts=2 \(now 1\)"),
    ],
)
def test_options_that_would_change_the_weights_are_refused(undisturbed, changed, message):
    with pytest.raises(UserError, match=message) as error:
        run(undisturbed.path, **changed)
    assert "\n" not in str(error.value)


def test_a_run_goes_on_in_as_many_parts_as_before_whatever_the_machine(undisturbed):
    unsaid = dataclasses.replace(OPTIONS, parallel_parts=None)
    assert parallel_parts(undisturbed.path, CONFIG, unsaid) == 2
    run(undisturbed.path, parallel_parts=None)
    assert undisturbed.load_training()["options"]["parallel_parts"] == 2


def test_another_corpus_of_the_same_size_is_refused(undisturbed, monkeypatch):
    [block] = TRAIN.blocks()
    swapped = Block(block.source[::-1], block.target[::-1])
    monkeypatch.setattr(BuiltinPairs, "blocks", lambda self: iter([swapped]))
    with pytest.raises(UserError, match=r"fingerprint=\w+ \(now \w+\)$"):
        run(undisturbed.path)


def test_a_full_disk_ends_training_with_one_line_and_no_half_checkpoint(tmp_path, monkeypatch):
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    create = ModelDir.create

    def create_and_fill_the_disk(*arguments):
        create(*arguments)
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, unlimited[1]))

    monkeypatch.setattr(ModelDir, "create", create_and_fill_the_disk)
    try:
        with pytest.raises(UserError, match=r"step-\d+: the checkpoint cannot be written") as error:
            run(tmp_path / "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert "\n" not in str(error.value)
    model_dir = ModelDir(tmp_path / "run")
    for checkpoints in (model_dir.checkpoints, model_dir.best):
        assert not list(checkpoints.folder.glob("*"))


def test_early_stopping_is_remembered(tmp_path, capsys):
    """A run that has lost patience does not train on when it is started again."""
    path = tmp_path / "run"
    few = {"steps": 100, "validation_steps": 1, "stop_patience": 2, "best_by": "score"}
    run(path, **few)
    stopped = ModelDir(path).checkpoints.steps()[-1]
    assert stopped < 100
    assert "stopping, as score has not been better" in capsys.readouterr().out
    best = ModelDir(path).best.steps()
    run(path, **few)
    assert ModelDir(path).checkpoints.steps()[-1] == stopped
    assert ModelDir(path).best.steps() == best
    assert "is trained already" in capsys.readouterr().out


# Real processes, killed at random.


@pytest.mark.slow
def test_killed_at_random_twenty_times(tmp_path):
    """SIGKILL of `train.py`: before its first step, between and in steps, while it saves."""
    options = dict(vocab_size=340, num_encoder_layers=1, num_decoder_layers=1, d_model=16)
    options |= dict(d_ff=16, num_heads=2, tokens_per_batch=256, max_length=60, jit_compile=False)
    options |= dict(steps=900, report_steps=7, checkpoint_steps=5, keep_checkpoints=3)
    options |= dict(validation_steps=50, average_checkpoints=1, best_by="loss")
    options |= dict(parallel_parts=2)
    for split, count in (("train", 200), ("validation", 3)):
        columns = zip(*BuiltinPairs(split, count), strict=True)
        for side, column in zip(("source", "target"), columns, strict=True):
            (tmp_path / f"{split}.{side}").write_text("".join(f"{line}\n" for line in column))
            name = "train" if split == "train" else "valid"
            options[f"{name}_{side}"] = tmp_path / f"{split}.{side}"
    flags = [f"--{name}={value}" for name, value in options.items()]

    def start(path):
        return subprocess.Popen(
            [sys.executable, ROOT / "train.py", "--preset=tiny", *flags, f"--model_dir={path}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    process = start(tmp_path / "whole")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    whole = ModelDir(tmp_path / "whole")

    chance = random.Random(1)
    path = tmp_path / "killed"
    partials = path / "checkpoints"
    kills, kills_in_saving, steps = 0, 0, set()
    while kills < 24:
        process = start(path)
        when = chance.choice(["early", "training", "training", "saving"])
        awaited, times = (
            ("parameters", 1) if when == "early" else ("tokens/s", chance.randint(1, 6))
        )
        for _ in range(times):
            assert any(awaited in line for line in process.stdout)
        if when == "saving":
            while not list(partials.glob(".*.partial")):
                assert process.poll() is None
        else:
            time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.communicate(timeout=600)
        assert process.returncode == -signal.SIGKILL, "steps are too few: it came to its end"
        kills += 1
        kills_in_saving += bool(list(partials.glob(".*.partial")))
        steps.update(ModelDir(path).checkpoints.steps()[-1:])
    print(f"{kills} kills, {kills_in_saving} while a checkpoint was written, at steps {steps}")
    assert kills_in_saving >= 3
    assert len(steps) >= 10
    process = start(path)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert_same_end(ModelDir(path), whole, step=900)
