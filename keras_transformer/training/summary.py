"""The summary at the end of a run: data seen, time taken, cost."""

import datetime

from keras_transformer.config import TransformerConfig
from keras_transformer.options.training import TrainingOptions
from keras_transformer.training.cost import training_flops
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.run_state import RunState, TrainingTotals


def report_summary(
    state: RunState,
    config: TransformerConfig,
    options: TrainingOptions,
    devices: int,
    log: TrainingLog,
) -> None:
    """Prints and records the run's data, time and cost, over all times it was started.

    The cost is a count of the operations of all matrix products, and the paper's estimate (section
    6.1): training time x devices x the operations per second that a device sustains.
    """
    seen = state.seen
    padding = seen.padding_share(since=TrainingTotals())
    seconds = seen.seconds + state.validation_seconds + state.saving_seconds
    figures = {
        "pairs": seen.pairs,
        "source_tokens": seen.source_tokens,
        "target_tokens": seen.target_tokens,
        "padding_share": padding,
        "skipped_updates": state.skipped_updates,
        "training_seconds": seen.seconds,
        "validation_seconds": state.validation_seconds,
        "saving_seconds": state.saving_seconds,
        "best_step": state.best_step,
        f"best_{options.best_by}": state.best_value,
    }
    lines = [
        f"\nTrained {state.step:,} steps: {seen.pairs:,} pairs, {seen.source_tokens:,} source "
        f"and {seen.target_tokens:,} target tokens, padding {padding:.1%}, "
        f"{state.skipped_updates:,} updates skipped",
        f"Time {_time(seconds)}: training {_time(seen.seconds)}, "
        f"validation {_time(state.validation_seconds)}, saving {_time(state.saving_seconds)}",
    ]
    if state.best_step is not None:
        lines.append(
            f"Best validation {options.best_by} {state.best_value:.2f}, at step {state.best_step:,}"
        )
    if config.layer_type == "attention":
        passes = 2 if options.r_drop else 1
        counted = sum(
            training_flops(config, passes * rows, length, length)
            for length, rows in seen.rows_by_length.items()
        )
        figures["counted_flops"] = counted
        lines.append(f"Training cost {counted:.2e} FLOPs by count")
    if options.device_flops is not None:
        cost = seen.seconds * devices * options.device_flops
        figures["estimated_flops"] = cost
        lines.append(
            f"Training cost {cost:.2e} FLOPs by time: {seen.seconds:,.0f} s x {devices} "
            f"device{'s' if devices > 1 else ''} x {options.device_flops:.2e} FLOPS"
        )
    log.record(state.step, "summary", figures)
    log.say("\n".join(lines))


def _time(seconds):
    return str(datetime.timedelta(seconds=round(seconds)))
