"""A corpus as ids on disk, made in one parallel pass that also checks and counts the pairs."""

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from keras_transformer.data.sources import Block, SentencePairs
from keras_transformer.errors import UserError
from keras_transformer.files import open_regular, partial_folder
from keras_transformer.json_files import read_json
from keras_transformer.text import Tokenizer
from keras_transformer.text.directed import DirectedTokenizer

LONGEST_LINE = 1 << 20  # bytes; longer lines count as too long and are not tokenised

_FORMAT = 3  # raise it when the same corpus gives other ids or other files
_FILES = {"ids": None, "offsets": np.int64, "source_lengths": np.int32}
_META = "corpus.json"
_EXAMPLES = 3  # places that are reported, for each reason to leave pairs out
_SECONDS_BETWEEN_REPORTS = 60


class PairIds(NamedTuple):
    """Pairs of sentences as ids, without start and end symbols.

    Attributes:
        ids: source of the first pair, its target, source of the second pair, and so on.
        offsets: int64 `(pairs + 1,)`, start of each pair in `ids`.
        source_lengths: int32 `(pairs,)`, length of each source.
    """

    ids: np.ndarray
    offsets: np.ndarray
    source_lengths: np.ndarray

    @property
    def size(self) -> int:
        """The number of pairs."""
        return len(self.source_lengths)

    def sides(self, pairs: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Returns (starts in `ids`, lengths) of the sources of some pairs, and of their targets."""
        starts, source_lengths = self.offsets[pairs], self.source_lengths[pairs]
        targets = starts + source_lengths
        return (starts, source_lengths), (targets, self.offsets[pairs + 1] - targets)


class BothDirections(NamedTuple):
    """All pairs, followed by the same pairs with their sides exchanged.

    Example: the pairs are a b | x and c | v w (letters stand for ids). Then the third pair is
    x | a b and the fourth v w | c. They share the `ids` of the first two.
    """

    pairs: PairIds

    @property
    def ids(self) -> np.ndarray:
        """`PairIds.ids`."""
        return self.pairs.ids

    @property
    def size(self) -> int:
        """The number of pairs in both directions together."""
        return 2 * self.pairs.size

    def sides(self, pairs: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """`PairIds.sides`."""
        sides = np.array(self.pairs.sides(pairs % self.pairs.size))  # (side, start or length, pair)
        source, target = np.where(pairs < self.pairs.size, sides, sides[::-1])
        return tuple(source), tuple(target)


@dataclass(frozen=True)
class PairCounts:
    """Numbers of pairs that a `Corpus` keeps and leaves out.

    Attributes:
        kept: pairs kept.
        empty: pairs left out because a side has no token.
        too_long: pairs left out because a side is longer than `max_length`.
        source_tokens, target_tokens: tokens of the pairs kept, end symbols included.
    """

    kept: int
    empty: int
    too_long: int
    source_tokens: int
    target_tokens: int


class Part(NamedTuple):
    """One of several corpora whose pairs follow each other in a `Corpus`.

    Attributes:
        kept: number of its pairs.
        weight: weight of its pairs in batches; see `WeightedPairs`.
    """

    kept: int
    weight: float


@dataclass(frozen=True, eq=False)
class Corpus:
    """Sentence pairs as ids of a vocabulary, on disk: a few bytes of memory per pair.

    Pairs with a side that is empty or longer than `max_length` are left out.

    Attributes:
        pairs: ids of the pairs kept.
        counts: numbers of pairs kept and left out.
        examples: places of the first pairs left out as `empty` and as `too_long`.
        fingerprint: hexadecimal checksum of the pairs and their ids, and of the sizes of parts.
        tokenizer: the vocabulary.
        max_length: maximum tokens of a side, end symbol included.
        parts: the corpora of `WeightedPairs`; of other pairs, none.

    Example:
        >>> corpus = Corpus.build(TextPairs("train.en", "train.de"), tokenizer)
        >>> corpus.counts.kept
        200
    """

    pairs: PairIds
    counts: PairCounts
    examples: dict[str, list[str]]
    fingerprint: str
    tokenizer: Tokenizer
    max_length: int
    parts: tuple[Part, ...] = ()

    @classmethod
    def build(
        cls,
        pairs: SentencePairs,
        tokenizer: Tokenizer,
        max_length: int = 256,
        cache: str | os.PathLike | None = None,
        say: Callable[[str], None] = print,
    ) -> "Corpus":
        """Reads, checks, counts and tokenises all pairs, on all cores.

        Without a cache, the ids go to unnamed files in the temporary folder
        (`tempfile.gettempdir()`), which vanish with the process. A cache is kept.

        Args:
            pairs: source of the sentences.
            tokenizer: the vocabulary of both sides.
            max_length: maximum tokens of a side, end symbol included. Pairs with a longer side are
                left out, and so are pairs with a line of more than `LONGEST_LINE` bytes.
            cache: folder of corpora, each in a folder named by checksums of the sentences and the
                vocabulary. A corpus already there is reused.
            say: function that takes messages on the cache and on the progress of a long pass.

        Raises:
            UserError: the pairs cannot be read or are malformed (see `SentencePairs.blocks`), or
                the ids cannot be written.
        """
        if max_length < 2:
            raise UserError(f"max_length must be at least 2 tokens: found {max_length}")
        folder = cache and Path(cache) / _key(pairs, tokenizer, max_length)
        try:
            if not folder:
                with contextlib.ExitStack() as stack:
                    files = {name: stack.enter_context(tempfile.TemporaryFile()) for name in _FILES}
                    meta = _write(files, pairs, tokenizer, max_length, say)
                    return cls._open(files, meta, pairs, tokenizer, max_length)
            if folder.exists():
                if damage := _damage(folder):
                    say(f"Rebuilding {folder}: {damage}")
                    shutil.rmtree(folder)
                else:
                    say(f"Using the tokenised corpus in {folder}")
            if not folder.exists():
                _write_folder(folder, pairs, tokenizer, max_length, say)
                say(f"Wrote the tokenised corpus to {folder}")
        except BrokenPipeError:  # of `say`: the reader of our output has gone
            raise
        except OSError as error:
            place = cache or tempfile.gettempdir()
            reason = error.strerror
            raise UserError(f"{place}: cannot store the tokenised corpus here: {reason}") from error
        paths = {name: folder / name for name in _FILES}
        meta = json.loads((folder / _META).read_text())
        return cls._open(paths, meta, pairs, tokenizer, max_length)

    @classmethod
    def _open(cls, files, meta, pairs, tokenizer, max_length):
        arrays = {}
        for name, dtype in _dtypes(tokenizer).items():
            size = meta["files"][name]["size"]
            arrays[name] = np.memmap(files[name], dtype, "r") if size else np.zeros(0, dtype)
        described = [meta["files"], meta["parts"]] if pairs.weights else meta["files"]
        return cls(
            PairIds(**{name: np.asarray(array) for name, array in arrays.items()}),
            PairCounts(**meta["counts"]),
            {
                kind: [pairs.place(*place) for place in places]
                for kind, places in meta["examples"].items()
            },
            _digest(json.dumps(described).encode()),
            tokenizer,
            max_length,
            tuple(
                Part(meta["parts"].get(str(number), 0), weight)
                for number, weight in enumerate(pairs.weights or ())
            ),
        )

    def shares(self) -> str:
        """Describes in words the share of each part in the pairs of batches."""
        total = sum(part.weight for part in self.parts)
        return ", ".join(
            f"{part.weight / total:.1%} from corpus {number} ({part.kept:,} pairs)"
            for number, part in enumerate(self.parts, 1)
        )

    def left_out(self) -> str:
        """Describes in words how many pairs were left out, why, and where the first ones are.

        Only kinds that occur are mentioned.
        """
        kinds = {
            "empty": "with an empty side",
            "too_long": f"with a side of more than {self.max_length} tokens",
        }
        parts: list[str] = []
        for kind, name in kinds.items():
            count, places = getattr(self.counts, kind), list(self.examples[kind])
            if not count:
                continue
            if count > len(places) > 0:
                places.append("...")
            pairs = "" if parts else "pair " if count == 1 else "pairs "
            where = f" ({', '.join(places)})" if places else ""
            parts.append(f"{count:,} {pairs}{name}{where}")
        return ", ".join(parts)


def usable_corpus(
    pairs: SentencePairs,
    tokenizer: Tokenizer,
    max_length: int = 256,
    cache: str | os.PathLike | None = None,
    say: Callable[[str], None] = print,
) -> Corpus:
    """Builds a corpus (`Corpus.build`) and reports the pairs left out.

    Raises:
        UserError: as for `Corpus.build`, or no pair is left.
    """
    corpus = Corpus.build(pairs, tokenizer, max_length, cache, say)
    counts = corpus.counts
    if counts.empty or counts.too_long:
        say(f"Dropped from {pairs.description}: {corpus.left_out()}")
    if not counts.kept:
        raise UserError(
            f"{pairs.description}: no pair has 1 to {max_length} tokens on each side: "
            f"{counts.empty} have an empty side, {counts.too_long} are too long"
        )
    return corpus


class _Encoded(NamedTuple):
    """An encoded block, ready to be written."""

    ids: np.ndarray
    lengths: np.ndarray
    source_lengths: np.ndarray
    left_out: dict[str, int]
    examples: dict[str, list[tuple[int, int, int]]]
    part: int


def _encode(block: Block, tokenizer: Tokenizer, max_length: int, dtype) -> _Encoded:
    """Tokenises a block of pairs, and joins the ids of the pairs kept.

    Example: the pairs are a b | x, nothing | y, and c | v w (letters stand for ids):

        lengths      2 0 1 | 1 1 2    sources | targets
        keep         1 0 1            the second pair has an empty side
        values kept  a b c | x v w    `values[np.repeat(keep, row_lengths)]` of each side
        is_source    1 1 0 1 0 0      which of the ids below belong to a source
        ids          a b x c v w      source and target of the first pair, then of the third
    """
    texts = block.source, block.target
    is_huge = np.array([[len(line) > LONGEST_LINE for line in side] for side in texts])
    tokenized = [
        tokenizer.encode(
            [line.decode("utf-8") if len(line) <= LONGEST_LINE else "" for line in side], is_target
        )
        for is_target, side in zip((False, True), texts, strict=True)
    ]
    lengths = np.stack([side.lengths for side in tokenized])  # (2, pairs)
    is_empty = (lengths == 0) & ~is_huge
    is_long = is_huge | (lengths + 1 > max_length)
    empty, long = is_empty.any(0), is_long.any(0)  # (pairs,)
    keep = ~(empty | long)

    source_lengths, target_lengths = lengths[:, keep]  # (kept,) each
    ends = np.cumsum(source_lengths + target_lengths)
    ids = np.empty(ends[-1] if len(ends) else 0, dtype)
    is_source = np.repeat(np.tile([True, False], len(ends)), lengths[:, keep].T.ravel())
    for (values, row_lengths), is_side in zip(tokenized, (is_source, ~is_source), strict=True):
        ids[is_side] = values[np.repeat(keep, row_lengths)]
    kinds = {"empty": (empty, is_empty), "too_long": (long & ~empty, is_long)}
    return _Encoded(
        ids,
        source_lengths + target_lengths,
        source_lengths,
        {kind: int(pairs.sum()) for kind, (pairs, _) in kinds.items()},
        {
            kind: [
                (int(is_side[:, row].argmax()), block.file, block.first + int(row))
                for row in np.flatnonzero(pairs)[:_EXAMPLES]
            ]
            for kind, (pairs, is_side) in kinds.items()
        },
        block.part,
    )


def _write(files: Mapping[str, IO[bytes]], pairs, tokenizer, max_length, say) -> dict:
    """Writes all ids to the files as they are made; returns counts, examples and checksums."""
    dtypes = _dtypes(tokenizer)
    digests = {name: hashlib.blake2b(digest_size=16) for name in _FILES}
    counts = dict.fromkeys(PairCounts.__dataclass_fields__, 0)
    examples: dict[str, list[str]] = {"empty": [], "too_long": []}
    parts: Counter[str] = Counter()  # kept pairs of each; JSON turns numbers into strings
    reported, end = time.monotonic(), 0

    def write(name, array):
        content = np.ascontiguousarray(array, dtypes[name])
        files[name].write(content)
        digests[name].update(content)

    write("offsets", [0])
    tokenizers: dict[str | None, Tokenizer] = {
        code: DirectedTokenizer(tokenizer, code) for code in pairs.target_langs
    } or {None: tokenizer}
    encoded = _in_order(
        lambda block: _encode(block, tokenizers[block.target_lang], max_length, dtypes["ids"]),
        pairs.blocks(),
    )
    with contextlib.closing(encoded):  # after an error, this ends its threads
        for block in encoded:
            write("ids", block.ids)
            write("offsets", end + np.cumsum(block.lengths))
            write("source_lengths", block.source_lengths)
            end += len(block.ids)
            kept, source_tokens = len(block.lengths), int(block.source_lengths.sum())
            counts["kept"] += kept
            parts[str(block.part)] += kept
            counts["source_tokens"] += source_tokens + kept
            counts["target_tokens"] += len(block.ids) - source_tokens + kept
            for kind, places in block.examples.items():
                counts[kind] += block.left_out[kind]
                examples[kind] = [*examples[kind], *places][:_EXAMPLES]
            if time.monotonic() - reported > _SECONDS_BETWEEN_REPORTS:
                reported = time.monotonic()
                say(f"Tokenised {counts['kept']:,} pairs")
    for file in files.values():
        file.flush()
    described = {
        name: {"size": files[name].tell(), "checksum": digests[name].hexdigest()} for name in _FILES
    }
    return {"counts": counts, "examples": examples, "parts": parts, "files": described}


def _write_folder(folder: Path, pairs, tokenizer, max_length, say) -> None:
    """Writes `folder` under a temporary name beside it, and renames it once complete."""
    with partial_folder(folder) as partial:
        with contextlib.ExitStack() as stack:
            files = {name: stack.enter_context(open(partial / name, "wb")) for name in _FILES}
            meta = _write(files, pairs, tokenizer, max_length, say)
        (partial / _META).write_text(json.dumps(meta, indent=2) + "\n")
        try:
            partial.rename(folder)
        except OSError:
            if not folder.exists():  # else another process made the same one meanwhile
                raise


def _damage(folder: Path) -> str | None:
    """Describes the damage to a corpus in the cache, if any."""
    try:
        meta = read_json(folder / _META)
        for name in _FILES:
            with open_regular(folder / name) as file:
                digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16))
            if digest.hexdigest() != meta["files"][name]["checksum"]:
                return f"{name} is damaged"
        PairCounts(**meta["counts"])
        dict(meta["parts"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"it cannot be read ({error})"
    return None


def _in_order(function: Callable, items: Iterable) -> Generator:
    """Maps in order on all cores, with only as many items in memory as keep the cores busy."""
    workers = os.cpu_count() or 1
    waiting: deque[Future] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _dtypes(tokenizer: Tokenizer) -> dict[str, Any]:
    return {**_FILES, "ids": np.uint16 if tokenizer.vocab_size <= 1 << 16 else np.int32}


def _key(pairs: SentencePairs, tokenizer: Tokenizer, max_length: int) -> str:
    parts = [str(_FORMAT), pairs.checksum(), _digest(tokenizer.to_bytes()), str(max_length)]
    return _digest(" ".join(parts).encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()
