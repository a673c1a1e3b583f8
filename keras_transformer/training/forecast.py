"""Forecasts how long a run will take on this machine."""

import datetime
import statistics

from keras_transformer.presets import PRESETS
from keras_transformer.training.duration import spoken
from keras_transformer.training.job import TrainingJob
from keras_transformer.training.run_state import RunState

_TIMED_STEPS, _MOST_SECONDS = 2, 180
_DAY, _NIGHT = 24 * 3600, 8 * 3600
_SMALLER = {"translation": "compact", "parsing": "parsing-small"}


class StepTimer:
    """Finds out how long a step takes, from the first steps after a start.

    The first step of each batch length includes compilation. So the timer waits for two steps of
    lengths that it has seen. After three minutes it takes one, or else all but the very first.

    Example:
        >>> timer = StepTimer()
        >>> [timer.add(*step) for step in [(16, 9.0), (8, 2.0), (16, 0.5), (8, 0.3)]]
        [None, None, None, 0.4]
    """

    def __init__(self) -> None:
        self._first: dict[int, float] = {}  # seconds of the first step of each length
        self._compiled: list[float] = []

    def add(self, length: int, seconds: float) -> float | None:
        """Adds a step; returns the seconds that a step takes, or None while that is not known."""
        if length in self._first:
            self._compiled.append(seconds)
        else:
            self._first[length] = seconds
        _, *others = self._first.values()
        is_late = sum(others) + sum(self._compiled) >= _MOST_SECONDS
        if len(self._compiled) < _TIMED_STEPS and not is_late:
            return None
        return statistics.mean(self._compiled or others)


def forecast(
    job: TrainingJob,
    state: RunState,
    seconds_a_step: float,
    now: datetime.datetime | None = None,
    workers: int = 1,
) -> str:
    """Says how long the rest of a run will take; over a day, also what would fit into a night.

    Validations and checkpoints count as much as they took so far.

    Args:
        job: the job.
        state: the progress of the run.
        seconds_a_step: duration of a step.
        now: the time; default: the present.
        workers: the number of workers that train.
    """
    options = job.options
    left = options.steps - state.step
    between = (state.validation_seconds + state.saving_seconds) / max(1, state.step)
    seconds = left * (seconds_a_step + between)
    line = (
        f"About {spoken(seconds)} for the remaining {left:,} steps ({_figure(seconds_a_step)} s a "
        f"step), until about {_until(now or datetime.datetime.now(), seconds)}"
    )
    if job.valid and not state.validation_seconds:
        line += "; validations come on top"
    if seconds <= _DAY:
        return line
    steps = state.step + int(_NIGHT / (seconds_a_step + between))
    recipes = []
    smaller = _SMALLER[job.train.task]
    preset = PRESETS[smaller]
    is_possible = workers == 1 or preset.training.get("optimizer") != "muon"
    if is_possible and job.config.d_model > preset.model["d_model"] and not job.start_from:
        recipes.append(f"--preset={smaller} --model_dir=NEW")
    # Before the end of the warm-up, a run has not reached its highest learning rate.
    is_warm = steps > options.warmup_steps or not recipes
    # `train` refuses fewer steps.
    is_enough = steps > options.bidirectional_steps and steps >= options.cooldown_steps
    if is_warm and is_enough:
        recipes.append(f"this run with --steps={steps}")
    if not recipes:
        return line
    enough = " or ".join(recipes)
    return f"{line}\nThat is more than a day; a night of 8 hours is enough for {enough}"


def _figure(seconds):
    return f"{seconds:.2g}" if seconds < 10 else f"{seconds:,.0f}"


def _until(now, seconds):
    end = now + datetime.timedelta(seconds=seconds)
    return f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"
