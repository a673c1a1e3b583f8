"""Makes a model_dir of a Marian model, such as OPUS-MT's, that Hugging Face's Transformers saved.

  git clone https://huggingface.co/Helsinki-NLP/opus-mt-en-de
  python import_marian.py --source=opus-mt-en-de --model_dir=runs/opus-en-de --target_lang=de

translate.py and evaluate.py work from it as from one that train.py made.
"""

import shlex
import sys

from absl import flags

import quiet_tensorflow  # first: it silences what the others import
from keras_transformer.command_line import run
from keras_transformer.marian import import_marian
from keras_transformer.training import ModelDir

flags.DEFINE_string("source", None, "folder of the model to import", required=True)
flags.DEFINE_string("model_dir", None, "folder to make, new or empty", required=True)
flags.DEFINE_string("target_lang", None, "two-letter code of the target language, for BLEU")
FLAGS = flags.FLAGS


def main():
    quiet_tensorflow.find_devices()
    model_dir = ModelDir(FLAGS.model_dir)
    model_dir.check_new()
    model, tokenizer = import_marian(FLAGS.source)
    model_dir.create_trained(model, tokenizer, FLAGS.target_lang, shlex.join(sys.argv))
    print(f"{model.count_params():,} parameters, {tokenizer.vocab_size:,} pieces: {model_dir.path}")


if __name__ == "__main__":
    run(main)
