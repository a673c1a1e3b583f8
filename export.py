"""Writes a trained model for the programs that serve it, from its model_dir alone.

python export.py --model_dir=runs/en-de --format=saved_model --output=export/en-de

saved_model: the next version in the folder `output`, for TensorFlow Serving (docs/serving.md).
ctranslate2: the folder `output`, for the C++ engine CTranslate2.
"""

from absl import flags, logging

import quiet_tensorflow  # first: it silences what the others import
from keras_transformer import export
from keras_transformer.command_line import (
    define_record_flags,
    define_weights_flags,
    given_fields,
    run,
)
from keras_transformer.decoding import SearchOptions
from keras_transformer.errors import UserError
from keras_transformer.parsing import ParsingTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

flags.DEFINE_string("model_dir", None, "folder of the trained model", required=True)
flags.DEFINE_enum("format", None, ["saved_model", "ctranslate2"], "what to write", required=True)
flags.DEFINE_string("output", None, "folder to write to", required=True)
define_weights_flags()
flags.DEFINE_string("quantization", None, "of ctranslate2, such as int8; default: none")
define_record_flags(SearchOptions)
FLAGS = flags.FLAGS


def main():
    quiet_tensorflow.find_devices()
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # at absl's own level, TensorFlow lists every tensor
    write = {"saved_model": saved_model, "ctranslate2": ctranslate2}[FLAGS.format]
    print(write(ModelDir(FLAGS.model_dir), given_fields(SearchOptions)))


def saved_model(model_dir, search_options):
    if FLAGS.quantization is not None:
        raise UserError("--quantization is an option of --format=ctranslate2, not of saved_model")
    model, tokenizer = load(model_dir)
    translator = Translator(model, tokenizer, SearchOptions(**search_options))
    return export.export_saved_model(translator, FLAGS.output)


def ctranslate2(model_dir, search_options):
    if search_options:
        raise UserError(
            f"--{next(iter(search_options))} is an option of --format=saved_model: CTranslate2 is "
            "told when it translates"
        )
    model, tokenizer = load(model_dir)
    export.export_ctranslate2(model, tokenizer, FLAGS.output, FLAGS.quantization)
    return FLAGS.output


def load(model_dir):
    tokenizer = model_dir.load_tokenizer()
    if isinstance(tokenizer, ParsingTokenizer):
        raise UserError(f"{model_dir.path}: expected a model that translates text, found a parser")
    return model_dir.load_model(FLAGS.average, FLAGS.weights), tokenizer


if __name__ == "__main__":
    run(main)
