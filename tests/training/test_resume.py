"""A run that is stopped anywhere, in any way, ends like an undisturbed one."""

import contextlib
import dataclasses
import os
import pty
import random
import re
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import quick_run
from command_lines import FEW_STEPS, TINY_MODEL, arguments, begin
from file_faults import Killed
from helpers import ROOT, run_python
from model_dirs import contents_of

from keras_transformer.data import Block, BuiltinPairs, WeightedPairs
from keras_transformer.errors import UserError
from keras_transformer.parsing import ParsingOptions, TreebankPairs
from keras_transformer.training import (
    ModelDir,
    TrainingJob,
    make_strategy,
    parallel_parts,
    train,
)
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
    bidirectional_steps=7,  # no step of a checkpoint, so runs resume before it or after it
)
TRAIN, VALID = BuiltinPairs("train", 150), BuiltinPairs("validation", 20)


def run(path, **changed):
    options = dataclasses.replace(OPTIONS, **changed)
    job = TrainingJob(
        model_dir=path, train=TRAIN, valid=VALID, config=CONFIG, options=options, command="train"
    )
    return train(job)


def run_on(treebank, path, **changed):
    options = dataclasses.replace(OPTIONS, **changed)
    return train(TrainingJob(model_dir=path, train=treebank, config=CONFIG, options=options))


@pytest.fixture(scope="module", autouse=True)
def quick_judge():
    """Figures computed from the weights, since a search would take seconds to compile."""

    def judge_of(model, *_):
        def judge():
            value = float(np.abs(model.weights[0].numpy()).mean())
            return {"loss": value, "BLEU": 100 * value}, [{"source": "a", "translation": "b"}]

        return judge

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("keras_transformer.training.judging.judge_of", judge_of)
        patch.setattr("keras_transformer.training.judging.report", lambda *_: None)
        yield


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "undisturbed"
    run(path)
    return ModelDir(path)


@pytest.fixture
def treebank(tmp_path):
    (tmp_path / "trees.mrg").write_text("(TOP (S (NP (NNS Dogs)) (VP (VBP bark))))\n")
    return TreebankPairs([tmp_path / "trees.mrg"], ParsingOptions())


def assert_same_end(found, expected, step=OPTIONS.steps):
    """Checks that weights, optimizer, random state, best weights, states and logs are the same."""
    assert found.checkpoints.steps()[-1] == expected.checkpoints.steps()[-1] == step
    found, expected = contents_of(found), contents_of(expected)
    for part in expected:
        assert found[part] == expected[part], part


# Killed.


def kill_at(monkeypatch, name, step):
    """Makes a method that the callbacks call fail at a step, before it does anything."""
    owner, method = name
    original = getattr(owner, method)

    def killed(self, *arguments, **options):
        if step in arguments:
            raise Killed
        return original(self, *arguments, **options)

    monkeypatch.setattr(owner, method, killed)


@pytest.mark.slow
def test_killed_twice_and_then_damaged_it_ends_as_if_it_had_not_been(
    undisturbed, tmp_path, monkeypatch, capsys
):
    path = tmp_path / "run"
    for step, going_on_from in ((9, 0), (12, 5)):
        with monkeypatch.context() as patch, pytest.raises(Killed):
            kill_at(patch, (TrainingLog, "samples"), step)  # after the validation figures
            run(path)
        said = capsys.readouterr().out
        assert (f"Resuming from step {going_on_from}" in said) == (going_on_from > 0)

    newest = ModelDir(path).checkpoints.path(10) / "state.npz"
    newest.write_bytes(newest.read_bytes()[:1000])
    run(path)
    said = capsys.readouterr().out
    assert (
        len(re.findall(f"{newest}: .* is damaged: .*; falling back to the previous one\n", said))
        == 1
    )
    assert "Resuming from step 5" in said
    assert_same_end(ModelDir(path), undisturbed)


# Stopped by a signal.


@pytest.fixture
def hangup_is_heeded():
    """Undoes what `nohup` has told this process, and those that it starts, to ignore."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
@pytest.mark.usefixtures("hangup_is_heeded")
def test_stopped_by_signals_it_saves_and_goes_on(undisturbed, tmp_path, monkeypatch, capsys):
    path = tmp_path / "run"
    original = TrainingLog.progress

    def stop(self, text):
        if text.startswith(f"step {step}/"):
            os.kill(os.getpid(), number)
        original(self, text)

    for number, step in ((signal.SIGINT, 4), (signal.SIGTERM, 8)):
        with (
            monkeypatch.context() as patch,
            pytest.raises((KeyboardInterrupt, SystemExit)) as stopped,
        ):
            patch.setattr(TrainingLog, "progress", stop)
            run(path)
        if number == signal.SIGINT:
            assert stopped.type is KeyboardInterrupt
        else:
            assert stopped.type is SystemExit
            assert stopped.value.code == 128 + number
        assert ModelDir(path).checkpoints.steps()[-1] == step
        said = f"Saved step {step}; the same command resumes from there"
        assert capsys.readouterr().out.splitlines()[-1] == said
    run(path)
    assert_same_end(ModelDir(path), undisturbed)


def test_a_signal_leaves_a_validation_which_is_done_when_the_run_goes_on():
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as signals:
        # Libraries that catch every `Exception` do not catch this one.
        with pytest.raises(Interrupted), signals.may_interrupt(), contextlib.suppress(Exception):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        with pytest.raises(Interrupted), signals.may_interrupt():
            pytest.fail("a validation began after the signal")
    assert signals.received == signal.SIGTERM
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_after_what_it_may_interrupt_is_noted():
    with StopSignals() as signals:
        with signals.may_interrupt():
            pass
        os.kill(os.getpid(), signal.SIGTERM)
        assert signals.received == signal.SIGTERM


def test_signals_are_left_alone_outside_of_the_main_thread():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def handlers():
        with StopSignals():
            return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    with ThreadPoolExecutor() as pool:
        assert pool.submit(handlers).result() == before


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


@pytest.mark.usefixtures("hangup_is_heeded")
def test_a_closed_terminal_stops_once_unless_that_is_ignored():
    script = """
import os, signal
from keras_transformer.training.stopping import StopSignals

with StopSignals() as signals:
    for _ in range(2):  # both the system and the shell send one
        os.kill(os.getpid(), signal.SIGHUP)
    assert signals.received == signal.SIGHUP
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` starts a process
with StopSignals() as signals:
    os.kill(os.getpid(), signal.SIGHUP)
    print(signals.received)
"""
    assert run_python(script) == "None\n"


@pytest.fixture
def endless(tmp_path):
    """The command of a run in `tmp_path / "run"` that takes so many steps that it is stopped."""
    options = {**FEW_STEPS, **TINY_MODEL, "steps": 10_000, "checkpoint_steps": 10_000}
    for side, column in zip(("source", "target"), zip(*TRAIN, strict=True), strict=True):
        (tmp_path / side).write_text("".join(f"{line}\n" for line in column))
        options[f"train_{side}"] = tmp_path / side
    options["model_dir"] = tmp_path / "run"
    return [sys.executable, ROOT / "train.py", *arguments(options)]


@pytest.mark.slow
@pytest.mark.usefixtures("hangup_is_heeded")
def test_a_run_whose_terminal_is_closed_saves_and_goes_on(endless, tmp_path):
    terminal, its_end = pty.openpty()
    process = subprocess.Popen(endless, preexec_fn=lambda: os.login_tty(its_end))
    os.close(its_end)
    said = b""
    while b"tokens/s" not in said:  # the progress, which is shown again and again
        said += os.read(terminal, 1000)
    os.close(terminal)
    assert process.wait(timeout=600) == 128 + signal.SIGHUP
    [step] = ModelDir(tmp_path / "run").checkpoints.steps()
    assert 0 < step < 10_000


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, None])  # Ctrl-C ends the reader too
def test_a_run_whose_output_nobody_reads_saves_and_goes_on(number, endless, tmp_path):
    process = subprocess.Popen([*endless, "--report_steps=1"], stdout=subprocess.PIPE)
    for said in process.stdout:
        if b"tokens/s" in said:
            break
    process.stdout.close()
    if number:
        process.send_signal(number)
    assert process.wait(timeout=600) in (128 + signal.SIGINT, 128 + signal.SIGPIPE)
    [step] = ModelDir(tmp_path / "run").checkpoints.steps()
    assert 0 < step < 10_000


# Refusals and messages.


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_run_goes_on_in_as_many_parts_as_before_whatever_the_machine(undisturbed):
    unsaid = dataclasses.replace(OPTIONS, parallel_parts=None)
    assert parallel_parts(undisturbed.path, CONFIG, unsaid) == 2
    run(undisturbed.path, parallel_parts=None)
    assert undisturbed.load_training()["options"]["parallel_parts"] == 2


@pytest.mark.slow
def test_a_run_in_both_directions_is_not_resumed_for_a_parser(undisturbed, treebank):
    message = f"^model_dir {undisturbed.path} has a model for translation, but the data are for "
    with pytest.raises(UserError, match=message):
        run_on(treebank, undisturbed.path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({}, "bidirectional_steps is for translation: set it to 0 for parsing (now 7)"),
        (
            {"bidirectional_steps": 0, "bpe_dropout": 0.1},
            "bpe_dropout is for translation: set it to 0 for parsing (now 0.1)",
        ),
    ],
)
def test_a_new_parser_is_not_trained_with_options_of_translation(
    tmp_path, treebank, changed, message
):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        run_on(treebank, tmp_path / "runs", **changed)
    assert not (tmp_path / "runs").exists()


def test_a_run_on_weighted_corpora_resumes_with_the_same_weights_only(tmp_path):
    """`test_batches.py` shows that the batches go on as if the run had not been stopped."""
    corpora = [BuiltinPairs("train", 150), BuiltinPairs("train", 30, seed=1)]
    weighted = WeightedPairs(corpora, [1, 2])
    job = TrainingJob(model_dir=tmp_path / "run", train=weighted, config=CONFIG, options=OPTIONS)
    for _ in range(2):
        begin(job, make_strategy("one_device"))
    record = ModelDir(tmp_path / "run").load_training()
    assert len(record["starts"]) == 2
    assert record["data"]["train_weights"] == [1.0, 2.0]
    with pytest.raises(UserError, match=r"train_weights=\[1\.0, 2\.0\] \(now \[2\.0, 1\.0\]\)"):
        run_on(WeightedPairs(corpora, [2, 1]), tmp_path / "run")


@pytest.mark.slow
def test_another_corpus_of_the_same_size_is_refused(undisturbed, monkeypatch):
    [block] = TRAIN.blocks()
    swapped = Block(block.source[::-1], block.target[::-1])
    monkeypatch.setattr(BuiltinPairs, "blocks", lambda self: iter([swapped]))
    with pytest.raises(UserError, match="data: other training pairs, other validation pairs;"):
        run(undisturbed.path)


@pytest.mark.slow
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


@pytest.mark.slow
def test_early_stopping_is_remembered(tmp_path, capsys):
    """A run that has lost patience trains no further when it is started again."""
    path = tmp_path / "run"
    few = {"steps": 100, "validation_steps": 1, "stop_patience": 2, "best_by": "score"}
    run(path, **few)
    stopped = ModelDir(path).checkpoints.steps()[-1]
    assert stopped < 100
    assert "stopping: score has not improved" in capsys.readouterr().out
    best = ModelDir(path).best.steps()
    run(path, **few)
    assert ModelDir(path).checkpoints.steps()[-1] == stopped
    assert ModelDir(path).best.steps() == best
    assert "Training stopped early: step " in capsys.readouterr().out


# Real processes, killed at random.


# Figures from the weights take the place of a search, which each process would trace for seconds.
# The loss falls until step 175 of a round, so that patience ends the run.
ROUNDS = int(os.environ.get("KILL_ROUNDS", "1"))
TRAIN_COMMAND = f"""
import sys, time
from keras_transformer.cli import quiet
quiet.import_tensorflow()
import numpy as np
from keras_transformer.cli.main import main
from keras_transformer.training import judging

def judge_of(model, *_):
    def judge():
        time.sleep(0.3)  # signals come meanwhile
        value = float(np.abs(model.weights[0].numpy()).mean())
        loss = abs(int(model.optimizer.iterations) - {175 * ROUNDS}) + value
        return dict(loss=loss, BLEU=100 * value), [dict(source="a", translation="b")]

    return judge

judging.judge_of, judging.report = judge_of, lambda *_: None
main(["train", *sys.argv[1:]])
"""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.long
def test_killed_and_stopped_at_random_it_ends_as_if_it_had_not_been(tmp_path):
    """SIGKILL and SIGTERM of `train`: before its first step, in steps, validations, saving.

    Once at each moment; the variable KILL_ROUNDS sets how often.
    """
    options = dict(vocab_size=340, num_encoder_layers=1, num_decoder_layers=1, d_model=16)
    options |= dict(d_ff=16, num_heads=2, tokens_per_batch=256, max_length=60, jit_compile=False)
    options |= dict(
        steps=1200 * ROUNDS, report=False, report_steps=7, checkpoint_steps=6, checkpoint_minutes=0
    )
    options |= dict(keep_checkpoints=3, average_checkpoints=3, parallel_parts=2)
    # Validations fall on steps with and without a checkpoint.
    options |= dict(validation_steps=35, best_by="loss", stop_patience=4)
    for split, count in (("train", 200), ("validation", 3)):
        columns = zip(*BuiltinPairs(split, count), strict=True)
        for side, column in zip(("source", "target"), columns, strict=True):
            (tmp_path / f"{split}.{side}").write_text("".join(f"{line}\n" for line in column))
            name = "train" if split == "train" else "valid"
            options[f"{name}_{side}"] = tmp_path / f"{split}.{side}"
    flags = [f"--{name}={value}" for name, value in options.items()]

    def start(path):
        return subprocess.Popen(
            [sys.executable, "-c", TRAIN_COMMAND, "--preset=tiny", *flags, f"--model_dir={path}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    process = start(tmp_path / "whole")
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    whole = ModelDir(tmp_path / "whole")
    last = whole.checkpoints.steps()[-1]
    assert last < options["steps"]  # stopped by its patience

    chance = random.Random(1)
    path = tmp_path / "killed"
    partials = path / "checkpoints"
    moments = ("early", "training", "validating", "saving")
    signals = (signal.SIGKILL, signal.SIGTERM)  # at each moment by turns
    ends = [(moments[n % 4], signals[(n + n // 4) % 2]) for n in range(4 * ROUNDS)]
    chance.shuffle(ends)
    steps = set()
    for when, number in ends:
        process = start(path)
        awaited, times = {
            "early": ("parameters", 1),  # next, the interrupted validation is repeated
            "training": ("tokens/s", chance.randint(1, 6)),
            "validating": (r"step \d*[05]/", 1),
            "saving": ("tokens/s", chance.randint(1, 6)),
        }[when]
        for _ in range(times):
            assert any(re.search(awaited, line) for line in process.stdout)
        if when == "saving":
            while not list(partials.glob(".*.partial")):
                assert process.poll() is None
        else:
            time.sleep(chance.uniform(0, 0.3))
        process.send_signal(number)
        process.communicate(timeout=600)
        # Before and after training, SIGTERM ends the process as usual.
        expected = {-number} if number == signal.SIGKILL else {-number, 143}
        assert process.returncode in expected, "steps are too few: it came to its end"
        steps.update(ModelDir(path).checkpoints.steps()[-1:])
    assert len(steps) >= len(ends) * 10 / 24
    process = start(path)
    said, _ = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert_same_end(ModelDir(path), whole, step=last)
