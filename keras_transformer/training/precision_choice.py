"""Chooses the precision that a run computes in."""

import json

import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.machine.product_speed import (
    PAYS_BELOW,
    Precision,
    fastest_precision,
    slowdown,
)
from keras_transformer.training.job import TrainingJob
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.strategies import failing_together, gather, is_chief


def with_precision(job: TrainingJob, strategy: tf.distribute.Strategy) -> TrainingJob:
    """Returns the job with the chief's choice of its precision, which it prints.

    Raises:
        UserError: the model_dir cannot be read.
    """
    precision = None
    with failing_together(strategy):
        if is_chief(strategy):
            precision = chosen_precision(job)
    [chosen, *_] = gather(strategy, json.dumps(precision).encode())
    policy, reason = json.loads(chosen)
    print(f"Precision: {policy.removeprefix('mixed_')}{reason and f' ({reason})'}", flush=True)
    if not reason and (warning := precision_warning(policy, job.config)):
        print(warning, flush=True)
    return job.with_options(dtype_policy=policy)


def chosen_precision(job: TrainingJob) -> Precision:
    """The precision that `train` computes in.

    This is the option's value. If that is "auto", it is the precision of the run to resume, on any
    machine; else the fastest on this machine, with the reason.
    """
    if job.options.dtype_policy != "auto":
        return Precision(job.options.dtype_policy)
    model_dir = ModelDir(job.model_dir)
    if model_dir.exists():
        return Precision(model_dir.load_training()["options"]["dtype_policy"])
    return fastest_precision(job.config.d_model, job.config.d_ff)


def precision_warning(policy: str, config: TransformerConfig) -> str | None:
    """A one-line warning if this processor gains nothing from this precision; else None."""
    if policy == "float32" or tf.config.list_logical_devices("GPU"):
        return None
    dtype, shape = policy.removeprefix("mixed_"), (config.d_model, config.d_ff)
    slower = slowdown(dtype, *shape)
    if slower < PAYS_BELOW:
        return None
    is_bfloat16_fast = dtype != "bfloat16" and slowdown("bfloat16", *shape) < PAYS_BELOW
    better = "mixed_bfloat16" if is_bfloat16_fast else "float32"
    return (
        f"Warning: a product in {dtype} takes {slower:.2g} times as long as in float32 on this "
        f"processor: a new run is faster with dtype_policy={better}"
    )
