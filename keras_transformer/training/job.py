"""A training job: what `train` does, as one checked value."""

import dataclasses
import os
from typing import Any

from keras_transformer.config import TransformerConfig
from keras_transformer.data.sources import SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.options.records import Record
from keras_transformer.options.training import TrainingOptions
from keras_transformer.text.language_code import check_language_code
from keras_transformer.text.normalization import NORMALIZATIONS


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingJob(Record):
    """A training job: a model, its data, and how to train it; `train` begins or resumes it.

    Args:
        model_dir: the folder of the model, new or of the same configuration.
        train: the training set.
        valid: the validation set; default: none.
        test: the test set for the trained model; default: `valid`.
        config: the model's configuration; its `vocab_size` is the size of the vocabulary to learn.
        options: the training options.
        preset: the name of the preset that `config` and `options` come from, to be recorded.
        vocabulary: the file of an existing SentencePiece model; default: learn one.
        vocab_type: kind of subwords to learn, "bpe" or "unigram"; default: "bpe", or as the run
            here began. None for a parser, whose `ParsingOptions` say how trees are written.
        normalization: sides whose text the vocabulary to learn normalises, "source", "both" or
            "none"; see `SubwordTokenizer.train`; default: "source", or as the run here began.
        symbols: texts that the vocabulary to learn never splits, such as `%s`; they count in its
            size. See `SubwordTokenizer.with_symbols`; default: none, or as the run here began.
        exact_vocab_size: False to learn a vocabulary of the nearest size that the text allows.
        start_from: the model_dir of a trained model. A new model takes its vocabulary, and starts
            from the weights that commands use of it. Only dropout and label smoothing
            may be configured differently.
        target_lang: two-letter code of the target language, for BLEU.
        source_lang: code of the source language, by which texts are split into sentences.
        data_cache: folder where the tokenised training data are kept; see `Corpus.build`.
        command: the command to record in the model_dir.

    Raises:
        UserError: a value has the wrong type or is out of range, or two values exclude each other.

    Example:
        >>> job = TrainingJob(
        ...     model_dir="runs/en-de",
        ...     train=kt.data.TextPairs("train.en", "train.de"),
        ...     config=TransformerConfig.from_preset("tiny", vocab_size=340),
        ...     options=TrainingOptions.from_preset("tiny", steps=100),
        ... )
        >>> model = kt.training.train(job)  # doctest: +SKIP
    """

    model_dir: str | os.PathLike
    train: SentencePairs
    valid: SentencePairs | None = None
    test: SentencePairs | None = None
    config: TransformerConfig
    options: TrainingOptions = dataclasses.field(default_factory=TrainingOptions)
    preset: str | None = None
    vocabulary: str | os.PathLike | None = None
    vocab_type: str | None = None
    normalization: str | None = None
    symbols: tuple | None = None
    exact_vocab_size: bool = True
    start_from: str | os.PathLike | None = None
    target_lang: str | None = None
    source_lang: str | None = None
    data_cache: str | os.PathLike | None = None
    command: str = ""

    def __post_init__(self):
        super().__post_init__()
        check_language_code(self.target_lang)
        check_language_code(self.source_lang, "source_lang")
        self._check_pairs()
        self._check_vocabulary()
        self._check_options()

    def with_options(self, **changed: Any) -> "TrainingJob":
        """Returns this job with other values of some training options."""
        return dataclasses.replace(self, options=dataclasses.replace(self.options, **changed))

    def _check_pairs(self):
        for name in ("valid", "test"):
            pairs = getattr(self, name)
            if pairs is not None and pairs.task != self.train.task:
                raise UserError(
                    f"{name}: {pairs.description} is for {pairs.task}, but the training set is for "
                    f"{self.train.task}"
                )

            if pairs is not None and pairs.linearization != self.train.linearization:
                raise UserError(
                    f"{name}: {pairs.description} has linearization={pairs.linearization}: set it "
                    f"to {self.train.linearization}, as the training set has it"
                )
            if pairs is not None and bool(pairs.target_langs) != bool(self.train.target_langs):
                raise UserError(
                    f"{name}: {pairs.description} and the training set must both have "
                    "target_langs, or none of them"
                )
            for code in pairs.target_langs if pairs is not None else ():
                if code not in self.train.target_langs:
                    raise UserError(
                        f"{name}: {pairs.description} has target_langs={code}, which the training "
                        "set does not have"
                    )
        if self.train.target_langs and self.target_lang:
            raise UserError(
                f"target_lang={self.target_lang} has no effect with target_langs: leave it out"
            )

    def _check_vocabulary(self):
        self.expect("vocab_type", self.vocab_type in (None, "bpe", "unigram"), "bpe or unigram")
        choices = (None, *NORMALIZATIONS)
        self.expect("normalization", self.normalization in choices, "source, both or none")
        for name in ("vocab_type", "normalization", "symbols"):
            if (value := getattr(self, name)) and self.train.task == "parsing":
                what = name.removeprefix("vocab_")
                raise UserError(
                    f"{name}={value}: a parser's vocabulary has no {what}: leave it out"
                )
        for name in ("vocabulary", "start_from"):
            for given in ("vocab_type", "symbols"):
                if getattr(self, given) and getattr(self, name):
                    raise UserError(
                        f"{given} has no effect with {name}={os.fspath(getattr(self, name))}, "
                        "whose vocabulary a new model takes: leave it out"
                    )
        if self.vocabulary and self.start_from:
            raise UserError(
                f"vocabulary={os.fspath(self.vocabulary)} has no effect with "
                f"start_from={os.fspath(self.start_from)}, whose vocabulary a new model takes: "
                "give only one of them"
            )

    def _check_options(self):
        config, options = self.config, self.options
        if config.positions == "learned" and options.max_length > config.max_positions:
            raise UserError(
                f"max_length must be at most the {config.max_positions} learned positions: "
                f"found {options.max_length}"
            )
        if options.bidirectional_steps and self.train.target_langs:
            raise UserError(
                f"bidirectional_steps={options.bidirectional_steps} has no language for the other "
                "direction with target_langs: set it to 0, or give both directions as files"
            )
        if options.stop_patience and self.valid is None:
            raise UserError(
                f"stop_patience={options.stop_patience} needs a validation set: give one, or set "
                "stop_patience to 0"
            )
