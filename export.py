"""Writes a trained model in the format of a server, from its model_dir alone.

python export.py --model_dir=runs/en-de --format=saved_model --output=export/en-de

saved_model: the next version in the folder `output`, for TensorFlow Serving (docs/serving.md).
"""

from absl import flags, logging

import quiet_tensorflow  # noqa: F401 (first: it silences what the others import)
from keras_transformer.command_line import define_record_flags, given_fields, run
from keras_transformer.decoding import SearchOptions
from keras_transformer.export import export_saved_model
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

flags.DEFINE_string("model_dir", None, "folder of the trained model", required=True)
flags.DEFINE_enum("format", None, ["saved_model"], "what to write", required=True)
flags.DEFINE_string("output", None, "folder to write to", required=True)
flags.DEFINE_integer("average", None, "last checkpoints to average; default: as trained")
define_record_flags(SearchOptions)
FLAGS = flags.FLAGS


def main():
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # at absl's own level, TensorFlow lists every tensor
    write = {"saved_model": saved_model}[FLAGS.format]
    print(write(ModelDir(FLAGS.model_dir)))


def saved_model(model_dir):
    model, tokenizer = model_dir.load_model(FLAGS.average), model_dir.load_tokenizer()
    translator = Translator(model, tokenizer, SearchOptions(**given_fields(SearchOptions)))
    return export_saved_model(translator, FLAGS.output)


if __name__ == "__main__":
    run(main)
