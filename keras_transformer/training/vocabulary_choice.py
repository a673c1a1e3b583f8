"""The vocabulary of a run: learned, given, or that of the model it starts from."""

import dataclasses
import os
import re
from collections.abc import Iterable, Sequence

import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.parsing import ParsingTokenizer
from keras_transformer.text import SubwordTokenizer, Tokenizer
from keras_transformer.text.subword import VocabularySizeError
from keras_transformer.training import resumption
from keras_transformer.training.job import TrainingJob
from keras_transformer.training.model_dir import ModelDir, tokenizer_kinds
from keras_transformer.training.strategies import gather

# Fields of a configuration that may differ for a run that starts from the same weights.
_NOT_OF_WEIGHTS = ("dropout", "attention_dropout", "activation_dropout", "label_smoothing")


def chosen_vocabulary(job: TrainingJob, model_dir: ModelDir) -> Tokenizer:
    """Returns the vocabulary of this model_dir or the one that the job names; else learns one.

    Raises:
        UserError: no vocabulary of this size can be learned, or the one that exists does not fit.
    """
    if model_dir.exists():
        return _vocabulary_here(job, model_dir)
    if job.vocabulary:
        tokenizer = SubwordTokenizer.load(job.vocabulary)
        return _fitting(tokenizer, job, f"vocabulary={job.vocabulary}")
    if job.start_from:
        return _vocabulary_of_start(job)
    return learn_vocabulary(job)


def learn_vocabulary(job: TrainingJob) -> Tokenizer:
    """Learns a vocabulary from the training pairs of a job, of the size in its configuration.

    Without `exact_vocab_size`, it has the nearest size that the sentences allow.

    Raises:
        UserError: the data do not allow this size; `lowercase` is set for a parser, or
            `target_vocab_size` for translation.
    """
    pairs, config = job.train, job.config
    if pairs.task == "parsing":
        if job.options.lowercase:
            raise UserError("lowercase must be False for a parser: found True")
        two_a_word = pairs.linearization == "words"
        return ParsingTokenizer.learn(
            pairs, config.vocab_size, two_a_word, config.target_vocab_size
        )
    if config.target_vocab_size is not None:
        raise UserError(
            f"target_vocab_size={config.target_vocab_size} is for parsing only: leave it out, as "
            "translation has one vocabulary for both languages"
        )
    size = config.vocab_size
    while True:
        try:
            return _learn_subwords(job, size)
        except VocabularySizeError as error:
            if job.exact_vocab_size:
                raise
            print(f"Vocabulary of {error.allowed:,}: the text does not allow {size:,}")
            size = error.allowed


def _learn_subwords(job, vocab_size):
    """Learns a vocabulary of this size, with the job's target languages and symbols."""
    languages, symbols = job.train.target_langs, job.symbols or ()
    added = len(languages) + len(symbols)
    while True:
        try:
            learned = SubwordTokenizer.train_from_sentences(
                _without_symbols(job.train.sentences(), symbols),
                vocab_size - added,
                job.vocab_type or "bpe",
                job.options.lowercase,
                job.options.seed,
                normalization=job.normalization or "source",
            )
        except VocabularySizeError as error:
            raise error.with_added(added) from None
        tokenizer = learned.with_languages(languages) if languages else learned
        tokenizer = tokenizer.with_symbols(symbols) if symbols else tokenizer
        # A symbol may be a subword already: `%`, learned from a full-width one that is normalised.
        if tokenizer.vocab_size >= vocab_size:
            return tokenizer
        added = tokenizer.vocab_size - learned.vocab_size


def _without_symbols(sentences: Iterable[str], symbols: Sequence[str]) -> Iterable[str]:
    """The sentences with a space for each symbol: no subword has a space within it."""
    if not symbols:
        return sentences
    pattern = re.compile("|".join(map(re.escape, sorted(symbols, key=len, reverse=True))))
    return (pattern.sub(" ", sentence) for sentence in sentences)


def _vocabulary_here(job, model_dir):
    """The vocabulary of this model_dir; raises `UserError` if the job trains another model."""
    resumption.check_trained_here(model_dir)
    tokenizer = model_dir.load_tokenizer()
    _check_task(tokenizer, job.train, f"model_dir {model_dir.path}")
    resumption.check_same_model(
        model_dir,
        job.config,
        "; resume the run with the recorded values, or train another model in a new --model_dir",
    )
    # As with `start_from`, the file is no longer needed, and may be missing.
    if job.vocabulary and os.path.exists(job.vocabulary):
        given = SubwordTokenizer.load(job.vocabulary)
        if given.to_bytes() != tokenizer.to_bytes():
            raise UserError(
                f"model_dir {model_dir.path} has another vocabulary than {job.vocabulary}: to "
                "resume the run, leave out vocabulary"
            )
    _check_normalization(tokenizer, job, f"model_dir {model_dir.path}")
    way_out = " to resume the run, or train another model in a new model_dir"
    _check_languages(tokenizer, job, f"model_dir {model_dir.path}", way_out)
    if job.symbols is not None and set(job.symbols) != {*getattr(tokenizer, "symbols", ())}:
        raise UserError(
            f"model_dir {model_dir.path} was made with other symbols: to resume the run, leave out "
            "symbols, or train another model in a new model_dir"
        )
    return tokenizer


def _vocabulary_of_start(job):
    """The vocabulary of `start_from`; raises `UserError` unless its weights fit the job's model."""
    start = ModelDir(job.start_from)
    tokenizer = _fitting(start.load_tokenizer(), job, f"start_from={os.fspath(job.start_from)}")
    theirs = start.load_config()
    config = dataclasses.replace(
        job.config, **{name: getattr(theirs, name) for name in _NOT_OF_WEIGHTS}
    )
    resumption.check_same_model(start, config)
    return tokenizer


def _fitting(tokenizer, job, where):
    """Returns the tokenizer; raises `UserError` unless it fits the job's pairs and options."""
    _check_task(tokenizer, job.train, where)
    wanted = job.train.linearization
    if wanted and tokenizer.linearization != wanted:
        raise UserError(
            f"{where} was made with linearization={tokenizer.linearization}: set linearization to "
            f"that (now {wanted})"
        )
    if tokenizer.lowercase != job.options.lowercase:
        raise UserError(
            f"{where} was made with lowercase={tokenizer.lowercase}: set lowercase to that "
            f"(now {job.options.lowercase})"
        )
    _check_normalization(tokenizer, job, where)
    _check_languages(tokenizer, job, where, f", or leave out {where.partition('=')[0]}")
    return tokenizer


def _check_languages(tokenizer, job, where, way_out):
    """Raises `UserError` unless the vocabulary has the target languages of the pairs.

    Args:
        tokenizer: the vocabulary.
        job: the job.
        where: what has the vocabulary, such as "model_dir runs/en-de".
        way_out: end of the message, with what else to do.
    """
    wanted, languages = job.train.target_langs, tokenizer.languages
    if languages is not None and languages.in_target:
        raise UserError(f"{where} has an imported M2M100 or NLLB model, which cannot be trained")
    known = [] if languages is None else list(languages.symbols)
    if known and not wanted:
        raise UserError(
            f"{where} has a model for several languages: give target_langs, the language of each "
            f"target, among {', '.join(known)}"
        )
    for code in wanted:
        if code not in known:
            among = f"give some of {', '.join(known)}" if known else "leave out target_langs"
            raise UserError(
                f"{where}: target_langs={code} is not in the vocabulary: {among}{way_out}"
            )


def _check_normalization(tokenizer, job, where):
    """Raises `UserError` if the vocabulary is not normalised as the job says, if it says so."""
    found = getattr(tokenizer, "normalization", None)  # only subwords of our own have it
    if job.normalization not in (None, found):
        raise UserError(
            f"{where} was made with normalization={found}: to resume it or to start from it, leave "
            f"out normalization (now {job.normalization})"
        )


def _check_task(tokenizer, pairs, where):
    """Raises `UserError` unless the vocabulary is for the task of the pairs."""
    if tokenizer.task != pairs.task:
        raise UserError(
            f"{where} has a model for {tokenizer.task}, but the data are for {pairs.task}"
        )


def vocabulary_of_chief(tokenizer: Tokenizer | None, strategy: tf.distribute.Strategy) -> Tokenizer:
    """Returns the chief's vocabulary on all workers; only the chief has one."""
    content = (
        b"" if tokenizer is None else f"{tokenizer.file_name}\n".encode() + tokenizer.to_bytes()
    )
    [content] = filter(None, gather(strategy, content))
    if tokenizer is not None:
        return tokenizer
    name, _, content = content.partition(b"\n")
    return tokenizer_kinds()[name.decode()].from_bytes(content)
