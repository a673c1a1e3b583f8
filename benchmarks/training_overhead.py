"""Times what a step, a report and a checkpoint of the `tiny` preset cost besides the training.

  python benchmarks/training_overhead.py

Only the callbacks run, with the default options and the whole state of model and optimizer.
"""

import contextlib
import io
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from keras_transformer.config import TransformerConfig
from keras_transformer.data import Batch, BatchCount
from keras_transformer.training import Checkpoints, TrainingOptions, callbacks, trainer
from keras_transformer.training.batch_counts import BatchCounts
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.run_state import RunState
from keras_transformer.training.stopping import StopSignals


class SameCount(BatchCounts):
    """Gives the same counts for each batch."""

    def __init__(self):
        pass

    def take(self, step):
        return BatchCount(pairs=100, source_tokens=2000, target_tokens=2000, length=40, rows=100)


def no_batch(step) -> Batch:
    """Stands for what reads a batch whose update was skipped; here, no update is."""
    raise AssertionError(step)


def callback_list(folder, options):
    model = trainer.compiled_model(TransformerConfig.from_preset("tiny"), options)
    model.reset_metrics()
    state, log = RunState(), TrainingLog(folder)
    skipped_updates = callbacks.SkippedUpdates(state, log, options, no_batch, folder)
    checkpoints, best = Checkpoints(folder / "checkpoints"), Checkpoints(folder / "best")
    all_but_validation = [
        callbacks.Progress(state, log, options, SameCount(), lambda seconds: ""),
        skipped_updates,
        callbacks.StopOnSignal(StopSignals()),
        callbacks.SaveCheckpoints(state, log, options, checkpoints, best, skipped_updates),
    ]
    return callbacks.CallbackList(all_but_validation, model=model)


def main():
    options = TrainingOptions(steps=10**6, parallel_parts=1)
    names = ("loss", "perplexity", "gradient_norm", "skipped_updates")
    logs = {name: tf.constant(float(name != "skipped_updates")) for name in names}
    seconds = {"a step": [], "a report": [], "a checkpoint, and a report": []}
    every = {"a step": 1, "a report": 100, "a checkpoint, and a report": 1000}
    with tempfile.TemporaryDirectory() as folder:
        timed = callback_list(Path(folder), options)
        timed.on_train_begin()
        for batch in range(3000):
            began = time.perf_counter()
            with contextlib.redirect_stdout(io.StringIO()):
                timed.on_train_batch_begin(batch)
                timed.on_train_batch_end(batch, logs)
            what = [name for name, steps in every.items() if (batch + 1) % steps == 0][-1]
            seconds[what].append(time.perf_counter() - began)
    for what, times in seconds.items():
        milliseconds = 1000 * median(times)
        print(f"{what}: {milliseconds:.3f} ms, {milliseconds / every[what]:.3f} ms a step")


if __name__ == "__main__":
    main()
