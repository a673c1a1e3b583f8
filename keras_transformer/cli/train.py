r"""Trains a Transformer on text files, a TFDS data set, the built-in corpus or treebank files.

  keras-transformer train
  keras-transformer train --train_source=train.en --train_target=train.de \
      --valid_source=valid.en --valid_target=valid.de --model_dir=runs/en-de
  keras-transformer train --train_source=real.en,synthetic.en \
      --train_target=real.de,synthetic.de --train_weights=3,1 --model_dir=runs/en-de
  keras-transformer train --train_source=a.en,b.en --train_target=a.de,b.fr \
      --target_langs=de,fr --model_dir=runs/en-many
  keras-transformer train --tfds=wmt14_translate/de-en --source_lang=en --target_lang=de \
      --download --preset=base --model_dir=runs/wmt14
  keras-transformer train --task=parsing --train_source=train.mrg --valid_source=dev.mrg \
      --preset=parsing-small --model_dir=runs/parser

Without --preset, the size of the corpus chooses one, which the first lines of the output name.

Run the same command again to resume from the last checkpoint. The options are those that the run
began with, except where flags change them.
"""

import math
import os
import re
import shlex
import sys

from absl import flags

from keras_transformer import data, evaluation, machine, parsing, report, text, training
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import (
    FLAGS,
    TASKS,
    define_list,
    define_record_flags,
    given_fields,
    group,
    present,
    refuse,
)
from keras_transformer.config import TransformerConfig
from keras_transformer.errors import UserError, expect_named
from keras_transformer.options import STRATEGIES, ParsingOptions, TrainingOptions
from keras_transformer.presets import PAIRS_BELOW, PRESETS, find_preset, vocab_size_for
from keras_transformer.text.normalization import NORMALIZATIONS
from keras_transformer.text.symbols import read_symbols
from keras_transformer.text.text_files import refuse_pipes
from keras_transformer.training import recipe
from keras_transformer.training.duration import spoken
from keras_transformer.training.preset_choice import LIGHT, choose_preset
from keras_transformer.training.resumption import check_start

NOT_EMPTY = (
    "train_source",
    "train_target",
    "train_weights",
    "target_langs",
    "valid_source",
    "valid_target",
    "extra_source",
    "tfds",
    "train_split",
    "source_lang",
    "target_lang",
    "data_cache",
    "symbols",
    "vocabulary",
    "model_dir",
    "preset",
    "start_from",
)
FILES = ("train_source", "train_target", "valid_source", "valid_target")
TRANSLATION_ONLY = (
    "train_target",
    "train_weights",
    "target_langs",
    "valid_target",
    "tfds",
    "train_split",
    "valid_split",
    "test_split",
    "download",
    "source_lang",
    "target_lang",
    "vocab_type",
    "normalization",
    "symbols",
    "vocabulary",
    "bpe_dropout",
)
# What recorded commands say of their data; without these, a run is on the built-in corpus.
OF_DATA = (
    "task=parsing",
    "train_source",
    "train_target",
    "train_weights",
    "target_langs",
    "tfds",
    "train_split",
)
TFDS_ONLY = ("download", "train_split", "valid_split", "test_split")
BUILTIN_PAIRS = 100_000
# The headings of `--help` for the fields of TrainingOptions; all others are under "Training".
DATA_FIELDS = ("max_length", "lowercase", "bpe_dropout")
CHECKPOINT_FIELDS = (
    "checkpoint_steps",
    "checkpoint_minutes",
    "keep_checkpoints",
    "average_checkpoints",
    "validation_steps",
    "best_by",
    "stop_patience",
    "report_steps",
)
DEVICE_FIELDS = (
    "dtype_policy",
    "jit_compile",
    "num_microbatches",
    "parallel_parts",
    "device_flops",
)
PARSER_FIELDS = ("word_dropout",)
PRESETS_CHOICE = ", or the preset's"


def define_flags() -> None:
    with group("Common"):
        flags.DEFINE_string(
            "model_dir",
            None,
            "folder of the model, its checkpoints and its logs; default: runs/PRESET",
        )
        flags.DEFINE_string(
            "preset",
            None,
            f"recipe, a model and its training options: {', '.join(PRESETS)}; default: the preset "
            "of the model_dir, else the model of --start_from, else demo for the built-in corpus, "
            "parsing for parsers, and by size for other corpora: "
            + ", ".join(
                f"{name} below {limit:,} pairs" if limit < math.inf else f"else {name}"
                for name, limit in PAIRS_BELOW.items()
            )
            + f"; {LIGHT} instead of a larger one that would take this machine over a day",
        )
        flags.DEFINE_enum(
            "task",
            "translation",
            TASKS,
            "task to learn: translation, from text files; or parsing, from treebank files",
        )
        define_list(
            "train_source",
            None,
            "text files to train on, one sentence a line, plain or .gz; treebank files for a "
            "parser; patterns such as 'wsj/0[2-9]/*.mrg' stand for their files, sorted by name; "
            "default: the built-in corpus",
        )
        define_list("train_target", None, "translations of --train_source, line by line")
        define_list(
            "train_weights",
            None,
            "a weight for each of the files or patterns in --train_source, which are then corpora "
            "of their own: 1,3 draws three times as many pairs from the second as from the first; "
            "default: all files are one corpus",
        )
        define_list(
            "target_langs",
            None,
            "a code for each of --train_target, such as de,fr, to train one model that translates "
            "into several languages; --valid_target then has a file for each code too, in the same "
            "order",
        )
        define_list("valid_source", None, "text or treebank files to validate on")
        define_list("valid_target", None, "translations of --valid_source, line by line")
        flags.DEFINE_string(
            "start_from",
            None,
            "folder of a trained model, whose configuration, vocabulary and weights a new one "
            "starts from",
        )
    with group("Data"):
        flags.DEFINE_string(
            "tfds",
            None,
            "data set of TensorFlow Datasets to train on, or a folder with en.train.txt, "
            "de.train.txt and so on",
        )
        flags.DEFINE_string(
            "source_lang",
            None,
            "two-letter code of the source language, by which `translate --split=sentences` splits "
            "text; with --tfds also the language to translate from",
        )
        flags.DEFINE_string(
            "target_lang",
            None,
            "two-letter code of the target language, by which BLEU splits text into tokens; with "
            "--tfds also the language to translate into",
        )
        flags.DEFINE_string("train_split", "train", "split of the TFDS data set to train on")
        flags.DEFINE_string(
            "valid_split", "validation", "split of the TFDS data set to validate on; empty for none"
        )
        flags.DEFINE_string(
            "test_split",
            "test",
            "split of the TFDS data set for the final evaluation; empty for none",
        )
        flags.DEFINE_bool("download", False, "let TFDS download the data set")
        flags.DEFINE_string(
            "data_cache", None, "folder where tokenised training data are kept for the next run"
        )
        flags.DEFINE_enum(
            "vocab_type",
            None,
            ["bpe", "unigram"],
            "kind of subwords to learn: bpe, byte-pair encoding; or unigram, SentencePiece's "
            "unigram model; default: bpe, or as the run to resume",
        )
        flags.DEFINE_enum(
            "normalization",
            None,
            NORMALIZATIONS,
            "sides whose text is normalised, by Unicode's NFKC (… to ..., ² to 2) and to plain "
            "spaces; default: source, or as the run to resume",
        )
        flags.DEFINE_string(
            "symbols",
            None,
            "file of symbols, one a line, that the vocabulary to learn never splits, such as %s "
            "(docs/markup.md)",
        )
        flags.DEFINE_string(
            "vocabulary", None, "file of an existing SentencePiece model; default: learn a new one"
        )
        define_record_flags(TrainingOptions, only=DATA_FIELDS, or_else=PRESETS_CHOICE)
    with group("Model"):
        define_record_flags(
            TransformerConfig, leave_out=("pad_id", "start_id", "end_id"), or_else=PRESETS_CHOICE
        )
    with group("Training"):
        grouped = {*DATA_FIELDS, *CHECKPOINT_FIELDS, *DEVICE_FIELDS, *PARSER_FIELDS}
        define_record_flags(TrainingOptions, leave_out=grouped, or_else=PRESETS_CHOICE)
    with group("Checkpoints and validation"):
        define_record_flags(TrainingOptions, only=CHECKPOINT_FIELDS, or_else=PRESETS_CHOICE)
        flags.DEFINE_bool("report", True, "write a page about the run, MODEL_DIR/report/index.html")
    with group("Devices"):
        flags.DEFINE_enum(
            "strategy",
            "auto",
            STRATEGIES,
            "devices to train on: auto, all visible devices; one_device; mirrored, all devices of "
            "this machine; multi_worker, the workers in TF_CONFIG",
        )
        define_record_flags(TrainingOptions, only=DEVICE_FIELDS, or_else=PRESETS_CHOICE)
    with group("Parsing"):
        define_list("extra_source", None, "additional treebank files, weighted by --extra_weight")
        define_record_flags(ParsingOptions, or_else=PRESETS_CHOICE)
        define_record_flags(TrainingOptions, only=PARSER_FIELDS, or_else=PRESETS_CHOICE)


def main():
    check_combinations()
    job = chosen_job()
    strategy = make_strategy(job)
    training.train(job, strategy)
    if FLAGS.report and training.is_chief(strategy):
        print(f"\nReport: {report.write_report([training.ModelDir(job.model_dir)])}")


def chosen_job():
    """The job that the flags, the run to resume and the size of the corpus choose."""
    is_parser = FLAGS.task == "parsing"
    for code in FLAGS.target_langs or [FLAGS.target_lang]:
        evaluation.check_language(code)  # now: pairs may take long to count
    recorded = recorded_in(training.ModelDir(FLAGS.model_dir)) if FLAGS.model_dir else {}
    preset = FLAGS.preset or recorded.get("preset") or ("parsing" if is_parser else None)
    pairs_of_task = treebank_pairs if is_parser else sentence_pairs
    train_pairs, valid_pairs, test_pairs = pairs_of_task(preset)
    is_builtin = isinstance(train_pairs, data.BuiltinPairs)
    vocab_size = None
    if FLAGS.start_from:
        preset = FLAGS.preset
    elif is_builtin:
        preset = preset or "demo"
    elif not (preset or recorded):
        preset, vocab_size = chosen_preset(train_pairs, FLAGS.model_dir)
    model_dir = training.ModelDir(FLAGS.model_dir or f"runs/{preset}")
    if vocab_size and not (FLAGS.vocabulary or FLAGS.vocab_size or model_dir.exists()):
        print(f"Vocabulary of at most {vocab_size:,}; choose another size with --vocab_size")
    config, options = chosen_recipe(model_dir, preset, vocab_size)
    return training.TrainingJob(
        model_dir=model_dir.path,
        train=train_pairs,
        valid=valid_pairs,
        test=test_pairs,
        config=config,
        options=options,
        preset=preset,
        vocabulary=FLAGS.vocabulary,
        vocab_type=FLAGS.vocab_type,
        normalization=FLAGS.normalization,
        symbols=read_symbols(FLAGS.symbols) if FLAGS.symbols else None,
        exact_vocab_size=bool(FLAGS.vocab_size or FLAGS.start_from or is_parser),
        start_from=FLAGS.start_from,
        target_lang="de" if is_builtin else FLAGS.target_lang,
        source_lang="en" if is_builtin else FLAGS.source_lang,
        data_cache=FLAGS.data_cache,
        command=shlex.join(sys.argv),
    )


def check_combinations():
    """Raises `UserError` for flags that are empty or exclude each other."""
    for name in NOT_EMPTY:
        if FLAGS[name].value is not None:
            expect_named(name, FLAGS[name].value)
    if FLAGS.task == "parsing":
        refuse(present(TRANSLATION_ONLY), "with --task=parsing")
    else:
        of_parsers = [*given_fields(ParsingOptions), *present(("extra_source", *PARSER_FIELDS))]
        refuse(of_parsers, "without --task=parsing")
    if FLAGS.start_from:
        refuse(
            present(["vocab_type", "normalization", "symbols", "vocabulary"]), "with --start_from"
        )
        if not FLAGS.model_dir:
            raise UserError("--start_from needs --model_dir, for the new model")
        check_start(training.ModelDir(FLAGS.model_dir), FLAGS.start_from)
    if FLAGS.vocabulary:
        refuse(present(["vocab_type", "normalization", "symbols"]), "with --vocabulary")
        refuse_pipes([FLAGS.vocabulary])
    if FLAGS.symbols:
        refuse_pipes([FLAGS.symbols])


def recorded_in(model_dir):
    """Returns the record of the run in a model_dir, or an empty one if there is no run."""
    return model_dir.load_training() if model_dir.exists() else {}


def chosen_preset(pairs, folder):
    """Chooses a preset and a vocabulary size by corpus and machine, and prints the preset.

    Args:
        pairs: the corpus.
        folder: the folder of the model; None for that of the preset. Then a run goes on that began
            with the other preset, on a machine of another speed.
    """
    most = int(max(limit for limit in PAIRS_BELOW.values() if limit < math.inf))
    count = pairs.count(at_most=most)  # reads no further than that
    preset, too_slow, seconds = choose_preset(count, machine_flops())
    other = too_slow or ("" if preset == "tiny" else LIGHT)
    limit = PAIRS_BELOW.get(preset, math.inf)
    found = f"{count:,} pairs" if count < most else f"At least {most:,} pairs"
    if other and not folder and not has_run(preset) and has_run(other):
        preset, why = other, f"whose run is in runs/{other}"
    elif too_slow:
        why = f"because {too_slow} would take this machine about {spoken(seconds)}"
    else:
        why = f"the recipe for {f'fewer than {limit:,}' if limit < math.inf else 'these and more'}"
    print(f"{found}: preset {preset}, {why}; choose another with --preset")
    size = min(TransformerConfig.from_preset(preset).vocab_size, vocab_size_for(count))
    return preset, size


def has_run(preset):
    """Whether the default folder of a preset holds a run."""
    return training.ModelDir(f"runs/{preset}").exists()


def machine_flops():
    """Operations per second; infinite, so that the corpus alone decides, with GPUs or workers.

    Workers must choose alike, and compute nothing before they have joined each other.
    """
    import tensorflow as tf

    if os.environ.get("TF_CONFIG") or tf.config.list_physical_devices("GPU"):
        return math.inf
    return machine.product_flops()


def make_strategy(job):
    """The strategy of --strategy, once this machine's devices are set up for the job."""
    tf_config = os.environ.get("TF_CONFIG")
    if not tf_config:  # a worker must not compute anything before it has joined the others
        if not job.options.jit_compile:
            machine.share_cores(training.parallel_parts(job.model_dir, job.config, job.options))
        quiet.find_devices()
    return training.make_strategy(FLAGS.strategy, tf_config)


def chosen_recipe(model_dir, preset, vocab_size):
    """The model's configuration and training options, from the model_dir or else the preset.

    Flags override both.

    Args:
        model_dir: the run's folder, new or not.
        preset: its name; None for the model of --start_from, or if the run here began without one.
        vocab_size: size of a new vocabulary; None for the preset's.
    """
    model, options = given_fields(TransformerConfig), given_fields(TrainingOptions)
    if FLAGS.target_langs is not None:  # presets train in both directions first
        options = {"bidirectional_steps": 0, **options}
    if model_dir.exists():
        if FLAGS.preset:
            recipe.expect_preset(model_dir, FLAGS.preset, model)
        return recipe.resumed(model_dir, model, options)
    if FLAGS.vocabulary:
        vocab_size = text.SubwordTokenizer.vocab_size_of(FLAGS.vocabulary)
    if vocab_size:
        model = {"vocab_size": vocab_size, **model}
    if not preset:
        return recipe.starting_from(FLAGS.start_from, model, options)
    return recipe.of_preset(preset, model, options)


def sentence_pairs(preset):
    """Pairs to train on, to validate on, and to test on (None: the validation set).

    Args:
        preset: its name, which is that of the default folder; None for the built-in corpus's.
    """
    files = [name for name in FILES if FLAGS[name].value is not None]
    if FLAGS.tfds:
        of_files = [*files, *present(["train_weights", "target_langs"])]
        refuse(of_files, "with --tfds, which takes the place of files")
        if not (FLAGS.source_lang and FLAGS.target_lang):
            raise UserError("--tfds needs --source_lang and --target_lang")
        return (
            data.TfdsPairs(FLAGS.tfds, split, FLAGS.source_lang, FLAGS.target_lang, FLAGS.download)
            if split
            else None
            for split in (FLAGS.train_split, FLAGS.valid_split, FLAGS.test_split)
        )
    refuse(present(TFDS_ONLY), "without --tfds")
    if not files:
        check_builtin(training.ModelDir(FLAGS.model_dir or f"runs/{preset or 'demo'}"))
        of_files = ["source_lang", "target_lang", "target_langs", "train_weights"]
        refuse(present(of_files), "with the built-in corpus")
        return (
            data.BuiltinPairs("train", BUILTIN_PAIRS),
            data.BuiltinPairs("validation", 500),
            data.BuiltinPairs("test", 1000),
        )
    for name, other in (FILES[:2], FILES[2:]):
        if (name in files) != (other in files):
            raise UserError(f"--{name} and --{other} go together: found only one of them")
    if "train_source" not in files:
        raise UserError("--train_source and --train_target are required with --valid_*")
    if "valid_source" not in files:
        print(
            "No --valid_source and --valid_target: nothing is validated. To see BLEU, give some "
            "hundred pairs that are not in the training files"
        )
    if FLAGS.target_langs is not None:
        refuse(present(["target_lang"]), "with --target_langs")
    train = training_files()
    valid = text_pairs("valid", FLAGS.target_langs) if FLAGS.valid_source else None
    return train, valid, None


def check_builtin(model_dir):
    """Refuses the built-in corpus for a run, or a model to start from, of other pairs."""
    if model_dir.exists():
        if names := data_flags(model_dir.load_training()["commands"]):
            raise UserError(
                f"model_dir {model_dir.path} holds a run that began with {', '.join(names)}: give "
                "the same again to resume it"
            )
    elif FLAGS.start_from and (start := training.ModelDir(FLAGS.start_from)).exists():
        record = start.load_training()
        is_builtin = record["data"] and all(record["commands"])  # else imported, or made in Python
        if not is_builtin or data_flags(record["commands"]):
            raise UserError(
                f"--start_from={FLAGS.start_from} needs --train_source and --train_target, or "
                "--tfds: that model was not trained on the built-in corpus"
            )


def data_flags(commands):
    """The flags of `OF_DATA` in recorded commands; those in a --flagfile are unknown."""
    given = set(re.findall(r"(?:^|\s)'?--?(task=parsing|\w+)", " ".join(commands)))
    return [f"--{name}" for name in OF_DATA if name in given]


def text_pairs(split, target_langs):
    """The pairs in the files of a split, with a language for each file of the target side."""
    source, target = (FLAGS[f"{split}_{side}"].value for side in ("source", "target"))
    if target_langs is not None and not len(target_langs) == len(source) == len(target):
        raise UserError(
            f"--target_langs needs one of --{split}_source and of --{split}_target for each of its "
            f"{len(target_langs)} languages: found {len(source)} and {len(target)}"
        )
    return data.TextPairs(source, target, target_langs or ())


def training_files():
    """The pairs in the training files: one corpus, or one for each weight of --train_weights."""
    files = text_pairs("train", FLAGS.target_langs)
    if FLAGS.train_weights is None:
        return files
    if len(FLAGS.train_source) != len(FLAGS.train_target):
        raise UserError(
            "--train_weights needs one of --train_target for each of --train_source: found "
            f"{len(FLAGS.train_target)} for {len(FLAGS.train_source)}"
        )
    sides = [FLAGS.train_source, FLAGS.train_target]
    if FLAGS.target_langs is not None:
        sides.append([[code] for code in FLAGS.target_langs])
    corpora = [data.TextPairs(*side) for side in zip(*sides, strict=True)]
    try:
        weights = list(map(float, FLAGS.train_weights))
    except ValueError:
        found = ",".join(FLAGS.train_weights)
        raise UserError(f"--train_weights must be numbers: found {found}") from None
    try:
        return data.WeightedPairs(corpora, weights)
    except UserError as error:  # "weights must be ..."
        raise UserError(f"--train_{error}") from None


def treebank_pairs(preset):
    """Treebanks to train, validate and test a parser on; the last is None: the validation set."""
    if not FLAGS.train_source:
        raise UserError("--task=parsing needs --train_source, files of trees")
    given = given_fields(ParsingOptions)
    if "extra_weight" in given and not FLAGS.extra_source:
        refuse(["extra_weight"], "without --extra_source")
    options = ParsingOptions(**{**(find_preset(preset).parsing or {}), **given})
    if "substituted_share" in given and not options.substituted:
        refuse(["substituted_share"], "without --substituted")
    valid_options = ParsingOptions(linearization=options.linearization)
    valid = parsing.TreebankPairs(FLAGS.valid_source, valid_options) if FLAGS.valid_source else None
    return (
        parsing.TreebankPairs(FLAGS.train_source, options, FLAGS.extra_source or ()),
        valid,
        None,
    )


COMMAND = Command(main, __doc__, before_tensorflow=machine.keep_freed_memory)
