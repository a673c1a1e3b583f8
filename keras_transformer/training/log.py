"""Reports of training: on the terminal, for TensorBoard, and in a file for programs."""

import contextlib
import errno
import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

import tensorflow as tf

from keras_transformer.errors import UserError, reason_of
from keras_transformer.files import (
    open_regular,
    read_whole,
    recover_folder,
    sync_all,
    whole_file,
)
from keras_transformer.training.stopping import stops_without_reader


class TrainingLog:
    """Writes figures to `log.jsonl` and for TensorBoard, and prints reports.

    A line of `log.jsonl` is an object with `time` (seconds since 1970), `step`, `split` ("train",
    "validation", "summary") and figures; a figure that is not finite is null. A line of the split
    "samples" has `rows` of text instead. Every line is written whole.

    Args:
        folder: folder of the files; None if another worker writes them.
        last: the last step of each split to keep. Later lines of an earlier run are removed, since
            the resumed run writes them again.

    Raises:
        UserError: a file cannot be written, as on a full disk; methods raise it too.

    Example:
        >>> log = TrainingLog("runs/demo/logs")
        >>> log.figures(100, "train", {"loss": 6.5})
    """

    def __init__(self, folder: str | os.PathLike | None, last: Mapping[str, int] | None = None):
        self._unfinished_line = False
        self._folder = folder
        if folder is None:
            self._lines: IO[bytes] = open(os.devnull, "ab")  # noqa: SIM115
            self._writer = tf.summary.create_noop_writer()
            return
        folder = Path(folder)
        with _errors_of_one_line(folder):
            folder.mkdir(parents=True, exist_ok=True)
            recover_folder(folder)
            _cut_lines(folder / "log.jsonl", last or {})
            for path in folder.glob("events.out.tfevents.*"):
                _cut_events(path, last or {})
            self._lines = open(folder / "log.jsonl", "ab", buffering=0)  # noqa: SIM115
            self._writer = tf.summary.create_file_writer(os.fsencode(folder))

    def record(self, step: int, split: str, values: Mapping[str, float | None]) -> None:
        """Writes the values of a step to `log.jsonl`."""
        figures = {
            name: None if value is None or not math.isfinite(value) else value
            for name, value in values.items()
        }
        self._write(step, split, figures)

    def _write(self, step, split, fields):
        entry = {"time": round(time.time(), 3), "step": step, "split": split}
        line = json.dumps({**entry, **fields}).encode() + b"\n"
        with _errors_of_one_line(self._folder):
            while line:  # on a full disk, a part is written before the error
                line = line[self._lines.write(line) :]

    def figures(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Records the values of a step, in TensorBoard under `split/name`."""
        self.record(step, split, values)
        with self._summaries():
            for name, value in values.items():
                # TensorBoard keeps float32, where the perplexity of a diverged model is infinite.
                tf.summary.scalar(f"{split}/{name}", tf.constant(value, tf.float64), step=step)

    def samples(self, step: int, rows: Sequence[Mapping[str, str]]) -> None:
        """Records rows of text, all with the same columns, as a table in TensorBoard."""
        lines = [rows[0].keys(), ["---"] * len(rows[0]), *(row.values() for row in rows)]
        cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
        with self._summaries():
            tf.summary.text("validation/samples", "\n".join(f"| {line} |" for line in cells), step)
        self._write(step, "samples", {"rows": rows})

    def sync(self) -> None:
        """Waits until the files have reached the disk."""
        if self._folder is not None:
            with _errors_of_one_line(self._folder):
                sync_all(Path(self._folder))

    def say(self, text: str) -> None:
        """Prints a line."""
        end = "\n" if self._unfinished_line else ""
        _print(f"{end}{text}\n")
        self._unfinished_line = False

    def progress(self, text: str) -> None:
        """Prints a line; on a terminal it replaces the last such line."""
        if sys.stdout and sys.stdout.isatty():
            _print(f"\r\033[K{text}")
            self._unfinished_line = True
        else:
            _print(f"{text}\n")

    @contextlib.contextmanager
    def _summaries(self):
        """Flushes the summaries of this block to TensorBoard's file at its end."""
        with _errors_of_one_line(self._folder):
            with self._writer.as_default():
                yield
            self._writer.flush()


def _print(text):
    """Prints text at once; does nothing if the terminal or the reader has gone.

    `StopSignals` stops training then, after the step, with a checkpoint.
    """
    try:
        print(text, end="", flush=True)
    except OSError as error:
        is_pipe = error.errno == errno.EPIPE and stops_without_reader()
        if not (is_pipe or error.errno == errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _errors_of_one_line(folder):
    """Turns file errors of Python and TensorFlow into a `UserError`."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        path = getattr(error, "filename", None) or folder
        raise UserError(f"{path}: the log cannot be written: {reason_of(error)}") from error


def _cut_lines(path, last):
    """Removes lines after the last step of their split, and a line that is not whole."""
    if not path.exists():
        return
    lines = read_whole(path).splitlines(keepends=True)

    def is_kept(line):
        try:
            entry = json.loads(line)
            return line.endswith(b"\n") and entry["step"] <= last.get(entry["split"], -1)
        # A partial line, as after a power failure.
        except (ValueError, KeyError, TypeError, RecursionError):
            return False

    kept = [line for line in lines if is_kept(line)]
    if kept != lines:
        with whole_file(path) as partial:
            partial.write_bytes(b"".join(kept))


def _cut_events(path, last):
    """Removes the same from a file of TensorBoard, whose tags begin with the split."""
    events, is_whole = [], True
    with open_regular(path):  # TensorFlow would wait for a pipe
        pass
    try:
        for record in tf.data.TFRecordDataset(os.fsencode(path)).as_numpy_iterator():
            events.append(tf.compat.v1.Event.FromString(record))
    except tf.errors.DataLossError:
        is_whole = False

    def is_kept(event):
        splits = {value.tag.partition("/")[0] for value in event.summary.value}
        return all(event.step <= last.get(split, -1) for split in splits)

    kept = [event for event in events if is_kept(event)]
    if is_whole and len(kept) == len(events):
        return
    with whole_file(path) as partial, tf.io.TFRecordWriter(os.fsencode(partial)) as writer:
        for event in kept:
            writer.write(event.SerializeToString())
