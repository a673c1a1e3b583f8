"""Sources of sentence pairs: text files, several corpora, the built-in corpus."""

import abc
import functools
import hashlib
import itertools
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.errors import UserError
from keras_transformer.files import open_regular
from keras_transformer.text.language_code import check_language_code
from keras_transformer.text.text_files import (
    as_paths,
    is_utf8,
    matching_files,
    open_binary,
    read_lines,
    refuse_pipes,
    without_end,
)

_BLOCK_BYTES = 1 << 18  # of a block's source lines, in text files
BLOCK_PAIRS = 2048  # in a block of other sources


class Block(NamedTuple):
    """Consecutive pairs of a source, in UTF-8, without line ends.

    Attributes:
        source, target: the sentences of each side, in equal number.
        file: index of their pair of files, from 0.
        first: number of their first line, from 1.
        part: index of the corpus that they belong to, in `WeightedPairs`.
        target_lang: code of the language of the targets, for a model of several; None for others.
    """

    source: list[bytes]
    target: list[bytes]
    file: int = 0
    first: int = 1
    part: int = 0
    target_lang: str | None = None


class SentencePairs(abc.ABC):
    """Sentences and their translations.

    Attributes:
        task: the task that they train a model for, "translation" or "parsing".
        description: name of the pairs for messages, such as "train.en, train.de".
        weights: None; of `WeightedPairs` the weight of each corpus.
        target_langs: codes of the target languages, for a model of several; empty for others.
        linearization: how the trees of a treebank are written; None for translation.
    """

    task = "translation"
    description: str
    weights: tuple[float, ...] | None = None
    target_langs: tuple[str, ...] = ()
    linearization: str | None = None

    @abc.abstractmethod
    def blocks(self) -> Iterator[Block]:
        """Yields all pairs in order, in blocks that easily fit in memory.

        Raises:
            UserError: a pair is unreadable, incomplete or not UTF-8.
        """

    def place(self, side: int, file: int, line: int) -> str:
        """Names a line of a block's source (`side` 0) or target (1) for messages."""
        return f"pair {line}"

    def check(self) -> int:
        """Counts the pairs after checking each; raises what `blocks` raises."""
        return sum(len(block.source) for block in self.blocks())

    def count(self, at_most: int) -> int:
        """Counts the pairs, but reads no further than `at_most`."""
        count = 0
        for block in self.blocks():
            count += len(block.source)
            if count >= at_most:
                return at_most
        return count

    def checksum(self) -> str:
        """Computes a hexadecimal checksum of all sentences."""
        digest = hashlib.blake2b(digest_size=16)
        for block in self.blocks():
            for side in (block.source, block.target):
                digest.update(b"\n".join([*side, b""]))
        return digest.hexdigest()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        for block in self.blocks():
            for source, target in zip(block.source, block.target, strict=True):
                yield source.decode("utf-8"), target.decode("utf-8")

    def sentences(self) -> Iterator[str]:
        """Yields the sentences of both sides, to learn a vocabulary from."""
        return itertools.chain.from_iterable(self)


class TextPairs(SentencePairs):
    """Parallel text files: line n of one side translates line n of the other.

    Args:
        source: UTF-8 file, plain or `.gz`, or a list of files that are read in turn. A pattern such
            as `shard-*.en` stands for its files, sorted by name.
        target: the translations, in the same form.
        target_langs: a code for each file or pattern of `target`, to train one model that
            translates into several languages; default: one language, which needs no code.

    Raises:
        UserError: there are more files on one side, or a file is a pipe; or there is not one of
            `target_langs` for each of `target`, or it is no code of a language.

    Example:
        >>> pairs = TextPairs("train.en", ["train.de"])
        >>> pairs.check()
        200
    """

    def __init__(
        self,
        source: str | os.PathLike | Sequence[str | os.PathLike],
        target: str | os.PathLike | Sequence[str | os.PathLike],
        target_langs: Sequence[str] = (),
    ):
        self.source, self.target = matching_files(source), matching_files(target)
        refuse_pipes((*self.source, *self.target))
        self.given = as_paths(source), as_paths(target)  # patterns and all
        if len(self.source) != len(self.target):
            sides = zip((self.source, self.target), self.given, strict=True)
            found = (f"{len(files)} by {', '.join(given)}" for files, given in sides)
            raise UserError(
                f"source and target must have equal numbers of files: found {' and '.join(found)}"
            )
        self.description = ", ".join([*self.given[0], *self.given[1]])
        self.target_langs = tuple(dict.fromkeys(target_langs))
        for code in self.target_langs:
            check_language_code(code, "target_langs")
        given = self.given[1]
        if target_langs and len(target_langs) != len(given):
            raise UserError(
                f"target_langs must have one language for each of {', '.join(given)}: found "
                f"{', '.join(target_langs)}"
            )
        # The language of each file.
        self._target_langs: list[Any] = [
            code
            for code, path in zip(target_langs, given, strict=False)
            for _ in matching_files(path)
        ] or [None] * len(self.target)

    def blocks(self) -> Iterator[Block]:
        """Yields all pairs in order.

        Raises:
            UserError: a file is missing, damaged or not UTF-8, or differs in length from its
                translation.
        """
        for file, paths in enumerate(zip(self.source, self.target, strict=True)):
            try:
                for first, sides in _line_blocks(*paths):
                    yield Block(*sides, file, first, target_lang=self._target_langs[file])
            except (OSError, EOFError, zlib.error, UnicodeError):
                for path in paths:
                    for _ in read_lines(path):  # raises an error that names the line
                        pass
                raise

    def place(self, side: int, file: int, line: int) -> str:
        return f"{(self.source, self.target)[side][file]}:{line}"

    def checksum(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for path in (*self.source, *self.target):
            try:
                with open_regular(path) as file:
                    digest.update(hashlib.file_digest(file, "blake2b").digest())
            except OSError as error:
                raise UserError(f"{path}: cannot read the file: {error.strerror}") from error
        if self.target_langs:
            digest.update(" ".join(self._target_langs).encode())
        return digest.hexdigest()


class WeightedPairs(SentencePairs):
    """Several corpora, from which training draws pairs in proportion to weights.

    The weights matter to `Batches` alone: everything else takes the pairs in turn.

    Args:
        corpora: the corpora, all for the same task; treebanks all write trees alike. None of them
            is a `WeightedPairs`, whose own weights would be lost.
        weights: a weight for each corpus. Those of 1 and 3 make a quarter and three quarters of the
            pairs in batches, whatever the sizes of the corpora. A corpus of weight 0 is in no
            batch, but a vocabulary is learned from it too.

    Raises:
        UserError: the weights are not such numbers, or the corpora do not go together.

    Example:
        >>> real, synthetic = TextPairs("train.en", "train.de"), BuiltinPairs("train", 1000)
        >>> WeightedPairs([real, synthetic], weights=[3, 1]).check()
        1200
    """

    def __init__(self, corpora: Sequence[SentencePairs], weights: Sequence[float]):
        self.corpora, self.weights = list(corpora), tuple(map(float, weights))
        are_usable = (
            all(weight >= 0 for weight in self.weights) and 0 < sum(self.weights) < math.inf
        )
        if len(self.weights) != len(self.corpora) or not are_usable:
            found = ", ".join(f"{weight:g}" for weight in self.weights) or "none"
            raise UserError(
                "weights must be one number for each corpus, none of them negative, with a "
                f"positive and finite sum: found {found} for {len(self.corpora)} corpora"
            )
        tasks = {pairs.task for pairs in self.corpora}
        if len(tasks) > 1:
            raise UserError(f"corpora must be for one task: found {' and '.join(sorted(tasks))}")
        [self.task] = tasks
        linearizations = {pairs.linearization for pairs in self.corpora}
        if len(linearizations) > 1:
            found = ", ".join(sorted(map(str, linearizations)))
            raise UserError(f"corpora must have one linearization: found {found}")
        [self.linearization] = linearizations
        if any(pairs.weights for pairs in self.corpora):
            raise UserError(
                "corpora must not be WeightedPairs, whose weights would be lost: give all corpora "
                "and their weights to one"
            )
        codes = itertools.chain.from_iterable(pairs.target_langs for pairs in self.corpora)
        self.target_langs = tuple(dict.fromkeys(codes))
        if self.target_langs and not all(pairs.target_langs for pairs in self.corpora):
            raise UserError("corpora must all have target_langs, or none of them")
        self.description = "; ".join(pairs.description for pairs in self.corpora)

    def blocks(self) -> Iterator[Block]:
        """Yields all pairs of the first corpus, then of the second, and so on."""
        count = len(self.corpora)
        for part, pairs in enumerate(self.corpora):
            for block in pairs.blocks():
                # Files 0, 1 and 2 of the second of two corpora are 1, 3 and 5: see `place`.
                yield block._replace(part=part, file=block.file * count + part)

    def place(self, side: int, file: int, line: int) -> str:
        file, part = divmod(file, len(self.corpora))
        return self.corpora[part].place(side, file, line)

    def checksum(self) -> str:
        checksums = " ".join(pairs.checksum() for pairs in self.corpora)
        return hashlib.blake2b(checksums.encode(), digest_size=16).hexdigest()


class BuiltinPairs(SentencePairs):
    """English-German pairs of the built-in grammar, without files or downloads.

    Args:
        split: "train", "validation" or "test"; no pair is in two of them.
        num_pairs: number of pairs.
        seed: seed of the pairs and their order.

    Example:
        >>> BuiltinPairs("validation", num_pairs=500).check()
        500
    """

    def __init__(self, split: str, num_pairs: int, seed: int = 0):
        self.split, self.num_pairs, self.seed = split, num_pairs, seed
        builtin_pairs(split, num_pairs, seed)  # raises for an unknown split
        self.description = f"the built-in English-German corpus ({split})"

    def blocks(self) -> Iterator[Block]:
        """Yields all pairs in order."""
        return iter(self._blocks)

    @functools.cached_property
    def _blocks(self) -> list[Block]:
        pairs = builtin_pairs(self.split, self.num_pairs, self.seed)
        encoded = ((english.encode(), german.encode()) for english, german in pairs)
        return list(_blocks_of(encoded))


def _blocks_of(pairs: Iterable[tuple[bytes, bytes]]) -> Iterator[Block]:
    pairs, first = iter(pairs), 1
    while block := list(itertools.islice(pairs, BLOCK_PAIRS)):
        source, target = map(list, zip(*block, strict=True))
        yield Block(source, target, first=first)
        first += len(block)


def _line_blocks(source: str, target: str) -> Iterator[tuple[int, tuple[list[bytes], list[bytes]]]]:
    """Yields blocks of parallel lines of two files, each with the number of its first line.

    Blank lines at the end of the longer file, which editors and spreadsheets leave, do not count.
    """
    with open_binary(source) as source_file, open_binary(target) as target_file:
        first, rest = 1, list[bytes]()  # `rest`: lines of the source after the end of the target
        while not rest and (lines := source_file.readlines(_BLOCK_BYTES)):
            translations = list(itertools.islice(target_file, len(lines)))
            lines, rest = lines[: len(translations)], lines[len(translations) :]
            sides = list(map(without_end, lines)), list(map(without_end, translations))
            if not all(map(is_utf8, sides)):
                raise UnicodeError
            if lines:
                yield first, sides
            first += len(lines)
        extra = [
            _number_and_text(itertools.chain(rest, source_file)),
            _number_and_text(target_file),
        ]
    if any(has_text for _, has_text in extra):
        counts = [first - 1 + number for number, _ in extra]
        raise UserError(
            f"source and target must have equal numbers of lines: found {counts[0]} in {source} "
            f"and {counts[1]} in {target}"
        )


def _number_and_text(lines: Iterable[bytes]) -> tuple[int, bool]:
    """The number of lines, and whether one of them is not blank."""
    number, has_text = 0, False
    for line in lines:
        number += 1
        has_text = has_text or bool(without_end(line).decode("utf-8", "replace").strip())
    return number, has_text
