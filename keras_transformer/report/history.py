"""The history of a run, read from its model_dir: figures, samples, commands, machines."""

import contextlib
import dataclasses
import json
from typing import Any

from keras_transformer.errors import UserError
from keras_transformer.files import read_utf_8
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.run_state import RunState


@dataclasses.dataclass(frozen=True)
class RunHistory:
    """The history of one run.

    Attributes:
        name: name of the model_dir.
        step: number of steps trained, as the last checkpoint or a later entry of the log has it.
        hours: hours of work, without pauses between starts.
        figures: for each split, "train" and "validation", the figures of each step: {name: value},
            with "step", and "hours" of work since the first start, without pauses between starts.
        samples: rows of the last validation: source, translation, reference; and target_lang, if
            the model is for several languages.
        rows_by_length: number of rows for each padded length.
        padding_share: share of padding in all source and target ids; None without a checkpoint.
        weights: the weights that commands use, such as "mean" or "best".
        config: the fields of the model's configuration.
        training: the record that `ModelDir.load_training` reads.
    """

    name: str
    step: int
    hours: float
    figures: dict[str, list[dict[str, Any]]]
    samples: list[dict[str, str]]
    rows_by_length: dict[int, int]
    padding_share: float | None
    weights: str
    config: dict[str, Any]
    training: dict[str, Any]

    def series(self, split: str, figure: str, over: str = "step") -> tuple[list, list]:
        """The values of `over` and of a figure, wherever the figure is known and finite."""
        entries = [e for e in self.figures[split] if e.get(figure) is not None]
        return [entry[over] for entry in entries], [entry[figure] for entry in entries]

    @property
    def scores(self) -> list[str]:
        """The names of validation figures except loss and perplexity, such as "BLEU"."""
        known = {"time", "step", "split", "hours", "loss", "perplexity"}
        return [name for name in (self.figures["validation"] or [{}])[0] if name not in known]


def read_history(model_dir: ModelDir) -> RunHistory:
    """Reads the history of a run.

    Raises:
        UserError: the model_dir holds no model, or one that was not trained there.

    Example:
        >>> history = read_history(ModelDir("runs/demo"))
        >>> steps, losses = history.series("train", "loss")
    """
    config, training = model_dir.load_config().to_dict(), model_dir.load_training()
    path = model_dir.logs / "log.jsonl"
    try:
        entries = [_parsed(line) for line in read_utf_8(path).splitlines()]
    except OSError as error:
        raise UserError(f"{path}: cannot read the log of the training: {error.strerror}") from error
    # The last line may be incomplete, while it is written or after the process was killed.
    entries = [entry for entry in entries if entry is not None]
    _add_hours(entries, [start["time"] for start in training["starts"]])
    samples = [entry["rows"] for entry in entries if entry["split"] == "samples"]
    state = _last_state(model_dir)
    steps, hours = ([entry[name] for entry in entries] for name in ("step", "hours"))
    return RunHistory(
        name=model_dir.name,
        step=max([state.step if state else 0, *steps]),
        hours=max([state.seen.seconds / 3600 if state else 0.0, *hours]),
        figures={
            split: [entry for entry in entries if entry["split"] == split]
            for split in ("train", "validation")
        },
        samples=samples[-1] if samples else [],
        rows_by_length=state.seen.rows_by_length if state else {},
        padding_share=state.seen.padding_share(since=type(state.seen)()) if state else None,
        weights=model_dir.resolved_weights(),
        config=config,
        training=training,
    )


def _parsed(line):
    with contextlib.suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict) and entry.keys() >= {"time", "step", "split"}:
            return entry
    return None


def _add_hours(entries, starts):
    """Adds to each entry the hours that the run had worked, without pauses between starts.

    A start at 9:00 with entries at 10:00 and 11:00, and a start at 14:00 with an entry at 15:00,
    give 1, 2 and 3 hours.
    """
    worked, last = 0.0, min(starts, default=None)
    starts = sorted(starts)
    for entry in entries:
        last = entry["time"] if last is None else last
        begun = [start for start in starts if last < start <= entry["time"]]
        worked += max(0.0, entry["time"] - max([last, *begun]))  # the clock may be set back
        entry["hours"] = worked / 3600
        last = entry["time"]


def _last_state(model_dir):
    steps = model_dir.checkpoints.steps()
    if not steps or steps[-1] == 0:  # an imported model has a checkpoint of step 0 without a state
        return None
    return RunState.load(model_dir.checkpoints, steps[-1])
