"""Callbacks between the steps of `model.fit`: reports, validation, checkpoints.

They share a `RunState` and run in the order of this module: `Progress` first counts the step.
"""

import datetime
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np

from keras_transformer.data import Batch
from keras_transformer.errors import UserError
from keras_transformer.files import whole_file
from keras_transformer.options.training import TrainingOptions
from keras_transformer.training.batch_counts import BatchCounts
from keras_transformer.training.checkpoints import Checkpoints
from keras_transformer.training.forecast import StepTimer
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.run_state import RunState
from keras_transformer.training.stopping import Interrupted, StopSignals
from keras_transformer.training.update_state import UPDATES_UNTIL_GROWTH

_CHECK_STEPS = 100  # steps between two checks of the gradient norms
_TERMINAL_SECONDS = 0.5  # between two progress lines on a terminal, where each replaces the last
# In a file, the first line that no report brings comes after a minute.
_FIRST_SECONDS, _LATER_SECONDS = 60.0, 300.0


class CallbackList(keras.callbacks.CallbackList):
    """Passes a step's logs to callbacks as tensors: Keras would wait for the numbers."""

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


class Progress(keras.callbacks.Callback):
    """Counts steps and time, shows a progress bar, and reports every `report_steps` steps.

    Between reports, it shows the bar twice a second on a terminal; in a file after a minute, and
    then whenever five minutes have brought no line. After the first steps, it says how long the run
    will take.

    The model's metrics must include a loss and a perplexity; each report resets them.

    Args:
        state: progress of the run.
        log: prints and records the reports.
        options: of the run.
        counts: the counts of each step's batch.
        forecast: says how long the run will take, from the seconds that a step takes.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        state: RunState,
        log: TrainingLog,
        options: TrainingOptions,
        counts: BatchCounts,
        forecast: Callable[[float], str],
        clock: Callable[[], float] = time.perf_counter,
    ):
        super().__init__()
        self.state, self.log, self.options, self.counts = state, log, options, counts
        self.forecast, self.clock = forecast, clock
        self._timer: StepTimer | None = StepTimer()  # until the forecast
        self._shown, self._pause = 0.0, _FIRST_SECONDS
        # The steps that the time left is computed from, and when they began. The first step of each
        # batch length compiles, so it does not count: it puts off the beginning.
        self._lengths: set[int] = set()
        self._steps, self._from = 0, 0.0

    def on_epoch_begin(self, epoch, logs=None):
        """Sets the metrics, which `fit` has reset, to their sums before the run was resumed."""
        if self.state.metrics:
            variables = self.model.metrics_variables
            for variable, before in zip(variables, self.state.metrics, strict=True):
                variable.assign(np.float32(before))

    def on_train_batch_begin(self, batch, logs=None):
        if not self._lengths:
            self.log.progress("Compiling the training step")
        self._began = self.clock()

    def on_train_batch_end(self, batch, logs=None):
        state, options = self.state, self.options
        state.step += 1
        count = self.counts.take(state.step)
        state.seen.add(count)
        is_first = not self._lengths
        is_report = state.step % options.report_steps == 0 or state.step == options.steps
        is_shown = is_report or is_first or self._is_due()
        # Reading figures waits for the device.
        figures = self._figures(logs) if is_shown or self._timer else None
        now = self.clock()
        seconds = now - self._began
        state.seen.seconds += seconds
        self._time(count.length, seconds, now)
        if is_shown:
            tokens = state.seen.target_tokens - state.reported.target_tokens
            figures["tokens_per_second"] = tokens / (state.seen.seconds - state.reported.seconds)
            self._shown = now
            self.log.progress(self._line(figures, now))
        if is_report:
            self.log.figures(state.step, "train", figures)
            state.report()
            self.model.reset_metrics()

    def _time(self, length, seconds, now):
        """Says how long the run will take, once steps without compilation have been timed."""
        if length in self._lengths:
            self._steps += 1
        else:
            self._from = self._from + seconds if self._lengths else now
            self._lengths.add(length)
        step_seconds = self._timer and self._timer.add(length, seconds)
        if step_seconds is not None:
            self._timer = None
            if self.state.step < self.options.steps:
                self.log.say(self.forecast(step_seconds))

    def _is_due(self):
        """Whether a line is due that no report brings."""
        if sys.stdout and sys.stdout.isatty():
            return self.clock() - self._shown > _TERMINAL_SECONDS
        if self.clock() - self._shown < self._pause:
            return False
        self._pause = _LATER_SECONDS
        return True

    def _figures(self, logs):
        # The step's logs have them; to read the metrics themselves would need all workers.
        figures = {name: float(logs[name]) for name in ("loss", "perplexity")}
        figures["learning_rate"] = float(self.model.optimizer.learning_rate)
        figures["padding_share"] = self.state.seen.padding_share(since=self.state.reported)
        last = {"gradient_norm", "skipped_updates"} & logs.keys()
        return {**figures, **{name: float(logs[name]) for name in sorted(last)}}

    def _line(self, figures, now):
        step, steps = self.state.step, self.options.steps
        done = round(20 * step / steps)
        left = ""
        if self._steps:
            seconds = (now - self._from) / self._steps * (steps - step)
            left = f", {datetime.timedelta(seconds=round(seconds))} left"
        return (
            f"step {step:,}/{steps:,} [{'=' * done}{'.' * (20 - done)}] "
            f"loss {figures['loss']:.3f}, perplexity {figures['perplexity']:.2f}, "
            f"learning rate {figures['learning_rate']:.2e}, "
            f"{figures['tokens_per_second']:,.0f} target tokens/s{left}"
        )


class SkippedUpdates(keras.callbacks.Callback):
    """Reports skipped updates; after too many of them, saves the batch and stops.

    Reads two logs: each update's `gradient_norm`, and `skipped_updates`, the count so far. Reading
    waits for the device, so it happens only every 100 steps, and before each checkpoint, since a
    resumed run does not know the norms of earlier steps.

    Args:
        state: progress of the run.
        log: prints the skipped updates.
        options: of the run.
        batch_at: returns the batch that follows a step, with the rows of all workers.
        folder: where the batch is saved: `batch-00001234.npz` is the batch of step 1,234.

    Raises:
        UserError: more than `max_skipped_updates` updates were skipped, not counting one for each
            growth of the loss scale with float16; the error names the file.
    """

    def __init__(
        self,
        state: RunState,
        log: TrainingLog,
        options: TrainingOptions,
        batch_at: Callable[[int], Batch],
        folder: Path,
    ):
        super().__init__()
        self.state, self.log, self.options = state, log, options
        self.batch_at, self.folder = batch_at, folder
        self._norms: dict[int, Any] = {}
        self._count = state.skipped_updates

    def on_train_batch_end(self, batch, logs=None):
        if "skipped_updates" not in logs:
            return
        step = self.state.step
        self._norms[step] = logs["gradient_norm"]
        self._count = logs["skipped_updates"]
        if step % _CHECK_STEPS == 0:
            self.check()

    def on_train_end(self, logs=None):
        self.check()

    def check(self) -> None:
        """Checks the updates since the last check."""
        steps = [step for step, norm in self._norms.items() if not np.isfinite(float(norm))]
        self._norms = {}
        self.state.skipped_updates = count = int(self._count)
        if not steps:
            return
        limit = self.options.max_skipped_updates
        if self.options.dtype_policy == "mixed_float16":  # growing the scale skips some
            limit += self.state.step // UPDATES_UNTIL_GROWTH
        if count > limit:
            step = steps[max(0, len(steps) - (count - limit))]
            raise UserError(
                f"step {step:,}: the gradient is not finite, in more than {limit:,} updates "
                f"(max_skipped_updates); its batch {self._save_batch(step)}"
            )
        self.log.say(
            f"step {steps[-1]:,}: the gradient is not finite, its update was skipped ({count:,} "
            f"so far, at most {limit:,})"
        )

    def _save_batch(self, step):
        """Saves the batch, and returns a phrase that says where it is."""
        path = self.folder / f"batch-{step:08d}.npz"
        try:
            with whole_file(path) as partial, open(partial, "wb") as file:
                np.savez(file, **self.batch_at(step - 1)._asdict())
        except OSError as error:
            return f"cannot be saved: {error.strerror}"
        return f"is in {path}"


class StopOnSignal(keras.callbacks.Callback):
    """Stops training after the step during which a signal came."""

    def __init__(self, signals: StopSignals):
        super().__init__()
        self.signals = signals

    def on_train_batch_end(self, batch, logs=None):
        if self.signals.received:
            self.model.stop_training = True


class Validation(keras.callbacks.Callback):
    """Validates the model, saves the best one, and stops early if it no longer improves.

    A signal interrupts a validation; `catch_up` repeats it when the run is resumed.

    Args:
        state: progress of the run.
        log: records the validations.
        options: of the run.
        judge: returns figures by name, and rows of sample translations.
        by: the name of the figure that decides which validation is best.
        best: where to save the weights of the best validation; None if another worker saves them.
            `SaveCheckpoints` removes the weights of the previous best.
        signals: the signals that interrupt a validation.

    Attributes:
        last: the decisive figure and the loss of the last validation, by its step; empty before
            the first.
    """

    def __init__(
        self,
        state: RunState,
        log: TrainingLog,
        options: TrainingOptions,
        judge: Callable[[], tuple[dict[str, float], Sequence[Mapping[str, str]]]],
        by: str,
        best: Checkpoints | None,
        signals: StopSignals,
    ):
        super().__init__()
        self.state, self.log, self.options = state, log, options
        self.judge, self.by, self.best, self.signals = judge, by, best, signals
        self.last: dict[int, tuple[float, float | None]] = {}

    def on_train_batch_end(self, batch, logs=None):
        if not self.model.stop_training:
            self.catch_up()

    def catch_up(self) -> bool:
        """Validates the model if that is due and not done yet; returns whether it did."""
        state, options = self.state, self.options
        is_due = state.step % options.validation_steps == 0 or state.step == options.steps
        if not is_due or state.validated == state.step:
            return False
        began = time.perf_counter()
        try:
            with self.signals.may_interrupt():
                figures, samples = self.judge()
        except Interrupted:
            self.model.stop_training = True
            return False
        state.validated = state.step
        seconds = time.perf_counter() - began
        state.validation_seconds += seconds
        self.log.figures(state.step, "validation", figures)
        self.log.samples(state.step, samples)
        self.log.say(
            f"step {state.step:,}: validation "
            + ", ".join(f"{name} {value:.2f}" for name, value in figures.items())
            + f" ({seconds:.0f} s)"
        )
        self.last = {state.step: (figures[self.by], figures["loss"])}
        self._compare(*self.last[state.step])
        return True

    def _compare(self, value, loss):
        state, options = self.state, self.options
        if state.is_better(value, loss, highest=options.best_by == "score"):
            state.best_step, state.best_value = state.step, value
            state.best_loss = loss if math.isfinite(loss) else None
            state.validations_since_best = 0
            if self.best:
                self.best.save_weights(self.model, state.step)
            return
        state.validations_since_best += 1
        if state.has_lost_patience(options.stop_patience) and state.step < options.steps:
            self.log.say(
                f"step {state.step:,}: stopping: {options.best_by} has not improved since "
                f"{f'step {state.best_step:,}' if state.best_step else 'the start'}, for "
                f"{state.validations_since_best} validations"
            )
            self.model.stop_training = True


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves checkpoints every so many steps or minutes and at the end, and keeps the last ones.

    Args:
        state: progress of the run, saved in each checkpoint.
        log: the log of the run, which reaches the disk before each checkpoint: a run resumed after
            a power cut does not repeat the steps before it.
        options: of the run.
        checkpoints: where checkpoints are saved.
        best: where `Validation` saves the best weights.
        skipped_updates: the callback to check before each checkpoint.
    """

    def __init__(
        self,
        state: RunState,
        log: TrainingLog,
        options: TrainingOptions,
        checkpoints: Checkpoints,
        best: Checkpoints,
        skipped_updates: SkippedUpdates,
    ):
        super().__init__()
        self.state, self.log, self.options = state, log, options
        self.checkpoints, self.best, self.skipped_updates = checkpoints, best, skipped_updates

    def on_train_begin(self, logs=None):
        self._saved = time.monotonic()

    def on_train_batch_end(self, batch, logs=None):
        minutes = (time.monotonic() - self._saved) / 60
        is_late = 0 < self.options.checkpoint_minutes <= minutes
        if is_late or self._is_due() or self.model.stop_training:
            self.skipped_updates.check()
            sums = map(keras.ops.convert_to_numpy, self.model.metric_sums)
            self.state.metrics = [value.tolist() for value in sums]
            self.save(is_late)

    def save(self, is_late: bool = False) -> None:
        """Saves the current model and the state of the run.

        Args:
            is_late: whether `checkpoint_minutes` have passed since the last checkpoint.
        """
        began = time.perf_counter()
        state = self.state
        others = [step for step in state.interim if step != state.step]
        state.interim = others if is_late or self._is_due() else [*others, state.step]
        self.log.sync()
        self.checkpoints.save(self.model, state.step, state.to_json())
        self.remove_outdated()
        state.saving_seconds += time.perf_counter() - began
        self._saved = time.monotonic()

    def remove_outdated(self) -> None:
        """Removes outdated checkpoints: old ones, interim ones and former best weights.

        Called only once the last checkpoint is whole, since a killed run would need them.
        """
        state = self.state
        self.checkpoints.remove(*(step for step in state.interim if step != state.step))
        self.checkpoints.prune(self.options.keep_checkpoints)
        bests = self.best.steps()
        if state.best_step is None or state.best_step in bests:
            self.best.remove(*(step for step in bests if step != state.best_step))

    def _is_due(self):
        state, options = self.state, self.options
        return (
            state.step % options.checkpoint_steps == 0
            or state.step == options.steps
            or state.has_lost_patience(options.stop_patience)
        )
