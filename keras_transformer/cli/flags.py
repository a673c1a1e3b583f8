"""Defines flags of the commands, from fields of checked dataclasses and in groups for `--help`."""

import contextlib
import dataclasses
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_type_hints

from absl import flags

from keras_transformer.errors import UserError, expect_named
from keras_transformer.files import expect_local, refuse_existing

FLAGS = flags.FLAGS
TASKS = ["translation", "parsing"]

# The flags under each heading of `--help`, in the order in which they were defined.
GROUPS: dict[str, list[str]] = {}


@contextlib.contextmanager
def group(heading: str) -> Iterator[None]:
    """Puts the flags that the block defines under a heading of `--help`.

    Example:
        >>> with group("Greeting"):
        ...     word = flags.DEFINE_string("word", "hello", "word to say")
        >>> GROUPS.pop("Greeting")
        ['word']
        >>> delattr(FLAGS, "word")  # flags belong to the process: this one was an example
    """
    before = set(FLAGS)
    yield
    GROUPS.setdefault(heading, []).extend(name for name in FLAGS if name not in before)


class NumberOrNone(flags.ArgumentParser):
    """Reads a number, or `none` as None."""

    def parse(self, argument: str) -> float | None:
        if argument == "none":
            return None
        try:
            return float(argument)
        except ValueError:
            raise ValueError("neither a number nor none") from None

    def flag_type(self) -> str:
        return "float"


def define_record_flags(
    record: type,
    leave_out: Iterable[str] = (),
    only: Iterable[str] | None = None,
    or_else: str = "",
    defaults: Mapping[str, str] | None = None,
) -> None:
    """Defines a flag for each field of a dataclass that has a `help` in its metadata.

    A flag that is not given is None, so that a choice differs from a preset or a default. If a
    field may be None but has another default, its flag takes `none`.

    Args:
        record: a dataclass; `records.field` makes the fields that are flags.
        leave_out: names of fields without a flag.
        only: names of the fields to define, in this order; default: all.
        or_else: text that help shows after the default, such as ", or the preset's".
        defaults: the defaults that help shows for some fields, in place of their own.
    """
    kinds = get_type_hints(record)
    fields = {field.name: field for field in dataclasses.fields(record)}
    for name in only or fields:
        field = fields[name]
        if name in leave_out or "help" not in field.metadata:
            continue
        kind, *or_none = get_args(kinds[name]) or (kinds[name],)  # int, NoneType of int | None
        value = str(field.default).lower() if kind is bool else field.default
        value = (defaults or {}).get(name, value)
        default = "" if field.default is None else f" (default: {value}{or_else})"
        help_ = field.metadata["help"] + default
        if kind is str:
            flags.DEFINE_enum(name, None, field.metadata["choices"], help_)
            continue
        if kind is float and or_none and field.default is not None:
            flags.DEFINE(NumberOrNone(), name, None, help_, serializer=flags.ArgumentSerializer())
            continue
        define: Any = {
            bool: flags.DEFINE_bool,
            int: flags.DEFINE_integer,
            float: flags.DEFINE_float,
        }[kind]
        define(name, None, help_)


def given_fields(record: type) -> dict[str, Any]:
    """The fields of `record` whose flags were given."""
    names = [field.name for field in dataclasses.fields(record) if field.name in FLAGS]
    return {name: FLAGS[name].value for name in present(names)}


class _ListFlag(flags.Flag):
    """A list; each time that the flag is given, its values are added."""

    def parse(self, argument: str | list[str]) -> None:
        earlier = self.value if self.present else None
        super().parse(argument)
        self.value = (earlier or []) + (self.value or [])


def list_flags() -> set[str]:
    """The names of the flags whose values are added when they are given twice."""
    return {name for name in FLAGS if isinstance(FLAGS[name], _ListFlag | flags.MultiFlag)}


def define_list(
    name: str,
    default: list[str] | None,
    help_: str,
    required: bool = False,
    parser: flags.ListParser | None = None,
) -> None:
    """Defines a flag for a list, separated by commas or given one after another."""
    parser, serializer = parser or flags.ListParser(), flags.CsvListSerializer(",")
    flag = _ListFlag(parser, serializer, name, default, help_)
    flags.DEFINE_flag(flag, required=required)


class _ModelDirs(flags.ListParser):
    """Splits a list of folders at commas, unless the text as a whole is the path of a folder."""

    def parse(self, argument: str | list[str]) -> list[str]:
        if isinstance(argument, str) and os.path.isdir(argument):
            return [argument]
        return super().parse(argument)


def define_model_dirs(help_: str, required: bool = False) -> None:
    """Defines `--model_dir` as a list of folders, separated by commas.

    The path of one folder may have a comma in it.
    """
    define_list("model_dir", None, help_, required, _ModelDirs())


def present(names: Iterable[str]) -> list[str]:
    """Returns the names of the flags that the command line gives."""
    return [name for name in names if FLAGS[name].present]


def refuse(names: Iterable[str], where: str) -> None:
    """Refuses the first of these flags, which would be ignored.

    Args:
        names: the flags.
        where: what makes them useless, such as "with --tfds, which takes the place of files".

    Raises:
        UserError: `names` is not empty.
    """
    for name in names:
        raise UserError(f"--{name} has no effect {where}: leave it out")


def check_output_folder(folder: str, files: Iterable[Path], overwrite: bool) -> None:
    """Refuses, before any work, an unusable output folder, or files that would be replaced.

    Raises:
        UserError: `folder` is empty, a URL or names a file, or one of `files` exists.
    """
    expect_named("output", folder)
    expect_local(folder)
    if Path(folder).exists() and not Path(folder).is_dir():
        raise UserError(f"{folder} must be a folder to write to: found a file")
    if not overwrite:
        refuse_existing(files)
