"""The vocabulary of a run: learned, given, or that of the model it starts from."""

import dataclasses
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.data import SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.parsing import ParsingTokenizer, TreebankPairs
from keras_transformer.text import SubwordTokenizer, Tokenizer
from keras_transformer.text.subword import VocabularySizeError
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
    symbols = job.symbols or ()
    pairs: Any = _WithoutSymbols(job.train, symbols) if symbols else job.train
    tokenizer = learn_vocabulary(
        pairs,
        dataclasses.replace(job.config, vocab_size=job.config.vocab_size - len(symbols)),
        job.vocab_type,
        job.options.lowercase,
        job.options.seed,
        job.exact_vocab_size,
        job.normalization,
    )
    return tokenizer.with_symbols(symbols) if symbols else tokenizer


class _WithoutSymbols:
    """Sentence pairs for `learn_vocabulary`, with a space for each symbol: no subword has one."""

    def __init__(self, pairs: SentencePairs, symbols: Sequence[str]):
        self._pairs, self.target_langs = pairs, pairs.target_langs
        longest_first = sorted(symbols, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def sentences(self) -> Iterator[str]:
        for sentence in self._pairs.sentences():
            yield self._pattern.sub(" ", sentence)


def learn_vocabulary(
    pairs: SentencePairs,
    config: TransformerConfig,
    vocab_type: str | None = None,
    lowercase: bool = False,
    seed: int = 1,
    exact: bool = True,
    normalization: str | None = None,
) -> Tokenizer:
    """Learns a vocabulary of the configuration's size from training pairs.

    Args:
        pairs: the training pairs.
        config: the configuration of the model.
        vocab_type: "bpe" or "unigram" subwords; default: "bpe". None for a parser.
        lowercase: whether subwords ignore case.
        seed: decides which sentences of a large corpus subwords are learned from.
        exact: False for the nearest size that the sentences allow.
        normalization: sides whose text subwords normalise, "source", "both" or "none"; default:
            "source". None for a parser.

    Raises:
        UserError: the data do not allow this size; `lowercase` is set for a parser, or
            `target_vocab_size` for translation.
    """
    if isinstance(pairs, TreebankPairs):
        if lowercase:
            raise UserError("lowercase must be False for a parser: found True")
        two_a_word = pairs.options.linearization == "words"
        return ParsingTokenizer.learn(
            pairs.pairs(), config.vocab_size, two_a_word, config.target_vocab_size
        )
    if config.target_vocab_size is not None:
        raise UserError(
            f"target_vocab_size={config.target_vocab_size} is for parsing only: leave it out, as "
            "translation has one vocabulary for both languages"
        )
    model_type: Any = vocab_type or "bpe"
    sides: Any = normalization or "source"

    added = len(pairs.target_langs)

    def learn(vocab_size):
        learned = SubwordTokenizer.train_from_sentences(
            pairs.sentences(), vocab_size - added, model_type, lowercase, seed, normalization=sides
        )
        return learned.with_languages(pairs.target_langs) if added else learned

    try:
        return learn(config.vocab_size)
    except VocabularySizeError as error:
        if exact:
            raise
        allowed = error.allowed + added
        print(f"Vocabulary of {allowed:,}: the text does not allow {config.vocab_size:,}")
        return learn(allowed)


def _vocabulary_here(job, model_dir):
    """The vocabulary of this model_dir; raises `UserError` if the job trains another model."""
    model_dir.check_trained_here()
    tokenizer = model_dir.load_tokenizer()
    _check_task(tokenizer, job.train, f"model_dir {model_dir.path}")
    model_dir.check_same(
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
    _check_languages(tokenizer, job, f"model_dir {model_dir.path}")
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
    start.check_same(
        dataclasses.replace(job.config, **{name: getattr(theirs, name) for name in _NOT_OF_WEIGHTS})
    )
    return tokenizer


def _fitting(tokenizer, job, where):
    """Returns the tokenizer; raises `UserError` unless it fits the job's pairs and options."""
    _check_task(tokenizer, job.train, where)
    wanted = linearization_of(job.train)
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
    _check_languages(tokenizer, job, where)
    return tokenizer


def _check_languages(tokenizer, job, where):
    """Raises `UserError` unless the vocabulary has the target languages of the pairs."""
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
            among = (
                f"give some of {', '.join(known)} to resume the run"
                if known
                else "leave out target_langs to resume the run"
            )
            raise UserError(
                f"{where}: target_langs={code} is not in the vocabulary: {among}, or train another "
                "model in a new model_dir"
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


def linearization_of(pairs: SentencePairs) -> str | None:
    """The linearization of a treebank's trees; None for translation."""
    return pairs.options.linearization if isinstance(pairs, TreebankPairs) else None


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
