"""A corpus as ids on disk: kept pairs, dropped pairs and their places, and the cache."""

import errno
import functools
import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from helpers import ROOT, as_read
from hypothesis import example, given, settings
from hypothesis import strategies as st

from keras_transformer.data import BuiltinPairs, Corpus, PairCounts, TextPairs
from keras_transformer.data.corpus import LONGEST_LINE
from keras_transformer.errors import UserError
from keras_transformer.text import SubwordTokenizer


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(["a b c abc 0 1 2 3 4 5 6 7 8 9"] * 5, 275)


def write(folder, **files):
    """Writes files of lines or of bytes, and returns their paths."""
    for name, content in files.items():
        if isinstance(content, list):
            content = "".join(f"{line}\n" for line in content).encode()
        (folder / name).write_bytes(content)
    return [folder / name for name in files]


def kept(corpus):
    """The pairs of a corpus, as lists of ids."""
    rows = np.arange(corpus.counts.kept)
    sides = [
        [corpus.pairs.ids[start : start + length].tolist() for start, length in zip(*side)]  # noqa: B905
        for side in corpus.pairs.sides(rows)
    ]
    return list(zip(*sides, strict=True))


def ids(tokenizer, *sentences):
    return tokenizer.tokenize(list(sentences)).to_list()


def target_ids(tokenizer, *sentences):
    return tokenizer.tokenize_target(list(sentences)).to_list()


# What is kept


def test_pairs_come_in_their_order(tokenizer, tmp_path):
    files = write(tmp_path, en=["a", "b c", "abc"], de=["1 2 3", "4", "5"])
    corpus = Corpus.build(TextPairs(*files), tokenizer)
    expected = zip(
        ids(tokenizer, "a", "b c", "abc"), ids(tokenizer, "1 2 3", "4", "5"), strict=True
    )
    assert kept(corpus) == list(expected)
    tokens = [sum(len(side) + 1 for side in sides) for sides in zip(*kept(corpus), strict=True)]
    assert corpus.counts == PairCounts(3, 0, 0, *tokens)


@pytest.mark.slow
def test_pairs_of_many_blocks_come_in_their_order(tokenizer):
    pairs = BuiltinPairs("train", 5000)
    expected = [tuple(ids(tokenizer, *pair)) for pair in pairs]
    assert kept(Corpus.build(pairs, tokenizer, max_length=10_000)) == expected


def test_an_empty_or_too_long_side_leaves_out_the_pair(tokenizer, tmp_path):
    longest = "a" * 7
    limit = len(ids(tokenizer, longest)[0]) + 1
    long = longest + "b" * 7
    files = write(
        tmp_path,
        en=["a 1", "", "a 3", long, "a 5", longest, "   ", "a 8"],
        de=["b 1", "b 2", "", "b 4", long, "b 6", long, "\u00a0\u200b"],
    )
    corpus = Corpus.build(TextPairs(*files), tokenizer, max_length=limit)
    assert kept(corpus) == [
        tuple(ids(tokenizer, "a 1", "b 1")),
        tuple(ids(tokenizer, longest, "b 6")),
    ]
    assert (corpus.counts.kept, corpus.counts.empty, corpus.counts.too_long) == (2, 4, 2)
    en, de = files
    assert corpus.examples == {
        "empty": [f"{en}:2", f"{de}:3", f"{en}:7"],
        "too_long": [f"{en}:4", f"{de}:5"],
    }
    assert corpus.left_out() == (
        f"4 pairs with an empty side ({en}:2, {de}:3, {en}:7, ...), "
        f"2 with a side of more than {limit} tokens ({en}:4, {de}:5)"
    )


def test_a_kind_of_which_nothing_was_left_out_is_not_mentioned(tokenizer, tmp_path):
    files = write(tmp_path, en=["1", "1 2 3 4 5 6 7 8", "1"], de=["1", "1", "1"])
    corpus = Corpus.build(TextPairs(*files), tokenizer, max_length=4)
    assert corpus.left_out() == f"1 pair with a side of more than 4 tokens ({files[0]}:2)"


def test_places_are_those_of_the_file_also_in_later_files(tokenizer, tmp_path):
    sources = write(tmp_path, a=["1"] * 5000, b=["1", "1", ""])
    targets = write(tmp_path, c=["1"] * 4998 + ["", "1"], d=["1"] * 3)
    corpus = Corpus.build(TextPairs(sources, targets), tokenizer)
    assert corpus.examples["empty"] == [f"{targets[0]}:4999", f"{sources[1]}:3"]


def test_what_cannot_be_used_at_all_gives_an_empty_corpus(tokenizer, tmp_path):
    for lines in ([], ["", " "]):
        files = write(tmp_path, en=lines, de=lines)
        corpus = Corpus.build(TextPairs(*files), tokenizer, cache=tmp_path / "cache")
        assert kept(corpus) == [] and corpus.counts == PairCounts(0, len(lines), 0, 0, 0)


def test_ids_beyond_two_bytes(tokenizer, tmp_path):
    files = write(tmp_path, en=["a"], de=["b"])
    big = SubwordTokenizer.from_bytes(tokenizer.to_bytes())
    big.vocab_size = 70_000
    corpora = [Corpus.build(TextPairs(*files), vocabulary) for vocabulary in (tokenizer, big)]
    assert [corpus.pairs.ids.dtype for corpus in corpora] == ["uint16", "int32"]
    assert kept(corpora[0]) == kept(corpora[1])


def test_max_length_needs_room_for_a_token(tokenizer):
    with pytest.raises(UserError, match="max_length must be at least 2"):
        Corpus.build(BuiltinPairs("train", 3), tokenizer, max_length=1)


# The fingerprint


def test_the_fingerprint_is_that_of_the_pairs_and_not_of_their_files(tokenizer, tmp_path):
    def fingerprint(source, target, **options):
        return Corpus.build(TextPairs(source, target), tokenizer, **options).fingerprint

    plain = write(tmp_path, en=["a", "b", "c"], de=["1", "2", "3"])
    parts = write(tmp_path, e1=["a"], e2=["b", "c"], d1=["1"], d2=["2", "3"])
    (tmp_path / "en.gz").write_bytes(gzip.compress(plain[0].read_bytes()))
    expected = fingerprint(*plain)
    assert fingerprint(parts[:2], parts[2:]) == expected
    assert fingerprint(tmp_path / "en.gz", plain[1], cache=tmp_path / "cache") == expected
    others = {expected, fingerprint(*reversed(plain))}
    for source, target in (["b", "a", "c"], ["1", "2", "3"]), (["a", "b", "c"], ["1", "2", "4"]):
        others.add(fingerprint(*write(tmp_path, en=source, de=target)))
    # The same ids, split at other places.
    others.add(fingerprint(*write(tmp_path, en=["a", "b", "c"], de=["1 2", "2", "3"])))
    assert len(others) == 5


# Bad data


HOSTILE = [
    "\x00",
    "a\x00b\x01\x02\x1b[31m",
    "\\ud800 \\udfff",
    "\ufeffa",
    "\u202eabc\u202c",
    "\u05e9\u05dc\u05d5\u05dd \u0645\u0631\u062d\u0628\u0627",
    " \t\u00a0\u3000",
    "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029g",
    "a\rb\r",
    "e" + "\u0301" * 1000,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "<s> </s> <pad> <unk> <0x41>",
    "\u2581a\u2581",
    "\uffff\ufffd\U0010ffff",
    "",
]


def test_thousands_of_hostile_lines_are_handled_or_reported(tokenizer, tmp_path):
    rng = np.random.default_rng(0)
    lines = [[HOSTILE[n] for n in rng.integers(len(HOSTILE), size=3000)] for _ in range(2)]
    lines[0][7::500] = lines[1][9::500] = ["abc" * 33_333] * 6
    files = write(tmp_path, en=lines[0], de=lines[1])
    corpus = Corpus.build(TextPairs(*files), tokenizer, max_length=2000)
    sides = [
        side_ids(tokenizer, *map(as_read, side))
        for side_ids, side in zip((ids, target_ids), lines, strict=True)
    ]
    expected = [pair for pair in zip(*sides, strict=True) if all(0 < len(s) < 2000 for s in pair)]
    assert kept(corpus) == expected
    counts = corpus.counts
    assert counts.empty > 100 and counts.too_long > 100
    assert counts.kept + counts.empty + counts.too_long == 3000


@settings(max_examples=150)
@given(
    st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12)), max_size=8),
    st.booleans(),
)
@example([(b"a\r", b"1"), (b"\r", b"2"), (b"\xef\xbb\xbfb", b"\xe2\x80\xa8")], True)
@example([(b"a", b"1"), (b"\xed\xa0\x80", b"2")], False)
def test_the_pairs_kept_are_those_at_equal_numbers_of_lines(
    tokenizer, tmp_path_factory, pairs, ends
):
    folder = tmp_path_factory.getbasetemp()
    sides = [[line.replace(b"\n", b"") for line in side] for side in zip(*pairs, strict=True)]
    sides = sides or [[], []]
    # Without its line break, an empty last line would not count.
    end = b"\n" if ends or any(side and not side[-1] for side in sides) else b""
    files = write(
        folder, **{n: b"\n".join(s) + (end if s else b"") for n, s in zip("ab", sides, strict=True)}
    )

    wrong = [
        f"{file}:{number}:"
        for file, side in zip(files, sides, strict=True)
        for number, line in enumerate(side, 1)
        if not_utf8(line)
    ]
    try:
        corpus = Corpus.build(TextPairs(*files), tokenizer, max_length=9)
    except UserError as error:
        assert wrong and str(error).startswith(wrong[0]), (str(error), wrong)
        return
    assert not wrong
    texts = [[as_read(line.decode()) for line in side] for side in sides]
    tokens = [
        side_ids(tokenizer, *side) if side else []
        for side_ids, side in zip((ids, target_ids), texts, strict=True)
    ]
    expected = [pair for pair in zip(*tokens, strict=True) if all(0 < len(s) < 9 for s in pair)]
    assert kept(corpus) == expected


def not_utf8(line):
    try:
        line.decode()
    except UnicodeDecodeError:
        return True
    return False


def test_tokenizing_for_training_is_that_of_translating(tokenizer):
    for line in HOSTILE:
        assert tokenizer.encode([line, "a"]).ids.tolist() == [
            id_ for row in ids(tokenizer, line, "a") for id_ in row
        ]


def test_a_line_takes_time_by_its_length_and_none_beyond_a_megabyte(tokenizer, tmp_path):
    def seconds(length):
        files = write(tmp_path, en=["ab c" * (length // 4)], de=["1"])
        began = time.process_time()
        assert Corpus.build(TextPairs(*files), tokenizer).counts.too_long == 1
        return time.process_time() - began

    seconds(1000)
    assert seconds(400_000) < 20 * seconds(100_000) + 0.2
    assert seconds(8 * LONGEST_LINE) < 2.0


# The cache


@pytest.fixture
def files(tmp_path):
    return write(tmp_path, en=["a", "", "b c"], de=["1", "2", "3"])


def build(files, tokenizer, cache, **options):
    said = []
    corpus = Corpus.build(TextPairs(*files), tokenizer, cache=cache, say=said.append, **options)
    return corpus, said


def test_a_cache_is_written_once_and_found_again(tokenizer, files, tmp_path):
    cache = tmp_path / "cache"
    first, said = build(files, tokenizer, cache)
    (folder,) = cache.iterdir()
    assert said == [f"Wrote the tokenised corpus to {folder}"]
    written = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    again, said = build(files, tokenizer, cache)
    assert said == [f"Using the tokenised corpus in {folder}"]
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == written
    uncached, said = build(files, tokenizer, None)
    assert said == []
    for corpus in (again, uncached):
        assert kept(corpus) == kept(first) and corpus.fingerprint == first.fingerprint
        assert corpus.counts == first.counts and corpus.examples == first.examples


def test_other_text_vocabulary_or_length_is_another_corpus(tokenizer, files, tmp_path):
    cache = tmp_path / "cache"
    build(files, tokenizer, cache)
    build(files, tokenizer, cache, max_length=100)
    build(files, SubwordTokenizer.train_from_sentences(["a b c 1 2 3"] * 5, 269), cache)
    write(tmp_path, en=["a", "", "b b"])
    corpus, _ = build(files, tokenizer, cache)
    assert len(list(cache.iterdir())) == 4
    assert kept(corpus)[1][0] == ids(tokenizer, "b b")[0]


@pytest.mark.parametrize("name", ["ids", "offsets", "source_lengths", "corpus.json"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_cache_is_noticed_and_made_anew(tokenizer, files, tmp_path, name, damage):
    cache = tmp_path / "cache"
    expected = kept(build(files, tokenizer, cache)[0])
    (folder,) = cache.iterdir()
    content = (folder / name).read_bytes()
    if damage == "gone":
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(
            content[: len(content) // 2] if damage == "cut" else b"\xff" + content[1:]
        )
    corpus, said = build(files, tokenizer, cache)
    assert said[0].startswith(f"Rebuilding {folder}: ")
    assert said[1] == f"Wrote the tokenised corpus to {folder}"
    assert kept(corpus) == expected
    assert build(files, tokenizer, cache)[1] == [f"Using the tokenised corpus in {folder}"]


def test_bad_text_leaves_nothing_in_the_cache(tokenizer, tmp_path):
    files = write(tmp_path, en=b"a\n\xff\n", de=b"1\n2\n")
    with pytest.raises(UserError, match=r"en:2: not UTF-8"):
        build(files, tokenizer, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.slow
def test_a_kill_while_the_cache_is_written_leaves_only_what_the_next_one_removes(
    tokenizer, tmp_path
):
    tokenizer.save(tmp_path / "vocabulary")
    files = write(tmp_path, en=["a b c abc"] * 300_000, de=["1 2 3"] * 300_000)
    cache = tmp_path / "cache"
    script = """
import sys
from keras_transformer.data import Corpus, TextPairs
from keras_transformer.text import SubwordTokenizer
source, target, vocabulary, cache = sys.argv[1:]
Corpus.build(TextPairs(source, target), SubwordTokenizer.load(vocabulary), cache=cache)
"""
    arguments = map(str, (*files, tmp_path / "vocabulary", cache))
    process = subprocess.Popen([sys.executable, "-c", script, *arguments], cwd=ROOT)
    while not any(path.stat().st_size for path in cache.rglob("ids")):
        assert process.poll() is None
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (left,) = cache.iterdir()
    assert left.name.startswith(".") and left.name.endswith(".partial")
    corpus, said = build(files, tokenizer, cache)
    assert corpus.counts.kept == 300_000 and said[-1].startswith("Wrote")
    assert [path.name for path in cache.iterdir()] == [left.name.split(".")[1]]


def test_without_a_cache_no_file_is_left_even_by_a_kill(tokenizer, files, tmp_path, monkeypatch):
    spool = tmp_path / "spool"
    spool.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(spool))
    corpus, _ = build(files, tokenizer, None)
    assert list(spool.iterdir()) == []  # the files are anonymous
    assert len(kept(corpus)) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_one_line(tokenizer, files, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", functools.partial(open, "/dev/full", "wb"))
    with pytest.raises(
        UserError, match=r"cannot store the tokenised corpus here: No space left"
    ) as error:
        build(files, tokenizer, None)
    assert "\n" not in str(error.value)


def test_a_full_disk_leaves_nothing_in_the_cache(tokenizer, files, tmp_path, monkeypatch):
    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match=r"cache: .* No space left"):
        build(files, tokenizer, tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("seconds", [10, 0])
def test_output_that_nobody_reads_is_no_fault_of_the_cache(
    seconds, tokenizer, files, tmp_path, monkeypatch
):
    monkeypatch.setattr("keras_transformer.data.corpus._SECONDS_BETWEEN_REPORTS", seconds)

    def closed(text):
        raise BrokenPipeError

    threads = threading.active_count()
    with pytest.raises(BrokenPipeError) as error:
        Corpus.build(TextPairs(*files), tokenizer, cache=tmp_path / "cache", say=closed)
    assert threading.active_count() == threads, error  # those of the unfinished pass have ended


def test_a_cache_that_is_no_folder_is_refused(tokenizer, files, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file: cannot store the tokenised corpus here: "):
        build(files, tokenizer, tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"


def test_of_two_processes_that_make_the_same_one_wins(tokenizer, files, tmp_path, monkeypatch):
    cache, first = tmp_path / "cache", []
    rename = Path.rename

    def meanwhile(path, target):
        if not first:
            first.append(target)
            build(files, tokenizer, cache)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", meanwhile)
    corpus, _ = build(files, tokenizer, cache)
    assert len(kept(corpus)) == 2 and [cache / first[0].name] == list(cache.iterdir())


def test_a_long_pass_says_how_far_it_is(tokenizer, monkeypatch):
    monkeypatch.setattr("keras_transformer.data.corpus._SECONDS_BETWEEN_REPORTS", 0)
    said = []
    Corpus.build(BuiltinPairs("train", 5000), tokenizer, 10_000, say=said.append)
    assert said[-1] == "Tokenised 5,000 pairs" and len(said) > 1


def test_meta_is_plain_json(tokenizer, files, tmp_path):
    build(files, tokenizer, tmp_path / "cache")
    (folder,) = (tmp_path / "cache").iterdir()
    meta = json.loads((folder / "corpus.json").read_text())
    assert meta["counts"]["kept"] == 2
