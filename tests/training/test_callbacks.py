"""Between steps: skipped updates, the best validation, patience, counts."""

import dataclasses
import json
import math
import re
import types

import numpy as np
import pytest
import tensorflow as tf
from helpers import small_model

from keras_transformer.data import Batch, BatchCount
from keras_transformer.errors import UserError
from keras_transformer.training import Checkpoints, TrainingOptions
from keras_transformer.training.callbacks import (
    Progress,
    SaveCheckpoints,
    SkippedUpdates,
    Validation,
)
from keras_transformer.training.run_state import RunState, TrainingTotals
from keras_transformer.training.stopping import StopSignals


class Log:
    """Keeps the printed lines."""

    def __init__(self):
        self.lines = []

    def say(self, text):
        self.lines.append(text)

    def figures(self, *_):
        pass

    samples = figures


def batch_at(step):
    """A batch that holds only the number of its step."""
    return Batch(*[np.array([[step]])] * 3)


def steps_with_skips(folder, skipped, steps=200, **options):
    """Runs steps through the callback; the gradients of `skipped` ones are not finite."""
    state, log = RunState(), Log()
    options = TrainingOptions(steps=steps, **options)
    callback = SkippedUpdates(state, log, options, batch_at, folder)
    for step in range(1, steps + 1):
        state.step = step
        norm = float("nan") if step in skipped else 1.0
        count = sum(other <= step for other in skipped)
        logs = {"gradient_norm": tf.constant(norm), "skipped_updates": tf.constant(float(count))}
        callback.on_train_batch_end(step - 1, logs)
    callback.on_train_end()
    return state, log


@pytest.mark.parametrize(("steps", "count"), [(50, 2), (99, 2), (160, 3)])
def test_updates_skipped_just_before_the_end_are_counted(tmp_path, steps, count):
    state, log = steps_with_skips(tmp_path, {7, 9, 150}, steps=steps)
    assert state.skipped_updates == count
    assert f"({count} so far" in log.lines[-1]


def test_a_batch_that_cannot_be_saved_does_not_hide_why_training_ends(tmp_path):
    with pytest.raises(UserError, match=r"not finite.*; its batch cannot be saved: No such file"):
        steps_with_skips(tmp_path / "nowhere", {7}, max_skipped_updates=0)


def test_skipped_updates_are_said_and_counted(tmp_path):
    state, log = steps_with_skips(tmp_path, {7, 9, 150})
    assert state.skipped_updates == 3
    assert log.lines == [
        "step 9: the gradient is not finite, its update was skipped (2 so far, at most 200)",
        "step 150: the gradient is not finite, its update was skipped (3 so far, at most 200)",
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("limit", "step"), [(0, 7), (1, 9), (2, 150)])
def test_one_skipped_update_too_many_ends_training_and_its_batch_is_kept(tmp_path, limit, step):
    with pytest.raises(UserError) as error:
        steps_with_skips(tmp_path, {7, 9, 150}, max_skipped_updates=limit)
    path = tmp_path / f"batch-{step:08d}.npz"
    assert str(error.value) == (
        f"step {step}: the gradient is not finite, in more than {limit} updates "
        f"(max_skipped_updates); its batch is in {path}"
    )
    batch = np.load(path)
    assert sorted(batch.files) == ["labels", "source_ids", "target_ids"]
    assert [batch[name].tolist() for name in batch.files] == [[[step - 1]]] * 3
    assert list(tmp_path.iterdir()) == [path]


def test_with_float16_each_growth_of_the_loss_scale_may_skip_an_update(tmp_path):
    skipped = {1999, 2001, 4000, 4100}  # the limit is 1 up to step 1,999, 2 up to 3,999, then 3
    options = {"steps": 4200, "max_skipped_updates": 1}
    with pytest.raises(UserError, match=r"^step 4,100: .* in more than 3 updates"):
        steps_with_skips(tmp_path, skipped, dtype_policy="mixed_float16", **options)
    with pytest.raises(UserError, match=r"^step 2,001: .* in more than 1 updates"):
        steps_with_skips(tmp_path, skipped, dtype_policy="mixed_bfloat16", **options)


class Steps(Checkpoints):
    """Remembers steps instead of variables."""

    def save_weights(self, model, step):
        self.path(step).mkdir(parents=True)

    def save(self, model, step, progress):
        self.save_weights(model, step)


def validations(folder, values, losses=None, **options):
    """Validates after each step, with these figures in turn; how many it takes before it stops."""
    state, log, model = RunState(), Log(), types.SimpleNamespace(stop_training=False)
    options = TrainingOptions(**{"steps": 100, "validation_steps": 1, **options})
    figures, losses = iter(values), iter(losses or len(values) * [1.0])

    def judge():
        return {"loss": next(losses), options.best_by: next(figures)}, []

    by = options.best_by
    callback = Validation(state, log, options, judge, by, Steps(folder), StopSignals())
    callback.set_model(model)
    for state.step in range(1, len(values) + 1):
        callback.on_train_batch_end(state.step - 1)
        if model.stop_training:
            break
    return state, Steps(folder).steps(), log


@pytest.mark.parametrize(
    ("best_by", "values", "best"),
    [
        ("score", [1.0, 3.0, 2.0, 3.0], 2),
        ("loss", [3.0, 1.0, 2.0, 1.0], 2),
        ("loss", [float("nan"), 5.0, float("nan"), 4.0], 4),
    ],
)
def test_the_first_of_the_best_validations_is_kept(tmp_path, best_by, values, best):
    state, kept, _ = validations(tmp_path, values, best_by=best_by)
    assert (state.best_step, state.best_value) == (best, values[best - 1])
    assert kept[-1] == best
    assert state.step == 4


def test_of_equal_scores_the_validation_with_the_lowest_loss_is_best(tmp_path):
    state, kept, _ = validations(
        tmp_path, [0.0, 0.0, 0.0, 0.0, 0.0], [2.0, 1.5, 1.6, 1.2, 1.3], stop_patience=2
    )
    assert (state.best_step, state.best_value, state.best_loss) == (4, 0.0, 1.2)
    assert kept[-1] == 4
    assert state.step == 5


def test_a_loss_that_is_not_finite_is_worst_and_is_not_saved():
    state = RunState(best_step=1, best_value=0.0)  # as of runs that did not save the loss
    assert not state.is_better(0.0, math.nan, highest=True)
    assert state.is_better(0.0, 9.0, highest=True)
    assert not RunState(best_value=40.0).is_better(3.0, 1.0, highest=True)


def test_the_state_of_a_validation_without_a_finite_loss_can_be_read(tmp_path):
    state, _, _ = validations(tmp_path / "nan", [0.0, 0.0], [math.nan, 2.0])
    assert (state.best_step, state.best_loss) == (2, 2.0)
    state, _, _ = validations(tmp_path / "inf", [1.0, 0.0], [math.inf, 2.0])
    assert RunState.from_json(json.loads(json.dumps(state.to_json()))) == state
    earlier = {name: value for name, value in state.to_json().items() if name != "best_loss"}
    assert RunState.from_json(earlier) == state


@pytest.mark.parametrize(("patience", "stopped_at"), [(0, 6), (1, 2), (2, 5), (3, 6)])
def test_patience_is_validations_in_a_row_without_a_better_one(tmp_path, patience, stopped_at):
    values = [2.0, 1.0, 3.0, 3.0, 1.0, 1.0]
    state, _, log = validations(tmp_path, values, stop_patience=patience)
    assert state.step == stopped_at
    assert any("stopping: score has not improved" in line for line in log.lines) == (patience > 0)


def test_a_run_at_its_last_step_is_not_said_to_stop_early(tmp_path):
    values = [2.0, 1.0]
    _, _, log = validations(tmp_path, values, stop_patience=1, steps=len(values))
    assert not any("stopping" in line for line in log.lines)


@pytest.mark.parametrize(("minutes", "saved"), [(0.0, [3, 6, 7]), (1e-9, list(range(1, 8)))])
def test_checkpoints_are_saved_by_steps_at_the_end_and_by_minutes_if_given(
    tmp_path, minutes, saved
):
    state, checkpoints, best = RunState(), Steps(tmp_path / "last"), Steps(tmp_path / "best")
    options = TrainingOptions(
        steps=7, checkpoint_steps=3, checkpoint_minutes=minutes, keep_checkpoints=10
    )
    skipped_updates = types.SimpleNamespace(check=lambda: None)
    log = types.SimpleNamespace(sync=lambda: synced.append(state.step))
    synced = []
    callback = SaveCheckpoints(state, log, options, checkpoints, best, skipped_updates)
    callback.set_model(types.SimpleNamespace(stop_training=False, metric_sums=[]))
    callback.on_train_begin()
    for state.step in range(1, 8):
        callback.on_train_batch_end(state.step - 1)
    assert checkpoints.steps() == saved == synced


def test_a_new_run_has_done_nothing():
    nothing = dict(seconds=0, pairs=0, source_tokens=0, target_tokens=0, rows_by_length={})
    expected = dict(step=0, seen=nothing, reported=nothing, metrics=[], validation_seconds=0)
    expected |= dict(saving_seconds=0, skipped_updates=0, validated=0, best_step=None)
    expected |= dict(best_value=None, best_loss=None, validations_since_best=0, interim=[])
    assert RunState().to_json() == expected


def test_a_report_is_about_what_comes_after_the_last_one():
    count = BatchCount(pairs=2, source_tokens=6, target_tokens=6, length=4, rows=3)
    state = RunState()
    state.seen.add(count)
    state.report()
    assert state.reported == state.seen
    state.seen.add(count)
    assert (state.reported.pairs, state.seen.pairs) == (2, 4)
    assert state.seen.padding_share(since=state.reported) == 1 - 12 / 24


@pytest.mark.parametrize("changed", ["more", "fewer"])
def test_a_state_of_another_version_is_refused(tmp_path, changed):
    checkpoints = Checkpoints(tmp_path)
    state = RunState().to_json()
    if changed == "more":
        state["later"] = 1
    else:
        del state["interim"]
    checkpoints.save(small_model(), 7, state)
    with pytest.raises(UserError, match=r"step-00000007: progress\.json has other fields or"):
        RunState.load(checkpoints, 7)


def test_counts_of_what_was_seen_are_summed():
    count = BatchCount(pairs=2, source_tokens=6, target_tokens=6, length=4, rows=3)
    seen = TrainingTotals()
    seen.add(count)
    before = dataclasses.replace(seen, rows_by_length=dict(seen.rows_by_length))
    seen.add(count._replace(length=2))
    assert (seen.pairs, seen.source_tokens, seen.target_tokens) == (4, 12, 12)
    assert seen.rows_by_length == {4: 3, 2: 3}
    assert seen.padding_share(since=TrainingTotals()) == pytest.approx(1 - 24 / 36)
    assert seen.padding_share(since=before) == pytest.approx(1 - 12 / 12)


class StepClock:
    """A clock that each step moves on by as much as a test says."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Lines(Log):
    """Keeps the progress lines, and the steps of reports, too."""

    def __init__(self):
        super().__init__()
        self.reports = []

    progress = Log.say

    def figures(self, step, *_):
        self.reports.append(step)


def lines_of_steps(seconds_of_steps, lengths=None, start=0, **options):
    """Runs steps of these durations through `Progress`; its log, with step and second of a line."""
    clock, log, state = StepClock(), Lines(), RunState(step=start)
    count = BatchCount(pairs=2, source_tokens=6, target_tokens=6, length=4, rows=3)
    lengths = iter(lengths or [4] * len(seconds_of_steps))
    counts = types.SimpleNamespace(take=lambda step: count._replace(length=next(lengths)))
    options = TrainingOptions(**{"steps": start + len(seconds_of_steps), **options})
    callback = Progress(state, log, options, counts, "about {:.2f} s".format, clock)
    callback.set_model(
        types.SimpleNamespace(
            optimizer=types.SimpleNamespace(learning_rate=0.1), reset_metrics=lambda: None
        )
    )
    for seconds in seconds_of_steps:
        callback.on_train_batch_begin(state.step)
        clock.now += seconds
        callback.on_train_batch_end(state.step, {"loss": 1.0, "perplexity": 2.0})
    return log


def shown(log):
    """The steps that have a line."""
    return [int(re.match(r"step ([\d,]+)/", line)[1]) for line in log.lines if "/" in line]


def test_a_file_has_a_line_after_a_minute_and_then_every_five():
    """100 steps of half a minute would be 50 minutes without a word."""
    log = lines_of_steps([30.0] * 50, report_steps=100)
    assert shown(log) == [1, 3, 13, 23, 33, 43, 50]
    assert log.reports == [50]


def test_reports_put_off_the_other_lines():
    log = lines_of_steps([30.0] * 16, report_steps=8)
    assert shown(log) == [1, 3, 8, 16]
    assert log.reports == [8, 16]


def test_fast_steps_have_only_reports():
    assert shown(lines_of_steps([0.1] * 300)) == [1, 100, 200, 300]


def test_a_terminal_has_a_line_twice_a_second(monkeypatch):
    monkeypatch.setattr("sys.stdout", types.SimpleNamespace(isatty=lambda: True))
    assert shown(lines_of_steps([0.3] * 7)) == [1, 3, 5, 7]


def test_the_duration_is_said_once_after_steps_that_did_not_compile():
    steps, lengths = [9.0, 5.0, 0.25, 0.75, 0.5, 0.5], [4, 8, 4, 8, 4, 4]
    lines = lines_of_steps(steps, lengths).lines
    assert lines[2] == "about 0.50 s"  # after "Compiling" and the first step
    assert sum("about" in line for line in lines) == 1


def test_compilation_does_not_count_in_the_time_left():
    steps, lengths = [90.0, 5.0, 0.25, 0.75, 0.5, 0.5, 0.5], [4, 8, 4, 8, 4, 4, 4]
    lines = lines_of_steps(steps, lengths, start=0, report_steps=5).lines
    assert lines[3].startswith("step 5/7 ")
    assert lines[3].endswith(" tokens/s, 0:00:01 left")


def test_lengths_that_come_late_compile_without_counting_in_the_time_left():
    steps, lengths = [90.0, 0.5, 0.5, 60.0, 0.5, 0.5, 0.5], [4, 4, 4, 8, 8, 4, 4]
    lines = lines_of_steps(steps, lengths, report_steps=5).lines
    assert lines[2] == "about 0.50 s"
    assert [line.split(", ")[-1] for line in lines[3:5]] == ["0:00:02 left", "0:00:01 left"]


def test_a_run_that_has_ended_meanwhile_says_no_duration():
    assert not any("about" in line for line in lines_of_steps([9.0, 0.5, 0.5]).lines)


def test_a_resumed_run_says_its_duration_again():
    lines = lines_of_steps([9.0, 0.5, 0.5, 0.5], start=700).lines
    assert [line.split(",")[0] for line in lines] == [
        "Compiling the training step",
        "step 701/704 [====================] loss 1.000",
        "about 0.50 s",
        "step 704/704 [====================] loss 1.000",
    ]
