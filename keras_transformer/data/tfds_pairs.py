"""Sentence pairs of TensorFlow Datasets."""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from keras_transformer.data.sources import BLOCK_PAIRS, Block, SentencePairs, TextPairs
from keras_transformer.errors import UserError, not_installed
from keras_transformer.text.sentences import utf_8
from keras_transformer.text.text_files import is_utf8

if TYPE_CHECKING:
    import tensorflow as tf
    import tensorflow_datasets as tfds


class TfdsPairs(SentencePairs):
    """A translation data set of TensorFlow Datasets.

    Args:
        builder: a name ("wmt14_translate/de-en"), a folder of files `en.train.txt` and
            `de.train.txt` (as for `tfds.folder_dataset.TranslateFolder`; here lines end only at
            `\\n`, as in other files), or a builder.
        split: "train", "validation", "test", or part of one ("train[:1%]").
        source_lang: key of the data set's feature to translate from, such as "en".
        target_lang: key of the feature to translate into, such as "de".
        download: whether to download and prepare a named data set if missing. It goes to TFDS's
            own folder (environment variable TFDS_DATA_DIR) and may take gigabytes.

    Raises:
        UserError: there is no such data set or language.

    Example:
        >>> name = "wmt14_translate/de-en"
        >>> pairs = TfdsPairs(name, "train", "en", "de", download=True)  # doctest: +SKIP
    """

    def __init__(
        self,
        builder: "str | os.PathLike | tfds.core.DatasetBuilder",
        split: str,
        source_lang: str,
        target_lang: str,
        download: bool = False,
    ):
        self.split, self.languages = split, (source_lang, target_lang)
        self._files = None
        if isinstance(builder, str | os.PathLike):
            if os.path.isdir(builder):
                if download:
                    raise UserError(f"{builder}: a folder needs no download")
                self._files = _files_of_folder(Path(builder), split, self.languages)
                self.description = f"{builder} ({split}, {source_lang} to {target_lang})"
                return
            builder = _builder(builder)
        self.builder = builder
        for language in self.languages:
            if language not in self.builder.info.features:
                languages = ", ".join(self.builder.info.features)
                raise UserError(
                    f"{self.builder.name} has no language {language}: found {languages}"
                )
        if download:
            self.builder.download_and_prepare()
        self.description = (
            f"{self.builder.info.full_name} ({split}, {source_lang} to {target_lang})"
        )

    def blocks(self) -> Iterator[Block]:
        """Yields all pairs in order.

        Raises:
            UserError: the data set is not downloaded, has no such split, or is not UTF-8 text.
        """
        if self._files is not None:
            yield from self._files.blocks()
            return
        first = 1
        for sides in self._dataset().batch(BLOCK_PAIRS).as_numpy_iterator():
            source, target = (side.tolist() for side in sides)
            for row, pair in enumerate(zip(source, target, strict=True)):
                if not is_utf8(list(pair)):  # before `utf_8` makes it valid
                    raise UserError(f"{self.description}: pair {first + row}: not UTF-8 text")
            yield Block(list(map(utf_8, source)), list(map(utf_8, target)), first=first)
            first += len(source)

    def place(self, side: int, file: int, line: int) -> str:
        if self._files is not None:
            return self._files.place(side, file, line)
        return super().place(side, file, line)

    def count(self, at_most: int) -> int:
        if self._files is not None:
            return self._files.count(at_most)
        try:
            return min(at_most, self.builder.info.splits[self.split].num_examples)
        except (ValueError, KeyError):  # no such split, not downloaded: reading raises a UserError
            return super().count(at_most)

    def _dataset(self) -> "tf.data.Dataset":
        try:
            examples = self.builder.as_dataset(split=self.split)
        except AssertionError as error:
            raise UserError(
                f"{self.builder.info.full_name}: no prepared data in {self.builder.data_dir}: "
                "download it first (--download, or download=True)"
            ) from error
        except ValueError as error:
            raise UserError(f"{self.builder.info.full_name}: {_first_line(error)}") from error
        return examples.map(lambda example: tuple(example[lang] for lang in self.languages))


def _builder(name: str | os.PathLike) -> "tfds.core.DatasetBuilder":
    try:
        import tensorflow_datasets as tfds  # takes seconds to import, and few need it
    except ImportError as error:
        raise not_installed("TFDS", "datasets", error) from error
    try:
        return tfds.builder(os.fspath(name))
    except ValueError as error:
        raise UserError(f"{name}: {_first_line(error)}") from error


def _files_of_folder(folder: Path, split: str, languages: tuple[str, str]) -> TextPairs:
    """The files of a split, in a folder of files such as `en.train.txt` and `de.train.txt`."""
    found: dict[str, set[str]] = {}  # languages of each split
    for path in sorted(folder.iterdir()):
        if not re.fullmatch(r"[^.]+\.[^.]+\.txt", path.name):
            raise UserError(f"{path}: all files of this folder must be named LANGUAGE.SPLIT.txt")
        language, name, _ = path.name.split(".")
        found.setdefault(name, set()).add(language)
    if split not in found:
        splits = ", ".join(sorted(found)) or "no file"
        raise UserError(
            f"{folder} has no split {split}: found {splits}; to go without validation or test, "
            "give `--valid_split= --test_split=`"
        )
    for language in languages:
        if language not in found[split]:
            others = ", ".join(sorted(found[split]))
            raise UserError(f"{folder} has no {language}.{split}.txt: found the languages {others}")
    source, target = (folder / f"{language}.{split}.txt" for language in languages)
    return TextPairs(source, target)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
