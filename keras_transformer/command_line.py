"""What the command lines share: flags from records, and errors that a person can read."""

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from absl import app, flags

from keras_transformer.cores import share_cores
from keras_transformer.decoding import SearchOptions
from keras_transformer.errors import UserError
from keras_transformer.parsing import search_defaults
from keras_transformer.precision import PRECISIONS, in_precision
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator


def define_record_flags(record: type, leave_out: tuple[str, ...] = (), or_else: str = "") -> None:
    """Defines a flag for each other field of a dataclass, with the `help` of its metadata.

    A flag that is not given is None, so that presets and defaults can be told from choices.
    """
    kinds = get_type_hints(record)
    for field in dataclasses.fields(record):
        if field.name in leave_out:
            continue
        kind = (get_args(kinds[field.name]) or (kinds[field.name],))[0]  # int of int | None
        default = "" if field.default is None else f" (default: {field.default}{or_else})"
        options = {"help": field.metadata["help"] + default, "module_name": sys.argv[0]}
        if kind is str:
            flags.DEFINE_enum(field.name, None, field.metadata["choices"], **options)
            continue
        define = {
            bool: flags.DEFINE_bool,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
        }[kind]
        define(field.name, None, **options)


def given_fields(record: type) -> dict[str, Any]:
    """The fields of `record` whose flags were given."""
    names = [field.name for field in dataclasses.fields(record) if field.name in flags.FLAGS]
    values = {name: flags.FLAGS[name].value for name in names}
    return {name: value for name, value in values.items() if value is not None}


def define_weights_flags() -> None:
    """Defines the flags that say which weights of a model_dir are meant."""
    flags.DEFINE_integer("average", None, "last checkpoints to average; default: as trained")
    flags.DEFINE_string(
        "weights",
        "mean",
        "mean of the last checkpoints; or ema, their moving average; best, those of the best "
        "validation; or the step of one checkpoint",
    )


def define_translator_flags() -> None:
    """Defines the flags that `load_translator` reads."""
    flags.DEFINE_list(
        "model_dir",
        None,
        "folder of the trained model; several, with commas, of one vocabulary are an ensemble",
        required=True,
    )
    define_weights_flags()
    flags.DEFINE_enum("precision", "float32", PRECISIONS, "of weights and matrix products")
    flags.DEFINE_bool("jit_compile", False, "compile with XLA: worth it from thousands of lines on")
    flags.DEFINE_integer("workers", 1, "batches translated at the same time", lower_bound=1)
    flags.DEFINE_integer(
        "tokens_per_batch",
        4096,
        "tokens translated together, those that translations may grow to included",
        lower_bound=1,
    )
    define_record_flags(SearchOptions)


def share_cores_among_workers() -> None:
    """Gives each of `--workers` its share of the cores; XLA's threads serve all of them anyway."""
    share_cores(1 if flags.FLAGS.jit_compile else flags.FLAGS.workers)


def load_translator() -> Translator:
    """The translator that the flags describe."""
    if flags.FLAGS.precision == "int8" and not flags.FLAGS.jit_compile:
        raise UserError("--precision=int8 needs --jit_compile: without it int8 is slower")
    first, *others = model_dirs = [ModelDir(path) for path in flags.FLAGS.model_dir]
    chosen = flags.FLAGS.average, flags.FLAGS.weights
    models = [
        in_precision(model_dir.load_model(*chosen), flags.FLAGS.precision)
        for model_dir in model_dirs
    ]
    tokenizer = first.load_tokenizer()
    for other in others:
        if other.load_tokenizer().to_bytes() != tokenizer.to_bytes():
            raise UserError(f"{other.path}: expected the vocabulary of {first.path}, found another")
    return Translator(
        models,
        tokenizer,
        SearchOptions(**{**search_defaults(tokenizer), **given_fields(SearchOptions)}),
        jit_compile=flags.FLAGS.jit_compile,
        workers=flags.FLAGS.workers,
        tokens_per_batch=flags.FLAGS.tokens_per_batch,
    )


def run(main: Callable[[], Any]) -> None:
    """Runs `main` with absl's flags; prints a `UserError` as one line, with exit status 2."""
    app.run(lambda arguments: _run(main, arguments))


def _run(main, arguments):
    script = os.path.basename(sys.argv[0])
    try:
        if arguments[1:]:
            raise UserError(f"expected flags only, found {arguments[1]!r}; see {script} --help")
        main()
    except UserError as error:
        sys.exit(_fail(script, str(error), 2))
    except BrokenPipeError:
        # Whoever read our output has gone; Python must not try to flush to them at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        sys.exit(
            _fail(script, f"{error.filename or 'input or output'}: {error.strerror or error}", 2)
        )
    except KeyboardInterrupt:
        sys.exit(_fail(script, "interrupted", 130))


def _fail(script, message, status):
    print(f"{script}: {' '.join(message.split())}", file=sys.stderr)
    return status
