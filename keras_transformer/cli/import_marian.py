r"""Converts a Marian model, such as OPUS-MT, from Hugging Face's format to a model_dir.

  git clone https://huggingface.co/Helsinki-NLP/opus-mt-en-de
  keras-transformer import-marian --source=opus-mt-en-de --model_dir=runs/opus-en-de \
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
            "folder of the model to import, with config.json, weights and vocabulary",
            required=True,
        )
        flags.DEFINE_string("model_dir", None, "folder to write, new or empty", required=True)
        flags.DEFINE_string(
            "source_lang",
            None,
            "two-letter code of the source language, by which `translate --split=sentences` splits "
            "text",
        )
        flags.DEFINE_string("target_lang", None, "two-letter code of the target language, for BLEU")


def main():
    from keras_transformer.importers.marian import import_marian

    quiet.find_devices()
    model_dir = training.ModelDir(FLAGS.model_dir)
    model_dir.check_new()
    model, tokenizer = import_marian(FLAGS.source)
    model_dir.create_trained(
        model, tokenizer, FLAGS.target_lang, shlex.join(sys.argv), FLAGS.source_lang
    )
    print(f"{model.count_params():,} parameters, {tokenizer.vocab_size:,} pieces: {model_dir.path}")


COMMAND = Command(main, __doc__)
