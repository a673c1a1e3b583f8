"""Sources of models: a model_dir, several as an ensemble, or a folder of SavedModels."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from keras_transformer.errors import UserError, expect_named
from keras_transformer.serving.servable import (
    ParserServable,
    SavedModelServable,
    TranslatorServable,
)
from keras_transformer.serving.versions import (
    Model,
    expect_regular_files,
    saved_model_folders,
    saved_model_versions,
)
from keras_transformer.text.glossary import Glossary
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

if TYPE_CHECKING:
    from keras_transformer.ctranslate2.translator import CTranslate2Translator


def parse_model_flag(value: str) -> tuple[str, list[str]]:
    """The name and the paths in `NAME=PATH[,PATH...]`.

    The path of a folder that exists may have a comma in it.

    Raises:
        UserError: `value` has another form.

    Example:
        >>> parse_model_flag("en-de=runs/first,runs/second")
        ('en-de', ['runs/first', 'runs/second'])
    """
    name, equals, paths = value.partition("=")
    if not equals or not all(paths.split(",")):
        raise UserError(f"--model must be NAME=PATH[,PATH...]: found {value!r}")
    return _checked(name), [paths] if os.path.isdir(paths) else paths.split(",")


def default_name(paths: Sequence[str]) -> str:
    """The default name of a model: the name of its folder, or of an ensemble's first folder.

    Raises:
        UserError: the folder's name is not a valid model name.
    """
    expect_named("model_dir", paths and paths[0])
    return _checked(Path(os.path.realpath(paths[0])).name)  # `resolve` fails for a loop of links


def _checked(name):
    if not name or any(sign in name for sign in "/:?#%") or not name.isprintable():
        raise UserError(
            f"a model's name must be printable, without / : ? # % in it: found {name!r}; choose "
            "another with --model=NAME=PATH"
        )
    return name


def has_saved_models(path: str) -> bool:
    """Whether a folder holds versions of a SavedModel, and is not a model_dir.

    Raises:
        UserError: the folder itself is one version.
    """
    folder = Path(path)
    if (folder / "saved_model.pb").exists():
        raise UserError(
            f"{path} is one version of a SavedModel: give the folder of all its versions"
        )
    is_model_dir = (folder / "config.json").exists()
    return folder.is_dir() and not is_model_dir and bool(saved_model_folders(folder))


def saved_model(name: str, path: str) -> Model:
    """The model whose versions are in a folder; `Model.refresh` finds new ones."""
    folder = Path(path)

    def serve(version):
        found = saved_model_folders(folder)[version]
        expect_regular_files(found)
        return SavedModelServable(found)

    return Model(name, lambda: saved_model_versions(folder), serve)


def trained_model(
    name: str,
    paths: Sequence[str],
    load: Callable[[Sequence[str]], "Translator | CTranslate2Translator"],
    load_tensorflow: Callable[[], Translator] | None = None,
    glossary: Glossary | None = None,
) -> Model:
    """The model of one model_dir, or the ensemble of several.

    Args:
        name: the model's name.
        paths: the model_dirs.
        load: makes a translator from the model_dirs.
        load_tensorflow: as for `TranslatorServable`.
        glossary: as for `TranslatorServable`.

    Raises:
        UserError: a folder holds no model.
    """
    for path in paths:
        ModelDir(path).load_config()

    records = [ModelDir(path).load_training() for path in paths]
    source_lang, target_lang = records[0]["source_lang"], records[0]["target_lang"]
    copies_parts = all(record["copies_parts"] for record in records)

    def serve(version):
        translator = load(paths)
        if translator.tokenizer.task == "parsing":
            return ParserServable(translator, load_tensorflow, source_lang)
        return TranslatorServable(translator, load_tensorflow, source_lang, glossary, copies_parts)

    pair, multilingual = (source_lang, target_lang), ModelDir(paths[0]).load_languages()
    return Model(name, lambda: {1: None}, serve, pair, multilingual)
