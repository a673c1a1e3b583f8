"""BLEU and chrF: what each figure is, checked against a BLEU written out here."""

import dataclasses
import html
import io
import json
import math
import sys
from collections import Counter

import pytest
import sacrebleu

from keras_transformer.data import TextPairs
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.errors import UserError
from keras_transformer.evaluation import (
    bootstrap_scores,
    format_scores,
    moses,
    split_compounds,
    translation_scores,
)
from keras_transformer.evaluation.bleu import language_warning, sacre_bleu, short_lines_warning


def plain_bleu(hypotheses, references):
    """The definition of Papineni et al. (2002) on tokens: corpus counts, no smoothing."""
    matches, totals = [0] * 4, [0] * 4
    for hypothesis, reference in zip(hypotheses, references, strict=True):
        for n in range(1, 5):
            found, wanted = (
                Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))
                for tokens in (hypothesis.split(), reference.split())
            )
            matches[n - 1] += (found & wanted).total()
            totals[n - 1] += found.total()
    if 0 in matches:
        return 0.0
    length = sum(len(line.split()) for line in hypotheses)
    reference_length = sum(len(line.split()) for line in references)
    brevity_penalty = min(1.0, math.exp(1 - reference_length / length))
    precisions = [match / total for match, total in zip(matches, totals, strict=True)]
    return 100 * brevity_penalty * math.prod(precisions) ** (1 / 4)


def values(hypotheses, references, target_lang=None):
    scores = translation_scores(hypotheses, references, target_lang)
    return {name: score.value for name, score in scores.items()}


def test_bleu_is_the_geometric_mean_of_precisions_times_the_brevity_penalty():
    # 5 of 5 words, 3 of 4 pairs, 2 of 3 triples, 1 of 2 quadruples; 5 words instead of 6.
    expected = 100 * math.exp(1 - 6 / 5) * (1 * 3 / 4 * 2 / 3 * 1 / 2) ** (1 / 4)
    assert values(["a b c d f"], ["a b c d e f"])["bleu"] == pytest.approx(expected)


def test_a_perfect_translation_scores_100_everywhere():
    lines = ["Ein Mann im T-Shirt reitet.", "Zwei Hunde laufen über den „Hof“."]
    assert values(lines, lines, "de") == pytest.approx(
        dict.fromkeys(
            ["bleu", "bleu_lowercased", "chrf", "bleu_tokenized_lowercased", "bleu_paper"], 100
        )
    )


def test_published_figures_are_those_of_sacrebleu():
    hypotheses = ["The dog ran over the big hill.", "", "Two men are talking, I think."]
    references = ["A dog ran over the big hill.", "Nobody.", "Two Men are talking, I guess."]
    scores = translation_scores(hypotheses, references)
    assert scores["bleu"].value == sacrebleu.corpus_bleu(hypotheses, [references]).score
    assert scores["chrf"].value == sacrebleu.corpus_chrf(hypotheses, [references]).score
    assert (
        scores["bleu_lowercased"].value
        == sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True).score
        > scores["bleu"].value
    )


def test_several_references_are_scored_as_sacrebleu_does():
    hypotheses = ["Der Hund lief über den großen Hügel.", "", "Zwei Männer reden, glaube ich."]
    first = ["Ein Hund lief über den Hügel.", "Niemand.", "Zwei Männer reden, denke ich."]
    second = ["Der Hund rannte über den großen Hügel.", "", "Zwei männer reden, glaube ich."]
    scores = translation_scores(hypotheses, [first, second], "de")
    bleu, chrf = sacrebleu.corpus_bleu, sacrebleu.corpus_chrf
    assert scores["bleu"].value == bleu(hypotheses, [first, second]).score
    lowercased = bleu(hypotheses, [first, second], lowercase=True).score
    assert scores["bleu_lowercased"].value == lowercased > scores["bleu"].value
    assert scores["chrf"].value == chrf(hypotheses, [first, second]).score
    assert {score.signature.split("|")[0] for score in scores.values()} == {"nrefs:2"}
    one = translation_scores(hypotheses, [first], "de")
    assert one == translation_scores(hypotheses, first, "de")
    for name, score in scores.items():
        assert score.value > one[name].value


def test_each_reference_is_split_into_moses_tokens_before_it_is_scored():
    hypotheses = ["Ein T-Shirt, z.B. rot."]
    scores = translation_scores(hypotheses, [["Ein Hemd."], ["ein T-Shirt, z.B. rot."]], "de")
    # "Ein" of "Ein T ##AT##-##AT## Shirt , z.B. rot ." is in the first, all others in the second.
    expected = 100 * (8 / 8 * 6 / 7 * 5 / 6 * 4 / 5) ** (1 / 4)
    assert scores["bleu_paper"].value == pytest.approx(expected)
    assert scores["bleu_tokenized_lowercased"].value == pytest.approx(100)


def test_each_label_says_what_the_figure_is():
    scores = translation_scores(["Ein Hund."], ["Ein Hund."], "de")
    assert {name: score.label for name, score in scores.items()} == {
        "bleu": "sacreBLEU",
        "bleu_lowercased": "sacreBLEU, lowercased",
        "chrf": "chrF",
        "bleu_tokenized_lowercased": "BLEU on Moses tokens, lowercased",
        "bleu_paper": "BLEU on Moses tokens, compounds split",
    }


def test_scores_on_tokens_can_be_left_out():
    scores = translation_scores(["Ein Hund."], ["Ein Hund."], "de", on_tokens=False)
    assert list(scores) == ["bleu", "bleu_lowercased", "chrf"]


def test_tokens_are_scored_without_a_warning(caplog):
    lines = ["Ein Hund ."] * 101  # sacreBLEU takes these lines for tokenised text
    moses_tokens = moses.tokenize(lines, "de")
    sacrebleu.corpus_bleu(moses_tokens, [moses_tokens], tokenize="13a")
    assert caplog.records  # it warns by default
    caplog.clear()
    translation_scores(["Ein Hund."] * 101, ["Ein Hund."] * 101, "de")
    assert not caplog.records


def test_each_signature_says_how_the_figure_was_got():
    scores = translation_scores(["Ein Hund."], ["Ein Hund."], "de")
    says = {name: score.signature.split("|") for name, score in scores.items()}
    assert {"nrefs:1", "case:mixed", "tok:13a", "smooth:exp"} < set(says["bleu"])
    assert "case:lc" in says["bleu_lowercased"]
    assert "nc:6" in says["chrf"]
    assert {"case:lc", "smooth:none"} < set(says["bleu_tokenized_lowercased"])
    assert {"case:mixed", "smooth:none"} < set(says["bleu_paper"])
    tokenizer = f"tok:sacremoses-{sys.modules['sacremoses'].__version__}-de"
    assert tokenizer + "-normalized" in says["bleu_tokenized_lowercased"]
    assert tokenizer + "-unicode_replaced-compounds" in says["bleu_paper"]


def test_the_papers_figure_is_plain_bleu_on_moses_tokens_with_compounds_split():
    hypotheses = ['Er sagt: "Das T-Shirt, z.B. rot, passt."', "Der Hund schläft."]
    references = ["Er sagt: ”Das T-Stück, z.B. rot, passt.“", "Ein Hund schläft."]
    tokens = (
        [
            'Er sagt : " Das T ##AT##-##AT## Shirt , z.B. rot , passt . "',
            "Der Hund schläft .",
        ],
        [
            'Er sagt : " Das T ##AT##-##AT## Stück , z.B. rot , passt . "',
            "Ein Hund schläft .",
        ],
    )
    assert values(hypotheses, references, "de")["bleu_paper"] == pytest.approx(plain_bleu(*tokens))


def test_the_multi30k_figure_is_plain_bleu_on_lowercased_moses_tokens_with_compounds_whole():
    hypotheses = ["L'Homme d'affaires porte un t-shirt bleu, dit-on."]
    references = ["Un homme d\u2019affaires porte un T-shirt rouge, dit-on."]
    tokens = (
        ["l' homme d' affaires porte un t-shirt bleu , dit-on ."],
        ["un homme d' affaires porte un t-shirt rouge , dit-on ."],
    )
    assert values(hypotheses, references, "fr")["bleu_tokenized_lowercased"] == pytest.approx(
        plain_bleu(*tokens)
    )


def test_text_is_lowercased_before_it_is_tokenized():
    # "Nr." before a number is an abbreviation, and one token; "nr." is two tokens.
    hypotheses, references = ["Der Bus Nr. 5 hält hier ."], ["der bus nr . 5 hält hier ."]
    assert values(hypotheses, references, "de")["bleu_tokenized_lowercased"] == pytest.approx(100)


def test_multi30ks_punctuation_is_normalized_by_the_rules_of_the_language():
    hypotheses, references = ["Es kostet 5\u00a0000 Euro ."], ["Es kostet 5,000 Euro ."]
    scores = values(hypotheses, references, "de")
    assert scores["bleu_tokenized_lowercased"] == pytest.approx(100)
    # For the paper's figure a no-break space is like any other space.
    assert (
        scores["bleu_paper"] == values(["Es kostet 5 000 Euro ."], references, "de")["bleu_paper"]
    )
    assert scores["bleu_paper"] < 90


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        # replace-unicode-punctuation.perl replaces these ...
        ("Sie “nein”, wir’s…", 'Sie " nein " , wir \' s ...'),  # noqa: RUF001
        ("１２％，！（ja）", "12 % , ! ( ja )"),  # noqa: RUF001
        # ... and leaves these as they are.
        ("Er „ja“, «Ja» – ‚nein‘ — so!", 'Er „ ja " , « Ja » – ‚ nein ‘ — so !'),  # noqa: RUF001
    ],
)
def test_unicode_punctuation_is_replaced_as_the_authors_did(text, tokens):
    [found] = moses.tokenize(moses.replace_unicode_punctuation([text]), "de")
    assert html.unescape(found) == tokens
    hypotheses, references = [f"{text} a b c d e"], ["Er sagt : x a b c d"]
    expected = plain_bleu([f"{tokens} a b c d e"], references)
    assert values(hypotheses, references, "de")["bleu_paper"] == pytest.approx(expected)
    assert expected > 0


def test_token_figures_are_not_smoothed():
    scores = values(["a b c x"], ["a b c d"], "en")
    assert scores["bleu_paper"] == scores["bleu_tokenized_lowercased"] == 0 < scores["bleu"]


@pytest.mark.parametrize(
    ("tokens", "split"),
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("well-to-do", "well ##AT##-##AT## to ##AT##-##AT## do"),
        # As Perl's s///g on bytes: matches do not overlap, and "à" has two bytes.
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("face-à-face", "face ##AT##-##AT## à ##AT##-##AT## face"),
        ("a--b", "a ##AT##-##AT## -b"),
        ("10 - 12 -x y-", "10 - 12 -x y-"),
        ("", ""),
    ],
)
def test_compounds_are_split_as_the_authors_did(tokens, split):
    assert split_compounds(tokens) == split


def test_empty_translations_count_as_missing_words():
    full = ["ein Hund läuft durch den Park .", "eine Katze schläft auf dem Sofa ."]
    half = values(["", full[1]], full, "de")
    assert half["bleu_paper"] == pytest.approx(100 * math.exp(1 - 14 / 7))
    assert set(values(["", ""], full, "de").values()) == {0.0}


def test_without_a_language_that_moses_knows_there_are_no_token_figures():
    for target_lang in (None, "zh", "xh", "zh_TW", "yue"):
        assert set(values(["a"], ["a"], target_lang)) == {"bleu", "bleu_lowercased", "chrf"}


def test_chinese_is_scored_by_character():
    scores = translation_scores(["我爱吃苹果。"], ["我爱吃苹果。"], "zh")
    assert "tok:zh" in scores["bleu"].signature
    assert scores["bleu"].value == pytest.approx(100)


@pytest.mark.parametrize(
    ("code", "tokenizer", "text"),
    [
        ("th", "char", "น้องชายของฉันกินแอปเปิ้ล"),
        ("tha_Thai", "char", "น้องชายของฉันกินแอปเปิ้ล"),
        ("km", "char", "ខ្ញុំស្រឡាញ់ភាសាខ្មែរ"),
        ("lo", "char", "ຂ້ອຍຮັກພາສາລາວ"),
        ("my", "char", "မြန်မာဘာသာစကား"),
        ("bo", "char", "བོད་སྐད་ནི་སྐད་ཡིག"),
        ("yue", "zh", "我鍾意食蘋果。"),
    ],
)
def test_languages_without_spaces_are_not_scored_by_whole_sentences(code, tokenizer, text):
    scores = translation_scores([text], [text], code)
    by_sacrebleu = sacrebleu.corpus_bleu([text], [[text]], tokenize=tokenizer)
    assert scores["bleu"].value == by_sacrebleu.score == pytest.approx(100)
    assert f"tok:{tokenizer}" in scores["bleu"].signature
    [found] = bootstrap_scores([[text]], [text], code)
    assert found["bleu"].value == pytest.approx(100)


def test_text_without_spaces_needs_its_language():
    chinese, english = ["我爱吃苹果。", "USA"], ["I like apples.", "我"]
    message = "Warning: the targets of valid.zh have no spaces between words, so BLEU without "
    assert language_warning(chinese, None, "valid.zh").startswith(message)
    assert sacre_bleu(chinese, chinese).value == 0  # as the warning says
    assert language_warning(["น้องชายของฉัน"], None, "valid.th")
    named = (chinese, "zh"), (chinese, "yue"), (chinese, "de")
    for lines, language in (*named, (english, None), (["나는 사과를 먹는다."], None), ([""], None)):
        assert language_warning(lines, language, "valid.zh") is None


def test_lines_of_fewer_than_four_words_have_no_bleu():
    words, phrase = ["Haus", "der Hund"], "Der Hund bellt."
    message = "Warning: no target of words.de has four words, so BLEU is 0, however good"
    assert short_lines_warning(words, "de", "words.de").startswith(message)
    assert sacre_bleu(words, words, "de").value == 0  # as the warning says
    assert sacre_bleu([*words, phrase], [*words, phrase], "de").value == pytest.approx(100)
    others = ([*words, phrase], "de"), ([*words, "a b c d"], None), (["我爱吃苹果"], "zh")
    for lines, language in others:
        assert short_lines_warning(lines, language, "words.de") is None


@pytest.mark.parametrize("code", ["zh-cn", "zh_Hans", "zho", "cmn"])
def test_a_language_is_scored_alike_by_each_of_its_codes(code):
    texts = ["我爱吃苹果。"], ["我爱吃蘋果。"]
    assert translation_scores(*texts, code) == translation_scores(*texts, "zh")
    systems, references = texts[:1], texts[1]
    ours, expected = (bootstrap_scores(systems, references, each) for each in (code, "zh"))
    assert ours == expected


def test_moses_knows_a_language_by_each_of_its_codes():
    texts = ["Der Hund, z.B."], ["Ein Hund, z.B."]
    assert translation_scores(*texts, "deu") == translation_scores(*texts, "de")


def test_bleu_alone_is_the_figure_among_all_scores():
    hypotheses, references = ["我爱吃 Apfel。"], ["我爱吃 apfel 。"]
    for language in ("zh", None):
        scores = translation_scores(hypotheses, references, language)
        assert sacre_bleu(hypotheses, references, language) == scores["bleu"]
        lowercased = sacre_bleu(hypotheses, references, language, lowercase=True)
        assert lowercased == scores["bleu_lowercased"]


def test_a_language_whose_segmenter_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "MeCab", None)
    for code in ("ja", "ja-jp", "jpn"):
        message = rf"^cannot score '{code}': .* pip install sacrebleu\[ja\]$"
        with pytest.raises(UserError, match=message):
            translation_scores(["猫"], ["猫"], code)


def test_counts_must_agree():
    with pytest.raises(UserError, match="must have the same length: found 1 and 2"):
        translation_scores(["a"], ["a", "b"])
    with pytest.raises(UserError, match="must have the same length: found 1 and 2"):
        translation_scores(["a"], [["a", "b"], ["a", "b"]])
    with pytest.raises(UserError, match=r"lists of references must .*: found 1 and 2"):
        translation_scores(["a"], [["a"], ["a", "b"]])
    with pytest.raises(UserError, match=r"references must be .*: found a single string"):
        translation_scores(["a"], [["a"], "b"])


def test_nothing_cannot_be_scored():
    with pytest.raises(UserError, match="at least one sentence"):
        translation_scores([], [])


def test_scores_print_as_a_table_and_go_to_json():
    scores = translation_scores(["Ein Hund."], ["Ein Hund."], "de")
    lines = format_scores(scores).splitlines()
    assert len(lines) == 5
    assert len({line.index("nrefs:1") for line in lines}) == 1
    table = json.loads(json.dumps({k: dataclasses.asdict(v) for k, v in scores.items()}))
    assert table["chrf"]["label"] == "chrF"
    assert table["chrf"]["value"] == pytest.approx(100)


# What editors, spreadsheets and old systems leave in a file, as a function of its lines.
LEFTOVERS = {
    "a byte-order mark": lambda lines: "\ufeff" + "\n".join(lines) + "\n",
    "ends of Windows": lambda lines: "".join(f"{line}\r\n" for line in lines),
    "no last end": "\n".join,
    "blank lines at the end": lambda lines: "\n".join([*lines, "", " ", "\u00a0", ""]),
    "an end of file of DOS": lambda lines: "\n".join([*lines, "\x1a"]),
    **{
        f"{name} {where}": lambda lines, change=change, character=character: "".join(
            change(line, character) + "\n" for line in lines
        )
        for name, character in {
            "U+2028": "\u2028",
            "U+00A0": "\u00a0",
            "U+202F": "\u202f",
            "U+0085": "\x85",
            "tab": "\t",
            "form feed": "\f",
            "U+200B": "\u200b",
        }.items()
        for where, change in {
            "at the end": lambda line, character: line + character,
            "as the first space": lambda line, character: line.replace(" ", character, 1),
            "beside a space": lambda line, character: line.replace(" ", f"{character} ", 1),
        }.items()
    },
    **{
        f"{name} within words": lambda lines, character=character: "".join(
            f"{line[:3]}{character}{line[3:]}\n" for line in lines
        )
        for name, character in {"U+FEFF": "\ufeff", "U+200E": "\u200e", "U+2060": "\u2060"}.items()
    },
}


@pytest.fixture(scope="module")
def scored():
    """Sources, references, hypotheses that differ from them, and their scores."""
    sources, references = map(list, zip(*builtin_pairs("test", 15), strict=True))
    hypotheses = [line.rsplit(" ", 1)[0] + "." for line in references]
    return sources, references, hypotheses, translation_scores(hypotheses, references, "de")


@pytest.mark.parametrize("leftover", LEFTOVERS.values(), ids=LEFTOVERS)
def test_a_reference_scores_as_the_same_text_without_leftovers(tmp_path, leftover, scored):
    sources, references, hypotheses, plain = scored
    (tmp_path / "source").write_bytes("\n".join(sources).encode())
    (tmp_path / "reference").write_bytes(leftover(references).encode())
    read = [target for _, target in TextPairs(tmp_path / "source", tmp_path / "reference")]
    assert translation_scores(hypotheses, read, "de") == plain
    # As a program of one's own reads them, with the ends of lines.
    lines = io.StringIO(leftover(references), newline="\n").readlines()[: len(references)]
    assert translation_scores(hypotheses, lines, "de") == plain


RECORDED = {
    "bleu": 68.906145,
    "bleu_lowercased": 74.116665,
    "chrf": 78.934765,
    "bleu_tokenized_lowercased": 74.116665,
    "bleu_paper": 69.252758,
}


def test_on_real_german_the_figures_are_those_recorded(multi30k):
    references = (multi30k / "test_2016_flickr.de").read_text("utf-8").splitlines()[:200]
    hypotheses = [line.rsplit(" ", 2)[0].replace("Mann", "mann") + "." for line in references]
    scores = translation_scores(hypotheses, references, "de")
    for name, fold in (("bleu", False), ("bleu_lowercased", True)):
        expected = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=fold).score
        assert scores[name].value == expected
    assert {name: round(score.value, 6) for name, score in scores.items()} == RECORDED
