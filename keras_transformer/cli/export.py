"""Exports a trained model for programs that serve it.

  keras-transformer export --model_dir=runs/en-de --format=saved_model --output=export/en-de

--format=saved_model writes a new version into the folder --output, for TensorFlow Serving
(docs/saved_model.md). --format=ctranslate2 writes the folder --output for the C++ engine
CTranslate2.
"""

from absl import flags, logging

from keras_transformer import ctranslate2, export, training
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import (
    FLAGS,
    define_record_flags,
    given_fields,
    group,
    present,
    refuse,
)
from keras_transformer.cli.translator_flags import define_weights_flags, expect_task
from keras_transformer.errors import UserError, expect_named
from keras_transformer.options import SearchOptions


def define_flags() -> None:
    with group("Export"):
        flags.DEFINE_string("model_dir", None, "folder of a trained model", required=True)
        flags.DEFINE_enum(
            "format", None, ["saved_model", "ctranslate2"], "format to write", required=True
        )
        flags.DEFINE_string("output", None, "folder to write to", required=True)
        define_weights_flags()
        flags.DEFINE_string(
            "source_lang",
            None,
            "code of the language that a SavedModel of M2M100 or NLLB translates from",
        )
        flags.DEFINE_string(
            "target_lang",
            None,
            "code of the language that a SavedModel translates into, for a model of several",
        )
        flags.DEFINE_string(
            "quantization",
            None,
            "type of the weights for CTranslate2, such as int8; default: no quantization",
        )
    with group("Search of a SavedModel"):
        define_record_flags(SearchOptions)


def main():
    quiet.find_devices()
    if not FLAGS["verbosity"].present:
        logging.set_verbosity(logging.WARNING)  # at absl's own level, TensorFlow lists every tensor
    expect_named("output", FLAGS.output)
    write = {"saved_model": write_saved_model, "ctranslate2": write_ctranslate2}[FLAGS.format]
    print(write(training.ModelDir(FLAGS.model_dir), given_fields(SearchOptions)))


def write_saved_model(model_dir, search_options):
    if FLAGS.quantization is not None:
        raise UserError("--quantization is an option of --format=ctranslate2, not of saved_model")
    from keras_transformer.translator import Translator

    options = SearchOptions(**search_options)
    translator = Translator(*load(model_dir), options)
    if FLAGS.source_lang is not None or FLAGS.target_lang is not None:
        translator = translator.with_languages(FLAGS.target_lang, FLAGS.source_lang)
    return export.export_saved_model(translator, FLAGS.output)


def write_ctranslate2(model_dir, search_options):
    if search_options:
        raise UserError(
            f"--{next(iter(search_options))} is an option of --format=saved_model: CTranslate2 is "
            "given search options when it translates"
        )
    refuse(
        present(["source_lang", "target_lang"]),
        "with --format=ctranslate2, which translates between all languages of the model",
    )
    model, tokenizer = load(model_dir)
    ctranslate2.export_ctranslate2(model, tokenizer, FLAGS.output, FLAGS.quantization)
    return FLAGS.output


def load(model_dir):
    tokenizer = model_dir.load_tokenizer()
    expect_task(tokenizer, "translation", model_dir.path)
    return model_dir.load_model(FLAGS.average, FLAGS.weights), tokenizer


COMMAND = Command(main, __doc__)
