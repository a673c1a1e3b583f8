"""Callbacks between the steps of `model.fit`: reports, validation, checkpoints.

They share a `RunState`, in the order in which they stand here: `Progress` counts the step.
"""

import datetime
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
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.run_state import RunState
from keras_transformer.training.stopping import Interrupted, StopSignals

_CHECK_STEPS = 100  # between two looks at what each step's gradient was


class CallbackList(keras.callbacks.CallbackList):
    """Gives callbacks the logs of a step as tensors: Keras would wait for each step's numbers."""

    def on_train_batch_end(self, batch, logs=None):
        for callback in self.callbacks:
            callback.on_train_batch_end(batch, logs)


class Progress(keras.callbacks.Callback):
    """Counts steps and time; a bar, and every `report_steps` what happened since the last report.

    The model's metrics must include a loss and a perplexity; they begin anew with each report.

    Args:
        counts: what was in the batch of each step.
    """

    def __init__(
        self, state: RunState, log: TrainingLog, options: TrainingOptions, counts: BatchCounts
    ):
        super().__init__()
        self.state, self.log, self.options, self.counts = state, log, options, counts
        self._shown = 0.0
        self._first_step: int | None = None  # of this start, and when it ended
        self._first_end = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        """Sets the metrics, which `fit` has reset, to what was summed before this start."""
        if self.state.metrics:
            variables = self.model.metrics_variables
            for variable, before in zip(variables, self.state.metrics, strict=True):
                variable.assign(np.float32(before))

    def on_train_batch_begin(self, batch, logs=None):
        if self._first_step is None:
            self.log.progress("Compiling the training step")
        self._began = time.perf_counter()

    def on_train_batch_end(self, batch, logs=None):
        state, options = self.state, self.options
        state.step += 1
        state.seen.add(self.counts.take(state.step))
        is_first, self._first_step = self._first_step is None, self._first_step or state.step
        is_report = state.step % options.report_steps == 0 or state.step == options.steps
        is_due = sys.stdout and sys.stdout.isatty() and time.perf_counter() - self._shown > 0.5
        is_shown = is_first or is_due
        figures = self._figures(logs) if is_report or is_shown else None  # waits for the device
        now = time.perf_counter()
        state.seen.seconds += now - self._began
        self._first_end = self._first_end or now
        if figures is None:
            return
        tokens = state.seen.target_tokens - state.reported.target_tokens
        figures["tokens_per_second"] = tokens / (state.seen.seconds - state.reported.seconds)
        self._shown = now
        self.log.progress(self._line(figures))
        if is_report:
            self.log.figures(state.step, "train", figures)
            state.report()
            self.model.reset_metrics()

    def _figures(self, logs):
        # Of the step: to read the metrics themselves is for all workers to do together.
        figures = {name: float(logs[name]) for name in ("loss", "perplexity")}
        figures["learning_rate"] = float(self.model.optimizer.learning_rate)
        figures["padding_share"] = self.state.seen.padding_share(since=self.state.reported)
        last = {"gradient_norm", "skipped_updates"} & logs.keys()
        return {**figures, **{name: float(logs[name]) for name in sorted(last)}}

    def _line(self, figures):
        step, steps = self.state.step, self.options.steps
        done = round(20 * step / steps)
        left = ""
        if step > self._first_step:  # the first one compiles, and says nothing of the others
            seconds = (time.perf_counter() - self._first_end) / (step - self._first_step)
            left = f", {datetime.timedelta(seconds=round(seconds * (steps - step)))} left"
        return (
            f"step {step:,}/{steps:,} [{'=' * done}{'.' * (20 - done)}] "
            f"loss {figures['loss']:.3f}, perplexity {figures['perplexity']:.2f}, "
            f"learning rate {figures['learning_rate']:.2e}, "
            f"{figures['tokens_per_second']:,.0f} target tokens/s{left}"
        )


class SkippedUpdates(keras.callbacks.Callback):
    """Says which updates were skipped; after too many of them saves a batch, and stops.

    Reads the logs `gradient_norm`, of each update, and `skipped_updates`, all so far. It looks at
    them only now and then, for that waits for the device, and before each checkpoint, since the
    next start knows no norms of the steps before it.

    Args:
        batch_at: the batch that follows a step, the rows of all workers together.
        folder: where the batch is saved: `batch-00001234.npz` is that of step 1,234.

    Raises:
        UserError: more than `max_skipped_updates`; it names the file with the batch.
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
        """Looks at the updates since the last time."""
        steps = [step for step, norm in self._norms.items() if not np.isfinite(float(norm))]
        self._norms = {}
        self.state.skipped_updates = count = int(self._count)
        if not steps:
            return
        limit = self.options.max_skipped_updates
        if count > limit:
            step = steps[max(0, len(steps) - (count - limit))]
            raise UserError(
                f"step {step:,}: the gradient is not finite, and as many as "
                f"max_skipped_updates={limit} updates were skipped before; its batch "
                f"{self._save_batch(step)}"
            )
        self.log.say(
            f"step {steps[-1]:,}: the gradient is not finite, its update was skipped ({count:,} "
            f"so far, at most {limit:,})"
        )

    def _save_batch(self, step):
        """Saves the batch; says where it is."""
        path = self.folder / f"batch-{step:08d}.npz"
        try:
            with whole_file(path) as partial, open(partial, "wb") as file:
                np.savez(file, **self.batch_at(step - 1)._asdict())
        except OSError as error:
            return f"cannot be saved: {error.strerror}"
        return f"is in {path}"


class StopOnSignal(keras.callbacks.Callback):
    """Ends training after the step in which a signal came."""

    def __init__(self, signals: StopSignals):
        super().__init__()
        self.signals = signals

    def on_train_batch_end(self, batch, logs=None):
        if self.signals.received:
            self.model.stop_training = True


class Validation(keras.callbacks.Callback):
    """Judges the model now and then, keeps the best one, and stops when it gets no better.

    A signal interrupts it; `catch_up` then does it when the run is resumed.

    Args:
        judge: gives figures, "loss" and the score among them, and rows of sample translations.
        score: the name of the figure that is higher where the model is better.
        best: where the weights of the best validation are saved; None where another worker does.
            `SaveCheckpoints` removes those of the one before.
    """

    def __init__(
        self,
        state: RunState,
        log: TrainingLog,
        options: TrainingOptions,
        judge: Callable[[], tuple[dict[str, float], Sequence[Mapping[str, str]]]],
        score: str,
        best: Checkpoints | None,
        signals: StopSignals,
    ):
        super().__init__()
        self.state, self.log, self.options = state, log, options
        self.judge, self.score, self.best, self.signals = judge, score, best, signals

    def on_train_batch_end(self, batch, logs=None):
        if not self.model.stop_training:
            self.catch_up()

    def catch_up(self) -> bool:
        """Validates if this is due and was not done; whether it was."""
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
        self._compare(figures["loss" if options.best_by == "loss" else self.score])
        return True

    def _compare(self, value):
        state, options = self.state, self.options
        if state.is_better(value, highest=options.best_by == "score"):
            state.best_step, state.best_value = state.step, value
            state.validations_since_best = 0
            if self.best:
                self.best.save_weights(self.model, state.step)
            return
        state.validations_since_best += 1
        if state.has_lost_patience(options.stop_patience) and state.step < options.steps:
            self.log.say(
                f"step {state.step:,}: stopping, as {options.best_by} has not been better than at "
                f"{f'step {state.best_step:,}' if state.best_step else 'the start'} in "
                f"{state.validations_since_best} validations"
            )
            self.model.stop_training = True


class SaveCheckpoints(keras.callbacks.Callback):
    """Saves every so many steps or minutes, and at the end; keeps the last checkpoints.

    Args:
        best: what `Validation` saves.
        skipped_updates: checked before each checkpoint.
    """

    def __init__(
        self,
        state: RunState,
        options: TrainingOptions,
        checkpoints: Checkpoints,
        best: Checkpoints,
        skipped_updates: SkippedUpdates,
    ):
        super().__init__()
        self.state, self.options = state, options
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
        """Saves the model as it is, and the state of the run.

        Args:
            is_late: whether enough minutes have passed since the last checkpoint.
        """
        began = time.perf_counter()
        state = self.state
        others = [step for step in state.interim if step != state.step]
        state.interim = others if is_late or self._is_due() else [*others, state.step]
        self.checkpoints.save(self.model, state.step, state.to_json())
        self.remove_outdated()
        state.saving_seconds += time.perf_counter() - began
        self._saved = time.monotonic()

    def remove_outdated(self) -> None:
        """Removes what the last checkpoint has replaced: older ones, interim ones, former bests.

        Nothing is removed before that checkpoint is whole, since a killed run would still need it.
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
