"""Serves models over HTTP, with the interfaces of TensorFlow Serving and LibreTranslate.

  keras-transformer serve --model_dir=runs/en-de
  curl -d '{"instances": ["Two dogs."]}' http://localhost:8501/v1/models/en-de:predict

--model_dir names a trained model, several that form an ensemble, or a folder of SavedModels that
`export` wrote; the server loads new versions in that folder. Repeat --model=NAME=PATH[,PATH...] to
serve several models, each under its name. Clients of LibreTranslate use the models whose name is a
pair of languages, such as en-de, or that were trained with --source_lang and --target_lang. Of a
model for several languages, each request names target_lang, and for M2M100 and NLLB source_lang.
"""

import functools
import logging
import os
import time

from absl import flags

from keras_transformer import machine
from keras_transformer.cli import quiet
from keras_transformer.cli.command import Command
from keras_transformer.cli.flags import (
    FLAGS,
    define_list,
    define_record_flags,
    given_fields,
    group,
    present,
    refuse,
)
from keras_transformer.cli.process import finish_output
from keras_transformer.cli.translator_flags import (
    check_engine,
    check_spelling,
    define_engine_flag,
    define_glossary_flag,
    define_model_flags,
    define_search_flags,
    expect_only_flags,
    load_translator,
    read_glossary,
    share_cores_among_workers,
    uses_ctranslate2,
    why_tensorflow,
)
from keras_transformer.errors import UserError, not_installed
from keras_transformer.options import ServingOptions

_LOG = logging.getLogger("keras_transformer.serving")

# The flags of the model, its search and its speed that a SavedModel supports: its export fixed the
# others.
_SAVED_MODEL_FLAGS = ("model_dir", "tokens_per_batch", "workers")


def define_flags() -> None:
    define_model_flags(required=False)
    with group("Server"):
        flags.DEFINE_multi_string(
            "model", [], "NAME=PATH[,PATH...]: name and path of a model to serve; may be repeated"
        )
        flags.DEFINE_string(
            "host", "127.0.0.1", "address to listen on; :: for all, 0.0.0.0 for all of IPv4"
        )
        flags.DEFINE_integer(
            "port", 8501, "port to listen on; 0 for a free one", lower_bound=0, upper_bound=65535
        )
        flags.DEFINE_string(
            "api_key_file",
            None,
            "file of keys, one a line; every request must send one, as Authorization: Bearer KEY; "
            "clients of LibreTranslate, as api_key",
        )
        define_list(
            "cors_origin", [], "origins of web pages that may use the server, such as https://a.org"
        )
        define_list(
            "allowed_hosts",
            [],
            "names that requests may have in the header Host, besides those of this machine; * for "
            "any; default: none if --host is this machine alone, else any",
        )
        flags.DEFINE_bool("access_log", True, "log each request to stderr, as a line of JSON")
    with group("Limits"):
        define_record_flags(ServingOptions)
    define_search_flags()
    define_glossary_flag()
    define_engine_flag()


def main():
    check_engine()
    models = {}
    options = ServingOptions(**given_fields(ServingOptions))
    if FLAGS.sample:
        raise UserError(
            "--sample is not for a server, whose answers are repeatable; a SavedModel that was "
            "exported with --sample has a signature that samples by the seeds of a request"
        )
    try:
        from keras_transformer.serving import keys, logs, run
        from keras_transformer.serving import model_sources as sources
    except ModuleNotFoundError as error:
        raise not_installed("the server", "serve", error) from None
    share_cores_among_workers()
    quiet.find_devices()
    served = list(named_paths(sources))
    glossary = read_glossary()
    if glossary is not None and len(served) > 1:
        raise UserError(f"--glossary is for one model: serve {len(served)} models without it")
    if not any(sources.has_saved_models(path) for _, paths in served for path in paths):
        refuse(present(["poll_seconds"]), "without a SavedModel, since other models never change")
    for name, paths in served:
        if name in models:
            raise UserError(f"two models have the name {name}: give another in --model=NAME=PATH")
        models[name] = open_model(sources, name, paths, glossary)
    known = keys.read_keys(FLAGS.api_key_file) if FLAGS.api_key_file is not None else []
    logs.log_to_stderr(FLAGS.access_log)
    trained = [(name, paths) for name, paths in served if not sources.has_saved_models(paths[0])]
    for name, paths in trained:
        log_engine(name, paths)
    is_loading = run.serve(
        models.values(),
        options,
        run.Access(known, FLAGS.cors_origin, FLAGS.allowed_hosts),
        host=FLAGS.host,
        port=FLAGS.port,
        tokens_per_batch=FLAGS.tokens_per_batch,
        workers=FLAGS.workers or default_workers(trained),
    )
    if is_loading:
        finish_output()
        os._exit(0)


def log_engine(name, paths):
    """Logs which engine `--engine=auto` has chosen for a model, and why if it is TensorFlow."""
    if FLAGS.engine == "auto":
        reason = why_tensorflow(paths)
        about = {"model": name, "engine": "ctranslate2"}
        if reason is not None:
            about |= {"engine": "tensorflow", "reason": reason}
        _LOG.info("engine", extra={"fields": about})


def default_workers(trained):
    """The number of batches to compute at once: CTranslate2 computes one on each core."""
    has_ctranslate2 = any(uses_ctranslate2(paths) for _, paths in trained)
    return machine.number_of_cores() if has_ctranslate2 else 1


def named_paths(sources):
    """The name and the paths of each model that the flags name."""
    if FLAGS.model_dir is not None:
        yield sources.default_name(FLAGS.model_dir), FLAGS.model_dir
    elif not FLAGS.model:
        raise UserError("--model_dir or --model is required")
    yield from map(sources.parse_model_flag, FLAGS.model)


def open_model(sources, name, paths, glossary):
    """The model at these paths, to be loaded later."""
    if not any(sources.has_saved_models(path) for path in paths):
        load_tensorflow = None
        if FLAGS.engine == "auto" and uses_ctranslate2(paths):
            load_tensorflow = functools.partial(load_in_tensorflow, name, paths)

        def load(paths):
            # A parser has no glossary.
            translator = load_translator(None if glossary is None else "translation", paths, 1)
            if glossary is not None:
                check_spelling(glossary, translator)
            return translator

        return sources.trained_model(name, paths, load, load_tensorflow, glossary)
    if len(paths) > 1:
        raise UserError(f"model {name}: only model_dirs form an ensemble, not SavedModels")
    advice = "leave it out, or serve a model_dir"
    expect_only_flags(_SAVED_MODEL_FLAGS, f"the SavedModel in {paths[0]}", advice)
    return sources.saved_model(name, paths[0])


def load_in_tensorflow(name, paths):
    """Loads a model for a request that CTranslate2 cannot answer, and logs how long that took."""
    about = {"model": name, "engine": "tensorflow"}
    _LOG.info("loading", extra={"fields": about})
    began = time.monotonic()
    # Without --jit_compile, which CTranslate2 lacks, int8 has no use in TensorFlow.
    precision = "float32" if FLAGS.precision == "int8" else FLAGS.precision
    translator = load_translator(None, paths, 1, "tensorflow", precision=precision)
    seconds = round(time.monotonic() - began, 3)
    _LOG.info("loaded", extra={"fields": about | {"seconds": seconds}})
    return translator


COMMAND = Command(main, __doc__)
