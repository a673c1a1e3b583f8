"""Translates standard input to standard output, line for line.

python translate.py --model_dir=runs/en-de < test.en > test.de
"""

import itertools
import sys

from absl import flags

import quiet_tensorflow  # noqa: F401 (first: it silences what the others import)
from keras_transformer.command_line import run
from keras_transformer.text_files import without_end
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

flags.DEFINE_string("model_dir", None, "folder of the trained model", required=True)
flags.DEFINE_integer("average", None, "last checkpoints to average; default: as trained")
flags.DEFINE_integer("beam_size", 4, "live beams of a sentence; 1 is greedy decoding")
flags.DEFINE_float("alpha", 0.6, "exponent of the length penalty")
flags.DEFINE_integer("lines_at_once", 1024, "lines translated together", lower_bound=1)
FLAGS = flags.FLAGS


def main():
    model_dir = ModelDir(FLAGS.model_dir)
    translator = Translator(
        model_dir.load_model(FLAGS.average),
        model_dir.load_tokenizer(),
        beam_size=FLAGS.beam_size,
        alpha=FLAGS.alpha,
    )
    while lines := list(itertools.islice(sys.stdin.buffer, FLAGS.lines_at_once)):
        translations = translator([without_end(line) for line in lines])
        sys.stdout.buffer.write("".join(f"{text}\n" for text in translations).encode())
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    run(main)
