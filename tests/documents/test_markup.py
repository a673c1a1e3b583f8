# ruff: noqa: RUF001
"""Tags of HTML stand around the words that correspond; nothing else of it changes."""

import random
import re
import time
import warnings
from collections import Counter
from html.parser import HTMLParser

import pytest
from word_translator import Always, Same, Words

from keras_transformer.documents.markup import MarkupTexts, MarkupWarning, translate_html
from keras_transformer.options import SearchOptions
from keras_transformer.translation import Alignment, CutWarning, Translation, cut

TAG = re.compile(r"""<!--.*?-->|</?[a-zA-Z](?:[^<>"']|"[^"]*"|'[^']*')*>""")


def backwards(count):
    return range(count - 1, -1, -1)


def attributes_of(page):
    """The attributes of each element of a page, as Python's parser reads them."""
    found = {}
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attributes: found.update({tag: dict(attributes)})
    parser.feed(page)
    return found


def translated(text, translator=None, **options):
    """The translation of one HTML text."""
    [[best]] = translate_html(translator or Words(), [text], **options)
    return best.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("<p></p>", "<p></p>"),
        ("Two dogs", "DOGS TWO"),
        ("<p>Two <b>brown dogs</b> run</p>", "<p>RUN <b>DOGS BROWN</b> TWO</p>"),
        ("<i>a <b>b</b> c</i> d", "D <i>C <b>B</b> A</i>"),
        ("<b>a</b> b <i>c</i>", "<i>C</i> B <b>A</b>"),
        ("<b><i>All of it</i></b>", "<b><i>IT OF ALL</i></b>"),
        ("a <b></b>b c", "C <b></b>B A"),
        ("a<i> </i>b", "B A<i></i>"),  # white space is no word
        ("a<b><i>&nbsp;</i></b>b c", "C B A<b><i></i></b>"),
        ("a <img src=x> b c", "C <img src=x> B A"),
        ("a <img><img> b c", "C <img><img> B A"),
        ("a <img><i></i> <img> b c", "C <img><i></i> <img> B A"),
        ("note<sup><a>1</a></sup> b", "B NOTE<sup><a>1</a></sup>"),
        ("a b.<sup>[2, 3]</sup>", "B. A<sup>[2, 3]</sup>"),
        ("a 2<sup>31</sup>-1 b", "B 2<sup>31</sup>-1 A"),
        ("a H<sub>2</sub>SO<sub>4</sub> b", "B H<sub>2</sub>SO<sub>4</sub> A"),
        ("a <b>km<sup>2</sup></b> b", "<b>km<sup>2</sup></b> B A"),
        ("a <sup>b c</sup>", "<sup>C B</sup> A"),
        ("one<br>two three<hr/>four", "ONE<br>THREE TWO<hr/>FOUR"),
        ("a b<!-- c --> d", "D B<!-- c --> A"),
        ("<b>日本</b>", "<b>日本</b>"),
        ("a &rlm;b\u200f c&lrm;.", "C. B A"),  # nobody sees these marks
    ],
)
def test_tags_move_with_the_words_that_are_in_them(text, expected):
    assert translated(text, Words(backwards)) == expected


@pytest.mark.parametrize(
    "text",
    [
        "<b>مهم</b>، نعم",
        "<a href=x>مهم</a>؟ نعم",
        "<b>अच्छा है</b>। हाँ",
        "هامش<sup>[١]</sup>، نعم",
        "<i>سلام</i>۔ <b>نعم</b>؛ لا",
    ],
)
def test_punctuation_of_other_scripts_stays_beyond_a_tag(text):
    assert translated(text, Same()) == text


class Given(Words):
    """Translates to what it is given, whose subwords are words and punctuation."""

    def __init__(self, translation, links):
        super().__init__()
        self._given, self._given_links = translation, links

    def translate_n(self, sentences):
        return [[Translation(self._given, -1.0)] for _ in sentences]

    def align(self, sentences, translations):
        return [
            Alignment(*map(self._subwords, pair), self._given_links)
            for pair in zip(sentences, translations, strict=True)
        ]

    def _subwords(self, text):
        return re.findall(r"▁?(?:\w+|[^\w▁])", "▁" + text.replace(" ", "▁"))


@pytest.mark.parametrize(
    "element",
    ["<img>", "<i class=x></i>", "<a><img></a>", "<a> <img> </a>", "<svg></svg>", "<img><i></i>"],
)
@pytest.mark.parametrize(
    ("text", "expected", "links"),
    [
        ("Close {} it.", "Fermer {}.", [(0, 0), (2, 1)]),
        ("Close {} it!", "Fermer {} !", [(0, 0), (2, 1)]),
        ("Close {} it.", "关闭 {}。", [(0, 0), (2, 1)]),
        ("Close {} it.", "Fermer {} le.", [(0, 0), (1, 1), (2, 2)]),
        ("Close {} it.", "{} Le fermer.", [(0, 1), (1, 0), (2, 2)]),
        ("Close it {}.", "Fermer {}.", [(0, 0), (2, 1)]),
        ("Close it{}.", "Fermer{}.", [(0, 0), (2, 1)]),
        ("Close ({} it).", "Fermer ({} le).", [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]),
    ],
)
def test_an_element_without_text_has_the_white_space_of_the_source(text, expected, links, element):
    translation = expected.replace(" {} ", " ").replace("{} ", "").replace(" {}", "")
    found = translated(text.format(element), Given(translation.replace("{}", ""), links))
    assert found == expected.format(element.replace(" ", "") if "> <" in element else element)


def test_a_comment_adds_no_white_space():
    found = translated("Close <!-- c --> it.", Given("Fermer.", [(0, 0), (2, 1)]))
    assert found == "Fermer<!-- c -->."
    assert translated("a <!-- c --> b", Words(backwards)) == "<!-- c -->B A"


@pytest.mark.parametrize(
    "text",
    [
        '<!DOCTYPE html>\n<html lang="en">\n <HEAD><TITLE>HI</TITLE>\n<META charset=x></HEAD>\n',
        "<p>\n\tONE\n</p>\n\n<!-- <p>a comment</p> -->\n",
        "<A HREF='x>y' rel=\"a > b\" disabled>ONE</A>",
        "<p rel=it's>IT'S <a href=x rel=O'NEIL>ONE</a></p><font face=\"Arial>TWO</font>",
        "<script>if (a < b) { x('<b>') }</script><style>p > b { }</style>",
        "<pre>a\n  <b>b</b></pre><textarea>a <b> b</textarea>",
        "<table><tr><td>ONE<td>TWO</table><ul><li>ONE<li>TWO</ul>",
        "ONE<br/>TWO<BR>THREE",
        "<![CDATA[ x > y ]]><?xml version='1.0'?><!x>ONE",
        "ONE &amp; TWO &lt;THREE&gt;",
        "<p translate=no>some text</p><div class='x notranslate'>text</div>",
        # The end tag may be left out.
        "<ul><li translate=no>some <b>text</b> <ul><li>text</ul><li>ONE</ul>TWO",
        "<p translate=no>some text</i><p>ONE<p translate=no>text<div>TWO</div>",
        "<dl><dt translate=no>some<dd>ONE</dl><p translate=no>text<hr>TWO",
        "<table><tr translate=no><td>some<td>text<tr><td>ONE<td translate=no>text</table>TWO",
        "<select><option translate=no>some<option>ONE</select>",
        "<html translate=no><title>some</title><body>text",
        "<div><p class=notranslate>text</div>ONE",
        "<div><code>x</code></div><p>%s: {name}</p>",
    ],
)
def test_what_is_no_text_stays_as_it_is(text):
    assert translated(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5&nbsp;km &copy; &#65;&#x42;", "5 KM © AB"),
        ("AT&T &notanentity;", "AT&amp;T ¬ANENTITY;"),
        ("a < b <", "A &lt; B &lt;"),
        ("&lt;b&gt;", "&lt;B&gt;"),
    ],
)
def test_entities_are_read_and_only_those_that_html_needs_are_written(text, expected):
    assert translated(text) == expected


def test_buttons_beside_each_other_are_not_one_word():
    translator = Words()
    text = "<button>One</button><button>two</button>"
    assert translated(text, translator) == "<button>ONE</button><button>TWO</button>"
    assert translator.sentences == ["One", "two"]


def test_paragraphs_are_split_into_sentences_and_tags_may_go_beyond_one():
    translator = Words()
    text = "<p>One  <b>two. Three</b>\nfour.</p><p>Five</p>"
    assert translated(text, translator) == "<p>ONE <b>TWO. THREE</b> FOUR.</p><p>FIVE</p>"
    assert translator.sentences == ["One two.", "Three four.", "Five"]
    whole = Words(backwards)
    assert translated(text, whole, split=False) == "<p>FOUR. <b>THREE TWO.</b> ONE</p><p>FIVE</p>"


@pytest.mark.parametrize(
    "text",
    [
        "<p><b>First sentence here.</b> Second sentence.</p>",
        "<p>First one. <i>Second sentence.</i> Third.</p>",
        "<p><b>First sentence. Second</b> sentence.</p>",
        "<p>Zero. <a href=x>First sentence. Second</a> sentence.</p>",
        "<p>One <b>two. Three four. Five</b> six.</p>",
        "<p>Hi there!<img src=x> How are you? Fine.</p>",
        "<p>Hi there! <img src=x>How are you? Fine.</p>",
        "<p>One.<!-- c --> Two <i>three</i> four.<!-- d --> Five.</p>",
        "<p>One here. <b>Second one. Third.",
        "<p>One here.</b> Second one. Third.</p>",
        "<p><b>A {name} dog here.</b> A cat.</p>",
        "<p>Is <b>%s</b> here? <i>Yes %d, it is!</i> <u>Go</u> now.</p>",
        "<p><i>See https://a.b/c now.</i> Then <b>{x}</b> go.</p>",
        '<p>One. <b>(Two <i>three</i> four.)</b> <b>"Five <i>six</i> seven."</b></p>',
    ],
)
@pytest.mark.filterwarnings("ignore::keras_transformer.documents.markup.MarkupWarning")
def test_tags_between_sentences_stay_between_them(text):
    parts = re.split(r"(<[^>]*>|[^\s<]*[%{/][^\s<]*)", text)  # copied ones at odd indices
    parts[::2] = map(str.upper, parts[::2])
    assert translated(text) == "".join(parts)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('<img src="a b" alt="my dog">', '<img src="a b" alt="DOG MY">'),
        ("<img alt=dog><img alt='' title>", "<img alt=DOG><img alt='' title>"),
        ('<p TITLE="One two. Three!">', '<p TITLE="TWO. ONE THREE!">'),
        ('a <b title="it &amp; me">b</b>', '<b title="ME &amp; IT">B</b> A'),
        ("<p title='a &quot;b'>", "<p title='\"B A'>"),
        ('<textarea placeholder="my text">my text</textarea>',
         '<textarea placeholder="TEXT MY">my text</textarea>'),
        ('<meta name=description content="my page"><meta name=x content="my page">',
         '<meta name=description content="PAGE MY"><meta name=x content="my page">'),
        ('<input type=submit value="send it"><input value="my text">',
         '<input type=submit value="IT SEND"><input value="my text">'),
        ('<option label="my dog"><p label="my dog">', '<option label="DOG MY"><p label="my dog">'),
        ("<a title=Q&notA href=/x>b</a>", "<a title=Q&#38;NOTA href=/x>B</a>"),
        ('<a title="R&D&section &copyb">b</a>', '<a title="&amp;COPYB R&amp;D&amp;SECTION">B</a>'),
        ('<a title="b ?a&notx=c">b</a>', '<a title="?a&amp;notx=c B">B</a>'),
        ('<a title="a&#10;b &copy c">b</a>', '<a title="C © B A">B</a>'),
        ('<img alt="my-dog.jpg"><p translate=no title="a b">x</p>',) * 2,
        ('<img translate=no alt="a b"><code><img alt="a b"></code>',) * 2,
    ],
)  # fmt: skip
def test_attributes_that_people_read_are_translated(text, expected):
    assert translated(text, Words(backwards)) == expected


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_a_translated_attribute_stays_one_value(quote):
    text = "a 'b' \"c\" <d> & `e`=f"
    found = translated(f"<p><img alt={quote}dog{quote} src=x> y</p>", Always(text))
    assert attributes_of(found)["img"] == {"alt": text, "src": "x"}


@pytest.mark.parametrize("quote", ["", "'", '"'])
def test_an_empty_translation_of_an_attribute_swallows_nothing(quote):
    found = translated(f"<a title={quote}Start{quote} href=/x>go on</a>", Always(""))
    assert attributes_of(found)["a"]["href"] == "/x"


def test_a_sentence_of_an_attribute_knows_its_line():
    read = MarkupTexts(["<p>One.</p>\n<img\n  alt='Two.'><p>Three</p>"])
    assert [(one.text, one.line) for one in read.sentences] == [
        ("Two.", 3),
        ("One.", 1),
        ("Three", 3),
    ]


def test_what_a_model_should_not_translate_is_copied_within_its_sentence():
    text = "Call <code>f(x &lt; 1)</code> of <span translate='no'>The <i>Name</i></span> at %s"
    found = translated(text, Words())
    assert found == (
        "CALL <code>f(x &lt; 1)</code> OF <span translate='no'>The <i>Name</i></span> AT %s"
    )


class Fixed(Words):
    """Has one translation for each sentence."""

    def __init__(self, translations):
        super().__init__()
        self._translations = translations

    def _translation(self, words):
        return Translation(self._translations[" ".join(words)], -1.0)


@pytest.mark.filterwarnings("ignore::keras_transformer.documents.placeholders.PlaceholderWarning")
@pytest.mark.parametrize("most", [1024, 1])  # tokens that the model aligns
def test_a_word_stays_in_the_translation_though_a_copied_element_has_it_too(most):
    german = "Der Operator ist in der Liste besonders in Form."
    texts = ["The in operator is special.", "The operator is special."]
    translator = Fixed(dict.fromkeys(texts, german))
    translator.max_source_length = most
    found = translated("The <code>in</code> operator is special.", translator)
    assert found.replace("<code>in</code> ", "").replace(" <code>in</code>", "") == german


@pytest.mark.filterwarnings("ignore::keras_transformer.documents.placeholders.PlaceholderWarning")
def test_a_word_is_not_exchanged_for_a_placeholder():
    texts = {"See in at %s": "Sieh in der in", "See at": "Sieh in der"}
    found = translated("See <code>in</code> at %s", Fixed(texts))
    assert found.replace("<code>in</code> ", "").replace("%s ", "") == "Sieh in der"


def test_a_url_that_tags_divide_is_copied_with_them():
    # As Mastodon writes it.
    link = (
        '<a href="https://a.b/long"><span class="invisible">https://</span>'
        '<span class="ellipsis">a.b/lo</span><span class="invisible">ng</span></a>'
    )
    assert translated(f"<p>Read {link} now</p>", Words(backwards)) == f"<p>NOW {link} READ</p>"


def test_the_words_of_a_link_that_are_in_two_places_leave_one_link():
    # The alignment says that words 0 and 3 of four come from the link, which has two words.
    translator = Words(lambda count: [0, 2, 3, 1], None)
    found = translated("<a href=x>one two</a> three four", translator)
    assert found == "<a href=x>ONE</a> THREE FOUR TWO"


def test_a_translation_that_is_cut_where_it_is_aligned_is_not_reported():
    class Cutting(Words):
        def align(self, sentences, translations):
            cut([[0] * 4], 3, "translations")
            return super().align(sentences, translations)

    with warnings.catch_warnings():
        warnings.simplefilter("error", CutWarning)
        assert (
            translated("<p>One.</p><p>a <b>b</b> c</p>", Cutting())
            == "<p>ONE.</p><p>A <b>B</b> C</p>"
        )


def test_punctuation_is_no_nearest_word():
    links = [(0, 0), (1, 1), (2, 2), (2, 3), (0, 4), (5, 5)]
    given = Given("Nimm die löschenden Zellen aus.", links)
    assert translated("Take the <b>cells</b> to <i>delete</i>.", given) == (
        "Nimm die <b>löschenden Zellen</b> <i>aus</i>."
    )


def test_an_element_whose_words_have_no_translation_takes_the_nearest_word():
    translator = Words(lambda count: [0, 2])
    assert translated("one <b>two</b> three", translator) in (
        "ONE <b>THREE</b>",
        "<b>ONE</b> THREE",
    )


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("<p>a\n<b>b", 2, "line 2: <b> is not closed"),
        ("a</i> b", 1, "line 1: </i> closes nothing"),
        ("<b>a <i>b</b> c</i>", 1, r"line 1: <i> is not closed \(and 1 more\)"),
        ("\n<script>if (a", 2, "line 2: <script> is not closed"),
        ("<ul><li><a>b</ul>", 1, "line 1: <a> is not closed"),
    ],
)
def test_a_tag_without_its_counterpart_is_one_line_and_nothing_is_lost(text, line, message):
    with pytest.warns(MarkupWarning, match=message) as caught:
        found = translated(text, Words(backwards))
    assert caught[0].message.problem.line == line
    assert TAG.findall(found) == TAG.findall(text)  # in the same order


def test_end_tags_that_html_allows_to_leave_out_are_no_problem():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translated("<p>a<p>b<ul><li>c<li>d</ul><table><tr><td>e</table>")


def test_several_translations_of_a_text_take_those_of_the_same_rank():
    class Ranked(Words):
        options = SearchOptions(n_best=2)

        def translate_n(self, sentences):
            return [
                [Translation(f"{one.upper()}{rank}", -rank) for rank in (1, 2)] for one in sentences
            ]

    [[best, other]] = translate_html(Ranked(), ["<p>a</p><p>b</p>"])
    assert best == ("<p>A1</p><p>B1</p>", -2) and other == ("<p>A2</p><p>B2</p>", -4)


def test_each_sentence_has_its_line():
    read = MarkupTexts(["<p>One.\nTwo.</p>\n\n<p>\nThree</p>"])
    assert [(one.text, one.line) for one in read.sentences] == [
        ("One.", 1),
        ("Two.", 2),
        ("Three", 5),
    ]


PIECES = [
    *("the", "dog", "runs.", "cat,", "(one)", "日本語", "5&nbsp;km", "&amp;", "&lt;x&gt;"),
    *(
        "%s",
        "{name}",
        "https://a.b/c?d=1&amp;e=2",
        "<code>x=1</code>",
        "<!--c-->",
        "<img/>",
        "<br>",
    ),
]


def random_html(random_, depth=0):
    """A random text in which all tags have their counterparts."""
    pieces = []
    for _ in range(random_.randint(0, 5)):
        name = random_.choice(["b", "i", "a", "p", "div"])
        if depth < 5 and random_.random() < 0.4:
            pieces.append(f"<{name}>{random_html(random_, depth + 1)}</{name}>")
        else:
            pieces.append(random_.choice(PIECES))
        pieces.append(random_.choice(["", " ", "\n"]))
    return "".join(pieces)


def is_nested(text):
    path = []
    for tag in TAG.findall(text):
        if tag.startswith("</"):
            if not path or path.pop() != tag[2:-1]:
                return False
        elif not tag.startswith("<!") and tag not in ("<img/>", "<br>"):
            path.append(tag[1:-1])
    return not path


@pytest.mark.parametrize("seed", range(40))
def test_whatever_a_model_and_its_alignment_say_all_tags_are_there_and_nested(seed):
    random_ = random.Random(seed)
    text = random_html(random_)

    def any_words(count):
        return [random_.randrange(count) for _ in range(count and random_.randrange(2 * count))]

    translator = Words(
        any_words, lambda count: [random_.randrange(count) for _ in range(3 * count)]
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = translated(text, translator)
    assert Counter(TAG.findall(found)) == Counter(TAG.findall(text)) and is_nested(found)
    for copied in ("%s", "{name}", "https://a.b/c?d=1&amp;e=2", "<code>x=1</code>"):
        apart = re.compile(rf"(?<![a-zA-Z]){re.escape(copied)}")  # `doghttps://` is a word
        assert len(apart.findall(found)) == len(apart.findall(text))


@pytest.mark.parametrize("seed", range(20))
def test_of_a_broken_text_nothing_is_lost(seed):
    random_ = random.Random(seed)
    broken = [
        "</b>",
        "<i>",
        "</p>",
        "<",
        "&",
        "<a href='x",
        "]]>",
        '<a b="c>d">',
        "<!x>",
        "</>",
        "<3",
    ]
    text = "".join(random_.choice([*PIECES, *broken, " "]) for _ in range(20))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = translated(text, Words(backwards))
    assert Counter(TAG.findall(found)) == Counter(TAG.findall(text))


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece",
    [
        "<b>x ",
        "<b>x</b> ",
        "</b>",
        "<a ",
        '<a "',
        "<a title=",
        '<img alt="a b">',
        "<",
        "&",
        "<!--",
        "<code>",
        "{{",
        "http://",
        "a@",
    ],
)
def test_a_large_hostile_text_takes_seconds(piece):
    text = piece * (200_000 // len(piece))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert translated(text, Words(backwards)).count("<b>") == text.count("<b>")


def test_an_attribute_of_signs_and_a_number_of_digits_are_read_at_once():
    tag, entity = "<a " + "=" * 100_000 + ' "" />', "&#" + "1" * 100_000 + ";"
    begun = time.process_time()
    assert translated(f"a {tag} b {entity}", Words()).startswith(f"A {tag} B")
    assert time.process_time() - begun < 10  # it takes milliseconds


@pytest.mark.parametrize(
    "text",
    [
        "H<sub>2</sub><code>O</code> b",
        "10<sup><code>6</code></sup> b",
        "a <var>V</var><sub>in</sub> b",
        "a <sup>1</sup>/<sub>2</sub> b",
        "a %s<sup>1</sup> b",
        "a http://a.b/c<sub>2</sub> b",
        "a NH<sub>4</sub><sup>+</sup> b",
        "in 2019.<sup>[1]</sup> It grew.",
        "<i>x</i><sup>2</sup> is big",
    ],
)
def test_formulas_beside_what_is_copied_stay_whole(text):
    assert translated(text, Same()) == text
