"""Only the text of Markdown changes; its links and emphasis stand around what corresponds."""

import random
import re
import warnings
from collections import Counter
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from word_translator import Always, Same, Words

from keras_transformer.documents.markup import MarkupWarning, translate_markdown
from keras_transformer.text.markdown_reader import read_markdown
from keras_transformer.translation import Alignment

ROOT = Path(__file__).resolve().parents[2]
RENDERER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def backwards(count):
    return range(count - 1, -1, -1)


def translated(text, translator=None, **options):
    """The translation of one Markdown text."""
    [[best]] = translate_markdown(translator or Words(backwards), [text], **options)
    return best.text


@pytest.mark.parametrize(
    "text",
    ["\u00a0\nA b.", "\x0c\nA b.", "> \u00a0\n> A b.", "- \u3000\n  A b.", "\u00a0\n\u00a0\nA b."],
)
def test_a_paragraph_may_begin_with_a_line_of_other_white_space(text):
    assert translated(text, Same()) == text


@pytest.mark.parametrize("translation", ["a\\", "`", "a]", "![", "\\]", "<b", "$x", "a](c)"])
def test_no_translation_breaks_an_image(translation):
    found = translated("[![a b](e)](f) ![c d](g)\n\n![h i](j)", Always(translation))
    images = [
        child
        for token in MarkdownIt("commonmark").parse(found)
        for child in token.children or []
        if child.type == "image"
    ]
    assert [image.attrs["src"] for image in images] == ["e", "g", "j"]
    texts = ["".join(part.content for part in image.children) for image in images]
    assert texts == [translation] * 3
    assert found.count("](f)") == 1


def test_cells_may_be_empty():
    rows = "||a b|c d|\n|-|-|-|\n|x|y|e f|\n| |  | g h\n"
    assert translated(rows) == "||B A|D C|\n|-|-|-|\n|X|Y|F E|\n| |  | H G\n"


def test_code_may_be_the_beginning_of_other_code():
    text = "a `https:` b `https://c.d`; e `https://c.d/`, f `%`, g `%s`"
    assert translated(text, Same()) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("\n\n", "\n\n"),
        ("a b", "B A"),
        ("a\nb\r\nc\n", "C B A\n"),  # the lines of a paragraph become one
        ("a  \nb c\\\nd e", "A  \nC B\\\nE D"),  # except where a line must end
        ("# a b #\n\na b\n---\n", "# B A #\n\nB A\n---\n"),
        ("> a\n> b\n>\n> - c\n>   d\n", "> B A\n>\n> - D C\n"),
        ("1. a b\n2) c\n\n   d e", "1. B A\n2) C\n\n   E D"),
        ("- [ ] a b\n- [x] c d\n", "- [ ] B A\n- [x] D C\n"),
        ("*a b* c", "C *B A*"),
        ("a __b _c_ d__", "__D _C_ B__ A"),
        ("***a*** b", "B ***A***"),
        ("a ~~b~~ c*d", "C*D ~~B~~ A"),
        ("a [b c](d.md \"e f\") g", "G [C B](d.md \"e f\") A"),
        ("[a `%b` c](d)", "[C `%b` A](d)"),
        ("a `b=  ` d", "D `b=  ` A"),
        ("a ![b c](d.png) e f", "F ![C B](d.png) E A"),
        ("a ![b *c*][d] e\n\n[d]: u", "![*C* B][d] E A\n\n[d]: u"),
        ("a ![](b.png) ![ ](b.png) c", "![](b.png) ![ ](b.png) C A"),
        ("a ![d] e\n\n[d]: u", "![d] E A\n\n[d]: u"),
        ("a [![b c](d.png)](e) ![f.png](g)", "A [![C B](d.png)](e) ![f.png](g)"),
        ("> a <abbr title='b\n> c'>d</abbr>", "> <abbr title='C B'>D</abbr> A"),
        ("|<a title='b &#124; c' href=d>e</a>|\n|-|", "|<a title='C &#124; B' href=d>E</a>|\n|-|"),
        ("a ![b\\\nc](d.png)", "A ![C B](d.png)"),
        ("![a b&#10;&#10;c](u)\n\n![x y](z)", "![C B A](u)\n\n![Y X](z)"),
        ("> a ![b\n> c](d.png)", "> A ![C B](d.png)"),
        ("a <b title='c d'>e</b>", "<b title='D C'>E</b> A"),
        ("a <https://b.c/d_e_f> g", "G <https://b.c/d_e_f> A"),
        ("a &amp; b \\* c", "C * B & A"),
        ("a <b>b c</b> d<br>e f", "D <b>C B</b> A<br>F E"),
        ("a b<!-- c --> d", "D B<!-- c --> A"),
        ("a $x=1$ b costs $5", "$5 COSTS B $x=1$ A"),
        ("a b[^1] :tada:\n\n[^1]: c d\n", "B A[^1] :tada:\n\n[^1]: D C\n"),
        ("## a b {#c}", "## B A {#c}"),
        ("a\n\n    b c\n\n```\nd e\n```\n", "A\n\n    b c\n\n```\nd e\n```\n"),
        (
            "!!! note\n\n    a b\n\n        c\n\n    - d\n      e\n\nf g",
            "!!! note\n\n    B A\n\n        c\n\n    - E D\n\nG F",
        ),
        ("a b\n!!! tip \"c d\"\n    a b\n    c\nd e", "B A\n!!! tip \"c d\"\n    C B A\nE D"),
        ("- a b\n\n    ??? tip\n\n        c d\n", "- B A\n\n    ??? tip\n\n        D C\n"),
        ('=== "a"\n\n    !!! tip\n\n        c d\n', '=== "a"\n\n    !!! tip\n\n        D C\n'),
        ("> !!! note\n>\n>     a b\n", "> !!! note\n>\n>     B A\n"),
        ("[^1]: a b\n    c\n\n    d e\n[^2]: f g", "[^1]: C B A\n\n    E D\n[^2]: G F"),
        ("a b\n:   c d\n    e\n:   f g\n", "B A\n:   E D C\n:   G F\n"),
        ("a b\n===\n\nc d", "B A\n===\n\nD C"),
        ("---\na: b c\n---\nd e", "---\na: b c\n---\nE D"),
        ("\ufeff---\r\na: b c\r\n---\r\n# d e\r\n", "\ufeff---\r\na: b c\r\n---\r\n# E D\r\n"),
        ("\ufeff# a b", "\ufeff# B A"),
        ("a [[b=c]] d", "D [[b=c]] A"),
        ("> [!NOTE]\n> a b", "> [!NOTE]\n> B A"),
        ("!!! note\n    a b", "!!! note\n    B A"),
        ("::: tip\na b\n:::", "::: tip\nB A\n:::"),
        ("|a b|c|\n|-|:-:|\n|d \\| e|`f\\|g`|", "|B A|C|\n|-|:-:|\n|E \\| D|`f\\|g`|"),
        ("<p>\n  a <i>b</i> &lt;\n</p>\n\nc d", "<p>\n  &lt; <i>B</i> A\n</p>\n\nD C"),
        ("- a\n\n  <p>\n    b <i>c</i>\n  </p>\n- d", "- A\n\n  <p>\n    <i>C</i> B\n  </p>\n- D"),
        ("> <p\n>  title='a b'>c\n> d</p>\n> e\n\nf", "> <p\n>  title='B A'>D C</p>\n> E\n\nF"),
        ("> - <pre>\n>   a\n>\n>   b</pre>\n>\n> c", "> - <pre>\n>   a\n>\n>   b</pre>\n>\n> C"),
        ("1. <!-- a\n   b -->\n   <p>c d", "1. <!-- a\n   b -->\n   <p>D C"),
        ("> <div>\n> <b>a</b> b", "> <div>\n> B <b>A</b>"),
    ],
)  # fmt: skip
def test_only_text_changes(text, expected):
    assert translated(text) == expected


@pytest.mark.parametrize("text", ["All [`Socket`](u)s' **[`a`](v)** x", "[*`Buffer`*](u)s of `b`"])
def test_a_link_around_code_alone_stays_around_it(text):
    assert translated(text, Same()) == text


@pytest.mark.parametrize("reference", ["[a b][c]", "[a b][]", "[a b]"])
def test_the_text_of_a_link_is_translated_and_its_definition_is_found(reference):
    definitions = "\n\n[c]: d.md\n[a b]: e.md\n"
    name = "c" if "c" in reference else "a b"
    assert translated(reference + definitions) == f"[B A][{name}]{definitions}"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2 * 3 and snake_case", "2 * 3 and snake_case"),
        ("*a* and `b`", r"\*a\* and \`b\`"),
        ("List<T>", r"List\<T\>"),
        ("see [a b]", "see \\[a b\\]"),
        ("1914. b", r"1914\. b"),
        ("# b", r"\# b"),
        ("- b", r"\- b"),
    ],
)
def test_what_would_be_read_as_markup_is_escaped(given, expected):
    text = "c\n\n[a b]: d"
    assert translated(text, Always(given)) == text.replace("c", expected, 1)


def test_a_number_in_a_heading_or_a_cell_needs_no_escape():
    assert translated("c", Always("٢. b")) == "٢. b"  # no list to CommonMark
    assert translated("# c", Always("1. b")) == "# 1. b"
    assert translated("|c|\n|-|", Always("a | b")) == r"|a \| b|" + "\n|-|"


def test_emphasis_that_markdown_cannot_write_there_is_html():
    class Chinese(Always):
        def align(self, sentences, translations):
            return [Alignment(["▁a", "▁b"], ["▁甲", "乙"], [(0, 0), (1, 1)])]

    assert translated("*a* b", Chinese("甲乙")) == "*甲*乙"
    assert translated("_a_ b", Chinese("甲乙")) == "<em>甲</em>乙"


def test_placeholders_are_copied_and_a_tag_that_is_not_closed_is_named():
    assert translated("a *{x_y}* %s_b_") == "%s_b_ *{x_y}* A"
    with pytest.warns(MarkupWarning, match="text at index 0, line 3: <b> is not closed"):
        translated("a\n\nb <b>c")


def test_sentences_are_translated_on_their_own():
    text = "One two. *Three four.*\nFive six."
    assert translated(text) == "TWO. ONE *FOUR. THREE* SIX. FIVE"
    assert translated("One two. Three.", split=False) == "THREE. TWO. ONE"


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_a_page_translated_to_itself_looks_as_before():
    pages = [page.read_text() for page in PAGES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MarkupWarning)
        found = translate_markdown(Same(), pages)
    for page, [best] in zip(pages, found, strict=True):
        assert _rendered(best.text) == _rendered(page)


def test_a_page_in_another_order_of_words_has_the_same_elements():
    pages = [page.read_text() for page in PAGES]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = translate_markdown(Words(backwards), pages)
    for page, [best] in zip(pages, found, strict=True):
        assert Counter(_elements(best.text)) == Counter(_elements(page))


def _rendered(text):
    return RENDERER.render(text).split()


def _elements(text):
    """The elements of a page, the destinations of its links and its code."""
    return re.findall(r'<\w+|href="[^"]+|<code>[^<]*', RENDERER.render(text))


MARKS = [*"ab*_[]()`~|<>#-+!$:{}\\&\n\n\r ", "> ", "1. ", "    ", "---", "|-|", "<b>", "[^1]"]


@pytest.mark.parametrize("seed", range(300))
def test_any_text_is_read_whole_and_written(seed):
    random_ = random.Random(seed)
    text = "".join(random_.choice(MARKS) for _ in range(60))
    events = read_markdown(text)
    assert "".join(text[event.start : event.end] for event in events) == text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        translated(text)


@pytest.mark.parametrize(
    "text", [*(mark * 3000 for mark in ("[", "*a ", "$_", "[^", "> ")), "\0 `"]
)
def test_hostile_text_is_read(text):
    assert sum(event.end - event.start for event in read_markdown(text)) == len(text)
