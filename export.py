"""Writes a trained model in the format of another program, from its model_dir alone.

python export.py --model_dir=runs/en-de --format=ctranslate2 --output=export/en-de
"""

from absl import flags

import quiet_tensorflow  # noqa: F401 (first: it silences what the others import)
from keras_transformer import export
from keras_transformer.command_line import run
from keras_transformer.training import ModelDir

flags.DEFINE_string("model_dir", None, "folder of the trained model", required=True)
flags.DEFINE_enum("format", None, ["ctranslate2"], "what is written", required=True)
flags.DEFINE_string("output", None, "folder to make", required=True)
flags.DEFINE_integer("average", None, "last checkpoints to average; default: as trained")
flags.DEFINE_string("quantization", None, "of CTranslate2, such as int8; default: none")
FLAGS = flags.FLAGS


def main():
    model_dir = ModelDir(FLAGS.model_dir)
    model, tokenizer = model_dir.load_model(FLAGS.average), model_dir.load_tokenizer()
    {"ctranslate2": to_ctranslate2}[FLAGS.format](model, tokenizer)


def to_ctranslate2(model, tokenizer):
    export.export_ctranslate2(model, tokenizer, FLAGS.output, FLAGS.quantization)


if __name__ == "__main__":
    run(main)
