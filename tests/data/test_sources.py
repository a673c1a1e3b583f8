"""Sources of sentence pairs: reading them, and refusals before training starts."""

import gzip
import os
import re
import sys

import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from keras_transformer.data import BuiltinPairs, TextPairs, TfdsPairs, WeightedPairs
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.errors import UserError


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def read(pairs):
    return list(pairs)


def test_line_n_translates_line_n(tmp_path):
    source = write(tmp_path / "a.en", b"one\ntwo\n\nfour")
    target = write(tmp_path / "a.de", "eins\nzwei\ndrei\nfünf\n".encode())
    pairs = TextPairs(source, target)
    assert read(pairs) == [("one", "eins"), ("two", "zwei"), ("", "drei"), ("four", "fünf")]
    assert pairs.check() == 4
    assert set(pairs.sentences()) == {"one", "two", "", "four", "eins", "zwei", "drei", "fünf"}
    assert pairs.description == f"{source}, {target}"


def test_several_files_follow_one_another_plain_or_compressed(tmp_path):
    sources = [write(tmp_path / "a.en", b"one\n"), write(tmp_path / "b.en.gz", b"two\nthree")]
    targets = [write(tmp_path / "a.de.gz", b"eins"), write(tmp_path / "b.de", b"zwei\ndrei\n")]
    pairs = TextPairs(sources, targets)
    assert read(pairs) == [("one", "eins"), ("two", "zwei"), ("three", "drei")]
    assert pairs.check() == 3


@pytest.mark.parametrize("separator", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
def test_only_a_newline_ends_a_line(tmp_path, separator):
    source = write(tmp_path / "a.en", f"one{separator}more\r\ntwo\r\n".encode())
    pairs = TextPairs(source, write(tmp_path / "a.de", b"eins\nzwei\n"))
    assert pairs.check() == len(read(pairs)) == 2
    assert read(pairs)[1] == ("two", "zwei")


def test_a_pipe_is_refused_since_it_can_be_read_only_once(tmp_path):
    file = write(tmp_path / "a.en", b"1\n")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match=r"pipe is read more than once, .*: found a pipe"):
        TextPairs(file, [tmp_path / "pipe"])


def test_unequal_line_counts_are_refused(tmp_path):
    pairs = TextPairs(write(tmp_path / "a.en", b"1\n2\n3\n"), write(tmp_path / "a.de", b"1\n2\n"))
    with pytest.raises(UserError, match=r"found 3 in .*a\.en and 2 in .*a\.de"):
        pairs.check()


@pytest.mark.parametrize(
    "end", ["\n", "\n \t\r\n", "\u00a0\n", "\x1a", "\ufeff\n\u2028\n", "\u200b"]
)
@pytest.mark.parametrize("side", [0, 1])
def test_blank_lines_at_the_end_of_one_file_do_not_count(tmp_path, end, side):
    contents = [b"one\ntwo\n", b"eins\nzwei\n"]
    contents[side] += end.encode()
    files = (write(tmp_path / name, text) for name, text in zip("st", contents, strict=True))
    assert read(TextPairs(*files)) == [("one", "eins"), ("two", "zwei")]


def test_a_line_of_text_after_blank_lines_counts(tmp_path):
    pairs = TextPairs(write(tmp_path / "a.en", b"1\n\n\n4\n"), write(tmp_path / "a.de", b"1\n"))
    with pytest.raises(UserError, match=r"found 4 in .*a\.en and 1 in .*a\.de"):
        pairs.check()


def test_unequal_line_counts_of_two_files_do_not_make_up_for_each_other(tmp_path):
    one, two = write(tmp_path / "one", b"1\n"), write(tmp_path / "two", b"1\n2\n")
    with pytest.raises(UserError, match=r"found 1 in .*one and 2 in .*two"):
        TextPairs([one, two], [two, one]).check()


def test_each_source_file_needs_its_target_file():
    with pytest.raises(UserError, match=r"numbers of files: found 1 by a\.en and 2 by a\.de, b"):
        TextPairs("a.en", ["a.de", "b.de"])


def test_a_pattern_stands_for_its_files_in_order(tmp_path):
    for shard in (2, 0, 1):
        write(tmp_path / f"{shard}.en", b"%d\n" % shard)
        write(tmp_path / f"{shard}.de.gz", b"%d\n" % shard)
    pairs = TextPairs(tmp_path / "*.en", tmp_path / "*.de.gz")
    assert read(pairs) == [("0", "0"), ("1", "1"), ("2", "2")]
    assert pairs.description == f"{tmp_path / '*.en'}, {tmp_path / '*.de.gz'}"
    assert pairs.place(1, 2, 7) == f"{tmp_path / '2.de.gz'}:7"
    with pytest.raises(UserError, match=r"\*\.fr: no file matches this pattern"):
        TextPairs(tmp_path / "*.en", tmp_path / "*.fr")


def test_a_file_whose_name_is_a_pattern_is_that_file(tmp_path):
    path = write(tmp_path / "[a].en", b"1\n")
    assert TextPairs(path, path).check() == 1


def test_blocks_are_small_and_say_where_they_begin(tmp_path):
    lines = [b"%d" % n + b" x" * 100 for n in range(5000)]
    path = write(tmp_path / "a", b"\n".join(lines))
    blocks = list(TextPairs([path, path], [path, path]).blocks())
    assert len(blocks) > 4 and {block.file for block in blocks} == {0, 1}
    for file in (0, 1):
        expected = 1
        for block in blocks:
            if block.file == file:
                assert block.first == expected and block.source == block.target
                expected += len(block.source)
        assert expected == 5001
    assert [line for block in blocks for line in block.source] == lines * 2


def test_the_checksum_is_that_of_the_content(tmp_path):
    def checksum(source, target):
        return TextPairs(write(tmp_path / "a", source), write(tmp_path / "b", target)).checksum()

    assert checksum(b"1\n", b"2\n") == checksum(b"1\n", b"2\n")
    contents = [(b"1\n", b"2\n"), (b"2\n", b"1\n"), (b"1\n2\n", b""), (b"", b"1\n2\n")]
    assert len({checksum(*content) for content in contents}) == 4
    builtin = [
        BuiltinPairs("train", 20),
        BuiltinPairs("train", 20, seed=1),
        BuiltinPairs("test", 20),
    ]
    assert len({pairs.checksum() for pairs in builtin}) == 3
    assert BuiltinPairs("train", 20).checksum() == builtin[0].checksum()


@pytest.mark.parametrize("name", ["a.de", "a.de.gz"])
def test_text_that_is_not_utf_8_is_named_by_file_and_line(tmp_path, name):
    pairs = TextPairs(write(tmp_path / "a.en", b"1\n2\n"), write(tmp_path / name, b"1\n\xe9\n"))
    with pytest.raises(UserError, match=rf"{name}:2: not UTF-8"):
        pairs.check()


@pytest.mark.parametrize("name", ["a.de", "a.de.gz"])
@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE", "UTF-32LE", "UTF-32BE"])
def test_the_encoding_of_a_file_with_a_byte_order_mark_is_named(tmp_path, encoding, name):
    target = write(tmp_path / name, "\ufeffZwei Männer\nEin Hund\n".encode(encoding))
    pairs = TextPairs(write(tmp_path / "a.en", b"1\n2\n"), target)
    with pytest.raises(UserError) as error:
        pairs.check()
    encoding = encoding[:6]
    assert str(error.value) == (
        f"{target}:1: not UTF-8 text but {encoding}: convert it, for example by iconv -f "
        f"{encoding} -t UTF-8"
    )
    # Elsewhere in a file, the same bytes are no mark.
    write(target, b"1\n\xff\xfe\n")
    with pytest.raises(UserError, match=r":2: not UTF-8 text: invalid start byte"):
        pairs.check()


def test_missing_file_is_named(tmp_path):
    source = write(tmp_path / "a.en", b"1\n")
    for missing in (tmp_path / "missing.de", tmp_path / "missing.de.gz"):
        with pytest.raises(UserError, match=r"missing\.de.*No such file"):
            TextPairs(source, missing).check()


def test_truncated_or_plain_file_named_gz_is_refused(tmp_path):
    source = write(tmp_path / "a.en", b"1\n")
    whole = gzip.compress(b"\n".join(b"%d" % n for n in range(1000)))
    for content in (whole[:-9], whole[:50], b"plain text"):
        (tmp_path / "a.de.gz").write_bytes(content)
        with pytest.raises(UserError, match=r"a\.de\.gz:\d+: damaged gzip file"):
            TextPairs(source, tmp_path / "a.de.gz").check()


@pytest.fixture
def folder(tmp_path):
    for name, text in {
        "en.train.txt": "one\ntwo\nthree",
        "de.train.txt": "eins\nzwei\ndrei",
        "en.test.txt": "four",
        "de.test.txt": "vier",
    }.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_tfds_folder_gives_the_pairs_of_its_split(folder):
    pairs = TfdsPairs(folder, "train", "en", "de")
    assert read(pairs) == [("one", "eins"), ("two", "zwei"), ("three", "drei")]
    assert pairs.check() == 3
    assert list(pairs.sentences()) == ["one", "eins", "two", "zwei", "three", "drei"]
    assert read(TfdsPairs(folder, "test", "de", "en")) == [("vier", "four")]


def test_a_folder_has_the_lines_that_its_files_have(folder):
    """TFDS would also split them elsewhere."""
    (folder / "en.train.txt").write_text("one\x0bmore\u2028and more\r\ntwo\rtoo\nthree\x85")
    pairs = TfdsPairs(folder, "train", "en", "de")
    assert [source for source, _ in read(pairs)] == ["one more and more", "two too", "three"]
    assert pairs.place(1, 0, 3) == f"{folder / 'de.train.txt'}:3"
    with pytest.raises(UserError, match="a folder needs no download"):
        TfdsPairs(folder, "train", "en", "de", download=True)


def test_tfds_builder_is_taken_as_it_is(folder):
    builder = tfds.folder_dataset.TranslateFolder(str(folder))
    assert TfdsPairs(builder, "test", "en", "de").check() == 1


def test_tfds_data_set_by_name():
    def two_pairs(*_, **__):
        text = tf.data.Dataset.from_tensor_slices({"en": ["one", "two"], "de": ["eins", "zwei"]})
        return text.apply(tf.data.experimental.assert_cardinality(2))

    with tfds.testing.mock_data(as_dataset_fn=two_pairs):
        pairs = TfdsPairs("wmt14_translate/de-en", "train", "en", "de")
        assert read(pairs) == [("one", "eins"), ("two", "zwei")]
        assert pairs.check() == 2
    assert pairs.description.startswith("wmt14_translate/de-en")


def test_a_pair_of_tfds_that_is_not_utf_8_is_named():
    def latin_1(*_, **__):
        return tf.data.Dataset.from_tensor_slices(
            {"en": ["one", "two"], "de": ["eins", b"f\xfcnf"]}
        )

    with tfds.testing.mock_data(as_dataset_fn=latin_1):
        pairs = TfdsPairs("wmt14_translate/de-en", "train", "en", "de")
        with pytest.raises(UserError, match="pair 2: not UTF-8 text"):
            pairs.check()


def test_tfds_does_not_download_unasked(tmp_path):
    builder = tfds.builder("wmt14_translate/de-en", data_dir=tmp_path)
    with pytest.raises(UserError, match=r"no prepared data in .*download"):
        TfdsPairs(builder, "train", "en", "de").check()


def test_a_data_set_that_is_not_downloaded_is_not_counted(tmp_path):
    """Without --preset, `train` counts the pairs first."""
    builder = tfds.builder("wmt14_translate/de-en", data_dir=tmp_path)
    with pytest.raises(UserError, match=r"no prepared data in .*download"):
        TfdsPairs(builder, "train", "en", "de").count(at_most=1000)


def test_without_tfds_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(
        UserError, match=r"pip install '\.\[datasets\]' in a checkout of keras-transformer$"
    ):
        TfdsPairs("wmt14_translate/de-en", "train", "en", "de")


def test_unknown_data_set_language_or_split_is_refused(folder):
    with pytest.raises(UserError, match="no_such_data_set"):
        TfdsPairs("no_such_data_set", "train", "en", "de")
    with pytest.raises(UserError, match=r"has no fr\.train\.txt: found the languages de, en"):
        TfdsPairs(folder, "train", "en", "fr")
    with pytest.raises(UserError, match=r"no split nope: found .*train.*; .*--valid_split= "):
        TfdsPairs(folder, "nope", "en", "de").check()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("README", b"", "README: all files of this folder must be named LANGUAGE.SPLIT.txt"),
        ("en.train.txt", b"one\n\xff\nthree", "en.train.txt:2: not UTF-8 text"),
    ],
)
def test_a_file_that_a_folder_must_not_have_is_named(folder, name, content, message):
    (folder / name).write_bytes(content)
    with pytest.raises(UserError, match=message):
        TfdsPairs(folder, "train", "en", "de").check()


def test_folder_of_unequal_files_is_refused(folder):
    (folder / "en.train.txt").write_text("one")
    with pytest.raises(UserError, match=r"found 1 in .*en\.train\.txt and 3 in .*de\.train\.txt"):
        TfdsPairs(folder, "train", "en", "de").check()


def test_built_in_pairs_are_those_of_the_grammar():
    pairs = BuiltinPairs("validation", num_pairs=20, seed=3)
    assert read(pairs) == list(builtin_pairs("validation", 20, 3))
    assert pairs.check() == 20
    with pytest.raises(UserError, match="nope"):
        BuiltinPairs("nope", 20).check()


@pytest.fixture
def two_corpora(tmp_path):
    """One of two files, found by a pattern, and one of one file."""
    for name, text in (("a1", b"1\n"), ("a2", b"2\n3\n"), ("b", b"4\n")):
        for side in ("en", "de"):
            write(tmp_path / f"{name}.{side}", text)
    return [TextPairs(tmp_path / f"{name}.en", tmp_path / f"{name}.de") for name in ("a*", "b")]


def test_weighted_corpora_follow_each_other_and_know_their_places(two_corpora, tmp_path):
    pairs = WeightedPairs(two_corpora, [1, 3])
    assert [source for source, _ in pairs] == ["1", "2", "3", "4"]
    assert [block.part for block in pairs.blocks()] == [0, 0, 1]
    places = [pairs.place(1, block.file, block.first) for block in pairs.blocks()]
    assert places == [f"{tmp_path / name}.de:1" for name in ("a1", "a2", "b")]
    assert pairs.description == "; ".join(corpus.description for corpus in two_corpora)


def test_a_checksum_tells_where_one_corpus_ends_and_the_next_begins(two_corpora, tmp_path):
    together = TextPairs(
        *([tmp_path / f"{n}.{s}" for n in ("a1", "a2", "b")] for s in ("en", "de"))
    )
    checksums = {together.checksum(), WeightedPairs(two_corpora, [1, 3]).checksum()}
    assert len({*checksums, WeightedPairs(two_corpora[::-1], [1, 3]).checksum()}) == 3


@pytest.mark.parametrize(
    ("weights", "found"),
    [
        ([1], "1"),
        ([1, 2, 3], "1, 2, 3"),
        ([1, -0.5], "1, -0.5"),
        ([0, 0], "0, 0"),
        ([1, float("nan")], "1, nan"),
        ([1, float("inf")], "1, inf"),
        ([1e308, 1e308], "1e+308, 1e+308"),
        ([], "none"),
    ],
)
def test_weights_are_one_number_for_each_corpus(two_corpora, weights, found):
    with pytest.raises(
        UserError,
        match=rf"^weights must be one number for .*: found {re.escape(found)} for 2 corpora$",
    ):
        WeightedPairs(two_corpora, weights)


def test_corpora_with_weights_of_their_own_are_refused(two_corpora):
    inner = WeightedPairs(two_corpora, [1, 3])
    with pytest.raises(
        UserError, match="corpora must not be WeightedPairs, whose weights would be lost"
    ):
        WeightedPairs([inner, BuiltinPairs("train", 10)], [1, 1])
