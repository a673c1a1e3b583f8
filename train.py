"""Trains a Transformer: on your text files, on a TFDS data set, or on the built-in corpus; or a
parser on treebank files.

  python train.py
  python train.py --train_source=train.en --train_target=train.de \
      --valid_source=valid.en --valid_target=valid.de --preset=tiny --model_dir=runs/en-de
  python train.py --tfds=wmt14_translate/de-en --source_lang=en --target_lang=de \
      --preset=base --model_dir=runs/wmt14
  python train.py --task=parsing --train_source=train.mrg --valid_source=dev.mrg \
      --preset=parsing-small --model_dir=runs/parser

Started again with the same flags, it goes on from the last checkpoint.
"""

import dataclasses
import os
import shlex
import sys

from absl import flags

import quiet_tensorflow  # first: it silences what the others import
from keras_transformer.command_line import define_record_flags, given_fields, run
from keras_transformer.config import TransformerConfig
from keras_transformer.cores import share_cores
from keras_transformer.data import BuiltinPairs, TextPairs, TfdsPairs
from keras_transformer.errors import UserError
from keras_transformer.memory import keep_freed_memory
from keras_transformer.parsing import ParsingOptions, TreebankPairs
from keras_transformer.presets import PRESETS
from keras_transformer.training import (
    STRATEGIES,
    ModelDir,
    TrainingOptions,
    make_strategy,
    parallel_parts,
    train,
)

FILES = ("train_source", "train_target", "valid_source", "valid_target")
TRANSLATION_ONLY = (
    *("train_target", "valid_target", "tfds", "train_split", "valid_split", "test_split"),
    *("download", "source_lang", "target_lang", "vocab_type"),
)
TFDS_ONLY = ("source_lang", "download", "train_split", "valid_split", "test_split")
BUILTIN_PAIRS = 100_000

flags.DEFINE_string("model_dir", None, "folder of the model; default: runs/ and the preset's name")
flags.DEFINE_string(
    "preset",
    None,
    f"one of {', '.join(PRESETS)}; default: the model of --start_from, else demo on the built-in "
    "corpus, else base, or parsing",
)
flags.DEFINE_enum(
    "task", "translation", ["translation", "parsing"], "what to learn; parsing of treebank files"
)
flags.DEFINE_list("train_source", None, "text files to learn from, a sentence a line; .gz too")
flags.DEFINE_list("extra_source", None, "of parsing: more treebank files, of another weight")
flags.DEFINE_list("train_target", None, "their translations, line by line")
flags.DEFINE_list("valid_source", None, "text files to judge the model by as it learns")
flags.DEFINE_list("valid_target", None, "their translations, line by line")
flags.DEFINE_string(
    "tfds", None, "TFDS data set, or a folder with en.train.txt, de.train.txt and so on"
)
flags.DEFINE_string("train_split", "train", "part of the TFDS data set to learn from")
flags.DEFINE_string("valid_split", "validation", "part to judge by meanwhile; empty for none")
flags.DEFINE_string("test_split", "test", "part to judge by at the end; empty for none")
flags.DEFINE_bool("download", False, "let TFDS download the data set")
flags.DEFINE_string("source_lang", None, "language of a TFDS data set to translate from")
flags.DEFINE_string(
    "target_lang", None, "two-letter code of the target language, for BLEU on tokens"
)
flags.DEFINE_string(
    "data_cache", None, "folder to keep the tokenised training data in, for the next run"
)
flags.DEFINE_string(
    "start_from",
    None,
    "folder of a trained model whose configuration, vocabulary and weights a new one begins with",
)
flags.DEFINE_enum(
    "vocab_type", "bpe", ["bpe", "unigram"], "byte-pair encoding, or unigram word pieces"
)
flags.DEFINE_enum(
    "strategy",
    "auto",
    STRATEGIES,
    "one_device, mirrored for all of this machine, or multi_worker for those of TF_CONFIG",
)
PRESETS_CHOICE = ", or the preset's"
define_record_flags(
    TransformerConfig, leave_out=("pad_id", "start_id", "end_id"), or_else=PRESETS_CHOICE
)
define_record_flags(TrainingOptions, or_else=PRESETS_CHOICE)
define_record_flags(ParsingOptions, or_else=PRESETS_CHOICE)
FLAGS = flags.FLAGS


def main():
    keep_freed_memory()
    if FLAGS.task == "parsing":
        preset = FLAGS.preset or "parsing"
        train_pairs, valid_pairs, test_pairs = treebank_pairs(preset)
        vocab_type, is_builtin = train_pairs.options.linearization, False
    else:
        refuse([*given_fields(ParsingOptions)], "found without --task=parsing")
        refuse(["extra_source"] if FLAGS.extra_source else [], "found without --task=parsing")
        train_pairs, valid_pairs, test_pairs = sentence_pairs()
        vocab_type, is_builtin = FLAGS.vocab_type, isinstance(train_pairs, BuiltinPairs)
        preset = FLAGS.preset or ("demo" if is_builtin else "base")
    if FLAGS.start_from:
        refuse(["vocab_type"] if FLAGS["vocab_type"].present else [], "found with --start_from")
        if not FLAGS.model_dir:
            raise UserError("--start_from needs --model_dir, for the new model")
    given = given_fields(TransformerConfig)
    if FLAGS.start_from and not FLAGS.preset:
        config = dataclasses.replace(ModelDir(FLAGS.start_from).load_config(), **given)
        training = {}
    else:
        config = TransformerConfig.from_preset(preset, **given)
        training = PRESETS[preset].training
    options = TrainingOptions(**{**training, **given_fields(TrainingOptions)})
    model_dir = FLAGS.model_dir or f"runs/{preset}"
    tf_config = os.environ.get("TF_CONFIG")
    if not tf_config:  # one of several workers must compute nothing before it joins
        if not options.jit_compile:
            share_cores(parallel_parts(model_dir, config, options))
        quiet_tensorflow.find_devices()
    train(
        model_dir,
        config,
        options,
        train_pairs,
        valid_pairs,
        test_pairs,
        vocab_type=vocab_type,
        target_lang="de" if is_builtin else FLAGS.target_lang,
        command=shlex.join(sys.argv),
        strategy=make_strategy(FLAGS.strategy, tf_config),
        data_cache=FLAGS.data_cache,
        start_from=FLAGS.start_from,
    )


def sentence_pairs():
    """What to learn from, what to judge by meanwhile, and what at the end (None: the same)."""
    files = [name for name in FILES if FLAGS[name].value is not None]
    for name in (*files, "tfds", "train_split", "model_dir", "data_cache"):
        if FLAGS[name].value is not None and not FLAGS[name].value:
            raise UserError(f"expected --{name} to name something, found nothing")
    if FLAGS.tfds:
        refuse(files, "found with --tfds, which takes the place of files")
        if not (FLAGS.source_lang and FLAGS.target_lang):
            raise UserError("--tfds needs --source_lang and --target_lang")
        return (
            TfdsPairs(FLAGS.tfds, split, FLAGS.source_lang, FLAGS.target_lang, FLAGS.download)
            if split
            else None
            for split in (FLAGS.train_split, FLAGS.valid_split, FLAGS.test_split)
        )
    refuse([name for name in TFDS_ONLY if FLAGS[name].present], "found without --tfds")
    if not files:
        refuse(["target_lang"] if FLAGS.target_lang else [], "found with the built-in corpus")
        return (
            BuiltinPairs("train", BUILTIN_PAIRS),
            BuiltinPairs("validation", 500),
            BuiltinPairs("test", 1000),
        )
    for name, other in (FILES[:2], FILES[2:]):
        if (name in files) != (other in files):
            raise UserError(f"--{name} and --{other} go together: found only one of them")
    if "train_source" not in files:
        raise UserError("expected --train_source and --train_target, found only --valid_*")
    valid = TextPairs(FLAGS.valid_source, FLAGS.valid_target) if FLAGS.valid_source else None
    return TextPairs(FLAGS.train_source, FLAGS.train_target), valid, None


def treebank_pairs(preset):
    """What a parser is to learn from, and what to judge it by."""
    refuse([name for name in TRANSLATION_ONLY if FLAGS[name].present], "found with --task=parsing")
    if not FLAGS.train_source:
        raise UserError("--task=parsing needs --train_source, files of trees")
    given = given_fields(ParsingOptions)
    if "extra_weight" in given and not FLAGS.extra_source:
        raise UserError("expected no --extra_weight, found without --extra_source")
    options = ParsingOptions(**{**(PRESETS[preset].parsing or {}), **given})
    if "substituted_share" in given and not options.substituted:
        raise UserError("expected no --substituted_share, found without --substituted")
    valid_options = ParsingOptions(linearization=options.linearization)
    valid = TreebankPairs(FLAGS.valid_source, valid_options) if FLAGS.valid_source else None
    return TreebankPairs(FLAGS.train_source, options, FLAGS.extra_source or ()), valid, None


def refuse(names, why):
    """Refuses flags that would be ignored."""
    if names:
        raise UserError(f"expected no --{names[0]}, {why}")


if __name__ == "__main__":
    run(main)
