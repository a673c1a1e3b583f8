"""Trains a model in a model_dir with `model.fit`, or resumes its training."""

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import time
from collections.abc import Mapping

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.ctranslate2.converted import ConvertedModel
from keras_transformer.errors import Unsupported, UserError, expect_tensorflow
from keras_transformer.fast.xla_flags import set_xla_flags
from keras_transformer.machine.memory import keep_freed_memory
from keras_transformer.model import Transformer
from keras_transformer.optimizers import new_optimizer
from keras_transformer.options.training import TrainingOptions
from keras_transformer.training import judging
from keras_transformer.training.batch_counts import BatchCounts
from keras_transformer.training.callbacks import (
    CallbackList,
    Progress,
    SaveCheckpoints,
    SkippedUpdates,
    StopOnSignal,
    Validation,
)
from keras_transformer.training.environment import environment
from keras_transformer.training.forecast import forecast
from keras_transformer.training.job import TrainingJob
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.precision_choice import with_precision
from keras_transformer.training.preparation import Preparation, prepare
from keras_transformer.training.run_state import RunState
from keras_transformer.training.step import TrainableTransformer
from keras_transformer.training.stopping import StopSignals
from keras_transformer.training.strategies import (
    expect_same,
    failing_together,
    gather,
    make_strategy,
    replica_batches,
    sum_over_workers,
    worker_of,
)
from keras_transformer.training.summary import report_summary
from keras_transformer.training.tasks import task_of
from keras_transformer.training.weights_choice import Choice, choose_weights, described


@dataclasses.dataclass(frozen=True)
class Run:
    """A run that is ready to train: what was prepared, the model, and its progress.

    Attributes:
        prepared: the job, its data and its devices.
        model: the model, with the weights of the last checkpoint.
        state: the state at the last checkpoint.
        log: the run's log.
    """

    prepared: Preparation
    model: TrainableTransformer
    state: RunState
    log: TrainingLog


def train(job: TrainingJob, strategy: tf.distribute.Strategy | None = None) -> Transformer:
    """Trains a model, saves it in a model_dir, and reports its scores (paper, section 5).

    Called again with the same job, it resumes from the last checkpoint.

    Args:
        job: the model, its data and how to train it.
        strategy: the devices that train, from `make_strategy`; default: all of this machine. With
            several workers, each calls `train` with the same job, and the chief writes.

    Returns:
        The model, with the weights that validate best; without a validation set, with the mean of
        its last checkpoints.

    For the whole process, `train` sets XLA flags (`fast/xla_flags.py`) and keeps freed memory
    (`machine/memory.py`). A script that calls `machine.keep_freed_memory` before it imports
    TensorFlow trains faster.

    Raises:
        UserError: the data are invalid, or the model_dir holds something else.
    """
    expect_tensorflow("train")
    set_xla_flags()
    keep_freed_memory()
    strategy = strategy or make_strategy()
    if job.options.optimizer == "muon" and worker_of(strategy)[0] > 1:
        raise UserError(
            "optimizer=muon is for one machine, since processors of different workers may round its"
            " products of matrices differently: use optimizer=adam"
        )
    announce(job)
    job = with_precision(job, strategy)
    keras.utils.set_random_seed(job.options.seed)
    with contextlib.ExitStack() as until_trained:
        prepared = prepare(job, strategy, until_trained)
        run = restore(prepared)
        judge = judge_of(run)
        last = fit(run, judge)
        return finish(run, judge, last)


def announce(job: TrainingJob) -> None:
    """Prints what a job trains."""
    config, options = job.config, job.options
    both = options.bidirectional_steps
    print(
        f"Training {config.num_encoder_layers} + {config.num_decoder_layers} layers of width "
        f"{config.d_model} on {job.train.description}: {options.steps:,} steps of "
        f"{options.tokens_per_batch:,} tokens, "
        f"{f'the first {both:,} in both directions, ' if both else ''}in "
        f"{os.fspath(job.model_dir)}",
        flush=True,
    )


def restore(prepared: Preparation) -> Run:
    """Makes the model, with the weights and the state of the last checkpoint.

    When it returns, all checks have passed, and the run may write to the model_dir.
    """
    job, model_dir, strategy = prepared.job, prepared.model_dir, prepared.strategy
    with failing_together(strategy):  # all workers wait for the chief's `recover`
        problems = model_dir.recover() if prepared.writes else []
        for step in model_dir.checkpoints.steps()[-1:]:  # before making a model, maybe huge
            model_dir.checkpoints.check_fits(job.config, step)
    with strategy.scope(), failing_together(strategy):
        model = compiled_model(job.config, job.options)
        if job.start_from and not model_dir.checkpoints.steps():
            model.set_weights(ModelDir(job.start_from).load_model().get_weights())
            model.update_state.begin_average()
        state = restored_state(model, model_dir.checkpoints)
    expect_same(strategy, {"checkpoint": state.step, "weights": _weights_digest(model)})
    if prepared.writes:
        record_start(prepared)
    last = {"train": state.step, "validation": state.validated, "samples": state.validated}
    log = TrainingLog(model_dir.logs if prepared.writes else None, last)
    model.announce = log.say
    for problem in problems:
        log.say(f"{problem}; falling back to the previous one")
    counts, devices = prepared.corpus.counts, strategy.num_replicas_in_sync
    log.say(
        f"{model.count_params():,} parameters, {counts.kept:,} pairs, "
        f"{counts.source_tokens:,} source and {counts.target_tokens:,} target "
        f"tokens, {devices} device{'s' if devices > 1 else ''}"
    )
    if prepared.corpus.parts:
        log.say(f"Pairs in batches: {prepared.corpus.shares()}")
    return Run(prepared, model, state, log)


def record_start(prepared: Preparation) -> None:
    """Records in the model_dir, which is made if it is new, that a run begins or resumes."""
    job, model_dir, record = prepared.job, prepared.model_dir, prepared.record
    record["commands"].append(job.command)
    record["starts"].append({"time": round(time.time(), 3), **environment()})
    if model_dir.exists():
        model_dir.save_training(record)
    else:
        model_dir.create(job.config, prepared.tokenizer, record)


def judge_of(run: Run) -> judging.Judge | None:
    """The function that validates the run's model; None without a validation set."""
    prepared, job = run.prepared, run.prepared.job
    if job.valid is None:
        return None
    return judging.judge_of(
        run.model,
        prepared.tokenizer,
        job.options,
        job.valid,
        prepared.valid_corpus,
        job.target_lang,
    )


def decisive_figure(run: Run) -> str:
    """The name of the validation figure that decides which weights are best."""
    options = run.prepared.job.options
    return "loss" if options.best_by == "loss" else task_of(run.prepared.tokenizer).score


def fit(run: Run, judge: judging.Judge | None) -> dict[int, tuple[float, float | None]]:
    """Trains from the run's state to the last step, or until training is stopped.

    Args:
        run: a restored run.
        judge: validates the model; None for no validations.

    Returns:
        The decisive figure and the loss of the last validation by its step; empty if none was made.
    """
    prepared, state, log = run.prepared, run.state, run.log
    options, model_dir, batches = prepared.job.options, prepared.model_dir, prepared.batches
    counts = BatchCounts(batches)
    skipped_updates = SkippedUpdates(state, log, options, batches.batch, model_dir.path)
    save = SaveCheckpoints(
        state, log, options, model_dir.checkpoints, model_dir.best, skipped_updates
    )
    workers, _ = worker_of(prepared.strategy)
    expected = functools.partial(forecast, prepared.job, state, workers=workers)
    with StopSignals() as signals:
        callbacks = [
            Progress(state, log, options, counts, expected),
            skipped_updates,
            StopOnSignal(signals),
        ]
        validation = validation_of(run, judge, signals) if judge else None
        if validation:
            callbacks.append(validation)
        if prepared.writes:
            locked = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda *_: model_dir.check_locked()
            )
            callbacks = [locked, *callbacks, save]
        callbacks = CallbackList(callbacks, add_history=True, model=run.model)
        if prepared.writes:
            save.remove_outdated()
        if validation and validation.catch_up() and prepared.writes:
            save.save()
        if signals.received:
            pass  # the next start repeats the interrupted validation
        elif state.step >= options.steps or state.has_lost_patience(options.stop_patience):
            ended = "is complete" if state.step >= options.steps else "stopped early"
            log.say(f"Training {ended}: step {state.step:,} of {options.steps:,}")
        else:
            take_steps(run, counts, callbacks)
        if signals.received:
            log.say(f"Saved step {state.step:,}; the same command resumes from there")
            signals.leave()
    return validation.last if validation else {}


def validation_of(run: Run, judge: judging.Judge, signals: StopSignals) -> Validation:
    """The callback that validates the run's model; the chief saves the best weights."""
    prepared = run.prepared
    judged = functools.partial(figures_of_chief, judge, prepared)
    best = prepared.model_dir.best if prepared.writes else None
    by = decisive_figure(run)
    return Validation(run.state, run.log, prepared.job.options, judged, by, best, signals)


def figures_of_chief(judge: judging.Judge, prepared: Preparation):
    """Validates the model; returns the chief's figures, and samples of this worker's outputs.

    All workers use the chief's figures: CPUs differ in rounding, and all must stop at the same
    step.
    """
    figures, samples = judge()
    if prepared.writes:
        prepared.model_dir.check_locked()  # the folder may have gone meanwhile
    [chief, *_] = gather(prepared.strategy, json.dumps(figures).encode())
    return json.loads(chief), samples


def take_steps(run: Run, counts: BatchCounts, callbacks: CallbackList) -> None:
    """Trains from the run's step to the last one.

    Raises:
        UserError: another worker was lost.
    """
    prepared, step = run.prepared, run.state.step
    strategy, options = prepared.strategy, prepared.job.options
    if step:
        run.log.say(f"Resuming from step {step:,}")
    counted = counts.watch(prepared.batches.dataset(step, *worker_of(strategy)), step)
    try:
        run.model.fit(
            replica_batches(counted, strategy, prepared.job.config.pad_id),
            steps_per_epoch=options.steps - step,
            callbacks=callbacks,
            shuffle=False,
            verbose=0,
        )
    except tf.errors.OpError as error:
        if strategy.cluster_resolver is None:
            raise
        raise UserError(
            f"a worker was lost ({type(error).__name__}); start all workers again to resume from "
            "the last checkpoint"
        ) from error


def finish(
    run: Run, judge: judging.Judge | None, last: Mapping[int, tuple[float, float | None]]
) -> Transformer:
    """Chooses the weights of the trained model, and reports its scores and the run's cost.

    Args:
        run: a trained run.
        judge: validates the model; None for no validations, and so no choice.
        last: the result of `fit`.
    """
    prepared, job = run.prepared, run.prepared.job
    strategy, model_dir, options = prepared.strategy, prepared.model_dir, job.options
    sum_over_workers(strategy, 0)  # waits until the chief has saved the last checkpoint
    report_summary(run.state, job.config, options, strategy.num_replicas_in_sync, run.log)
    choice = chosen_weights(run, judge, last) if judge else None
    weights = choice.weights if choice else model_dir.resolved_weights()
    model = model_dir.load_model(weights=weights)
    if not prepared.writes:
        return model
    if choice:
        model_dir.save_choice(*choice)
        report_choice(choice, model_dir, run.log)
    if (judged := job.test or job.valid) is not None:
        run.log.say(f"\nThe {described(model_dir, weights)} on {judged.description}:")
        greedy = None
        if choice and choice.by != "loss" and judged is job.valid and not judged.target_langs:
            greedy = choice.figures[weights]
        about = judged, job.target_lang, options, run.log, greedy
        judging.report(model, prepared.tokenizer, *about)
    convert(model_dir, run.log)
    return model


def convert(model_dir: ModelDir, log: TrainingLog) -> None:
    """Converts the weights that commands use for CTranslate2, if it supports the model."""
    try:
        ConvertedModel(model_dir.path).convert()
    except Unsupported:
        pass  # commands use TensorFlow
    except (OSError, UserError) as error:  # the first command tries again
        log.say(f"The model is not converted for CTranslate2: {error}")


def chosen_weights(
    run: Run, judge: judging.Judge, last: Mapping[int, tuple[float, float | None]]
) -> Choice | None:
    """Chooses the weights that validate best; all workers choose the same ones."""
    state, by, known = run.state, decisive_figure(run), {**last}
    if state.best_step is not None and state.best_value is not None:
        known[state.best_step] = state.best_value, state.best_loss

    def validate():
        figures, _ = figures_of_chief(judge, run.prepared)
        return figures[by], figures["loss"]

    return choose_weights(run.model, run.prepared.model_dir, by, validate, known)


def report_choice(choice: Choice, model_dir: ModelDir, log: TrainingLog) -> None:
    """Prints the figures of all weights, and which of them the commands use."""
    figures = [
        f"{described(model_dir, weights)} {figure:.2f}"
        for weights, figure in choice.figures.items()
    ]
    # The mean of one checkpoint is the last one, which is named once.
    log.say(f"Validation {choice.by}: {', '.join(dict.fromkeys(figures))}")
    log.say(
        f"All commands use the {described(model_dir, choice.weights)}, unless you give --weights "
        "or --average"
    )


def compiled_model(config: TransformerConfig, options: TrainingOptions) -> TrainableTransformer:
    """A new model, built and compiled with these options."""
    model = TrainableTransformer(
        config,
        num_microbatches=options.num_microbatches,
        parallel_parts=options.parallel_parts or 1,
        r_drop=options.r_drop,
        clip_norm=options.clip_norm,
        ema_decay=options.ema_decay,
        dtype=options.dtype_policy,
        name="transformer",
    )
    model.build()
    model.compile(optimizer=new_optimizer(options, config.d_model), jit_compile=options.jit_compile)
    return model


def restored_state(model, checkpoints):
    """Sets the model to the last checkpoint, if there is one, and returns the run's state there."""
    steps = checkpoints.steps()
    if not steps:
        return RunState()
    checkpoints.restore(model, steps[-1])
    return RunState.load(checkpoints, steps[-1])


def _weights_digest(model):
    """A hexadecimal digest that identifies the weights."""
    digest = hashlib.blake2b(digest_size=8)
    for weight in model.get_weights():
        digest.update(np.ascontiguousarray(weight))
    return digest.hexdigest()
