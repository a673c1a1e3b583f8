"""Trains a model in a model_dir with `model.fit`, or goes on where that stopped."""

import dataclasses
import os
from collections.abc import Sequence

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.data import SentencePairs, count_pairs, pair_batches
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss, format_scores, translation_scores
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity, TokenCount
from keras_transformer.model import Transformer
from keras_transformer.tokenizers import SubwordTokenizer
from keras_transformer.training.callbacks import (
    Progress,
    SaveCheckpoints,
    TrainingLog,
    Validation,
    steps_done,
)
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.options import TrainingOptions
from keras_transformer.training.strategies import default_strategy
from keras_transformer.translator import Translator

_VALIDATION_SENTENCES = 1000


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
        vocab_type: of the vocabulary, "bpe" or "unigram".
        target_lang: two-letter code of the target language, for BLEU on its tokens.
        command: recorded in the model_dir.

    Returns:
        The model, with the mean of its last checkpoints.

    Raises:
        UserError: the data are not as they should be, or the model_dir holds something else.
    """
    if config.learned_positions and options.max_length > config.max_positions:
        raise UserError(
            f"max_length must be at most the {config.max_positions} learned positions: "
            f"found {options.max_length}"
        )
    print(
        f"Training {config.num_encoder_layers} + {config.num_decoder_layers} layers of width "
        f"{config.d_model} on {train_pairs.description}: {options.steps:,} steps of "
        f"{options.tokens_per_batch:,} tokens, in {os.fspath(path)}",
        flush=True,
    )
    keras.utils.set_random_seed(options.seed)
    for pairs in filter(None, (train_pairs, valid_pairs, test_pairs)):
        if not pairs.check():
            raise UserError(f"{pairs.description}: expected pairs of sentences, found none")
    model_dir = ModelDir(path)
    is_new = not model_dir.exists()
    if is_new:
        sentences = train_pairs.sentences()
        tokenizer = SubwordTokenizer.train_from_sentences(sentences, config.vocab_size, vocab_type)
    else:
        model_dir.check_same(config)
        tokenizer = model_dir.load_tokenizer()
    tokenizer.check_fits(config)
    counts = _usable(train_pairs, tokenizer, options)
    if valid_pairs is not None:
        _usable(valid_pairs, tokenizer, options)
    data = dataclasses.asdict(counts)
    if not is_new:
        model_dir.check_same_data(dataclasses.asdict(options), data, vocab_type)

    strategy = default_strategy()
    replicas = strategy.num_replicas_in_sync
    batches = pair_batches(
        train_pairs,
        tokenizer,
        tokens_per_batch=options.tokens_per_batch,
        max_length=options.max_length,
        seed=options.seed,
        repeat=True,
        batch_multiple=replicas,
        bpe_dropout=options.bpe_dropout,
    )
    with strategy.scope():
        model = _compiled_model(config, options, jit_compile=options.jit_compile and replicas == 1)
        start = max(model_dir.checkpoints.steps(), default=0)
        if start:
            model_dir.checkpoints.restore(model, start)

    # From here on all is known to be well, and the model_dir may be written to.
    before = {"commands": [], "target_lang": None} if is_new else model_dir.load_training()
    target_lang = target_lang or before["target_lang"]
    record = {
        "options": dataclasses.asdict(options),
        "data": data,
        "vocab_type": vocab_type,
        "target_lang": target_lang,
        "commands": [*before["commands"], command],
    }
    if is_new:
        model_dir.create(config, tokenizer, record)
    else:
        model_dir.save_training(record)
    log = TrainingLog(model_dir.logs)
    log.say(
        f"{model.count_params():,} parameters, {counts.kept:,} pairs, {counts.source_tokens:,} "
        f"source and {counts.target_tokens:,} target tokens, "
        f"{replicas} device{'s' if replicas > 1 else ''}"
    )
    if start < options.steps:
        if start:
            log.say(f"Going on from step {start:,}")
        callbacks = _callbacks(model, tokenizer, options, model_dir.checkpoints, valid_pairs, log)
        try:
            model.fit(
                batches.skip(start),
                steps_per_epoch=options.steps - start,
                callbacks=callbacks,
                shuffle=False,
                verbose=0,
            )
        except KeyboardInterrupt:
            step = steps_done(model)
            model_dir.checkpoints.save(model, step)
            log.say(f"Saved step {step:,}; the same command goes on from there")
            raise
    else:
        log.say(f"It is trained already, up to step {start:,}")

    model = model_dir.load_model()
    judged = test_pairs or valid_pairs
    if judged is not None:
        averaged = min(options.average_checkpoints, len(model_dir.checkpoints.steps()))
        log.say(f"\nMean of the last {averaged} checkpoints on {judged.description}:")
        _report(Translator(model, tokenizer), judged, target_lang, log)
    return model


def _usable(pairs, tokenizer, options):
    """What there is to use of the pairs; says what is not, and refuses pairs of no use at all."""
    counts = count_pairs(pairs, tokenizer, options.max_length)
    if counts.empty or counts.too_long:
        print(
            f"Left out of {pairs.description}: {counts.empty:,} pairs with an empty side, "
            f"{counts.too_long:,} with a side of more than {options.max_length} tokens"
        )
    if not counts.kept:
        raise UserError(
            f"{pairs.description}: expected a pair of 1 to {options.max_length} tokens a side, "
            f"found {counts.empty} with an empty side and {counts.too_long} too long"
        )
    return counts


def _compiled_model(config, options, jit_compile):
    model = Transformer(config, name="transformer")
    model.build()
    model.compile(
        optimizer=keras.optimizers.Adam(
            options.schedule(config.d_model),
            beta_1=options.beta_1,
            beta_2=options.beta_2,
            epsilon=options.adam_epsilon,
        ),
        loss=LabelSmoothedCrossEntropy(config.label_smoothing, config.pad_id),
        metrics=[Perplexity(pad_id=config.pad_id), TokenCount(pad_id=config.pad_id)],
        jit_compile=jit_compile,
    )
    return model


def _callbacks(model, tokenizer, options, checkpoints, valid_pairs, log):
    callbacks = [
        Progress(log, options.steps, options.report_steps),
        SaveCheckpoints(
            checkpoints,
            options.steps,
            options.checkpoint_steps,
            options.checkpoint_minutes,
            options.keep_checkpoints,
        ),
    ]
    if valid_pairs is not None:
        judge = _validation(model, tokenizer, options, valid_pairs)
        callbacks.append(Validation(log, judge, options.steps, options.validation_steps))
    return callbacks


def _validation(model, tokenizer, options, pairs):
    """What judges the model by these pairs: loss and perplexity, and BLEU of greedy search."""
    batches = pair_batches(
        pairs, tokenizer, options.tokens_per_batch, options.max_length, shuffle_buffer=0
    ).cache()
    reference_loss = ReferenceLoss(model, batches)
    translator = Translator(model, tokenizer, beam_size=1)
    sources, references = _sentences(pairs, _VALIDATION_SENTENCES)

    def judge():
        bleu = translation_scores(translator(sources), references)["bleu"].value
        return {**reference_loss(), "BLEU": bleu}

    return judge


def _report(translator, pairs, target_lang, log):
    sources, references = _sentences(pairs)
    hypotheses = translator(sources)
    log.say(format_scores(translation_scores(hypotheses, references, target_lang)))
    for row in range(0, len(sources), max(1, len(sources) // 4)):
        log.say(
            f"\n  source       {sources[row]}"
            f"\n  translation  {hypotheses[row]}"
            f"\n  reference    {references[row]}"
        )


def _sentences(pairs: SentencePairs, limit: int = -1) -> tuple[Sequence[str], Sequence[str]]:
    rows = list(pairs.dataset().take(limit).as_numpy_iterator())
    return tuple(
        [side.decode("utf-8", "replace") for side in column] for column in zip(*rows, strict=True)
    )
