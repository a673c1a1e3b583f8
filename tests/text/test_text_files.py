"""Lines that come slowly are answered soon; files are read in large lists."""

import io
import os
import threading
import time

import pytest

from keras_transformer.text.text_files import blocks, open_binary


def from_pipe(*writes):
    """A stream to which a thread writes each text, after so many seconds."""
    read, write = os.pipe()

    def go_on():
        for seconds, text in writes:
            time.sleep(seconds)
            os.write(write, text)
        os.close(write)

    threading.Thread(target=go_on, daemon=True).start()
    return open(read, "rb")


def test_a_line_is_not_kept_back_until_others_come():
    stream = from_pipe((0, b"a\n"), (0.5, b"b\n"), (0.01, b"c"), (0.01, b"d"))
    assert list(blocks(stream, 10)) == [[b"a\n"], [b"b\n", b"cd"]]


def test_lines_that_keep_coming_are_answered_after_half_a_second():
    stream = from_pipe(*[(0.04, b"x\n")] * 30)  # never a pause of a tenth of a second
    found = list(blocks(stream, 1000))
    assert sum(map(len, found)) == 30
    assert 2 <= len(found) <= 5


def test_a_part_of_a_line_waits_for_its_end():
    assert list(blocks(from_pipe((0, b"a"), (0.3, b"b\nc")), 10)) == [[b"ab\n", b"c"]]


def test_a_file_is_read_in_full_lists_however_long_each_takes(tmp_path):
    (tmp_path / "file").write_bytes(b"line\n" * 30_000)
    sizes = []
    for lines in blocks(open_binary(tmp_path / "file"), 10_000):
        sizes.append(len(lines))
        time.sleep(0.6 if len(sizes) == 1 else 0)
    assert sizes == [10_000] * 3


@pytest.mark.parametrize("most", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("text", [b"", b"\n", b"a", b"a\n\nb\r\n", b"line\n" * 40_000 + b"end"])
def test_a_file_gives_lists_of_as_many_lines_as_asked(text, most, tmp_path):
    (tmp_path / "file").write_bytes(text)
    for stream in (open_binary(tmp_path / "file"), io.BytesIO(text)):
        found = list(blocks(stream, most))
        assert b"".join(line for lines in found for line in lines) == text
        assert [line for lines in found for line in lines] == io.BytesIO(text).readlines()
        assert all(len(lines) == most for lines in found[:-1])
