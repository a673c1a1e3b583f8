"""The vocabulary of a run: learned, given, or that of the model it starts from."""

import dataclasses
import os
from typing import Any

import tensorflow as tf

from keras_transformer.config import TransformerConfig
from keras_transformer.data import SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.options.training import TrainingOptions
from keras_transformer.parsing import ParsingTokenizer, TreebankPairs
from keras_transformer.text import SubwordTokenizer, Tokenizer
from keras_transformer.text.subword import VocabularySizeError
from keras_transformer.training.model_dir import ModelDir, tokenizer_kinds
from keras_transformer.training.strategies import gather

# Fields of a configuration that may differ for a run that starts from the same weights.
_NOT_OF_WEIGHTS = ("dropout", "attention_dropout", "activation_dropout", "label_smoothing")


def chosen_vocabulary(
    model_dir: ModelDir,
    config: TransformerConfig,
    options: TrainingOptions,
    train_pairs: SentencePairs,
    *,
    vocab_type: str | None,
    vocabulary: str | os.PathLike | None,
    start_from: str | os.PathLike | None,
    exact_size: bool,
) -> Tokenizer:
    """Returns the vocabulary that exists, or learns one; the arguments are those of `train`.

    Raises:
        UserError: no vocabulary of this size can be learned, or the one that exists does not fit.
    """
    if model_dir.exists() or vocabulary or start_from:
        return _existing_vocabulary(model_dir, config, options, train_pairs, vocabulary, start_from)
    return learn_vocabulary(
        train_pairs, config, vocab_type, options.lowercase, options.seed, exact_size
    )


def learn_vocabulary(
    pairs: SentencePairs,
    config: TransformerConfig,
    vocab_type: str | None = None,
    lowercase: bool = False,
    seed: int = 1,
    exact: bool = True,
) -> Tokenizer:
    """Learns a vocabulary of the configuration's size from training pairs.

    Args:
        pairs: the training pairs.
        config: the configuration of the model.
        vocab_type: "bpe" or "unigram" subwords; default: "bpe". None for a parser.
        lowercase: whether subwords ignore case.
        seed: decides which sentences of a large corpus subwords are learned from.
        exact: False for the nearest size that the sentences allow.

    Raises:
        UserError: the data do not allow this size; `lowercase` is set for a parser, or
            `target_vocab_size` for translation.
    """
    if isinstance(pairs, TreebankPairs):
        if lowercase:
            raise UserError("lowercase: expected False for a parser, found True")
        two_a_word = pairs.options.linearization == "words"
        return ParsingTokenizer.learn(
            pairs.pairs(), config.vocab_size, two_a_word, config.target_vocab_size
        )
    if config.target_vocab_size is not None:
        raise UserError(
            "target_vocab_size is for parsing: expected none for translation, whose languages "
            f"share one vocabulary, found {config.target_vocab_size}"
        )
    model_type: Any = vocab_type or "bpe"

    def learn(vocab_size):
        return SubwordTokenizer.train_from_sentences(
            pairs.sentences(), vocab_size, model_type, lowercase, seed
        )

    try:
        return learn(config.vocab_size)
    except VocabularySizeError as error:
        if exact:
            raise
        print(f"Vocabulary of {error.allowed:,}: the text does not allow {config.vocab_size:,}")
        return learn(error.allowed)


def _existing_vocabulary(model_dir, config, options, train_pairs, vocabulary, start_from):
    """The vocabulary of this model_dir, else the given one, else that of `start_from`.

    Raises:
        UserError: the model here or in `start_from` is another one, or cannot be trained further.
    """
    if model_dir.exists():
        model_dir.check_trained_here()
        tokenizer = model_dir.load_tokenizer()
        _check_task(tokenizer, train_pairs, f"model_dir {model_dir.path}")
        model_dir.check_same(config)
        # As with `start_from`, the file is no longer needed, and may be missing.
        if vocabulary and os.path.exists(vocabulary):
            given = SubwordTokenizer.load(vocabulary)
            if given.to_bytes() != tokenizer.to_bytes():
                raise UserError(
                    f"{model_dir.path}: expected the vocabulary {vocabulary}, found another"
                )
        return tokenizer
    if vocabulary and start_from:
        raise UserError(
            "expected vocabulary or start_from, whose vocabulary a new model takes, found both: "
            f"{os.fspath(vocabulary)} and {os.fspath(start_from)}"
        )
    if vocabulary:
        where = f"vocabulary={vocabulary}"
        return _fitting(SubwordTokenizer.load(vocabulary), options, train_pairs, where)
    start, where = ModelDir(start_from), f"start_from={os.fspath(start_from)}"
    tokenizer = _fitting(start.load_tokenizer(), options, train_pairs, where)
    theirs = start.load_config()
    start.check_same(
        dataclasses.replace(config, **{name: getattr(theirs, name) for name in _NOT_OF_WEIGHTS})
    )
    return tokenizer


def _fitting(tokenizer, options, pairs, where):
    """Returns the tokenizer; raises `UserError` unless it fits the pairs and the options."""
    _check_task(tokenizer, pairs, where)
    wanted = linearization_of(pairs)
    if wanted and tokenizer.linearization != wanted:
        raise UserError(
            f"{where}: expected a parser of linearization={wanted}, "
            f"found one of {tokenizer.linearization}"
        )
    if tokenizer.lowercase != options.lowercase:
        raise UserError(
            f"{where}: expected a vocabulary of lowercase={options.lowercase}, "
            f"found one of lowercase={tokenizer.lowercase}"
        )
    return tokenizer


def _check_task(tokenizer, pairs, where):
    """Raises `UserError` unless the vocabulary is for the task of the pairs."""
    if tokenizer.task != pairs.task:
        raise UserError(
            f"{where}: expected a model for {pairs.task}, found one for {tokenizer.task}"
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
