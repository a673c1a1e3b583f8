"""The files that a command writes: checked before any work, and whole at its end."""

import contextlib
import gzip
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import BinaryIO, cast

from keras_transformer import training
from keras_transformer.cli.flags import FLAGS
from keras_transformer.errors import UserError
from keras_transformer.files import whole_file


def check_outputs(
    inputs: Iterable[str], names: Iterable[str], folders: Mapping[str, Sequence[str]] = {}
) -> None:
    """Refuses, before any work, outputs that cannot be written or that would replace an input.

    Args:
        inputs: the files that the command reads.
        names: the flags that name its outputs.
        folders: other model_dirs that it reads, by their flags.

    Raises:
        UserError: an output is not a regular file in a folder that exists, or it is an input,
            another output or a file of a model_dir.
    """
    given = {name: FLAGS[name].value for name in names}
    for name, path in given.items():
        if path == "":
            raise UserError(f"--{name} is empty: give a file to write to")
    outputs = [path for path in given.values() if path is not None]
    check_files([*inputs, "/dev/stdout", "/dev/stderr"], outputs)
    for path in outputs:
        for flag, paths in {"model_dir": FLAGS.model_dir, **folders}.items():
            if any(training.ModelDir(path_).owns(path) for path_ in filter(os.path.isdir, paths)):
                raise UserError(f"{path} is a file of --{flag}: choose another file")


def check_files(inputs: Iterable[str], outputs: Iterable[str | os.PathLike]) -> None:
    """Refuses outputs that cannot be written, or that are an input or another output.

    Raises:
        UserError: one of them is.
    """
    taken = set(map(os.path.realpath, inputs))
    for path in outputs:
        file = os.path.realpath(path)
        folder = os.path.dirname(file)
        if not (os.path.isdir(folder) and os.access(folder, os.W_OK)):
            raise UserError(f"{path}: its folder does not exist or is not writable")
        if os.path.exists(path) and not os.path.isfile(path):
            raise UserError(f"{path} is not a regular file: choose another name")
        if file in taken:
            raise UserError(f"{path} is an input or another output: choose another file")
        taken.add(file)


@contextlib.contextmanager
def writing(paths: Mapping[str, str | os.PathLike]) -> Iterator[dict[str, BinaryIO]]:
    """Opens files to write, compressed if their names end in .gz; all appear at the end, or none.

    Args:
        paths: the files, by the names that the opened files get.
    """
    with contextlib.ExitStack() as until_whole, contextlib.ExitStack() as until_closed:
        files = {}
        for name, path in paths.items():
            partial = until_whole.enter_context(whole_file(path))
            file: BinaryIO = until_closed.enter_context(open(partial, "wb"))
            if os.fspath(path).endswith(".gz"):  # without the partial file's name in it
                compressed = gzip.GzipFile("", "wb", fileobj=file)
                file = cast(BinaryIO, until_closed.enter_context(compressed))
            files[name] = file
        yield files
