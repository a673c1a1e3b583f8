"""A job of Apache Beam that translates text files, one output file for each input file."""

import bz2
import contextlib
import gzip
import json
import lzma
import os
import uuid
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO

from keras_transformer.beam.translate_text import TranslateText, beam
from keras_transformer.errors import UserError
from keras_transformer.text.text_files import without_end

FileSystems = beam.io.filesystems.FileSystems
CompressionTypes = beam.io.filesystem.CompressionTypes

_OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# Beam reads some of these, but not to the end.
_UNKNOWN = (".zst", ".zstd", ".deflate", ".lzma", ".zip")
_WILDCARDS = {*"*?["}


class TranslateFiles(beam.PTransform):
    """Translates text files line for line.

    Of n input files, in the order of their names, the first becomes `PREFIX-00000-of-0000n`, and
    so on. Each output has as many lines as its input, in the same order, and is compressed if its
    input is. Each output is written atomically; the transform returns its path. Beam spreads the
    lines of all files over all workers. The worker that writes an output collects its lines in
    memory.

    If a line fails, its output has an empty line. `PREFIX-failed.jsonl` has an object for each
    failed line: `file`, `line` (from 1), `text` and `reason`. Without failures, this file does not
    exist.

    As everywhere in this package, a line ends only at `\\n` or `\\r\\n`, control characters inside
    it are read as spaces, and bytes that are not UTF-8 as U+FFFD.

    Args:
        saved_model: as for `TranslateText`.
        files: the path of the input, with or without wildcards, on any file system of Beam. Files
            whose names end in .gz, .bz2 or .xz are decompressed.
        prefix: the beginning of the output files' names.
        lines_at_once: as for `TranslateText`.

    Raises:
        UserError: there is no such SavedModel or no input, or an output already exists.

    Example:
        >>> import apache_beam as beam
        >>> path = translator.export("export/en-de")
        >>> with beam.Pipeline("FnApiRunner") as pipeline:
        ...     _ = pipeline | TranslateFiles(path, "train.en", "train.translated")
        >>> Path("train.translated-00000-of-00001").exists()
        True
    """

    def __init__(
        self,
        saved_model: str | os.PathLike,
        files: str,
        prefix: str,
        lines_at_once: int = 1024,
    ):
        super().__init__()
        self.inputs = _matching(files)
        count = len(self.inputs)
        prefix = _new_prefix(prefix)
        self.outputs = [
            f"{prefix}-{index:05d}-of-{count:05d}{_compression_suffix(path)}"
            for index, path in enumerate(self.inputs)
        ]
        self.failed = f"{prefix}-failed.jsonl"
        self.translate = TranslateText(saved_model, lines_at_once)

    def expand(self, pipeline):
        lines, counts = (
            pipeline
            | "Files" >> beam.Create(list(enumerate(self.inputs)))
            | "Spread files" >> beam.Reshuffle()
            | "Read" >> beam.ParDo(_ReadLines()).with_outputs("counts", main="lines")
        )
        translated, failed = lines | "Spread lines" >> beam.Reshuffle() | self.translate
        empty = failed | "Empty lines" >> beam.Map(lambda failure: (failure.key, ""))
        by_file = (
            (translated, empty)
            | beam.Flatten()
            | "By file" >> beam.MapTuple(lambda place, text: (place[0], (place[1], text)))
        )
        _ = (
            failed
            | "Together" >> beam.Map(lambda failure: (None, failure))
            | "Failures" >> beam.GroupByKey()
            | "Write failures" >> beam.MapTuple(self._write_failures)
        )
        return (
            {"lines": by_file, "counts": counts}
            | beam.CoGroupByKey()
            | "Write" >> beam.MapTuple(self._write_output)
        )

    def _write_output(self, index: int, grouped: dict[str, Iterable[Any]]) -> str:
        [count] = grouped["counts"]
        texts = dict(grouped["lines"])
        return _write_whole(self.outputs[index], (texts[n] for n in range(1, count + 1)))

    def _write_failures(self, _: None, failures: Iterable[Any]) -> str:
        lines = []
        for (index, number), text, reason in sorted(failures):
            text = text.decode("utf-8", "replace")
            record = {"file": self.inputs[index], "line": number, "text": text, "reason": reason}
            lines.append(json.dumps(record, ensure_ascii=False))
        return _write_whole(self.failed, lines)


class _ReadLines(beam.DoFn):
    """Turns (index, path) into ((index, number), line) for each line, and (index, count)."""

    def process(self, file: tuple[int, str]) -> Iterator[Any]:
        index, path = file
        number = 0
        try:
            with _open_to_read(path) as lines:
                for number, line in enumerate(lines, start=1):
                    yield (index, number), without_end(line)
        except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
            where = f"{path}:{number + 1}"
            raise UserError(f"{where}: cannot read the rest of the file: {error}") from error
        yield beam.pvalue.TaggedOutput("counts", (index, number))


def _write_whole(path: str, lines: Iterable[str]) -> str:
    """Writes a file atomically, and returns its path."""
    partial = _partial(path)
    compression = CompressionTypes.detect_compression_type(path)
    with contextlib.closing(FileSystems.create(partial, compression_type=compression)) as file:
        for line in lines:
            file.write(f"{line}\n".encode())
    FileSystems.rename([partial], [path])
    return path


def _partial(path: str) -> str:
    """A unique name until the file is whole: a bundle may run twice, even at the same time."""
    folder, name = FileSystems.split(path)
    return FileSystems.join(folder, f".{name}.{uuid.uuid4()}.partial")


def _matching(files: str) -> list[str]:
    """The matching files, in the order of their names."""
    paths = sorted(_listed(files))
    if not paths:
        raise UserError(f"{files}: no file has this name or matches this pattern")
    for path in paths:
        if os.path.isdir(path):
            raise UserError(f"{path} is a folder: give its files, such as {path}/*")
        if path.endswith(_UNKNOWN):
            raise UserError(
                f"{path}: this compression is not supported: use plain text, .gz, .bz2 or .xz"
            )
    return paths


def _new_prefix(prefix: str) -> str:
    """Returns the absolute prefix, if files can be written there and none begins with it yet."""
    if not prefix or prefix.endswith("/") or _WILDCARDS & {*prefix}:
        raise UserError(f"the files to write need a prefix, such as out/de: found {prefix!r}")
    for path in _listed(f"{prefix}-*"):
        raise UserError(f"{path} exists already: choose another prefix than {prefix}")
    probe = _partial(_absolute(prefix))
    try:
        FileSystems.create(probe).close()
        FileSystems.delete([probe])
    except (OSError, ValueError) as error:
        raise UserError(f"{prefix}: cannot write files there: {error}") from error
    return _absolute(prefix)


def _listed(pattern: str) -> list[str]:
    path = _absolute(pattern)
    try:
        [match] = FileSystems.match([path])
    except (OSError, ValueError) as error:
        raise UserError(f"{pattern}: cannot list the files: {error}") from error
    return [metadata.path for metadata in match.metadata_list]


def _absolute(path: str) -> str:
    if "://" in path:
        return path
    folder = os.getcwd()
    if not os.path.isabs(path) and _WILDCARDS & {*folder}:  # Beam cannot quote them
        raise UserError(
            f"{folder}: Beam reads `*`, `?` and `[` in the name of this working folder as "
            "wildcards: work in another folder"
        )
    return os.path.abspath(path)


def _compression_suffix(path: str) -> str:
    return next((suffix for suffix in _OPENERS if path.endswith(suffix)), "")


def _open_to_read(path: str) -> BinaryIO:
    """Opens a file as bytes; Beam's own decompression would not notice a truncated file."""
    file = FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    opener = _OPENERS.get(_compression_suffix(path))
    return opener(file, "rb") if opener else file
