"""Reads the contents of a model_dir, to compare runs."""

import json
import os
import re

import numpy as np
import tensorflow as tf

from keras_transformer.training import ModelDir


def contents_of(model_dir: ModelDir) -> dict:
    """Arrays bit by bit, states, logs and files, except times and traces of interruptions."""
    names = [str(path.relative_to(model_dir.path)) for path in model_dir.path.rglob("*")]
    files = {path.name: path for path in model_dir.path.glob("[!.]*.*")}
    return {
        # The name of a converted model has a digest of checkpoints, which have times.
        "names": sorted(
            name for name in names if not re.search("tfevents|damaged|ctranslate2", name)
        ),
        "checkpoints": checkpoints_in(model_dir.checkpoints),
        "best": checkpoints_in(model_dir.best),
        "log": timeless(log_of(model_dir)),
        "scalars": scalars(model_dir),
        # training.json has the command of each start.
        "files": {n: file.read_bytes() for n, file in files.items() if n != "training.json"},
    }


def checkpoints_in(checkpoints):
    found = {}
    for step in checkpoints.steps():
        progress = timeless(checkpoints.load_progress(step))
        progress.pop("interim", None)
        with np.load(checkpoints.path(step) / "state.npz") as arrays:
            bits = {n: (a.dtype.str, a.shape, a.tobytes()) for n, a in arrays.items()}
        found[step] = progress, bits
    return found


def timeless(value):
    """The JSON value without the fields that depend on the speed of the machine."""
    if isinstance(value, list):
        return [timeless(entry) for entry in value]
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if not re.search("time|second", k)}
    return value


def log_of(model_dir):
    return [json.loads(line) for line in (model_dir.logs / "log.jsonl").read_text().splitlines()]


def records(path):
    """The records of a file, by the reader of `tf.data.TFRecordDataset` without its graph."""
    return tf.compat.v1.io.tf_record_iterator(os.fsencode(path))


def scalars(model_dir):
    """Each figure in TensorBoard's files as (tag, step, value), with repetitions."""
    found = []
    for path in model_dir.logs.glob("events.*"):
        for record in records(path):
            event = tf.compat.v1.Event.FromString(record)
            for value in event.summary.value:
                if value.tag != "train/tokens_per_second":
                    found.append((value.tag, event.step, value.tensor.SerializeToString()))
    return sorted(found)
