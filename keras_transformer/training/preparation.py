"""Prepares a run to begin or to resume: checks vocabulary and data, and writes nothing."""

import contextlib
import dataclasses
import os
from pathlib import Path

import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.data import Batches, Corpus, usable_corpus
from keras_transformer.errors import UserError
from keras_transformer.evaluation.bleu import check_language, sacre_bleu
from keras_transformer.machine.cores import parts_for_cores
from keras_transformer.options.training import TrainingOptions
from keras_transformer.text import Tokenizer
from keras_transformer.text.language_code import short_code
from keras_transformer.training import judging
from keras_transformer.training.data_warnings import (
    are_usual,
    data_warnings,
    share_of_copies,
)
from keras_transformer.training.job import TrainingJob
from keras_transformer.training.model_dir import ModelDir, digest_of
from keras_transformer.training.resumption import check_same_run, check_start
from keras_transformer.training.strategies import expect_same, failing_together, is_chief
from keras_transformer.training.vocabulary_choice import (
    chosen_vocabulary,
    vocabulary_of_chief,
)


@dataclasses.dataclass(frozen=True)
class Preparation:
    """A job whose data and vocabulary are checked, so that a run can begin or resume.

    Attributes:
        job: the job, with the choices that it left open: the size of the vocabulary, the number of
            parallel parts, and the target language of the run here.
        model_dir: the folder of the model.
        strategy: the devices that train the model.
        tokenizer: the model's tokenizer.
        corpus: the training set, as token ids.
        valid_corpus: the validation set, as token ids, or None.
        batches: the batches of the corpus.
        record: the run's record, which the model_dir keeps in training.json.
    """

    job: TrainingJob
    model_dir: ModelDir
    strategy: tf.distribute.Strategy
    tokenizer: Tokenizer
    corpus: Corpus
    valid_corpus: Corpus | None
    batches: Batches
    record: dict

    @property
    def writes(self) -> bool:
        """Whether this worker writes to the model_dir."""
        return is_chief(self.strategy)


def prepare(
    job: TrainingJob, strategy: tf.distribute.Strategy, until_trained: contextlib.ExitStack
) -> Preparation:
    """Checks the data and the model_dir of a job, and finds or learns its vocabulary.

    Args:
        job: the job, with its precision chosen (`precision_choice.with_precision`).
        strategy: the devices that train the model.
        until_trained: holds the lock of the model_dir.

    Raises:
        UserError: the data are invalid, or the model_dir holds something else.
    """
    model_dir = ModelDir(job.model_dir)
    _check_cache(job, model_dir)
    check_start(model_dir, job.start_from)
    tokenizer, copies_parts = None, True
    with failing_together(strategy):
        job = _with_languages(job, model_dir)
        if model_dir.exists():
            model_dir.resolved_weights()  # fails now if its file is damaged, not after the training
        _check_judged(job)
        replicas = strategy.num_replicas_in_sync
        parts = parallel_parts(model_dir.path, job.config, job.options, replicas)
        job = job.with_options(parallel_parts=parts)
        if is_chief(strategy):
            until_trained.enter_context(model_dir.locked())
            if model_dir.exists() and not job.exact_vocab_size:
                job = _with_vocab_size(job, model_dir.load_config().vocab_size)
            tokenizer = chosen_vocabulary(job, model_dir)
    tokenizer = vocabulary_of_chief(tokenizer, strategy)
    if not job.exact_vocab_size:
        job = _with_vocab_size(job, tokenizer.vocab_size)
    with failing_together(strategy):
        tokenizer.check_fits(job.config)
        _check_task(job.options, tokenizer.task)
        corpus, valid_corpus = _corpora(job, tokenizer, strategy)
        if is_chief(strategy) and not model_dir.exists():  # a resumed run has said it before
            copied = share_of_copies(job, corpus.counts.kept)
            copies_parts = _starts_with_copies(job) if copied is None else are_usual(copied)
            if job.valid and (part := judging.scored_part(job.valid, tokenizer)):
                print(part, flush=True)
            for warning in data_warnings(job, corpus, valid_corpus, copied):
                print(warning, flush=True)
        data = _data(job, tokenizer, corpus, valid_corpus, strategy)
        # A parser's vocabulary and Marian's have no type.
        vocab_type = job.vocab_type or getattr(tokenizer, "model_type", None)
        record = _record(job, model_dir, data, vocab_type, copies_parts)
    _expect_same_run(job, record, valid_corpus, strategy)
    batches = _batches(job.options, corpus, strategy)
    return Preparation(job, model_dir, strategy, tokenizer, corpus, valid_corpus, batches, record)


def _check_cache(job, model_dir):
    """Refuses a cache within a new model_dir, which would then hold more than a run's files."""
    folder = os.path.realpath(model_dir.path)
    cache = job.data_cache
    is_inside = cache and Path(os.path.realpath(cache)).is_relative_to(folder)
    if is_inside and not model_dir.exists():
        raise UserError(f"data_cache must be outside of model_dir {folder}: found {cache}")


def _check_judged(job):
    """Raises `UserError` unless there are pairs to validate and test on, and they can be scored."""
    for pairs in filter(None, (job.valid, job.test)):
        if not pairs.check():
            raise UserError(
                f"{pairs.description} has no pair of sentences: give at least one, or leave it out"
            )
        with_pairs = {block.target_lang for block in pairs.blocks()}
        for code in pairs.target_langs:
            if code not in with_pairs:
                raise UserError(
                    f"{pairs.description} has no pair of sentences with target_langs={code}: give "
                    "at least one"
                )
        # Fails now, not at the first validation.
        for code in pairs.target_langs or [job.target_lang]:
            check_language(code)


def _with_vocab_size(job, size):
    return dataclasses.replace(job, config=dataclasses.replace(job.config, vocab_size=size))


def _check_task(options, task):
    """Raises `UserError` if an option is set that the task does not have."""
    of_task = {
        "bidirectional_steps": "translation",
        "bpe_dropout": "translation",
        "word_dropout": "parsing",
    }
    for name, its_task in of_task.items():
        value = getattr(options, name)
        if value and task != its_task:
            raise UserError(f"{name} is for {its_task}: set it to 0 for {task} (now {value})")


def _corpora(job, tokenizer, strategy):
    """Tokenises the training set and the validation set; without one, the second is None."""
    max_length = job.options.max_length
    corpus = usable_corpus(job.train, tokenizer, max_length, job.data_cache)
    if job.valid is None:
        return corpus, None
    valid_corpus = usable_corpus(job.valid, tokenizer, max_length)
    valid_corpus = dataclasses.replace(valid_corpus, parts=())  # each pair once, without weights
    if valid_corpus.fingerprint == corpus.fingerprint and is_chief(strategy):
        print(
            f"Warning: {job.valid.description}: the training pairs are also the validation set, so "
            "validations do not tell how good the model is on new text",
            flush=True,
        )
    return corpus, valid_corpus


def _starts_with_copies(job):
    """Whether the model to start from copies placeholders; a new one does."""
    return not job.start_from or ModelDir(job.start_from).load_training()["copies_parts"]


def _batches(options, corpus, strategy):
    return Batches(
        corpus,
        tokens_per_batch=options.tokens_per_batch,
        seed=options.seed,
        batch_multiple=strategy.num_replicas_in_sync,
        dropout=options.bpe_dropout or options.word_dropout,
        bidirectional_steps=options.bidirectional_steps,
    )


def _expect_same_run(job, record, valid_corpus, strategy):
    """Raises `UserError` on all workers if their runs differ."""
    values = {
        **job.config.to_dict(),
        **record["options"],
        **record["data"],
        "start_from": None,  # a path, which differs between machines
        # The record keeps the validation set of an earlier start that had one.
        "validation": valid_corpus and valid_corpus.fingerprint,
        "target_lang": job.target_lang,
    }
    expect_same(strategy, values)


def _with_languages(job, model_dir):
    """The job with the languages of the run here, or of the model to start from, if not given."""
    has_many = bool(job.train.target_langs)  # which come from the job alone
    if model_dir.exists():
        if has_many:
            return job
        return dataclasses.replace(job, target_lang=_target_lang(model_dir, job.target_lang))
    if not job.start_from:
        return job
    recorded = ModelDir(job.start_from).load_training()
    names = ["source_lang"] if has_many else ["source_lang", "target_lang"]
    taken = {name: recorded[name] for name in names if recorded[name] and not getattr(job, name)}
    return dataclasses.replace(job, **taken)


def _target_lang(model_dir, given):
    """The target language of the run here; raises `UserError` if another one is given.

    sacreBLEU splits text into tokens by the language, and scores of other tokens cannot be
    compared. A run that had none may be given one, unless it was validated on other tokens.
    """
    record = model_dir.load_training()
    recorded = record["target_lang"]
    if given is None or (recorded and short_code(given) == short_code(recorded)):
        return recorded
    check_language(given)
    before, now = (sacre_bleu(["a"], ["a"], language).signature for language in (recorded, given))
    if recorded is None and (before == now or not record["data"].get("validation")):
        return given
    raise UserError(
        f"model_dir {model_dir.path} holds a run of target_lang={recorded} (now {given}): leave "
        "out target_lang to resume it, as `evaluate` takes any, or begin a new run from its "
        f"weights: --start_from={model_dir.path} --model_dir=NEW"
    )


def parallel_parts(
    path: str | os.PathLike, config: TransformerConfig, options: TrainingOptions, replicas: int = 1
) -> int:
    """The number of parts of a batch that `train` computes in parallel.

    This is the option's value; else the value that the run to resume began with, on any machine;
    else the best for this machine. Arguments are those of `train`, and the number of replicas.
    """
    if options.parallel_parts:
        return options.parallel_parts
    model_dir = ModelDir(path)
    recorded = model_dir.exists() and model_dir.load_training()["options"]["parallel_parts"]
    if recorded:
        return recorded
    if options.jit_compile or replicas > 1:
        return 1
    return parts_for_cores(config.d_model, options.tokens_per_batch // options.num_microbatches)


def _data(job, tokenizer, corpus, valid_corpus, strategy):
    """The record of the data, from which batches and validations follow."""
    return {
        **dataclasses.asdict(corpus.counts),
        "fingerprint": corpus.fingerprint,
        "validation": valid_corpus and valid_corpus.fingerprint,
        # Two texts may have the same ids: SentencePiece reads `…` as `...`, but BLEU does not.
        "validation_text": job.valid and judging.digest_of_scored(job.valid),
        "vocabulary": digest_of(tokenizer.to_bytes()),
        "devices": strategy.num_replicas_in_sync,  # the rows of a batch are a multiple of it
        "start_from": job.start_from and os.fspath(job.start_from),
        "train_weights": job.train.weights and list(job.train.weights),
    }


def _record(job, model_dir, data, vocab_type, copies_parts):
    """The record of a run; raises `UserError` if the run here cannot be resumed with it."""
    before = {"preset": None, "source_lang": None, "copies_parts": copies_parts}
    before |= {"commands": [], "starts": []}
    options, linearization = dataclasses.asdict(job.options), job.train.linearization
    if model_dir.exists():
        before = model_dir.load_training()
        theirs = before["data"]
        ours, started_from = data["start_from"], theirs["start_from"]
        if ours and started_from and os.path.realpath(ours) == os.path.realpath(started_from):
            data["start_from"] = started_from  # keeps its first spelling, `own` or `./own`
        compared = dict(data)
        for name in ("validation", "validation_text"):
            if not (theirs.get(name) and data[name]):  # a run may add it or leave it out
                del compared[name]
                data[name] = data[name] or theirs.get(name)
        check_same_run(model_dir, options, compared, vocab_type, linearization)
    return {
        **before,
        "preset": job.preset or before["preset"],
        "source_lang": job.source_lang or before["source_lang"],
        "target_lang": job.target_lang,
        "options": options,
        "data": data,
        "vocab_type": vocab_type,
        "linearization": linearization,
    }
