"""The translator of a model_dir, by CTranslate2 where that can do what is asked, on a CPU."""

import dataclasses
import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from keras_transformer.ctranslate2.support import USE_TENSORFLOW, check_model
from keras_transformer.errors import Unsupported, UserError, expect_at_least
from keras_transformer.machine.gpu import tensorflow_has_gpu
from keras_transformer.options.search import SearchOptions
from keras_transformer.training.model_dir import ModelDir

# The engines are imported where they are used: flags need only their names.
if TYPE_CHECKING:
    from keras_transformer.ctranslate2.translator import CTranslate2Translator
    from keras_transformer.translator import Translator

_ADVICE = f"leave it out, or {USE_TENSORFLOW}"
ENGINES = ("auto", "tensorflow", "ctranslate2")

Paths = str | os.PathLike | Sequence[str | os.PathLike]


def load(
    model_dir: Paths,
    *,
    weights: str | int = "auto",
    average: int | None = None,
    engine: str = "auto",
    precision: str = "float32",
    source_lang: str | None = None,
    target_lang: str | None = None,
    **options: Any,
) -> "Translator | CTranslate2Translator":
    """Loads the translator of a trained model.

    CTranslate2 translates where it supports the model and all options, on a machine without a GPU;
    else TensorFlow does. Both find the same translations, up to rounding. Both have the methods
    `translate`, `translate_n`, `score` and `align`, and a call translates too.

    Args:
        model_dir: the folder of the model; several form an ensemble, if they have one vocabulary.
        weights: the weights, as for `ModelDir.load_model`.
        average: number of checkpoints in the mean, as for `ModelDir.load_model`.
        engine: "auto", "tensorflow", or "ctranslate2", which refuses what CTranslate2 lacks.
        precision: "float32", "bfloat16" or "int8".
        source_lang: the language to translate from, for a model that reads it: M2M100 or NLLB.
        target_lang: the language to translate into, for a model of several languages. The methods
            `with_languages` choose other ones later.
        **options: keyword arguments of `Translator` or `CTranslate2Translator`: `workers`,
            `tokens_per_batch`, `max_source_length`, `options`, and the fields of `SearchOptions`
            that differ from `options`. With `jit_compile`, TensorFlow translates. Without
            `options`, the search of a parser has other defaults.

    Raises:
        UserError: `model_dir` is no path, a folder holds no model, an option is out of range or
            not supported by the engine, or the model has not these languages.

    Example:
        >>> translator = kt.load("runs/demo", beam_size=5)
        >>> [german] = translator(["A man rides a horse."])  # such as "Ein Mann reitet ein Pferd."
    """
    paths = _as_list(model_dir)
    if engine not in ENGINES:
        raise UserError(f"engine must be one of {', '.join(ENGINES)}: found {engine!r}")
    if engine == "auto":
        reason = why_tensorflow(paths, precision, options)
        engine = "ctranslate2" if reason is None else "tensorflow"
    if engine == "tensorflow":
        models = [*map(ModelDir, paths)]
        translator: Any = _load_tensorflow(models, weights, average, precision, options)
    else:
        translator = _load_ctranslate2(paths, weights, average, precision, options)
    if source_lang is None and target_lang is None:
        return translator
    return translator.with_languages(target_lang, source_lang)


def why_tensorflow(
    paths: Sequence[str | os.PathLike], precision: str, options: dict[str, Any]
) -> str | None:
    """Says why TensorFlow and not CTranslate2 has to translate; None if CTranslate2 can.

    Args:
        paths: the model_dirs.
        precision: the precision.
        options: the options of `load`.

    Raises:
        UserError: a folder holds no model, or an option is out of range.
    """
    from keras_transformer.ctranslate2.converted import precisions
    from keras_transformer.ctranslate2.translator import check_search

    if tensorflow_has_gpu():
        return "this machine has a GPU"
    try:
        _check_ensemble(paths)
        for path in paths:
            check_model(ModelDir(path))
        if options.get("jit_compile"):
            raise Unsupported("CTranslate2", "jit_compile", _ADVICE)
        if precision not in precisions():
            raise Unsupported("CTranslate2", f"precision={precision} on this processor", _ADVICE)
        max_source_length = options.get("max_source_length", 1024)
        expect_at_least(2, "max_source_length", max_source_length)
        search = _search_options(options)
        check_search(search, max_source_length)
        if search.sample:
            raise Unsupported("CTranslate2", "sample=True with a seed for each sentence", _ADVICE)
    except Unsupported as error:
        return f"{error.by} does not support {error.what}"
    return None


def _as_list(model_dir):
    is_one = isinstance(model_dir, str | os.PathLike) or not isinstance(model_dir, Iterable)
    paths = [model_dir] if is_one else list(model_dir)
    if not paths:
        raise UserError("model_dir must name at least one folder: found none")
    for path in paths:
        if not isinstance(path, str | os.PathLike) or not os.fspath(path):
            raise UserError(
                f"model_dir must be the path of a folder, or a list of paths: found {model_dir!r}"
            )
    return paths


def _check_ensemble(paths):
    if len(paths) != 1:
        raise Unsupported(
            "CTranslate2",
            f"ensembles: found {len(paths)} folders",
            f"use one, or {USE_TENSORFLOW}",
        )


def _search_options(options: dict[str, Any]) -> SearchOptions:
    """The search options among the options of `load`."""
    own = {"workers", "tokens_per_batch", "max_source_length", "jit_compile", "options"}
    fields = {name: value for name, value in options.items() if name not in own}
    return dataclasses.replace(options.get("options", SearchOptions()), **fields)


def _load_ctranslate2(paths, weights, average, precision, options):
    if options.pop("jit_compile", False):
        raise Unsupported("CTranslate2", "jit_compile", _ADVICE)
    _check_ensemble(paths)
    from keras_transformer.ctranslate2.converted import ConvertedModel
    from keras_transformer.ctranslate2.translator import CTranslate2Translator

    return CTranslate2Translator(ConvertedModel(paths[0], average, weights, precision), **options)


def _load_tensorflow(model_dirs, weights, average, precision, options):
    from keras_transformer.parsing.parser import search_defaults
    from keras_transformer.precision import in_precision
    from keras_transformer.translator import Translator

    first, *others = model_dirs
    first.load_config()  # fails if the folder holds no model
    tokenizer = first.load_tokenizer()
    for other in others:
        if other.load_tokenizer().to_bytes() != tokenizer.to_bytes():
            raise UserError(f"{other.path} must have the vocabulary of {first.path}: found another")
    models = [
        in_precision(model_dir.load_model(average, weights), precision) for model_dir in model_dirs
    ]
    defaults = {} if "options" in options else search_defaults(tokenizer)
    return Translator(models, tokenizer, **{**defaults, **options})
