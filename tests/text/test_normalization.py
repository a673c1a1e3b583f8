# ruff: noqa: RUF001
"""Normalisation: targets come out as they went in, and sources are read as before."""

import io
import json
import os
import re
import sys

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from helpers import as_read
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_transformer.ctranslate2.subwords import Subwords
from keras_transformer.data import BuiltinPairs, Corpus, TextPairs
from keras_transformer.errors import UserError
from keras_transformer.evaluation import translation_scores
from keras_transformer.text import UNKNOWN_ID, SubwordTokenizer
from keras_transformer.text.normalization import NORMALIZATIONS
from keras_transformer.text.text_files import read_lines
from keras_transformer.translation import one_line

TEXTS = {
    "Persian with ZWNJ": "می\u200cخواهم کتاب\u200cها را بخوانم.",
    "Arabic with diacritics": "اَلسَّلامُ عَلَيْكُمْ، ﷺ كيف حالك؟",
    "presentation forms": "ﺍﻟﺴﻼﻡ ﻋﻠﻴﻜﻢ",
    "Hebrew with points": "שָׁלוֹם עֲלֵיכֶם, יִשְׂרָאֵל",
    "Hindi": "क्षत्रिय ज़मीन \u0958\u0932\u092e क्\u200dष और क्\u200cष।",
    "Bengali": "বাংলা ভাষা, র\u200d্যাব",
    "Thai": "สวัสดีครับ น้ำใจงาม",
    "Chinese": "你好，世界！（１００％）：“引号”；《书》",
    "Japanese": "ｶﾀｶﾅ、カタカナ　①㈱㍿ ＡＢＣ　が か\u3099",
    "Korean": "안녕하세요 \u1112\u1161\u11ab글 ㄱㄴㄷ",
    "Vietnamese, composed and decomposed": "Tiếng Việt, Tie\u0302\u0301ng Vie\u0323\u0302t",
    "emoji sequences": "👩‍🚀 👨‍👩‍👧‍👦 👍🏽 ❤️ 1️⃣ 🏳️‍🌈",
    "flags": "🇩🇪 🇫🇷 🏴󠁧󠁢󠁥󠁮󠁧󠁿",
    "soft hyphen": "Donau\u00addampf\u00adschiff",
    "typographic quotes": "„Ja“, «oui», ‚so‘, “yes”, ‘it’s’, 「はい」",
    "dashes and dots": "Öffnen… – nein — doch ‑ nie ‥",
    "numbers": "1½ m², 10⁻³, H₂O, ¾ ⅔ ⅷ №5 5\u00a0000\u202f€",
    "marks": "™ ® © ℠ ℃ Å K Ω µ ª º",
    "ligatures": "ﬁnden, oﬀen, Œuvre, ĳs, ß ẞ",
    "combining accents": "e\u0301 a\u0308 o\u0328\u0304 x\u0302 n\u0303 q\u0307\u0323",
    "spaces within": "z.\u00a0B. «\u202foui\u202f» 5\u2009km 全\u3000角 a\u2003b",
    "mathematics": "𝐇𝐞𝐥𝐥𝐨 ∑ ≠ ℝ ½⁄¼",
    "special symbols": "<s> </s> <unk> <pad> <0x41> ▂▃▅█ \ufffd x",
}
KNOWN = list(BuiltinPairs("train", 200).sentences())


def learned(sentences=KNOWN, vocab_size=350, **options):
    return SubwordTokenizer.train_from_sentences(sentences, vocab_size, **options)


@pytest.fixture(scope="module")
def tokenizer():
    """A vocabulary of English and German, without the characters of other scripts."""
    return learned()


@pytest.fixture(scope="module", params=["bpe", "unigram", "of other text"])
def any_tokenizer(request):
    if request.param == "of other text":
        return learned()
    return learned([*TEXTS.values(), *KNOWN] * 3, 900, model_type=request.param)


def joined(tokenizer, ids):
    return tokenizer.detokenize(ids)[0].numpy().decode()


def target(tokenizer, text):
    return joined(tokenizer, tokenizer.tokenize_target([text]))


def source(tokenizer, text):
    return joined(tokenizer, tokenizer.tokenize([text]))


@pytest.mark.parametrize("script", TEXTS)
def test_a_target_comes_out_as_it_went_in(any_tokenizer, script):
    assert target(any_tokenizer, TEXTS[script]) == one_line(TEXTS[script]) == TEXTS[script]
    assert UNKNOWN_ID not in any_tokenizer.tokenize_target([TEXTS[script]]).flat_values


@pytest.mark.slow
@settings(max_examples=300)
@given(text=st.text(st.characters(exclude_characters="\u2581")))
def test_any_target_comes_out_as_it_is_read(tokenizer, text):
    text = text.encode("utf-8", "replace").decode()
    assert target(tokenizer, text) == re.sub(" +", " ", as_read(text))


@pytest.mark.slow
def test_every_character_survives_on_the_target_and_is_read_as_before_on_the_source(tokenizer):
    """The one that does not is U+2581, by which SentencePiece marks spaces."""
    before = sentencepiece.SentencePieceNormalizer(
        rule_name="nmt_nfkc", add_dummy_prefix=False, escape_whitespaces=False
    )
    codes = [code for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    for part in np.array_split(codes, 100):
        texts = [f"A{chr(code)}b" for code in part]
        read = [as_read(text) for text in texts]
        rows = tokenizer.tokenize_target(texts)
        assert rows.flat_values.numpy().tolist() == tokenizer.encode(texts, True).ids.tolist()
        found = [text.decode() for text in tokenizer.detokenize(rows).numpy()]
        assert found == [text.replace("\u2581", " ") for text in read]

        rows = tokenizer.tokenize(texts)
        assert rows.flat_values.numpy().tolist() == tokenizer.encode(texts).ids.tolist()
        found = [text.decode() for text in tokenizer.detokenize(rows).numpy()]
        assert found == [before.normalize(text) for text in read]


def test_every_reader_splits_alike(any_tokenizer, tmp_path):
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "config.json").write_text(json.dumps(special))
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(any_tokenizer.pieces))
    for name, content in any_tokenizer.sentencepiece_models.items():
        (tmp_path / name).write_bytes(content)
    texts = list(TEXTS.values())
    subwords = Subwords(tmp_path)
    for is_target, tokenize, split in (
        (False, any_tokenizer.tokenize, subwords.split_source),
        (True, any_tokenizer.tokenize_target, subwords.split_target),
    ):
        rows = tokenize(texts)
        assert (
            any_tokenizer.encode(texts, is_target).ids.tolist() == rows.flat_values.numpy().tolist()
        )
        pieces = [[any_tokenizer.pieces[id_] for id_ in row] for row in rows.to_list()]
        assert split([text.encode() for text in texts]) == pieces
    assert subwords.join(subwords.split_target([text.encode() for text in texts])) == texts


def test_an_exported_function_splits_both_sides_alike(tokenizer, tmp_path):
    class BothSides(tf.Module):
        def __init__(self):
            super().__init__()
            self.tokenizer = tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def __call__(self, text):
            sides = self.tokenizer.tokenize(text), self.tokenizer.tokenize_target(text)
            return [self.tokenizer.detokenize(side) for side in sides]

    tf.saved_model.save(BothSides(), str(tmp_path / "export"))
    sides = tf.saved_model.load(str(tmp_path / "export"))(tf.constant(["1½ m²…"]))
    assert [side.numpy()[0].decode() for side in sides] == ["11⁄2 m2...", "1½ m²…"]


@pytest.mark.parametrize(
    ("given_", "as_source", "as_target"),
    [
        ("a  b", "a b", "a b"),
        (" a ", "a", "a"),
        ("a\tb", "a b", "a b"),
        ("a \u200b\u2028b", "a b", "a b"),
        ("5\u00a0km", "5 km", "5\u00a0km"),
        ("5 \u00a0 km", "5 km", "5 \u00a0 km"),
        ("a\u2009b\u202fc", "a b c", "a\u2009b\u202fc"),
        ("\u3000全\u3000角\u3000", "全 角", "全\u3000角"),
        ("\u00a0a\u2003", "a", "a"),
        ("\u00a0 \u3000", "", ""),
        ("a\u200cb", "a b", "a\u200cb"),
        ("a\u2581b", "a b", "a b"),
    ],
)
def test_white_space_of_typography_stays_within_a_target(tokenizer, given_, as_source, as_target):
    assert source(tokenizer, given_) == tokenizer.normalize(given_) == as_source
    assert target(tokenizer, given_) == as_target


@pytest.mark.parametrize("lowercase", [False, True])
def test_a_source_keeps_u200c_where_the_vocabulary_has_seen_it(lowercase):
    tokenizer = learned([*KNOWN, TEXTS["Persian with ZWNJ"]], 420, lowercase=lowercase)
    for text in (TEXTS["Persian with ZWNJ"], "a\u200cb"):
        assert source(tokenizer, text) == target(tokenizer, text) == text
    assert source(tokenizer, "a\u200e\u200bb²") == "a b2"  # as without it
    assert tokenizer.normalization == "source"
    both = learned([TEXTS["Persian with ZWNJ"]] * 9, 300, normalization="both")
    assert target(both, "a\u200cb²") == "a\u200cb2"


def test_a_target_of_white_space_alone_is_empty(tokenizer, tmp_path):
    for name, lines in (("a.en", "One\nTwo\n"), ("a.de", "Eins\n\u00a0\u3000\n")):
        (tmp_path / name).write_text(lines)
    pairs = TextPairs(tmp_path / "a.en", tmp_path / "a.de")
    assert Corpus.build(pairs, tokenizer).counts.empty == 1


@pytest.mark.parametrize(
    ("variant", "usual"),
    [
        ("Ｈｏｒｓｅ １", "Horse 1"),
        ("ﬁsh", "fish"),
        ("gru\u0308n", "grün"),
        ("Stu\u0308ck m²", "Stück m2"),
    ],
)
def test_a_source_in_other_characters_is_the_usual_one(tokenizer, variant, usual):
    assert tokenizer.tokenize([variant]).to_list() == tokenizer.tokenize([usual]).to_list()


@pytest.mark.parametrize(
    ("normalization", "as_source", "as_target"),
    [
        ("source", "1 m2... fi", "1\u00a0m²… ﬁ"),
        ("both", "1 m2... fi", "1 m2... fi"),
        ("none", "1\u00a0m²… ﬁ", "1\u00a0m²… ﬁ"),
    ],
)
@pytest.mark.parametrize("lowercase", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_choice_says_which_sides_are_normalised(normalization, as_source, as_target, lowercase):
    tokenizer = learned(lowercase=lowercase, normalization=normalization)
    again = SubwordTokenizer.from_bytes(tokenizer.to_bytes())
    for one in (tokenizer, again):
        assert one.normalization == normalization and one.lowercase == lowercase
        assert source(one, "1\u00a0m²… ﬁ") == one.normalize("1\u00a0m²… ﬁ") == as_source
        assert target(one, "1\u00a0m²… ﬁ") == as_target
    for side in (source, target):
        assert side(tokenizer, "Ärger") == ("ärger" if lowercase else "Ärger")
    assert len(tokenizer.sentencepiece_models) == (2 if normalization == "source" else 1)


@pytest.mark.slow
def test_a_target_in_lower_case_loses_nothing_else():
    tokenizer = learned(lowercase=True)
    for text in TEXTS.values():
        lower = "".join(map(str.lower, text))
        assert target(tokenizer, text) == lower


def test_an_unknown_choice_is_refused():
    with pytest.raises(UserError, match=r"must be source, both, none: found 'nfkc'$"):
        learned(normalization="nfkc")
    assert NORMALIZATIONS[0] == "source"


def test_other_programs_read_the_file_with_the_rule_of_the_source(tokenizer):
    theirs = sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)
    for text in TEXTS.values():
        assert theirs.encode(text) == tokenizer.encode([text]).ids.tolist()
        assert theirs.decode(tokenizer.encode([text], is_target=True).ids.tolist()) == text


def test_a_vocabulary_without_a_rule_for_the_target_goes_on_as_it_was():
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(KNOWN),
        model_writer=model,
        vocab_size=350,
        model_type="bpe",
        **{"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "byte_fallback": True},
        minloglevel=2,
    )
    tokenizer = SubwordTokenizer(model.getvalue())
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    assert tokenizer.normalization == "both" and tokenizer.to_bytes() == model.getvalue()
    assert list(tokenizer.sentencepiece_models.values()) == [model.getvalue()]
    for text in TEXTS.values():
        for tokenize in (tokenizer.tokenize, tokenizer.tokenize_target):
            assert tokenize([text]).to_list() == [theirs.encode(text)]


def test_subwords_are_learned_from_both_forms_of_a_sentence():
    tokenizer = learned(["Öﬀnen…", "Vie\u0323\u0302t", "m²"] * 9, 300)
    for text in ("Öﬀnen…", "Vie\u0323\u0302t", "m²"):
        for ids in (tokenizer.tokenize([text]), tokenizer.tokenize_target([text])):
            assert not any(tokenizer.pieces[id_].startswith("<0x") for id_ in ids.flat_values)


@pytest.mark.parametrize("dropout", [0.0, 0.5, 1.0])
def test_dropout_changes_no_text(dropout):
    tokenizer = learned([*TEXTS.values()] * 3, 900)
    encoded = tokenizer.encode([*TEXTS.values()], is_target=True)
    split = tokenizer.resplit(encoded, dropout, np.random.RandomState(0))
    rows = np.split(split.ids, np.cumsum(split.lengths)[:-1])
    assert [joined(tokenizer, [row.tolist()]) for row in rows] == [*TEXTS.values()]


@pytest.mark.parametrize("target_lang", ["de", "fa", "zh"])
def test_a_perfect_translation_has_bleu_100(tokenizer, target_lang):
    references = [*TEXTS.values()]
    scores = translation_scores(
        [one_line(target(tokenizer, text)) for text in references], references, target_lang
    )
    assert [scores[name].value for name in ("bleu", "chrf")] == pytest.approx([100, 100])


@pytest.mark.slow
def test_every_line_of_given_files_survives_on_the_target(tokenizer):
    """Give files in KERAS_TRANSFORMER_LINES, separated by colons, to check your own."""
    given_ = os.environ.get("KERAS_TRANSFORMER_LINES")
    if not given_:
        pytest.skip("KERAS_TRANSFORMER_LINES is not set: it names text files")
    for path in given_.split(os.pathsep):
        lines = list(read_lines(path))
        ids, lengths = tokenizer.encode(lines, is_target=True)
        rows = np.split(ids, np.cumsum(lengths)[:-1])
        decoded = tokenizer._target.processor.decode([row.tolist() for row in rows])
        lost = [
            (path, number)
            for number, (line, text) in enumerate(zip(lines, decoded, strict=True), 1)
            if text != re.sub(" +", " ", line)
        ]
        print(f"{path}: {len(lines):,} lines, {len(lost):,} lost")
        assert not lost
