"""Where training reports: to a person, to TensorBoard, and to a file that programs read."""

import json
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import tensorflow as tf

from keras_transformer.files import remove_partials, whole_file


class TrainingLog:
    """Writes figures to `log.jsonl` and for TensorBoard, and prints what a person should see.

    A line of `log.jsonl` is an object with `time` (seconds since 1970), `step`, `split` ("train",
    "validation", "summary") and figures; one that is not finite is null. Lines appear whole.

    Args:
        folder: of the files; None for none, where another worker writes them.
        last: the last step of each split that is to be kept. What an earlier run wrote after it
            is removed, since it comes again.

    Example:
        >>> log = TrainingLog("runs/demo/logs")
        >>> log.figures(100, "train", {"loss": 6.5})
    """

    def __init__(self, folder: str | os.PathLike | None, last: Mapping[str, int] | None = None):
        self._unfinished_line = False
        if folder is None:
            self._lines = open(os.devnull, "ab")  # noqa: SIM115
            self._writer = tf.summary.create_noop_writer()
            return
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        remove_partials(folder)
        _cut_lines(folder / "log.jsonl", last or {})
        for path in folder.glob("events.out.tfevents.*"):
            _cut_events(path, last or {})
        self._lines = open(folder / "log.jsonl", "ab", buffering=0)  # noqa: SIM115
        self._writer = tf.summary.create_file_writer(str(folder))

    def record(self, step: int, split: str, values: Mapping[str, float | None]) -> None:
        """Writes values of a step to `log.jsonl`."""
        entry = {"time": round(time.time(), 3), "step": step, "split": split}
        figures = {
            name: None if value is None or not math.isfinite(value) else value
            for name, value in values.items()
        }
        self._lines.write(json.dumps({**entry, **figures}).encode() + b"\n")

    def figures(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Records values of a step, in TensorBoard under `split/name`."""
        self.record(step, split, values)
        with self._writer.as_default():
            for name, value in values.items():
                tf.summary.scalar(f"{split}/{name}", value, step=step)
        self._writer.flush()

    def table(self, step: int, split: str, name: str, rows: Sequence[Mapping[str, str]]) -> None:
        """Shows rows of text, of the same columns each, in TensorBoard."""
        lines = [rows[0].keys(), ["---"] * len(rows[0]), *(row.values() for row in rows)]
        cells = (" | ".join(cell.replace("|", "\\|") for cell in line) for line in lines)
        with self._writer.as_default():
            tf.summary.text(f"{split}/{name}", "\n".join(f"| {line} |" for line in cells), step)
        self._writer.flush()

    def say(self, text: str) -> None:
        """Prints a line."""
        end = "\n" if self._unfinished_line else ""
        print(f"{end}{text}", flush=True)
        self._unfinished_line = False

    def progress(self, text: str) -> None:
        """Prints a line over the last such one on a terminal, below it elsewhere."""
        if sys.stdout.isatty():
            print(f"\r\033[K{text}", end="", flush=True)
            self._unfinished_line = True
        else:
            print(text, flush=True)


def _cut_lines(path, last):
    """Removes the lines after the last step of their split, and one that is not whole."""
    if not path.exists():
        return
    lines = path.read_bytes().splitlines(keepends=True)

    def is_kept(line):
        try:
            entry = json.loads(line)
            return line.endswith(b"\n") and entry["step"] <= last.get(entry["split"], -1)
        except ValueError:  # what is left of a line when the power goes
            return False

    kept = [line for line in lines if is_kept(line)]
    if kept != lines:
        with whole_file(path) as partial:
            partial.write_bytes(b"".join(kept))


def _cut_events(path, last):
    """The same for a file of TensorBoard's, whose tags begin with the split."""
    events, is_whole = [], True
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            events.append(tf.compat.v1.Event.FromString(record))
    except tf.errors.DataLossError:
        is_whole = False

    def is_kept(event):
        splits = {value.tag.partition("/")[0] for value in event.summary.value}
        return all(event.step <= last.get(split, -1) for split in splits)

    kept = [event for event in events if is_kept(event)]
    if is_whole and len(kept) == len(events):
        return
    with whole_file(path) as partial, tf.io.TFRecordWriter(str(partial)) as writer:
        for event in kept:
            writer.write(event.SerializeToString())
