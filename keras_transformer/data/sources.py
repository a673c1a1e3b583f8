"""Where sentence pairs come from: text files, TensorFlow Datasets, the built-in corpus."""

import abc
import functools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import tensorflow as tf

from keras_transformer.data.builtin import builtin_pairs
from keras_transformer.errors import UserError
from keras_transformer.text_files import is_gzip, read_lines

if TYPE_CHECKING:
    import tensorflow_datasets as tfds


class SentencePairs(abc.ABC):
    """Sentences and their translations.

    Attributes:
        description: what they are, as in "29,000 pairs of train.en, train.de".
    """

    description: str

    @abc.abstractmethod
    def dataset(self) -> tf.data.Dataset:
        """All pairs in their order, as `(source, target)` of scalar strings."""

    @abc.abstractmethod
    def check(self) -> int:
        """The number of pairs, after a look at each.

        Raises:
            UserError: a pair is not readable or not whole.
        """

    def sentences(self) -> Iterator[str]:
        """The sentences of both sides, to learn a vocabulary from."""
        for source, target in self.dataset().batch(1024).as_numpy_iterator():
            for sentence in (*source, *target):
                yield sentence.decode("utf-8", errors="replace")


class TextPairs(SentencePairs):
    """Parallel text files: line n of one side translates line n of the other.

    Args:
        source, target: UTF-8 files, or lists of files that follow one another; `.gz` is read too.

    Example:
        >>> pairs = TextPairs("train.en", ["train.de"])
        >>> pairs.check()
        29000
    """

    def __init__(
        self,
        source: str | os.PathLike | Sequence[str | os.PathLike],
        target: str | os.PathLike | Sequence[str | os.PathLike],
    ):
        self.source, self.target = _paths(source), _paths(target)
        if len(self.source) != len(self.target):
            raise UserError(
                f"expected as many target files as source files, found {len(self.source)} source "
                f"and {len(self.target)} target files"
            )
        self.description = ", ".join([*self.source, *self.target])

    def dataset(self) -> tf.data.Dataset:
        """All pairs in their order; it ends with the shorter side, which `check` refuses."""
        return tf.data.Dataset.zip(_lines(self.source), _lines(self.target))

    def check(self) -> int:
        """The number of pairs.

        Raises:
            UserError: a file is missing, damaged, not UTF-8, or not as long as its translation.
        """
        total = 0
        for source, target in zip(self.source, self.target, strict=True):
            counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
            if counts[0] != counts[1]:
                raise UserError(
                    f"expected as many lines in both files, found {counts[0]} in {source} and "
                    f"{counts[1]} in {target}"
                )
            total += counts[0]
        return total


class TfdsPairs(SentencePairs):
    """A translation data set of TensorFlow Datasets.

    Args:
        builder: a name ("wmt14_translate/de-en"), a folder of files `en.train.txt` and
            `de.train.txt` (see `tfds.folder_dataset.TranslateFolder`), or a builder.
        split: "train", "validation", "test", or part of one ("train[:1%]").
        source_lang, target_lang: keys of the data set's features ("en", "de").
        download: whether to download and prepare a named data set that is not there yet, into
            TFDS's own folder (environment variable TFDS_DATA_DIR), which may take gigabytes.

    Raises:
        UserError: there is no such data set or language.

    Example:
        >>> TfdsPairs("wmt14_translate/de-en", "train", "en", "de", download=True)
    """

    def __init__(
        self,
        builder: "str | os.PathLike | tfds.core.DatasetBuilder",
        split: str,
        source_lang: str,
        target_lang: str,
        download: bool = False,
    ):
        self.builder = _builder(builder) if isinstance(builder, str | os.PathLike) else builder
        self.split, self.languages = split, (source_lang, target_lang)
        for language in self.languages:
            if language not in self.builder.info.features:
                raise UserError(
                    f"{self.builder.name}: expected a language of "
                    f"{', '.join(self.builder.info.features)}, found {language}"
                )
        if download:
            try:
                self.builder.download_and_prepare()
            except NotImplementedError as error:
                raise UserError(f"{builder}: a folder needs no download") from error
        self.description = (
            f"{self.builder.info.full_name} ({split}, {source_lang} to {target_lang})"
        )

    def dataset(self) -> tf.data.Dataset:
        """All pairs in their order, as `(source, target)` of scalar strings.

        Raises:
            UserError: the data set is not downloaded, or has no such split.
        """
        try:
            examples = self.builder.as_dataset(split=self.split)
        except AssertionError as error:
            raise UserError(
                f"{self.builder.info.full_name}: expected prepared data in "
                f"{self.builder.data_dir}, found none: download it first (download=True)"
            ) from error
        except ValueError as error:
            raise UserError(f"{self.builder.info.full_name}: {_first_line(error)}") from error
        return examples.map(lambda example: tuple(example[lang] for lang in self.languages))

    def check(self) -> int:
        return int(self.dataset().cardinality())


class BuiltinPairs(SentencePairs):
    """English-German pairs of the built-in grammar: no file, no download.

    Args:
        split: "train", "validation" or "test"; no pair is in two of them.
        num_pairs: how many.
        seed: which pairs, and in which order.

    Example:
        >>> BuiltinPairs("validation", num_pairs=500).check()
        500
    """

    def __init__(self, split: str, num_pairs: int, seed: int = 0):
        self.split, self.num_pairs, self.seed = split, num_pairs, seed
        builtin_pairs(split, num_pairs, seed)  # refuses what is no split
        self.description = f"the built-in English-German corpus ({split})"

    def dataset(self) -> tf.data.Dataset:
        """All pairs in their order, as `(source, target)` of scalar strings."""
        return self._dataset

    @functools.cached_property
    def _dataset(self):
        english, german = zip(*builtin_pairs(self.split, self.num_pairs, self.seed), strict=True)
        return tf.data.Dataset.from_tensor_slices((list(english), list(german)))

    def check(self) -> int:
        return self.num_pairs


def _builder(name: str | os.PathLike) -> "tfds.core.DatasetBuilder":
    import tensorflow_datasets as tfds  # seconds to import, and needed by few

    try:
        if os.path.isdir(name):
            return tfds.folder_dataset.TranslateFolder(os.fspath(name))
        return tfds.builder(os.fspath(name))
    except ValueError as error:
        raise UserError(f"{name}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _paths(files) -> list[str]:
    return [os.fspath(f) for f in ([files] if isinstance(files, str | os.PathLike) else files)]


def _lines(paths: Sequence[str]) -> tf.data.Dataset:
    files = (tf.data.TextLineDataset(p, "GZIP" if is_gzip(p) else "") for p in paths)
    return functools.reduce(tf.data.Dataset.concatenate, files)
