"""Trains a model in a model_dir with `model.fit`, or goes on where that stopped."""

import dataclasses
import hashlib
import os
from collections.abc import Sequence

import keras

from keras_transformer.config import TransformerConfig
from keras_transformer.data import SentencePairs, count_pairs, pair_batches
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss, format_scores, translation_scores
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.metrics import Perplexity
from keras_transformer.model import Transformer
from keras_transformer.schedules import InverseSquareRootSchedule
from keras_transformer.tokenizers import SubwordTokenizer
from keras_transformer.training.batch_counts import BatchCounts
from keras_transformer.training.callbacks import (
    CallbackList,
    Progress,
    SaveCheckpoints,
    SkippedUpdates,
    StopOnSignal,
    Validation,
)
from keras_transformer.training.corpus_checksum import corpus_checksum
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.model_dir import ModelDir
from keras_transformer.training.options import TrainingOptions
from keras_transformer.training.run_state import RunState
from keras_transformer.training.stopping import StopSignals
from keras_transformer.training.strategies import default_strategy
from keras_transformer.training.summary import report_summary
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
    for pairs in filter(None, (train_pairs, valid_pairs, test_pairs)):
        if not pairs.check():
            raise UserError(f"{pairs.description}: expected pairs of sentences, found none")
    model_dir = ModelDir(path)
    model_dir.exists()  # refuses a folder of something else
    with model_dir.locked():
        strategy = default_strategy()
        devices = strategy.num_replicas_in_sync
        tokenizer, record = _checked(
            model_dir, config, options, train_pairs, valid_pairs, vocab_type, devices
        )
        with strategy.scope():
            model = _compiled_model(config, options, options.jit_compile and devices == 1)
            problems = model_dir.recover()
            state = _restored_state(model, model_dir.checkpoints)

        def batches_from(step):
            return pair_batches(
                train_pairs,
                tokenizer,
                tokens_per_batch=options.tokens_per_batch,
                max_length=options.max_length,
                seed=options.seed,
                repeat=True,
                batch_multiple=devices,
                bpe_dropout=options.bpe_dropout,
            ).skip(step)

        batches_from(state.step)  # refuses options that do not fit the vocabulary

        # From here on all is known to be well, and the model_dir may be written to.
        record["target_lang"] = target_lang = target_lang or record["target_lang"]
        record["commands"].append(command)
        if model_dir.exists():
            model_dir.save_training(record)
        else:
            model_dir.create(config, tokenizer, record)
        log = TrainingLog(model_dir.logs, {"train": state.step, "validation": state.validated})
        for problem in problems:
            log.say(f"{problem}; going back to the one before")
        data = record["data"]
        log.say(
            f"{model.count_params():,} parameters, {data['kept']:,} pairs, "
            f"{data['source_tokens']:,} source and {data['target_tokens']:,} target tokens, "
            f"{devices} device{'s' if devices > 1 else ''}"
        )
        _fit(model, tokenizer, options, batches_from, valid_pairs, model_dir, state, log)
        report_summary(state, options, devices, log)

        model = model_dir.load_model()
        judged = test_pairs or valid_pairs
        if judged is not None:
            averaged = min(options.average_checkpoints, len(model_dir.checkpoints.steps()))
            log.say(f"\nMean of the last {averaged} checkpoints on {judged.description}:")
            _report(Translator(model, tokenizer), judged, target_lang, log)
        return model


def _checked(model_dir, config, options, train_pairs, valid_pairs, vocab_type, devices):
    """The vocabulary, learnt or loaded, and the record of a run that this one may go on with."""
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
    data = {
        **dataclasses.asdict(counts),
        "corpus": corpus_checksum(train_pairs),
        "vocabulary": hashlib.sha256(tokenizer.to_bytes()).hexdigest()[:16],
        "devices": devices,  # a batch holds a multiple of them
    }
    before = {"target_lang": None, "commands": []}
    if not is_new:
        model_dir.check_same_run(dataclasses.asdict(options), data, vocab_type)
        before = model_dir.load_training()
    return tokenizer, {
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


def _fit(model, tokenizer, options, batches_from, valid_pairs, model_dir, state, log):
    """Trains from the state on, to the last step or until it is stopped."""
    counts = BatchCounts(tokenizer.pad_id)
    save = SaveCheckpoints(state, options, model_dir.checkpoints)
    with StopSignals() as signals:
        callbacks = [
            Progress(state, log, options, counts),
            SkippedUpdates(state, log, options, batches_from, model_dir.path),
            StopOnSignal(signals),
            save,
        ]
        if valid_pairs is not None:
            judge = _judge(model, tokenizer, options, valid_pairs)
            validation = Validation(state, log, options, judge, model_dir.best, signals)
            callbacks.insert(-1, validation)
        callbacks = CallbackList(callbacks, add_history=True, model=model)
        if valid_pairs is not None and validation.catch_up():
            save.save()
        if state.step >= options.steps or state.has_lost_patience(options.stop_patience):
            log.say(f"It is trained already, up to step {state.step:,}")
        else:
            if state.step:
                log.say(f"Going on from step {state.step:,}")
            model.fit(
                counts.watch(batches_from(state.step), state.step),
                steps_per_epoch=options.steps - state.step,
                callbacks=callbacks,
                shuffle=False,
                verbose=0,
            )
        if signals.received:
            log.say(f"Saved step {state.step:,}; the same command goes on from there")
            signals.leave()


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
    if options.learning_rate is None:
        schedule = InverseSquareRootSchedule(config.d_model, options.warmup_steps)
    else:
        schedule = InverseSquareRootSchedule.with_peak(
            options.learning_rate, config.d_model, options.warmup_steps
        )
    model.compile(
        optimizer=keras.optimizers.Adam(
            schedule,
            beta_1=options.beta_1,
            beta_2=options.beta_2,
            epsilon=options.adam_epsilon,
        ),
        loss=LabelSmoothedCrossEntropy(config.label_smoothing, config.pad_id),
        metrics=[Perplexity(pad_id=config.pad_id)],
        jit_compile=jit_compile,
    )
    return model


def _judge(model, tokenizer, options, pairs):
    """What judges the model by these pairs: loss and perplexity, and BLEU of greedy search."""
    batches = pair_batches(
        pairs, tokenizer, options.tokens_per_batch, options.max_length, shuffle_buffer=0
    ).cache()
    reference_loss = ReferenceLoss(model, batches)
    translator = Translator(model, tokenizer, beam_size=1)
    sources, references = _sentences(pairs, _VALIDATION_SENTENCES)

    def judge():
        hypotheses = translator(sources)
        bleu = translation_scores(hypotheses, references)["bleu"].value
        samples = [
            {"source": sources[row], "translation": hypotheses[row], "reference": references[row]}
            for row in _sample_rows(sources)
        ]
        return {**reference_loss(), "BLEU": bleu}, samples

    return judge


def _sample_rows(sentences):
    """Which of them are shown: four or five, evenly spread."""
    return range(0, len(sentences), max(1, len(sentences) // 4))


def _report(translator, pairs, target_lang, log):
    sources, references = _sentences(pairs)
    hypotheses = translator(sources)
    log.say(format_scores(translation_scores(hypotheses, references, target_lang)))
    for row in _sample_rows(sources):
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
