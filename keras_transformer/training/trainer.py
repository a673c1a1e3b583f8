"""Trains a model in a model_dir with `model.fit`, or goes on where that stopped."""

import contextlib
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Sequence

import keras
import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.cores import parts_for_cores
from keras_transformer.data import Batches, Corpus, SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss
from keras_transformer.model import Transformer
from keras_transformer.training.batch_counts import BatchCounts
from keras_transformer.training.callbacks import (
    CallbackList,
    Progress,
    SaveCheckpoints,
    SkippedUpdates,
    StopOnSignal,
    Validation,
)
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.options import TrainingOptions
from keras_transformer.training.run_state import RunState
from keras_transformer.training.step import TrainableTransformer
from keras_transformer.training.stopping import StopSignals
from keras_transformer.training.strategies import (
    is_chief,
    make_strategy,
    replica_batches,
    sum_over_workers,
    worker_of,
)
from keras_transformer.training.summary import report_summary
from keras_transformer.training.tasks import learn_vocabulary, task_of
from keras_transformer.translator import Translator

_VALIDATION_SENTENCES = 1000
# Fields of a configuration that another run with the same weights may have otherwise.
_NOT_OF_WEIGHTS = ("dropout", "attention_dropout", "activation_dropout", "label_smoothing")


def train(
    path: str | os.PathLike,
    config: TransformerConfig,
    options: TrainingOptions,
    train_pairs: SentencePairs,
    valid_pairs: SentencePairs | None = None,
    test_pairs: SentencePairs | None = None,
    vocab_type: str = "bpe",
    target_lang: str | None = None,
    command: str = "",
    data_cache: str | os.PathLike | None = None,
    strategy: tf.distribute.Strategy | None = None,
    start_from: str | os.PathLike | None = None,
) -> Transformer:
    """Trains a model, saves it in a model_dir, and says how good it is (paper, section 5).

    Started again with the same arguments it goes on from the last checkpoint.

    Args:
        path: the model_dir, new or of the same configuration.
        config: the model; its `vocab_size` is that of the vocabulary to learn.
        options: how to train it.
        train_pairs: what to learn from.
        valid_pairs: what to judge it by as it learns.
        test_pairs: what to judge it by at the end; default: `valid_pairs`.
        vocab_type: of the vocabulary, "bpe" or "unigram"; of a parser, how trees are written,
            "brackets" or "words".
        target_lang: two-letter code of the target language, for BLEU on its tokens.
        command: recorded in the model_dir.
        data_cache: a folder to keep the tokenised training data in, see `Corpus.build`.
        strategy: the devices that train, as `make_strategy` makes it; default: all of this machine.
            Of several workers each calls this with the same arguments, and the chief writes.
        start_from: the model_dir of a trained model, of which a new one takes the vocabulary and,
            to begin with, the weights: the mean of its last checkpoints. Only dropout and label
            smoothing may be configured otherwise.

    Returns:
        The model, with the mean of its last checkpoints.

    Raises:
        UserError: the data are not as they should be, or the model_dir holds something else.
    """
    strategy = strategy or make_strategy()
    writes = is_chief(strategy)
    if config.learned_positions and options.max_length > config.max_positions:
        raise UserError(
            f"max_length must be at most the {config.max_positions} learned positions: "
            f"found {options.max_length}"
        )
    if options.stop_patience and valid_pairs is None:
        raise UserError(
            f"stop_patience={options.stop_patience}: expected pairs to validate by, found none"
        )
    print(
        f"Training {config.num_encoder_layers} + {config.num_decoder_layers} layers of width "
        f"{config.d_model} on {train_pairs.description}: {options.steps:,} steps of "
        f"{options.tokens_per_batch:,} tokens, in {os.fspath(path)}",
        flush=True,
    )
    keras.utils.set_random_seed(options.seed)
    for pairs in filter(None, (valid_pairs, test_pairs)):
        if not pairs.check():
            raise UserError(f"{pairs.description}: expected pairs of sentences, found none")
    model_dir = ModelDir(path)
    options = dataclasses.replace(
        options, parallel_parts=parallel_parts(path, config, options, strategy.num_replicas_in_sync)
    )
    with model_dir.locked() if writes else contextlib.nullcontext():
        tokenizer = _vocabulary(model_dir, config, options, train_pairs, vocab_type, start_from)
        tokenizer.check_fits(config)
        corpus = _usable(train_pairs, tokenizer, options, data_cache)
        valid_corpus = valid_pairs and _usable(valid_pairs, tokenizer, options)
        record = _record(model_dir, tokenizer, corpus, options, vocab_type, strategy, start_from)
        batches = Batches(
            corpus,
            tokens_per_batch=options.tokens_per_batch,
            seed=options.seed,
            batch_multiple=strategy.num_replicas_in_sync,
            bpe_dropout=options.bpe_dropout,
        )
        with strategy.scope():
            model = _compiled_model(config, options)
            if start_from and not model_dir.checkpoints.steps():
                model.set_weights(ModelDir(start_from).load_model().get_weights())
            problems = model_dir.recover() if writes else []
            sum_over_workers(strategy, 0)  # until the chief has put the checkpoints in order
            state = _restored_state(model, model_dir.checkpoints)
            steps = sum_over_workers(strategy, state.step)
            if steps != state.step * strategy.num_replicas_in_sync:
                raise UserError(f"model_dir {path}: expected the same checkpoints on all workers")

        # From here on all is known to be well, and the model_dir may be written to.
        record["target_lang"] = target_lang = target_lang or record["target_lang"]
        record["commands"].append(command)
        if writes and model_dir.exists():
            model_dir.save_training(record)
        elif writes:
            model_dir.create(config, tokenizer, record)
        last = {"train": state.step, "validation": state.validated}
        log = TrainingLog(model_dir.logs if writes else None, last)
        model.announce = log.say
        for problem in problems:
            log.say(f"{problem}; going back to the one before")
        devices = strategy.num_replicas_in_sync
        log.say(
            f"{model.count_params():,} parameters, {corpus.counts.kept:,} pairs, "
            f"{corpus.counts.source_tokens:,} source and {corpus.counts.target_tokens:,} target "
            f"tokens, {devices} device{'s' if devices > 1 else ''}"
        )
        judge = valid_pairs and _judge(model, tokenizer, options, valid_pairs, valid_corpus)
        score = task_of(tokenizer).score
        _fit(model, options, batches, judge, score, model_dir, state, log, strategy)
        sum_over_workers(strategy, 0)  # until the chief has saved the last checkpoint
        report_summary(state, config, options, devices, log)

        model = model_dir.load_model()
        judged = test_pairs or valid_pairs
        if judged is not None and writes:
            averaged = min(options.average_checkpoints, len(model_dir.checkpoints.steps()))
            log.say(f"\nMean of the last {averaged} checkpoints on {judged.description}:")
            _report(model, tokenizer, judged, target_lang, options, log)
        return model


def parallel_parts(
    path: str | os.PathLike, config: TransformerConfig, options: TrainingOptions, replicas: int = 1
) -> int:
    """The parts of a batch that `train` computes at the same time.

    Those of the options; else those that a run goes on with, whatever machine it began on; else the
    best of this machine. Arguments are those of `train`, and the replicas of its strategy.
    """
    if options.parallel_parts:
        return options.parallel_parts
    model_dir = ModelDir(path)
    if model_dir.exists():
        return model_dir.load_training()["options"]["parallel_parts"]
    if options.jit_compile or replicas > 1:
        return 1
    return parts_for_cores(config.d_model, options.tokens_per_batch)


def _vocabulary(model_dir, config, options, train_pairs, vocab_type, start_from):
    """That of the model here, or of the one to start from, which must be alike, or a new one."""
    if model_dir.exists():
        model_dir.check_same(config)
        return model_dir.load_tokenizer()
    if not start_from:
        return learn_vocabulary(train_pairs, config, vocab_type, options.lowercase)
    start = ModelDir(start_from)
    theirs = start.load_config()
    start.check_same(
        dataclasses.replace(config, **{name: getattr(theirs, name) for name in _NOT_OF_WEIGHTS})
    )
    tokenizer = start.load_tokenizer()
    if tokenizer.lowercase != options.lowercase:
        raise UserError(
            f"start_from={os.fspath(start_from)}: expected a vocabulary of "
            f"lowercase={options.lowercase}, found one of lowercase={tokenizer.lowercase}"
        )
    return tokenizer


def _record(model_dir, tokenizer, corpus, options, vocab_type, strategy, start_from):
    """The record of a run; raises `UserError` if one is here that cannot go on with it."""
    data = {
        **dataclasses.asdict(corpus.counts),
        "fingerprint": corpus.fingerprint,
        "vocabulary": hashlib.sha256(tokenizer.to_bytes()).hexdigest()[:16],
        "devices": strategy.num_replicas_in_sync,  # a batch holds a multiple of them
        "start_from": start_from and os.fspath(start_from),
    }
    before = {"target_lang": None, "commands": []}
    if model_dir.exists():
        model_dir.check_same_run(dataclasses.asdict(options), data, vocab_type)
        before = model_dir.load_training()
    return {
        **before,
        "options": dataclasses.asdict(options),
        "data": data,
        "vocab_type": vocab_type,
    }


def _restored_state(model, checkpoints):
    """The state of the run at its last checkpoint, to which the model is set; else a new one."""
    steps = checkpoints.steps()
    if not steps:
        return RunState()
    checkpoints.restore(model, steps[-1])
    return RunState.from_json(checkpoints.load_progress(steps[-1]))


def _fit(model, options, batches, judge, score, model_dir, state, log, strategy):
    """Trains from the state on, to the last step or until it is stopped."""
    writes = is_chief(strategy)
    pad_id = model.config.pad_id
    counts = BatchCounts(batches)
    save = SaveCheckpoints(state, options, model_dir.checkpoints)
    with StopSignals() as signals:
        callbacks = [
            Progress(state, log, options, counts),
            SkippedUpdates(state, log, options, batches.batch, model_dir.path),
            StopOnSignal(signals),
        ]
        if judge:
            best = model_dir.best if writes else None
            validation = Validation(state, log, options, judge, score, best, signals)
            callbacks.append(validation)
        if writes:
            callbacks.append(save)
        callbacks = CallbackList(callbacks, add_history=True, model=model)
        if judge and validation.catch_up() and writes:
            save.save()
        if state.step >= options.steps or state.has_lost_patience(options.stop_patience):
            log.say(f"It is trained already, up to step {state.step:,}")
        else:
            if state.step:
                log.say(f"Going on from step {state.step:,}")
            mine = batches.dataset(state.step, *worker_of(strategy))
            counted = counts.watch(mine, state.step)
            try:
                model.fit(
                    replica_batches(counted, strategy, pad_id),
                    steps_per_epoch=options.steps - state.step,
                    callbacks=callbacks,
                    shuffle=False,
                    verbose=0,
                )
            except tf.errors.OpError as error:
                if strategy.cluster_resolver is None:
                    raise
                raise UserError(
                    f"a worker was lost ({type(error).__name__}); start all of them again, to go "
                    "on from the last checkpoint"
                ) from error
        if signals.received:
            log.say(f"Saved step {state.step:,}; the same command goes on from there")
            signals.leave()


def _usable(pairs, tokenizer, options, data_cache=None):
    """What there is to use of the pairs; says what is not, and refuses pairs of no use at all."""
    corpus = Corpus.build(pairs, tokenizer, options.max_length, data_cache)
    counts = corpus.counts
    if counts.empty or counts.too_long:
        print(f"Left out of {pairs.description}: {corpus.left_out()}")
    if not counts.kept:
        raise UserError(
            f"{pairs.description}: expected a pair of 1 to {options.max_length} tokens a side, "
            f"found {counts.empty} with an empty side and {counts.too_long} too long"
        )
    return corpus


def _compiled_model(config, options):
    model = TrainableTransformer(
        config,
        num_microbatches=options.num_microbatches,
        parallel_parts=options.parallel_parts,
        r_drop=options.r_drop,
        clip_norm=options.clip_norm,
        ema_decay=options.ema_decay,
        dtype=options.dtype_policy,
        name="transformer",
    )
    model.build()
    model.compile(
        optimizer=keras.optimizers.Adam(
            options.schedule(config.d_model),
            beta_1=options.beta_1,
            beta_2=options.beta_2,
            epsilon=options.adam_epsilon,
        ),
        jit_compile=options.jit_compile,
    )
    return model


def _judge(model, tokenizer, options, pairs, corpus):
    """What judges the model by these pairs: loss and perplexity, BLEU or F1 of greedy search."""
    batches = Batches(corpus, options.tokens_per_batch, shuffle=False)
    reference_loss = ReferenceLoss(model, batches.epochs())
    task = task_of(tokenizer)
    workers = options.parallel_parts
    translator = Translator(model, tokenizer, **{**task.search, "beam_size": 1}, workers=workers)
    sources, references = _sentences(pairs, _VALIDATION_SENTENCES)

    def judge():
        hypotheses = translator(sources)
        readable = (task.readable(sources, side) for side in (hypotheses, references))
        columns = ("source", "translation", "reference")
        rows = list(zip(sources, *readable, strict=True))
        samples = [dict(zip(columns, rows[row], strict=True)) for row in _sample_rows(sources)]
        figures = task.figures(sources, hypotheses, references)
        return {**reference_loss(), **figures}, samples

    return judge


def _sample_rows(sentences):
    """Which of them are shown: four or five, evenly spread."""
    return range(0, len(sentences), max(1, len(sentences) // 4))


def _report(model, tokenizer, pairs, target_lang, options, log):
    task = task_of(tokenizer, target_lang)
    sources, references = _sentences(pairs)
    translator = Translator(model, tokenizer, **task.search, workers=options.parallel_parts)
    hypotheses = translator(sources)
    log.say(task.report(sources, hypotheses, references))
    hypotheses, references = (task.readable(sources, side) for side in (hypotheses, references))
    for row in _sample_rows(sources):
        log.say(
            f"\n  source       {sources[row]}"
            f"\n  translation  {hypotheses[row]}"
            f"\n  reference    {references[row]}"
        )


def _sentences(
    pairs: SentencePairs, limit: int | None = None
) -> tuple[Sequence[str], Sequence[str]]:
    return tuple(zip(*itertools.islice(pairs, limit), strict=True))
