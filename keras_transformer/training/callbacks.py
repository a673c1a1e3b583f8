"""What happens between the steps of `model.fit`: reports, validation, checkpoints."""

import os
import sys
import time
from collections.abc import Callable, Mapping

import keras
import tensorflow as tf

from keras_transformer.training.checkpoints import Checkpoints


class TrainingLog:
    """Writes figures for TensorBoard, and what a person should see to standard output.

    Args:
        folder: of TensorBoard's files; None for none.
    """

    def __init__(self, folder: str | os.PathLike | None):
        self._writer = (
            tf.summary.create_file_writer(str(folder))
            if folder
            else tf.summary.create_noop_writer()
        )
        self._unfinished_line = False

    def figures(self, step: int, split: str, values: Mapping[str, float]) -> None:
        """Records values of a step under `split/name`."""
        with self._writer.as_default():
            for name, value in values.items():
                tf.summary.scalar(f"{split}/{name}", value, step=step)
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


def steps_done(model: keras.Model) -> int:
    """The number of updates that the optimizer of a model has made."""
    return int(model.optimizer.iterations.value.numpy())  # int() itself fails on mirrored variables


class StepCallback(keras.callbacks.Callback):
    """A callback that knows the step, counted over all runs of a model_dir."""

    @property
    def step(self) -> int:
        return steps_done(self.model)


class Progress(StepCallback):
    """A bar, and every `every` steps the loss, perplexity, rate and tokens per second since.

    The compiled metrics must include `TokenCount` and `Perplexity`; they begin anew each time.
    """

    def __init__(self, log: TrainingLog, steps: int, every: int):
        super().__init__()
        self.log, self.steps, self.every = log, steps, every
        self._seconds = self._shown = 0.0

    def on_train_batch_begin(self, batch, logs=None):
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        step, now = self.step, time.perf_counter()
        self._seconds += now - self._began
        is_report = step % self.every == 0 or step == self.steps
        if not is_report and not (sys.stdout.isatty() and now - self._shown > 0.5):
            return
        self._shown = now
        figures = {
            "loss": float(logs["loss"]),
            "perplexity": float(logs["perplexity"]),
            "learning_rate": float(self.model.optimizer.learning_rate),
            "tokens_per_second": float(logs["target_tokens"]) / self._seconds,
        }
        self.log.progress(self._line(step, figures))
        if is_report:
            self.log.figures(step, "train", figures)
            self.model.reset_metrics()
            self._seconds = 0.0

    def _line(self, step, figures):
        done = round(20 * step / self.steps)
        return (
            f"step {step:,}/{self.steps:,} [{'=' * done}{'.' * (20 - done)}] "
            f"loss {figures['loss']:.3f}, perplexity {figures['perplexity']:.2f}, "
            f"learning rate {figures['learning_rate']:.2e}, "
            f"{figures['tokens_per_second']:,.0f} target tokens/s"
        )


class Validation(StepCallback):
    """Judges the model every so many steps, and at the end."""

    def __init__(
        self, log: TrainingLog, judge: Callable[[], dict[str, float]], steps: int, every: int
    ):
        super().__init__()
        self.log, self.judge, self.steps, self.every = log, judge, steps, every

    def on_train_batch_end(self, batch, logs=None):
        step = self.step
        if step % self.every == 0 or step == self.steps:
            began = time.perf_counter()
            figures = self.judge()
            self.log.figures(step, "validation", figures)
            self.log.say(
                f"step {step:,}: validation "
                + ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
                + f" ({time.perf_counter() - began:.0f} s)"
            )


class SaveCheckpoints(StepCallback):
    """Saves every so many steps or minutes, and at the end; keeps the last ones."""

    def __init__(self, checkpoints: Checkpoints, steps: int, every: int, minutes: float, keep: int):
        super().__init__()
        self.checkpoints, self.steps, self.every = checkpoints, steps, every
        self.minutes, self.keep = minutes, keep

    def on_train_begin(self, logs=None):
        self._saved = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        step = self.step
        is_due = self.minutes and time.monotonic() - self._saved >= 60 * self.minutes
        if is_due or step % self.every == 0 or step == self.steps:
            self.checkpoints.save(self.model, step)
            self.checkpoints.prune(self.keep)
            self._saved = time.monotonic()
