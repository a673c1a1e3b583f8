# ruff: noqa: RUF001
"""Placeholders are in the translation as they are in the sentence, each once."""

import time
import warnings

import pytest

from keras_transformer.documents.placeholders import PlaceholderTranslator, PlaceholderWarning
from keras_transformer.documents.unknown_words import with_unknown_words
from keras_transformer.errors import UserError
from keras_transformer.options import SearchOptions
from keras_transformer.text.glossary import Glossary
from keras_transformer.text.placeholders import find_placeholders, placeholder_patterns
from keras_transformer.translation import Alignment, Translation


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%s %d %5.2f %-10s %lu %zu %'d %c", "%s %d %5.2f %-10s %lu %zu %'d %c"),
        ("%1$s and %2$lu, %*d", "%1$s %2$lu %*d"),
        ("%Id of %1$Id, %I:%M %I64d %I64x %I", "%Id %1$Id %I %M %I64d %I64x %I"),
        ("וhttps://a.org/x ولa@b.org", "https://a.org/x a@b.org"),
        ("#می\u200cروم #हिन्दी", None),
        ("%(name)s, %(count)03d of %1 or %L2", "%(name)s %(count)03d %1 %L2"),
        ("100%% of %@, invalid %%%c", "%% %@ %% %c"),
        ("{name} {} {0:>5} {a.b[0]!r} ${HOME} %{count} #{x}", None),
        ("{{ user.name }}, {% if x %} <%= y %>", "{{ user.name }}|{% if x %}|<%= y %>"),
        ("{when, date, short}", "{when, date, short}"),
        ("a <0>link</0> and <1/>", "<0> </0> <1/>"),
        ("[X5X] %PRODUCTNAME", None),
        ("See https://a.org/b?c=1&d=2. Or (www.b.org/c).", "https://a.org/b?c=1&d=2 www.b.org/c"),
        ("mailto://x@y.org ftp://a/b, me.too@mail.example.org!", None),
        ("@bob and @ann@example.org like #topic", "@bob @ann@example.org #topic"),
        ("{{{x}}} ${{ y }} {{ z }}}", "{{{x}}}|${{ y }}|{{ z }}"),
        ("See https://a.org/A_(b), (https://a.org/c).", "https://a.org/A_(b) https://a.org/c"),
        ("https://a.org/?b=c==, www.a.org/d-!", "https://a.org/?b=c== www.a.org/d-"),
        ("«https://a.org/é», “https://b.org”", "https://a.org/é https://b.org"),
        ("请访问 https://a.org/\uff0c然后登录。www.b.org。", "https://a.org/ www.b.org"),
        (
            "\uff08https://a.org/をご覧ください\uff09、https://b.org/을",
            "https://a.org/ https://b.org/",
        ),
        ("詳しくはhttps://a.org/かme@b.orgまで", "https://a.org/ me@b.org"),
        ("Foo@Example.COM, バージョン%PRODUCTNAME", "Foo@Example.COM %PRODUCTNAME"),
        ("https://a.org/दिल्ली, #हिन्दी @राहुल", "https://a.org/दिल्ली #हिन्दी @राहुल"),
        ("Call &dpkg; or &#8217; or &apt-get;", "&dpkg; &#8217; &apt-get;"),
        ("⚠️ Two 🐍🐍, 👩‍💻! 1️⃣ │ a → b", "⚠️ 🐍🐍 👩‍💻 1️⃣ │ →"),
        ("(https://a.org/1...2), see https://b.org…", "https://a.org/1...2 https://b.org"),
        # What is none.
        ("&File, A & B; © ® 5 °C ™ ① ≤", ""),
        ("100% of 50% discount, 100%ige, 5 % der", ""),
        ("{a sentence in braces} a < b C# a@b x#y", ""),
        ("Two dogs, 1 < 2 > 0; the price is $5 (#1).", ""),
        ("{count, plural, one {a file}}", ""),
    ],
)
def test_what_is_a_placeholder(text, expected):
    found = [text[start:end] for start, end in find_placeholders(text, placeholder_patterns())]
    if expected is None:
        expected = text.replace(" and ", " ").replace(",", "").rstrip("!")
    assert found == expected.split(
        "|" if "|" in expected else " " if "date" not in expected else "|"
    ) or (not found and not expected)


class Fixed:
    """Has fixed hypotheses for some sentences; translates others to capitals, word for word."""

    max_source_length = 100

    def __init__(self, hypotheses=None, **options):
        self.options = SearchOptions(**{"beam_size": 3, **options})
        self._hypotheses = hypotheses or {}
        self.calls, self.others = [], []

    def with_options(self, options):
        other = Fixed(self._hypotheses)
        other.options = options
        self.others.append(options)
        return other

    def count_tokens(self, sentences):
        return [len(sentence.split()) for sentence in sentences]

    def translate_n(self, sentences, prefixes=None):
        self.calls.append(list(sentences))
        return [
            [
                Translation(text, -float(rank))
                for rank, text in enumerate(self._hypotheses.get(sentence, [sentence.upper()]))
            ][: self.options.n_best]
            for sentence in sentences
        ]

    def align(self, sentences, translations):
        return [
            Alignment(
                [f"▁{word}" for word in sentence.split()],
                [f"▁{word}" for word in translation.split()],
                [(number, number) for number in range(len(translation.split()))][
                    : len(sentence.split())
                ],
            )
            for sentence, translation in zip(sentences, translations, strict=True)
        ]


def translated(sentence, *hypotheses, keep=(), **options):
    """The translations of a sentence, and whether a person is asked to check them."""
    translator = Fixed({sentence: list(hypotheses)} if hypotheses else {}, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        [found] = PlaceholderTranslator(translator, keep).translate_n([sentence])
    assert all(issubclass(one.category, PlaceholderWarning) for one in caught)
    return [one.text for one in found], bool(caught)


def test_a_sentence_without_placeholders_is_translated_once_and_as_before():
    translator = Fixed({"Two dogs.": ["%s {x} https://a.b/c"]})
    keeping = PlaceholderTranslator(translator)
    assert keeping(["Two dogs.", ""]) == ["%s {x} https://a.b/c", ""]
    assert translator.calls == [["Two dogs.", ""]]


def test_the_first_hypothesis_that_has_all_placeholders_counts():
    wrong = ["das %d", "das %s %s", "das %s"]
    assert translated("the %s", *wrong) == (["das %s"], False)
    assert translated("the %s", *wrong, n_best=3) == (["das %s"], False)
    assert translated("the %s", "%s a", "a %s", "x", n_best=2) == (["%s a", "a %s"], False)


@pytest.mark.parametrize(
    ("sentence", "broken", "whole"),
    [
        ("in %(a)s%(b)s.", "IN %(a)s%(b)s)s.", "IN %(a)s%(b)s."),
        ("in %(place)s.", "IN %(place)s%.", "IN %(place)s."),
        ("%(year)d/%(month)d of it", "%(year)d/%(month)d)d IT", "%(year)d/%(month)d IT"),
        ("{a} (see {b})", "{a} (SEE {b}})", "{a} (SEE {b})"),
        ("<0>two</0> dogs", "<0>TWO</0>> DOGS", "<0>TWO</0> DOGS"),
        ("%d dogs", "100% %d DOGS", "%d DOGS"),
        ("%d dogs", "%Id DOGS", "%d DOGS"),
        ("[dogs](https://a.b/?c=1)", "[DOGS](https://a.b/?c=1)/c=1", "[DOGS](https://a.b/?c=1)"),
        ("(https://a.b/1...2)", "(https://a.b/1...2…2)", "(https://a.b/1...2)"),
    ],
)
def test_a_translation_with_pieces_of_placeholders_does_not_count(sentence, broken, whole):
    assert translated(sentence, broken, whole) == ([whole], False)


def test_other_punctuation_and_what_the_sentence_has_are_no_pieces():
    for sentence, translation in [
        ("%d dogs, or cats", "%d DOGS (OR CATS)"),
        ("100% of %d dogs (big ones)", "100% OF (BIG) %d DOGS"),
        ("see https://a.org, {b}", "[SEE] https://a.org: {b}"),
    ]:
        assert translated(sentence, translation, "OTHER") == ([translation], False)


def test_a_long_number_is_right_with_placeholders_and_without():
    assert translated("Two dogs, 2022", "ZWEI 202", n_best=1) == (["ZWEI 2022"], False)
    assert translated("%s dogs, 2022", "ZWEI 202") == (["%s DOGS, 2022"], True)
    assert translated("%s dogs, 2022", "%s ZWEI 202") == (["%s ZWEI 2022"], False)


def test_an_entity_that_lost_its_semicolon_has_it_again():
    assert translated("run &dpkg; now", "NOW &dpkg RUN") == (["NOW &dpkg; RUN"], False)


def test_a_wrong_placeholder_is_replaced_by_the_missing_one():
    assert translated("in {folder}", "in {Ordner}") == (["in {folder}"], False)
    assert translated("{a} in {b} {c}", "{b} in {A} {C}") == (["{b} in {a} {c}"], True)


def test_placeholders_that_a_program_fills_in_order_stay_in_it():
    assert translated("%s of %d", "%d von %s", "von %s") == (["%s von %d"], True)
    assert translated("{:d} of {!r:>5}", "{!r:>5} von {:d}", "von {:d}") == (
        ["{:d} von {!r:>5}"],
        True,
    )
    assert translated("%1$s of %2$d", "%2$d von %1$s") == (["%2$d von %1$s"], False)
    assert translated("%s of %d, {x}", "{x}: %s von %d") == (["{x}: %s von %d"], False)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("open {name} now", "OPEN {name} NOW"),
        ("{name} is open.", "{name} IS OPEN."),
        ("the file (%s) is open", "THE FILE (%s) IS OPEN"),
        ('the file "%s": %d/%d bytes', 'THE FILE "%s": %d/%d BYTES'),
        ("See https://a.b/C.", "SEE https://a.b/C."),
        ("a %s b %s c", "A %s B %s C"),
        ("copying {x} (%d) now", "COPYING {x} (%d) NOW"),
        ("twice {x} and {x}", "TWICE {x} AND {x}"),
    ],
)
def test_where_the_model_copies_none_they_are_put_in_by_the_alignment(sentence, expected):
    assert translated(sentence, "nothing of it") == ([expected], True)


@pytest.mark.parametrize("sentence", ["{a}", "%s: %s", "- {a}: %s (%d)", "({a})."])
def test_a_sentence_without_words_is_its_own_translation_and_needs_no_look(sentence):
    translator = PlaceholderTranslator(Fixed({sentence: ["anything"]}))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PlaceholderWarning)
        assert translator([sentence]) == [sentence]


@pytest.mark.parametrize(
    ("sentence", "bare", "translation", "expected"),
    [
        ("he is {x}, b", "he is, b", "ER IST B", "ER {x} IST B"),
        ("he is {x}, b", "he is, b", "他 是 了", "他 {x}是 了"),
        ("{x}_a b", "_a b", "_A B", "{x}_A B"),
        ("a {x}'s b", "a 's b", "A VON B", "A {x} VON B"),
        ("a/{x}", "a/", "A/", "A/{x}"),
        ("hello {x}?", "hello?", "سلام؟", "سلام {x}؟"),
        ("سلام {x}، b", "سلام، b", "HELLO, B", "HELLO {x}, B"),
        ("good {x}.", "good.", "अच्छा।", "अच्छा {x}।"),
        ("{x} good", "good", "अच्छे", "{x} अच्छे"),
    ],
)
def test_a_word_beside_a_placeholder_is_apart_where_punctuation_was(
    sentence, bare, translation, expected
):
    translator = Fixed({sentence: ["nothing"], bare: [translation]})
    with pytest.warns(PlaceholderWarning):
        assert PlaceholderTranslator(translator)([sentence]) == [expected]


@pytest.mark.parametrize("invented", ["A %d B {y}", "A %dhttps://a.b/c B"])
def test_what_a_model_invents_is_taken_out_where_placeholders_are_put_in(invented):
    translator = Fixed({"a %s b": ["x"], "a b": [invented]})
    with pytest.warns(PlaceholderWarning, match="check those at index 0"):
        assert PlaceholderTranslator(translator)(["a %s b"]) == ["A %s B"]


def test_text_that_the_user_keeps_is_a_placeholder_too():
    assert translated("bug #12 in Foo", keep=["#[0-9]+", "Foo"]) == (["BUG #12 IN Foo"], True)
    assert translated("bug #12", keep=[]) == (["BUG #12"], False)


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        ("(", r"^keep='\(' is no regular expression: missing \)"),
        ("x*", "^keep='x\\*' matches an empty text: say what it must contain$"),
    ],
)
def test_a_wrong_expression_is_one_line(keep, message):
    with pytest.raises(UserError, match=message):
        PlaceholderTranslator(Fixed(), [keep])


def test_a_single_expression_in_place_of_a_list_is_refused():
    with pytest.raises(
        UserError, match=r"^keep must be a list of regular .*: found the string 'Foo'$"
    ):
        PlaceholderTranslator(Fixed(), "Foo")  # else F and o would be copied


def test_with_prefixes_a_lost_placeholder_is_only_reported():
    with pytest.warns(PlaceholderWarning):
        [[best]] = PlaceholderTranslator(Fixed()).translate_n(["a {x}"], ["A"])
    assert best.text == "A {X}"


def test_a_sentence_that_is_too_long_to_be_aligned_has_them_at_its_end():
    long = "word " * 60 + "{x}"
    assert translated(long, "short") == (["short {x}"], True)


def test_an_ordinary_sentence_beside_others_has_the_random_translation_that_it_had():
    translator = Fixed({"a {x}": ["A"]}, sample=True)
    with pytest.warns(PlaceholderWarning):
        PlaceholderTranslator(translator)(["a {x}", "b"])
    assert translator.calls == [["a {x}", "b"]]  # others are those of a copy
    assert [options.sample for options in translator.others] == [False]  # and depend on no others


def test_no_other_search_is_made_where_no_sentence_needs_one():
    long = "word " * 60 + "{x}"
    translator = Fixed({"a {x}": ["A {y}"], "{x}": ["?"], long: ["LONG"]}, beam_size=1)
    with pytest.warns(PlaceholderWarning):
        PlaceholderTranslator(translator)(["a {x}", "{x}", long])
    assert translator.others == []


@pytest.mark.parametrize(
    "piece",
    [
        *("{{{", "${{", "{", "#{", "%", "%(", "<", "a", "a@", "a@b.", "車@", "%1$", "%(a)"),
        *("http://", "http://(", "http://a(.", "www.", "www.a.("),
    ],
)
def test_a_long_hostile_line_takes_no_time(piece):
    begun = time.process_time()
    pieces = piece * (100_000 // len(piece))
    for line in (pieces, piece + "." * 100_000, piece + "0" * 100_000 + " "):
        find_placeholders(line, placeholder_patterns())
    assert time.process_time() - begun < 10  # it is about one second


class Spelling(Fixed):
    """Knows the letters of ASCII, and Chinese 我; spells others in bytes."""

    glossary = None

    def translate_n(self, sentences, prefixes=None, copied=None):
        return super().translate_n(sentences, prefixes)

    def align(self, sentences, translations):
        sources = [
            [piece for word in sentence.split() for piece in ["▁", *self._pieces(word)]]
            for sentence in sentences
        ]
        return [
            alignment._replace(source=source)
            for alignment, source in zip(
                super().align(sentences, translations), sources, strict=True
            )
        ]

    def _pieces(self, word):
        for character in word:
            if character.isascii() or character in "我\u2019":
                yield character
            else:
                yield from (f"<0x{byte:02X}>" for byte in character.encode())


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("by Jiří Růžička today", "BY Jiří Růžička TODAY"),
        ("the word привет, twice", "THE WORD привет, TWICE"),
        ("Привет, мир!", "Привет, мир!"),
        ("한국어", "한국어"),
        ("dogs → cats: {name}", "DOGS → CATS: {name}"),
        ("it\u2019s “so”", "IT\u2019S “SO”"),  # only letters
        ("two dogs", "TWO DOGS"),
        ("", ""),
    ],
)
def test_words_with_letters_that_the_vocabulary_lacks_are_copied(sentence, expected):
    """In capitals: what the model translates."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PlaceholderWarning)
        assert PlaceholderTranslator(Spelling())([sentence]) == [expected]


def test_in_a_script_without_spaces_the_unknown_letters_alone_are_copied():
    [spans] = with_unknown_words(Spelling(), ["我喂我"], [()])
    assert spans == [(1, 2)]


def test_unknown_words_beside_other_parts_are_in_order_and_never_overlap_them():
    [spans] = with_unknown_words(Spelling(), ["Ř {ř} ů"], [[(2, 5)]])
    assert spans == [(0, 1), (2, 5), (6, 7)]


def test_a_word_of_the_glossary_is_not_copied():
    translator = Spelling()
    translator.glossary = Glossary({"city of Łódź": "Lodz"})
    found = with_unknown_words(translator, ["The city of Łódź.", "In Łódź."], [(), ()])
    assert found == [[], [(3, 7)]]


def test_numbers_are_put_right_but_those_of_a_glossary():
    hypotheses = {"in 2022 %s": ["IM 202 %s"], "in 2022": ["IM 202"]}
    sentences = [*hypotheses]
    assert PlaceholderTranslator(Fixed(hypotheses))(sentences) == ["IM 2022 %s", "IM 2022"]
    with_glossary = Spelling(hypotheses)
    assert PlaceholderTranslator(with_glossary)(sentences) == ["IM 202 %s", "IM 202"]
