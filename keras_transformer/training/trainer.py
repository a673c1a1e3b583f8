"""Trains a model in a model_dir with `model.fit`, or resumes its training."""

import contextlib
import hashlib
import json
import os
import time

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.backend.memory import keep_freed_memory
from keras_transformer.backend.xla_flags import set_xla_flags
from keras_transformer.config import TransformerConfig
from keras_transformer.data import SentencePairs
from keras_transformer.errors import UserError, expect_tensorflow
from keras_transformer.model import Transformer
from keras_transformer.options.training import TrainingOptions
from keras_transformer.schedules import InverseSquareRootSchedule
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
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.preparation import Run, precision_warning, prepare
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


def train(
    path: str | os.PathLike,
    config: TransformerConfig,
    options: TrainingOptions,
    train_pairs: SentencePairs,
    valid_pairs: SentencePairs | None = None,
    test_pairs: SentencePairs | None = None,
    vocab_type: str | None = None,
    target_lang: str | None = None,
    command: str = "",
    data_cache: str | os.PathLike | None = None,
    strategy: tf.distribute.Strategy | None = None,
    start_from: str | os.PathLike | None = None,
    vocabulary: str | os.PathLike | None = None,
    preset: str | None = None,
    exact_vocab_size: bool = True,
) -> Transformer:
    """Trains a model, saves it in a model_dir, and reports its scores (paper, section 5).

    Called again with the same arguments, it resumes from the last checkpoint.

    Args:
        path: the model_dir, new or of the same configuration.
        config: the model's configuration; its `vocab_size` is the size of the vocabulary to learn.
        options: the training options.
        train_pairs: the training set.
        valid_pairs: the validation set; default: none.
        test_pairs: the test set for the trained model; default: `valid_pairs`.
        vocab_type: kind of subwords to learn, "bpe" or "unigram"; default: "bpe". None for a
            parser, whose `ParsingOptions` say how trees are written.
        target_lang: two-letter code of the target language, for BLEU.
        command: the command to record in the model_dir.
        data_cache: folder where the tokenised training data are kept; see `Corpus.build`.
        strategy: the devices that train, from `make_strategy`; default: all of this machine. With
            several workers, each calls `train` with the same arguments, and the chief writes.
        start_from: the model_dir of a trained model. A new model takes its vocabulary, and starts
            from its weights: the mean of its last checkpoints. Only dropout and label smoothing
            may be configured differently.
        vocabulary: the file of an existing SentencePiece model; default: learn one.
        preset: the name of the preset of model and options, to be recorded.
        exact_vocab_size: False to learn a vocabulary of the nearest size that the text allows.

    Returns:
        The model, with the mean of its last checkpoints.

    For the whole process, `train` sets XLA flags (`backend/xla_flags.py`) and keeps freed memory
    (`backend/memory.py`). A script that calls `backend.keep_freed_memory` before it imports
    TensorFlow trains faster.

    Raises:
        UserError: the data are invalid, or the model_dir holds something else.
    """
    expect_tensorflow("train")
    set_xla_flags()
    keep_freed_memory()
    strategy = strategy or make_strategy()
    both = options.bidirectional_steps
    print(
        f"Training {config.num_encoder_layers} + {config.num_decoder_layers} layers of width "
        f"{config.d_model} on {train_pairs.description}: {options.steps:,} steps of "
        f"{options.tokens_per_batch:,} tokens, "
        f"{f'the first {both:,} in both directions, ' if both else ''}in {os.fspath(path)}",
        flush=True,
    )
    if warning := precision_warning(options.dtype_policy):
        print(warning, flush=True)
    keras.utils.set_random_seed(options.seed)
    with contextlib.ExitStack() as until_trained:
        run = prepare(
            ModelDir(path),
            config,
            options,
            strategy,
            train_pairs,
            valid_pairs,
            test_pairs,
            vocab_type=vocab_type,
            vocabulary=vocabulary,
            start_from=start_from,
            target_lang=target_lang,
            data_cache=data_cache,
            preset=preset,
            exact_vocab_size=exact_vocab_size,
            until_trained=until_trained,
        )
        restore(run, command)
        judge = None
        if valid_pairs is not None:
            judge = judging.judge_of(
                run.model,
                run.tokenizer,
                run.options,
                valid_pairs,
                run.valid_corpus,
                run.target_lang,
            )
        fit(run, judge, task_of(run.tokenizer).score)
        return finish(run)


def restore(run: Run, command: str = "") -> None:
    """Makes the model, with the weights and the state of the last checkpoint.

    When it returns, all checks have passed, and the run may write to the model_dir.
    """
    model_dir, strategy = run.model_dir, run.strategy
    with failing_together(strategy):  # so the others wait for the chief's `recover`
        problems = model_dir.recover() if run.writes else []
        for step in model_dir.checkpoints.steps()[-1:]:  # before a model of any size is made
            model_dir.checkpoints.check_fits(run.config, step)
    with strategy.scope(), failing_together(strategy):
        run.model = compiled_model(run.config, run.options)
        if run.start_from and not model_dir.checkpoints.steps():
            run.model.set_weights(ModelDir(run.start_from).load_model().get_weights())
        run.state = restored_state(run.model, model_dir.checkpoints)
    expect_same(strategy, {"checkpoint": run.state.step, "weights": _weights_digest(run.model)})
    record = run.record
    record["target_lang"] = run.target_lang
    record["commands"].append(command)
    record["starts"].append({"time": round(time.time(), 3), **environment()})
    if run.writes and model_dir.exists():
        model_dir.save_training(record)
    elif run.writes:
        model_dir.create(run.config, run.tokenizer, record)
    validated = run.state.validated
    last = {"train": run.state.step, "validation": validated, "samples": validated}
    run.log = TrainingLog(model_dir.logs if run.writes else None, last)
    run.model.announce = run.log.say
    for problem in problems:
        run.log.say(f"{problem}; falling back to the previous one")
    counts, devices = run.corpus.counts, strategy.num_replicas_in_sync
    run.log.say(
        f"{run.model.count_params():,} parameters, {counts.kept:,} pairs, "
        f"{counts.source_tokens:,} source and {counts.target_tokens:,} target "
        f"tokens, {devices} device{'s' if devices > 1 else ''}, {run.options.dtype_policy}"
    )


def fit(run: Run, judge: judging.Judge | None, score: str) -> None:
    """Trains from the run's state to the last step, or until training is stopped.

    Args:
        run: a restored run.
        judge: validates the model; None for no validations.
        score: the name of the validation figure that is higher for a better model.
    """
    model, options, state, log = run.model, run.options, run.state, run.log
    model_dir, batches, writes = run.model_dir, run.batches, run.writes
    counts = BatchCounts(batches)

    def judged():
        figures, samples = judge()
        if writes:
            model_dir.check_locked()  # the folder may have gone meanwhile
        # All workers use the chief's figures: processors differ in rounding, and all must stop at
        # the same step.
        [figures_of_chief, *_] = gather(run.strategy, json.dumps(figures).encode())
        return json.loads(figures_of_chief), samples

    skipped_updates = SkippedUpdates(state, log, options, batches.batch, model_dir.path)
    save = SaveCheckpoints(
        state, log, options, model_dir.checkpoints, model_dir.best, skipped_updates
    )
    with StopSignals() as signals:
        callbacks = [
            Progress(state, log, options, counts),
            skipped_updates,
            StopOnSignal(signals),
        ]
        if judge:
            best = model_dir.best if writes else None
            validation = Validation(state, log, options, judged, score, best, signals)
            callbacks.append(validation)
        if writes:
            locked = keras.callbacks.LambdaCallback(
                on_train_batch_end=lambda *_: model_dir.check_locked()
            )
            callbacks = [locked, *callbacks, save]
        callbacks = CallbackList(callbacks, add_history=True, model=model)
        if writes:
            save.remove_outdated()
        if judge and validation.catch_up() and writes:
            save.save()
        if signals.received:
            pass  # the next start repeats the interrupted validation
        elif state.step >= options.steps or state.has_lost_patience(options.stop_patience):
            ended = "is complete" if state.step >= options.steps else "stopped early"
            log.say(f"Training {ended}: step {state.step:,} of {options.steps:,}")
        else:
            if state.step:
                log.say(f"Resuming from step {state.step:,}")
            mine = batches.dataset(state.step, *worker_of(run.strategy))
            counted = counts.watch(mine, state.step)
            try:
                model.fit(
                    replica_batches(counted, run.strategy, run.config.pad_id),
                    steps_per_epoch=options.steps - state.step,
                    callbacks=callbacks,
                    shuffle=False,
                    verbose=0,
                )
            except tf.errors.OpError as error:
                if run.strategy.cluster_resolver is None:
                    raise
                raise UserError(
                    f"a worker was lost ({type(error).__name__}); start all workers again to "
                    "resume from the last checkpoint"
                ) from error
        if signals.received:
            log.say(f"Saved step {state.step:,}; the same command resumes from there")
            signals.leave()


def finish(run: Run) -> Transformer:
    """Loads the mean of the last checkpoints, and reports its scores and the run's cost."""
    sum_over_workers(run.strategy, 0)  # waits until the chief has saved the last checkpoint
    devices = run.strategy.num_replicas_in_sync
    report_summary(run.state, run.config, run.options, devices, run.log)
    model = run.model_dir.load_model()
    judged = run.test_pairs or run.valid_pairs
    if judged is not None and run.writes:
        saved = len(run.model_dir.checkpoints.steps())
        averaged = min(run.options.average_checkpoints, saved)
        what = f"Mean of the last {averaged} checkpoints" if averaged > 1 else "The last checkpoint"
        run.log.say(f"\n{what} on {judged.description}:")
        judging.report(model, run.tokenizer, judged, run.target_lang, run.options, run.log)
    return model


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
    model.compile(
        optimizer=keras.optimizers.Adam(
            InverseSquareRootSchedule.from_options(options, config.d_model),
            beta_1=options.beta_1,
            beta_2=options.beta_2,
            epsilon=options.adam_epsilon,
        ),
        jit_compile=options.jit_compile,
    )
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
