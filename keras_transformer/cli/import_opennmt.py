r"""Converts a Transformer that OpenNMT-tf trained to a model_dir.

  keras-transformer import-opennmt --source=run/avg --config=data.yml --model_dir=runs/en-de \
      --source_lang=en --target_lang=de

All other commands use it like a model_dir from `keras-transformer train`.
"""

import shlex
import sys

from absl import flags

from keras_transformer import training
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import FLAGS, group


def define_flags() -> None:
    with group("Import"):
        flags.DEFINE_string(
            "source",
            None,
            "model_dir of OpenNMT-tf, of which the last checkpoint is read; its folder avg; or one "
            "checkpoint, such as run/ckpt-5000",
            required=True,
        )
        flags.DEFINE_string(
            "config",
            None,
            "YAML configuration of the run, with the vocabularies and the tokenization in its data",
            required=True,
        )
        flags.DEFINE_string("model_dir", None, "folder to write, new or empty", required=True)
        flags.DEFINE_integer(
            "num_heads",
            None,
            "number of attention heads; default: as in model_description.py of the run",
            lower_bound=1,
        )
        flags.DEFINE_enum(
            "activation",
            None,
            ["relu", "gelu", "swish"],
            "activation function of feed-forward networks; default: as for --num_heads, or relu",
        )
        flags.DEFINE_string(
            "source_lang",
            None,
            "two-letter code of the source language, by which `translate --split=sentences` splits "
            "text",
        )
        flags.DEFINE_string("target_lang", None, "two-letter code of the target language, for BLEU")


def main():
    from keras_transformer.importers.opennmt import import_opennmt

    quiet.find_devices()
    model_dir = training.ModelDir(FLAGS.model_dir)
    model_dir.check_new()
    model, tokenizer = import_opennmt(FLAGS.source, FLAGS.config, FLAGS.num_heads, FLAGS.activation)
    model_dir.create_trained(
        model, tokenizer, FLAGS.target_lang, shlex.join(sys.argv), FLAGS.source_lang
    )
    config = model.config
    print(
        f"{model.count_params():,} parameters, {config.num_heads} attention heads, "
        f"{config.activation}, {tokenizer.vocab_size:,} pieces: {model_dir.path}"
    )


COMMAND = Command(main, __doc__)
