"""Links in the documents work: the file exists in the repository, and so does the heading."""

import re

import pytest
from helpers import ROOT

DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "benchmarks/results/README.md",
]
CODE = re.compile(r"^```.*?^```|^(?:    .*\n)+|`[^`\n]*`", re.DOTALL | re.MULTILINE)


def anchors(text):
    """The anchors that GitHub makes for a document's headings."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)}


def anchor(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links(document, text):
    """The broken relative links of a text, as seen from a document's folder."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", CODE.sub("", text)):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        if re.match(r"[a-z]+:", link):
            continue
        if not target.is_file() or (anchor and anchor not in anchors(target.read_text())):
            broken.append(link)
    return broken


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_and_anchors_resolve(document):
    assert broken_links(document, document.read_text()) == []


def test_a_link_that_leads_nowhere_is_found():
    text = "# Some *words*, here\n[a](#some-words-here) [b](#none) [c](none.md) `[d](code)`\n"
    text += "[e](https://example.org) [f](docs/serving.md#none) [g](docs/serving.md)\n"
    document = ROOT / "README.md"
    assert broken_links(document, text) == [
        "#some-words-here",
        "#none",
        "none.md",
        "docs/serving.md#none",
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_a_merge_has_left_no_marks(document):
    assert not re.findall(r"^(?:<{7}|={7}|>{7})(?: .*)?$", document.read_text(), re.MULTILINE)
