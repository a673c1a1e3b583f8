"""Import of M2M100 and NLLB: same logits, ids and scores; wrong folders fail in one line."""

import json

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from command_lines import refused, run, run_process
from m2m100_folder import NLLB_CODES, NumpyM2M100, write_m2m100, write_nllb
from marian_folder import write_safetensors

from keras_transformer.ctranslate2.converted import ModelInMemory
from keras_transformer.ctranslate2.translator import CTranslate2Translator
from keras_transformer.documents.placeholders import PlaceholderTranslator
from keras_transformer.errors import UserError
from keras_transformer.importers.m2m100 import import_m2m100
from keras_transformer.importers.safetensors import read_safetensors
from keras_transformer.text.directed import DirectedTokenizer
from keras_transformer.text.multilingual import MultilingualTokenizer
from keras_transformer.text.vocabulary import Vocabulary
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

ENGLISH = ["A man rides a horse.", "Two birds!", "", "a 猫"]
WRITE = {"m2m100": write_m2m100, "nllb": write_nllb}
LANGUAGES = {"m2m100": ("fr", "en"), "nllb": ("fra_Latn", "eng_Latn")}  # target, source


@pytest.fixture(scope="module", params=WRITE)
def family(request):
    return request.param


@pytest.fixture(scope="module")
def folder(family, tmp_path_factory):
    folder = tmp_path_factory.mktemp("imported") / family
    WRITE[family](folder)
    return folder


@pytest.fixture(scope="module")
def imported(folder):
    return import_m2m100(folder)


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imported") / "nllb"
    write_nllb(folder)
    return folder


@pytest.fixture
def copy(nllb, tmp_path):
    """A copy of the folder of NLLB, to be damaged."""
    for path in nllb.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


# The model


def test_logits_are_those_of_the_formulas(family, tmp_path):
    config, weights = WRITE[family](tmp_path)
    model, _ = import_m2m100(tmp_path)
    rng = np.random.default_rng(1)
    reference = NumpyM2M100(config, weights)
    for source_length, target_length in ((1, 1), (7, 4), (3, 9)):
        source = [*rng.integers(4, 60, size=source_length), 2]
        target = [2, *rng.integers(4, 60, size=target_length)]
        batch = {"source_ids": np.array([source]), "target_ids": np.array([target])}
        found = keras.ops.convert_to_numpy(model(batch))[0]
        np.testing.assert_allclose(found, reference.logits(source, target), atol=1e-4)


def test_weights_in_several_files_are_read(copy):
    arrays = read_safetensors(copy / "model.safetensors")
    whole, _ = import_m2m100(copy)
    (copy / "model.safetensors").unlink()
    names = sorted(arrays)
    parts = {"one.safetensors": names[::2], "two.safetensors": names[1::2]}
    for file, some in parts.items():
        write_safetensors(copy / file, {name: arrays[name] for name in some})
    index = {"weight_map": {name: file for file, some in parts.items() for name in some}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    split, _ = import_m2m100(copy)
    for ours, other in zip(split.weights, whole.weights, strict=True):
        np.testing.assert_array_equal(ours, other)
    (copy / "two.safetensors").unlink()
    with pytest.raises(UserError, match=r"index\.json: the file two\.safetensors is missing"):
        import_m2m100(copy)


# The vocabulary


def test_each_side_begins_with_the_symbol_of_its_language(family, folder, imported):
    _, tokenizer = imported
    target, source = LANGUAGES[family]
    directed = DirectedTokenizer(tokenizer, target, source)
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(folder / "sentencepiece.bpe.model")
    )
    symbols = {"m2m100": "__{}__", "nllb": "{}"}[family]
    known = {piece: id_ for id_, piece in enumerate(tokenizer.pieces)}
    assert tokenizer.pieces[directed.first_id] == symbols.format(target)
    rows = directed.tokenize(ENGLISH).to_list()
    for row, text in zip(rows, ENGLISH, strict=True):
        pieces = processor.encode(text, out_type=str)
        expected = [known[symbols.format(source)], *(known.get(piece, 3) for piece in pieces)]
        assert row == (expected if text else [])
    encoded = directed.encode(ENGLISH)
    assert encoded.ids.tolist() == [id_ for row in rows for id_ in row]
    assert encoded.lengths.tolist() == list(map(len, rows))


def test_ids_of_nllb_follow_one_later_than_those_of_sentencepiece(nllb):
    _, tokenizer = import_m2m100(nllb)
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(nllb / "sentencepiece.bpe.model")
    )
    ids = processor.encode("Two birds")
    assert tokenizer.tokenize(["Two birds"])[0].numpy().tolist() == [id_ + 1 for id_ in ids]
    size = processor.vocab_size() + 1
    assert tokenizer.pieces[size : size + len(NLLB_CODES)] == NLLB_CODES


def test_ids_of_languages_are_those_of_tokenizer_json(copy):
    size = MultilingualTokenizer.from_bytes(import_m2m100(copy)[1].to_bytes()).vocab_size
    added = [{"id": size - 1 - n, "content": code} for n, code in enumerate(NLLB_CODES)]
    (copy / "tokenizer.json").write_text(json.dumps({"added_tokens": added}))
    _, tokenizer = import_m2m100(copy)
    assert tokenizer.pieces[-1] == NLLB_CODES[0] and tokenizer.pieces[-2] == NLLB_CODES[1]


def test_text_has_no_symbols(family, imported):
    _, tokenizer = imported
    target, source = LANGUAGES[family]
    directed = DirectedTokenizer(tokenizer, target, source)
    words = directed.tokenize_target(["deux oiseaux"])[0].numpy().tolist()
    special = [directed.first_id, 3, tokenizer.vocab_size - 1]  # language, unknown, unused
    texts = directed.detokenize([[*special, *words, 2, *words]])
    assert texts.numpy().tolist() == [b"deux oiseaux"]


def test_the_vocabulary_is_the_same_from_its_file_without_tensorflow(imported, tmp_path):
    _, tokenizer = imported
    tokenizer.save(tmp_path / tokenizer.file_name)
    loaded = MultilingualTokenizer.load(tmp_path / tokenizer.file_name)
    other = Vocabulary.of_multilingual(tokenizer.to_bytes())
    for same in (loaded, other):
        assert same.pieces == tokenizer.pieces and same.languages == tokenizer.languages
        assert (same.pad_id, same.start_id, same.end_id, same.unknown_id) == (1, 2, 2, 3)
    with pytest.raises(UserError, match=r"not a zip file of sentencepiece\.model, vocab"):
        MultilingualTokenizer.from_bytes(b"PK")


# Translation


def translators(imported, **options):
    return {
        "tensorflow": Translator(*imported, **options),
        "ctranslate2": CTranslate2Translator(ModelInMemory(*imported), **options),
    }


@pytest.mark.slow
def test_both_engines_find_the_translations_of_the_formula(family, folder, imported):
    """Scores are log P(tokens after the language) / (their number + 1), as in Transformers."""
    target, source = LANGUAGES[family]
    config = json.loads((folder / "config.json").read_text())
    reference = NumpyM2M100(config, read_safetensors(folder / "model.safetensors"))
    beam_size = {"m2m100": 1, "nllb": 4}[family]
    options = {"beam_size": beam_size, "n_best": beam_size, "extra_length": 3, "alpha": 1.0}
    found = {
        engine: translator.with_languages(target, source)
        for engine, translator in translators(imported, **options).items()
    }
    directed = found["tensorflow"].tokenizer
    ids = np.array(directed.tokenize(ENGLISH[:1])[0]).tolist()
    ours, others = (each.translate_n(ENGLISH) for each in found.values())
    for row, other in zip(ours, others, strict=True):
        assert [one.text for one in row] == [one.text for one in other]
        np.testing.assert_allclose(
            [one.score for one in row], [one.score for one in other], atol=1e-4
        )
    sentences, texts = [ENGLISH[0]] * 2, ["Deux oiseaux.", "un"]
    for translator in found.values():
        for text, score in zip(texts, translator.score(sentences, texts), strict=True):
            tokens = [*directed.tokenize_target([text])[0].numpy().tolist(), 2]
            logits = reference.logits([*ids, 2], [2, directed.first_id, *tokens[:-1]])[1:]
            log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
            expected = log_probs[np.arange(len(tokens)), tokens].sum() / (len(tokens) + 1)
            assert score == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_the_language_changes_the_translation_and_is_aligned_with_nothing(nllb):
    imported = import_m2m100(nllb)
    for translator in translators(imported, extra_length=3).values():
        french = translator.with_languages("fra_Latn", "eng_Latn")
        chinese = translator.with_languages("zho_Hans", "eng_Latn")
        assert french(ENGLISH) != chinese(ENGLISH)
        [aligned] = french.align(ENGLISH[:1], ["Deux oiseaux."])
        pieces = sentencepiece.SentencePieceProcessor(
            model_file=str(nllb / "sentencepiece.bpe.model")
        ).encode([ENGLISH[0], "Deux oiseaux."], out_type=str)
        assert aligned.source == pieces[0] and len(aligned.target) == len(pieces[1])
        assert {number for _, number in aligned.links} == set(range(len(pieces[1])))
        assert all(0 <= index < len(pieces[0]) for index, _ in aligned.links)


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        (("fr", "eng_Latn"), "target_lang=fr is not a language of this model: did you mean fra_La"),
        (("zh", "eng_Latn"), "did you mean zho_Hans or zho_Hant"),
        (("fra_Latn", "english"), "source_lang=english is not .*: use one of deu_Latn, eng_Latn"),
        (("fra_Latn", None), "this model is for several languages: give source_lang, one of deu"),
        ((None, "eng_Latn"), "give target_lang, one of deu_Latn"),
    ],
)
def test_an_unknown_language_is_named_with_near_ones(nllb, languages, message):
    for translator in translators(import_m2m100(nllb)).values():
        with pytest.raises(UserError, match=message):
            translator.with_languages(*languages)


def test_without_languages_nothing_is_translated(nllb):
    for translator in translators(import_m2m100(nllb)).values():
        for use in (translator, lambda texts, of=translator: of.score(texts, texts)):
            with pytest.raises(UserError, match="give target_lang, one of"):
                use(["A man."])


# Commands


@pytest.mark.slow
def test_commands_take_the_languages(nllb, tmp_path, capsys):
    model_dir = tmp_path / "run"
    run("import-m2m100", source=nllb, model_dir=model_dir)
    assert "5 languages" in capsys.readouterr().out
    languages = {"model_dir": model_dir, "source_lang": "eng_Latn", "target_lang": "fra_Latn"}
    translator = Translator(ModelDir(model_dir).load_model(), ModelDir(model_dir).load_tokenizer())
    to_french = translator.with_languages("fra_Latn", "eng_Latn")
    keeping = PlaceholderTranslator(to_french)  # as `translate` does: the vocabulary lacks 猫
    lines = "".join(f"{line}\n" for line in ENGLISH).encode()
    found = run_process("translate", stdin=lines, **languages)
    assert found.stdout.decode().splitlines() == keeping(ENGLISH)
    message = refused("translate", **{**languages, "target_lang": "fr"})
    assert message.endswith("did you mean fra_Latn?")
    assert "give target_lang, one of" in refused("translate", model_dir=model_dir)
    run("export", format="saved_model", output=tmp_path / "export", **languages)
    signatures = tf.saved_model.load(f"{tmp_path}/export/1").signatures
    texts = signatures["serving_default"](text=tf.constant(ENGLISH))["translation"]
    assert [text.decode() for text in texts.numpy()] == to_french(ENGLISH)
    with pytest.raises(UserError, match="give target_lang"):
        translator.export(tmp_path / "none")


# Folders that cannot be imported

REFUSED = {
    "mixture of experts": ({"model_type": "nllb-moe"}, "a mixture of experts cannot be imported"),
    "another family": ({"model_type": "mbart"}, 'model_type must be "m2m_100": found "mbart"'),
    "sides differ": ({"decoder_ffn_dim": 7}, "decoder_ffn_dim must be 48: found 7"),
    "a larger vocabulary": ({"vocab_size": 500_000}, "describes .* parameters, and the weights"),
    "a huge vocabulary": ({"vocab_size": 10**12}, "vocab_size must be at most 1,048,576: found 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_of_another_kind_is_refused(copy, name):
    changed, message = REFUSED[name]
    config = json.loads((copy / "config.json").read_text()) | changed
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
        import_m2m100(copy)


def test_missing_files_are_named(copy):
    (copy / "special_tokens_map.json").unlink()
    with pytest.raises(UserError, match=r"the languages are missing: tokenizer\.json or special"):
        import_m2m100(copy)
    (copy / "sentencepiece.bpe.model").unlink()
    with pytest.raises(UserError, match=r"are missing: sentencepiece\.bpe\.model"):
        import_m2m100(copy)


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("nllb", "special_tokens_map.json", {"additional_special_tokens": 1}, "languages are miss"),
        ("nllb", "tokenizer.json", {"added_tokens": [{"content": "eng_Latn"}]}, "each id from 0"),
        (
            "nllb",
            "tokenizer.json",
            {"added_tokens": [{"content": "eng_Latn", "id": []}]},
            "each id",
        ),
        ("m2m100", "vocab.json", {"<s>": []}, "vocabulary must have each id from 0"),
        ("m2m100", "tokenizer_config.json", {"language_codes": []}, "must be m2m100 or wmt21"),
    ],
)
def test_files_with_other_content_are_refused(kind, name, content, message, tmp_path):
    WRITE[kind](tmp_path)
    (tmp_path / name).write_text(json.dumps(content))
    with pytest.raises(UserError, match=message):
        import_m2m100(tmp_path)


def test_the_order_of_earlier_versions_is_refused(copy):
    (copy / "tokenizer_config.json").write_text('{"legacy_behaviour": true}')
    with pytest.raises(UserError, match="legacy_behaviour puts the language after the sentence"):
        import_m2m100(copy)
