r"""Converts an M2M100 or NLLB model from Hugging Face's format to a model_dir.

  git clone https://huggingface.co/facebook/nllb-200-distilled-600M
  keras-transformer import-m2m100 --source=nllb-200-distilled-600M --model_dir=runs/nllb
  keras-transformer translate --model_dir=runs/nllb --source_lang=eng_Latn --target_lang=fra_Latn

Commands that translate take both languages, by the codes of the model.
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
            "folder of the model to import, with config.json, weights and sentencepiece.bpe.model",
            required=True,
        )
        flags.DEFINE_string("model_dir", None, "folder to write, new or empty", required=True)


def main():
    from keras_transformer.importers.m2m100 import import_m2m100

    quiet.find_devices()
    model_dir = training.ModelDir(FLAGS.model_dir)
    model_dir.check_new()
    model, tokenizer = import_m2m100(FLAGS.source)
    model_dir.create_trained(model, tokenizer, None, shlex.join(sys.argv))
    print(
        f"{model.count_params():,} parameters, {tokenizer.vocab_size:,} pieces, "
        f"{len(tokenizer.languages.symbols)} languages: {model_dir.path}"
    )


COMMAND = Command(main, __doc__)
