"""Prepares a run to begin or to resume: checks vocabulary and data, and writes nothing."""

import contextlib
import dataclasses
import os
from pathlib import Path

import tensorflow as tf

from keras_transformer.backend.cores import parts_for_cores
from keras_transformer.backend.product_speed import fastest_policy, slowdown
from keras_transformer.config import TransformerConfig
from keras_transformer.data import Batches, Corpus, SentencePairs, usable_corpus
from keras_transformer.errors import UserError
from keras_transformer.evaluation.bleu import check_language, sacre_bleu
from keras_transformer.language_code import check_language_code
from keras_transformer.options.training import TrainingOptions
from keras_transformer.tokenizers import Tokenizer
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.model_dir import ModelDir, digest_of
from keras_transformer.training.run_state import RunState
from keras_transformer.training.step import TrainableTransformer
from keras_transformer.training.strategies import expect_same, failing_together, gather, is_chief
from keras_transformer.training.vocabulary import (
    chosen_vocabulary,
    linearization_of,
    vocabulary_of_chief,
)

# A lower precision pays off if a matrix product takes less than this share of its float32 time,
# since tensors are converted around it.
_PAYS_BELOW = 0.8


@dataclasses.dataclass
class Run:
    """A training run: its parts and its progress.

    Attributes:
        model_dir: the folder of the model.
        config: the model's configuration.
        options: the training options.
        strategy: the devices that train the model.
        tokenizer: the model's tokenizer.
        corpus: the training set, as token ids.
        batches: the batches of the corpus.
        valid_pairs, valid_corpus: the validation set, as text and as token ids, or None.
        test_pairs: the test set for the trained model; None for `valid_pairs`.
        target_lang: two-letter code of the target language, or None.
        record: the run's record, which the model_dir keeps in training.json.
        start_from: the model_dir whose weights a new run begins with, or None.
        model, state, log: set by `restore`.
    """

    model_dir: ModelDir
    config: TransformerConfig
    options: TrainingOptions
    strategy: tf.distribute.Strategy
    tokenizer: Tokenizer
    corpus: Corpus
    batches: Batches
    valid_pairs: SentencePairs | None
    valid_corpus: Corpus | None
    test_pairs: SentencePairs | None
    target_lang: str | None
    record: dict
    start_from: str | os.PathLike | None
    model: TrainableTransformer = dataclasses.field(init=False)
    state: RunState = dataclasses.field(init=False)
    log: TrainingLog = dataclasses.field(init=False)

    @property
    def writes(self) -> bool:
        """Whether this worker writes to the model_dir."""
        return is_chief(self.strategy)


def prepare(
    model_dir: ModelDir,
    config: TransformerConfig,
    options: TrainingOptions,
    strategy: tf.distribute.Strategy,
    train_pairs: SentencePairs,
    valid_pairs: SentencePairs | None,
    test_pairs: SentencePairs | None,
    *,
    vocab_type: str | None,
    vocabulary: str | os.PathLike | None,
    start_from: str | os.PathLike | None,
    target_lang: str | None,
    data_cache: str | os.PathLike | None,
    preset: str | None,
    exact_vocab_size: bool,
    until_trained: contextlib.ExitStack,
) -> Run:
    """Returns a run that can begin or resume; the arguments are those of `train`.

    Args:
        until_trained: holds the lock of the model_dir.

    Raises:
        UserError: the options or data are invalid, or the model_dir holds something else.
    """
    _check(config, options, train_pairs, valid_pairs, vocab_type)
    _check_cache(data_cache, model_dir)
    model_dir.check_start(start_from)
    with failing_together(strategy):
        if model_dir.exists():
            target_lang = _target_lang(model_dir, target_lang)
        check_language_code(target_lang)
        for pairs in filter(None, (valid_pairs, test_pairs)):
            if not pairs.check():
                raise UserError(f"{pairs.description}: expected pairs of sentences, found none")
            check_language(target_lang)  # now, not at the first validation
        parts = parallel_parts(model_dir.path, config, options, strategy.num_replicas_in_sync)
        options = dataclasses.replace(options, parallel_parts=parts)
        tokenizer, policy = None, ""
        if is_chief(strategy):
            until_trained.enter_context(model_dir.locked())
            policy = dtype_policy(model_dir.path, options)
            if model_dir.exists() and not exact_vocab_size:
                here = model_dir.load_config().vocab_size
                config = dataclasses.replace(config, vocab_size=here)
            tokenizer = chosen_vocabulary(
                model_dir,
                config,
                options,
                train_pairs,
                vocab_type=vocab_type,
                vocabulary=vocabulary,
                start_from=start_from,
                exact_size=exact_vocab_size,
            )
    [policy] = (text.decode() for text in gather(strategy, policy.encode()) if text)
    options = dataclasses.replace(options, dtype_policy=policy)
    tokenizer = vocabulary_of_chief(tokenizer, strategy)
    if not exact_vocab_size:
        config = dataclasses.replace(config, vocab_size=tokenizer.vocab_size)
    if train_pairs.task == "translation":
        is_learned = not (vocabulary or start_from)
        # Marian's vocabularies have no type.
        vocab_type = vocab_type or "bpe" if is_learned else getattr(tokenizer, "model_type", None)
    with failing_together(strategy):
        tokenizer.check_fits(config)
        _check_task(options, tokenizer.task)
        corpus = usable_corpus(train_pairs, tokenizer, options.max_length, data_cache)
        valid_corpus = None
        if valid_pairs is not None:
            valid_corpus = usable_corpus(valid_pairs, tokenizer, options.max_length)
            if valid_corpus.fingerprint == corpus.fingerprint and is_chief(strategy):
                print(
                    f"Warning: {valid_pairs.description}: the training pairs are also the "
                    "validation set, so validations do not tell how good the model is on new text",
                    flush=True,
                )
        linearization = linearization_of(train_pairs)
        data = _data(tokenizer, corpus, valid_corpus, strategy, start_from)
        record = _record(model_dir, data, options, vocab_type, linearization)
        record["preset"] = preset or record["preset"]
    data = {**record["data"], "start_from": None}  # a path, which differs between machines
    # The record keeps the validation set of an earlier start that had one.
    validation = valid_corpus and valid_corpus.fingerprint
    expect_same(
        strategy,
        {
            **config.to_dict(),
            **record["options"],
            **data,
            "validation": validation,
            "target_lang": target_lang,
        },
    )
    return Run(
        model_dir=model_dir,
        config=config,
        options=options,
        strategy=strategy,
        tokenizer=tokenizer,
        corpus=corpus,
        batches=Batches(
            corpus,
            tokens_per_batch=options.tokens_per_batch,
            seed=options.seed,
            batch_multiple=strategy.num_replicas_in_sync,
            dropout=options.bpe_dropout or options.word_dropout,
            bidirectional_steps=options.bidirectional_steps,
        ),
        valid_pairs=valid_pairs,
        valid_corpus=valid_corpus,
        test_pairs=test_pairs,
        target_lang=target_lang,
        record=record,
        start_from=start_from,
    )


def _check(config, options, train_pairs, valid_pairs, vocab_type):
    if vocab_type and train_pairs.task == "parsing":
        raise UserError(f"expected no vocab_type for a parser, found {vocab_type}")
    if config.positions == "learned" and options.max_length > config.max_positions:
        raise UserError(
            f"max_length must be at most the {config.max_positions} learned positions: "
            f"found {options.max_length}"
        )
    if options.stop_patience and valid_pairs is None:
        raise UserError(
            f"stop_patience={options.stop_patience}: expected pairs to validate by, found none"
        )


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


def _check_cache(data_cache, model_dir):
    """Refuses a cache within a new model_dir, which would then hold more than a run's files."""
    folder = os.path.realpath(model_dir.path)
    is_inside = data_cache and Path(os.path.realpath(data_cache)).is_relative_to(folder)
    if is_inside and not model_dir.exists():
        raise UserError(f"data_cache: expected a folder outside of {folder}, found {data_cache}")


def _target_lang(model_dir, given):
    """The target language of the run here; raises `UserError` if another one is given.

    sacreBLEU splits text into tokens by the language, and scores of other tokens cannot be
    compared. A run that had none may be given one, unless it was validated on other tokens.
    """
    record = model_dir.load_training()
    recorded = record["target_lang"]
    if given in (None, recorded):
        return recorded
    check_language(given)
    before, now = (sacre_bleu(["a"], ["a"], language).signature for language in (recorded, given))
    if recorded is None and (before == now or not record["data"].get("validation")):
        return given
    raise UserError(
        f"model_dir {model_dir.path} holds a run of target_lang={recorded} (now {given}): leave "
        "out target_lang to resume it; `evaluate` takes any"
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


def dtype_policy(path: str | os.PathLike, options: TrainingOptions) -> str:
    """The precision that `train` computes in.

    This is the option's value. If that is "auto", it is the precision of the run to resume, on any
    machine; else the fastest on this machine. Arguments are those of `train`.
    """
    if options.dtype_policy != "auto":
        return options.dtype_policy
    model_dir = ModelDir(path)
    if model_dir.exists():
        return model_dir.load_training()["options"]["dtype_policy"]
    return fastest_policy()


def precision_warning(policy: str) -> str | None:
    """A one-line warning if this processor gains nothing from this precision; else None."""
    if policy in ("auto", "float32") or tf.config.list_logical_devices("GPU"):
        return None
    dtype = policy.removeprefix("mixed_")
    slower = slowdown(dtype)
    if slower <= _PAYS_BELOW:
        return None
    is_bfloat16_fast = dtype != "bfloat16" and slowdown("bfloat16") <= _PAYS_BELOW
    better = "mixed_bfloat16" if is_bfloat16_fast else "float32"
    return (
        f"Warning: a matrix product in {dtype} takes {slower:.1f} times as long as in float32 on "
        f"this processor, and conversions come on top: a new run is faster with "
        f"dtype_policy={better}"
    )


def _data(tokenizer, corpus, valid_corpus, strategy, start_from):
    """The record of the data, from which batches and validations follow."""
    return {
        **dataclasses.asdict(corpus.counts),
        "fingerprint": corpus.fingerprint,
        "validation": valid_corpus and valid_corpus.fingerprint,
        "vocabulary": digest_of(tokenizer.to_bytes()),
        "devices": strategy.num_replicas_in_sync,  # the rows of a batch are a multiple of it
        "start_from": start_from and os.fspath(start_from),
    }


def _record(model_dir, data, options, vocab_type, linearization):
    """The record of a run; raises `UserError` if the run here cannot be resumed with it."""
    before = {"preset": None, "target_lang": None, "commands": [], "starts": []}
    if model_dir.exists():
        before = model_dir.load_training()
        theirs = {"validation": None, "start_from": None, **before["data"]}
        ours, started_from = data["start_from"], theirs["start_from"]
        if ours and started_from and os.path.realpath(ours) == os.path.realpath(started_from):
            data["start_from"] = started_from  # as written then: `own` and `./own` are the same
            vocab_type = before["vocab_type"]  # in earlier versions "bpe", whatever it was
        compared = dict(data)
        if not (theirs["validation"] and data["validation"]):  # one may be added, or left out
            del compared["validation"]
            data["validation"] = data["validation"] or theirs["validation"]
        model_dir.check_same_run(dataclasses.asdict(options), compared, vocab_type, linearization)
    return {
        **before,
        "options": dataclasses.asdict(options),
        "data": data,
        "vocab_type": vocab_type,
        "linearization": linearization,
    }
