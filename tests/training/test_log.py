"""The log for programs, and TensorBoard's: whole lines, and none twice."""

import contextlib
import json
import os
import re
import resource

import pytest
import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.training.log import TrainingLog


def entries(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def tags(folder):
    """The tag and the step of each value that TensorBoard finds."""
    events = (
        tf.compat.v1.Event.FromString(record)
        for path in folder.glob("events.*")
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
    )
    return sorted((value.tag, event.step) for event in events for value in event.summary.value)


def write(folder):
    log = TrainingLog(folder)
    for step in (100, 200, 300):
        log.figures(step, "train", {"loss": step / 100})
    for step in (100, 200):
        log.figures(step, "validation", {"BLEU": 1.0})
        log.samples(step, [{"source": "a|b", "translation": "c"}])
    log.record(300, "summary", {"pairs": 7})


def test_a_line_is_an_object_with_time_step_split_and_figures(tmp_path):
    log = TrainingLog(tmp_path / "logs")
    log.figures(100, "train", {"loss": 2.5, "gradient_norm": float("inf")})
    (entry,) = entries(tmp_path / "logs")
    assert entry.pop("time") > 1.7e9
    assert entry == {"step": 100, "split": "train", "loss": 2.5, "gradient_norm": None}


def test_figures_beyond_float32_are_recorded(tmp_path):
    TrainingLog(tmp_path).figures(1, "validation", {"perplexity": 1e300})
    assert [entry["perplexity"] for entry in entries(tmp_path)] == [1e300]
    assert tags(tmp_path) == [("validation/perplexity", 1)]


def test_a_run_that_goes_on_writes_nothing_twice(tmp_path):
    write(tmp_path)
    assert ("summary", 300) in [(e["split"], e["step"]) for e in entries(tmp_path)]
    # The last checkpoint is of step 200, before its validation.
    TrainingLog(tmp_path, {"train": 200, "validation": 100})
    expected = [("train", 100), ("train", 200), ("validation", 100)]
    assert [(entry["split"], entry["step"]) for entry in entries(tmp_path)] == expected
    assert tags(tmp_path) == [
        ("train/loss", 100),
        ("train/loss", 200),
        ("validation/BLEU", 100),
        ("validation/samples", 100),
    ]


def test_what_a_killed_process_half_wrote_is_removed(tmp_path):
    write(tmp_path)
    (events,) = tmp_path.glob("events.*")
    for path, half in ((tmp_path / "log.jsonl", b'{"time": 1'), (events, b"\x10\x00\x00")):
        with open(path, "ab") as file:
            file.write(half)
    last = {"train": 300, "validation": 200}
    TrainingLog(tmp_path, last).figures(400, "train", {"loss": 0.0})
    assert [entry["step"] for entry in entries(tmp_path)] == [100, 200, 300, 100, 200, 400]
    assert len(tags(tmp_path)) == 8


@pytest.mark.parametrize("line", ["{}", "[1]", "5", '{"step": null, "split": "train"}'])
def test_a_line_that_is_none_of_its_own_is_removed(tmp_path, line):
    write(tmp_path)
    with open(tmp_path / "log.jsonl", "a") as file:
        file.write(f"{line}\n")
    TrainingLog(tmp_path, {"train": 300, "validation": 200})
    assert [entry["step"] for entry in entries(tmp_path)] == [100, 200, 300, 100, 200]


def test_the_name_of_its_folder_need_not_be_utf_8(tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    for step in (100, 200):
        TrainingLog(folder, {"train": 100}).figures(step, "train", {"loss": 2.5})
    TrainingLog(folder, {"train": 100})  # removes the second
    assert [entry["step"] for entry in entries(folder)] == [100]


def test_a_bar_stays_in_its_cell(tmp_path):
    write(tmp_path)
    (events,) = tmp_path.glob("events.*")
    assert b"| a\\|b | c |" in events.read_bytes()


# A full disk.


@contextlib.contextmanager
def files_grow_to(size):
    """Limits all files of this process: even pytest could not write its output to a file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def rows(words):
    return [{"source": "a " * words, "translation": "b"}]


@pytest.mark.parametrize(
    "report",
    [
        pytest.param(lambda log: log.record(400, "train", {"loss": 1.0}), id="log.jsonl"),
        pytest.param(lambda log: log.samples(400, rows(300)), id="events"),
    ],
)
def test_a_report_on_a_full_disk_is_an_error_of_one_line(tmp_path, report):
    write(tmp_path)
    log = TrainingLog(tmp_path, {"train": 300, "validation": 200})
    before = entries(tmp_path), tags(tmp_path)
    room = files_grow_to((tmp_path / "log.jsonl").stat().st_size + 10)
    message = f"{re.escape(str(tmp_path))}: the log cannot be written: File too large"
    with room, pytest.raises(UserError, match=f"^{message}$"):
        report(log)
    TrainingLog(tmp_path, {"train": 300, "validation": 200})  # there is room again
    assert (entries(tmp_path), tags(tmp_path)) == before


@pytest.mark.parametrize("cut", [300, 100])
def test_a_log_that_cannot_be_begun_is_an_error_of_one_line(tmp_path, cut):
    write(tmp_path)
    log = (tmp_path / "log.jsonl").read_bytes()
    with (
        files_grow_to(20),
        pytest.raises(UserError, match=r"the log cannot be written: File too large$"),
    ):
        TrainingLog(tmp_path, {"train": cut, "validation": 200})
    assert (tmp_path / "log.jsonl").read_bytes() == log


def test_a_line_that_the_disk_takes_in_parts_is_whole(tmp_path):
    log = TrainingLog(tmp_path)

    class SlowFile:
        def __init__(self, file):
            self.file = file

        def write(self, data):
            return self.file.write(data[:7])

    log._lines = SlowFile(log._lines)
    log.record(1, "train", {"loss": 1.0})
    log.record(2, "train", {"loss": 1.0})
    assert [entry["step"] for entry in entries(tmp_path)] == [1, 2]
