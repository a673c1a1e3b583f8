"""Whether a corpus copies placeholders and long numbers is measured on its pairs."""

import pytest

from keras_transformer.data import TextPairs
from keras_transformer.data.copied_parts import share_copied


def share(tmp_path, pairs):
    for name, lines in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return share_copied(TextPairs(tmp_path / "source", tmp_path / "target"), len(pairs))


@pytest.mark.parametrize(
    ("source", "target", "is_copied"),
    [
        ("write to {name}", "schreib an {name}", True),
        ("%s of %d files", "%d dosyadan %s", True),
        ("1,250 files since 1999", "1.250 Dateien seit 1999", True),
        ("since 1999", "از سال ۱۹۹۹", True),
        ("write to me@x.org", "write to EMAIL", False),
        ("am 12.05.2020, {name}", "on May 12, 2020, {name}", True),
        ("1234+1=", "1235", False),
        ("see https://x.org and %s", "see %s", False),
    ],
)
def test_pairs_copy_placeholders_and_numbers(source, target, is_copied, tmp_path):
    assert share(tmp_path, [(source, target), ("yes", "ja"), ("12 dogs", "zwölf")]) == is_copied


def test_a_share_of_all_pairs_with_such_parts(tmp_path):
    copied, replaced = ("{a} b", "{a} c"), ("%d dogs", "so many dogs")
    assert share(tmp_path, [copied, copied, replaced, copied, ("no", "nein")]) == 0.75
    assert share(tmp_path, 98 * [("no", "nein")] + 2 * [copied]) == 1


def test_few_such_pairs_tell_nothing(tmp_path):
    assert share(tmp_path, 99 * [("no", "nein")] + [("%d dogs", "so many")]) is None
