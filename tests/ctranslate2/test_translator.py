"""CTranslate2 finds the same translations as our search, and refuses what it cannot do."""

import errno
import io
import itertools
import json
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
from command_lines import refused, run
from helpers import lively_model, run_python, sentencepiece_model
from marian_folder import write_folder

import keras_transformer as kt
from keras_transformer.ctranslate2 import export_ctranslate2
from keras_transformer.ctranslate2.converted import ConvertedModel, ModelInMemory
from keras_transformer.ctranslate2.translator import CTranslate2Translator
from keras_transformer.ctranslate2.weights import model_weights, weight_shapes
from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.files import checksum
from keras_transformer.search import NO_HYPOTHESIS, SearchOptions
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

SENTENCES = [
    "The girls sleep.",
    "",
    "A horse!",
    "He will not buy a small lamp, because it is dear.",
    "</s> <pad> <unk>",
    b"not UTF-8: \xff\xc3",
    "\ud800 \0 \u2028",
    "A",
    "horse " * 50,
]
LIMITED = {"extra_length": 4}
LONGEST = 60  # of sources, in tokens


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), 340)


@pytest.fixture(scope="module")
def model(tokenizer):
    """A model whose translations end soon, late or never."""
    model = lively_model(1, tokenizer.vocab_size)
    kernel = model.output_projection.kernel.numpy()
    kernel[0, 2] = 5.0  # the end is likelier than most
    model.output_projection.kernel.assign(kernel)
    return model


@pytest.fixture(scope="module")
def path(model, tokenizer, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "en-de"
    ModelDir(path).create_trained(model, tokenizer, "de", "made by a test")
    return path


@pytest.fixture(scope="module")
def translator(path):
    return CTranslate2Translator(path, **LIMITED, max_source_length=LONGEST, workers=2)


@pytest.fixture(scope="module")
def ours(model, tokenizer):
    """A translator that searches in TensorFlow."""
    return Translator(model, tokenizer, **LIMITED, max_source_length=LONGEST)


@pytest.fixture
def own_path(path, tmp_path):
    """A copy of the model_dir that a test may change."""
    return Path(
        shutil.copytree(path, tmp_path / "model", ignore=shutil.ignore_patterns("ctranslate2"))
    )


def assert_same(found, expected):
    """Checks that translations are the same, and scores equal up to rounding."""
    texts = [
        [[t.text for t in best] for best in translations] for translations in (found, expected)
    ]
    assert texts[0] == texts[1]
    scores = [
        [t.score for best in translations for t in best] for translations in (found, expected)
    ]
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)


# The same search.


def test_both_engines_search_by_the_same_options_unless_told_otherwise(path, model, tokenizer):
    both = CTranslate2Translator(path), Translator(model, tokenizer)
    assert [translator.options for translator in both] == [SearchOptions()] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 1},
        {"beam_size": 4, "extra_length": 0},
        {"beam_size": 5, "n_best": 5, "alpha": 0.6},
        {"beam_size": 4, "alpha": 0.0, "patience": 0.25},
        {"beam_size": 4, "patience": 2.5, "extra_length": 20},
        {"beam_size": 21, "n_best": 10, "max_length": 7},
        {"beam_size": 2, "n_best": 2, "max_length": 2},
        {"beam_size": 3, "max_length": 1},
    ],
    ids=str,
)
def test_translations_and_scores_are_those_of_our_search(options, translator, ours):
    options = SearchOptions(**{**LIMITED, **options})
    expected = ours.with_options(options).translate_n(SENTENCES)
    assert_same(translator.with_options(options).translate_n(SENTENCES), expected)


def test_text_that_spells_a_special_symbol_is_unknown_to_both_engines():
    # Without byte pieces, characters outside of the vocabulary are one unknown subword together.
    content = sentencepiece_model(["你好世界", "世界你好吗"] * 9, vocab_size=16)
    tokenizer = SubwordTokenizer(content)
    model = lively_model(1, tokenizer.vocab_size)
    texts = ["</s>", "你好<s>世界", "好<pad>", "好?"]
    other = CTranslate2Translator(ModelInMemory(model, tokenizer))
    for split in other._subwords.split_source, other._subwords.split_target:
        assert all("<unk>" in pieces for pieces in map(other._subwords.known, split(texts)))
    assert other.align(texts, texts) == Translator(model, tokenizer).align(texts, texts)


def test_some_searches_end_by_themselves_and_some_at_their_limit(translator):
    sources = translator._split(translator._subwords.split_source, SENTENCES)
    found = translator._search(sources)
    is_cut = [
        len(found[row][0][0]) == translator.options.longest(len(sources[row]) + 1) for row in found
    ]
    assert {*is_cut} == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("max_length", [1, 2, 3, 5, 9])
def test_a_translation_has_the_score_that_its_subwords_have_cut_or_not(max_length, translator):
    options = SearchOptions(**{**LIMITED, "beam_size": 4, "n_best": 4, "max_length": max_length})
    limited = translator.with_options(options)
    sources = limited._split(limited._subwords.split_source, SENTENCES)
    for row, best in limited._search(sources).items():
        pieces = [subwords[:-1] for subwords, _ in best]
        assert all(subwords[-1] == "</s>" for subwords, _ in best)
        found = [score for _, score in best]
        assert found == sorted(found, reverse=True)
        given = limited._scores([sources[row]] * len(best), pieces)
        np.testing.assert_allclose(found, given, rtol=1e-4, atol=1e-4)


def test_a_translation_does_not_depend_on_its_company(translator):
    assert [translator([sentence])[0] for sentence in SENTENCES] == translator(SENTENCES)


@pytest.mark.parametrize("tokens_per_batch", [1, 30])
def test_batches_change_nothing(tokens_per_batch, path, translator):
    sizes = {"tokens_per_batch": tokens_per_batch, "workers": 1, "max_source_length": LONGEST}
    other = CTranslate2Translator(path, **LIMITED, **sizes)
    assert_same(other.translate_n(SENTENCES), translator.translate_n(SENTENCES))


def test_translations_are_those_of_a_loop_over_an_exported_folder(
    translator, model, tokenizer, tmp_path
):
    export_ctranslate2(model, tokenizer, tmp_path / "export")
    engine = ctranslate2.Translator(str(tmp_path / "export"), intra_threads=1)
    processor = tokenizer._source.processor
    ended = []
    sentences = ["The girls sleep.", "A horse!", "A", "horse " * 50]
    translator = translator.with_options(SearchOptions(alpha=0.6, **LIMITED))
    for sentence, found in zip(sentences, translator(sentences), strict=True):
        subwords = processor.encode(sentence, out_type=str)[: LONGEST - 1]
        limit = len(subwords) + 1 + LIMITED["extra_length"]
        [result] = engine.translate_batch(
            [subwords],
            beam_size=4,
            length_penalty=0.6,
            return_end_token=True,
            min_decoding_length=0,
            max_decoding_length=limit,
        )
        [best] = result.hypotheses
        if len(best) < limit:
            assert " ".join(processor.decode(best).split()) == found
            ended.append(sentence)
    assert "The girls sleep." in ended


def test_scores_of_given_translations_are_ours(translator, ours):
    options = SearchOptions(**{**LIMITED, "alpha": 0.6})
    targets = ["Ja.", "", "Ein Pferd!", "", "</s>", "Nein", "\ud800", "Ein Hund.", "Pferd " * 50]
    found = translator.with_options(options).score(SENTENCES, targets)
    expected = ours.with_options(options).score(SENTENCES, targets)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    assert found[1] == 0.0
    assert translator.score([""], ["Ja."]) == [NO_HYPOTHESIS]


def test_sentences_may_come_from_any_iterable(translator):
    expected = translator(SENTENCES)
    assert translator(iter(SENTENCES)) == expected
    assert translator([]) == []
    assert translator.translate(np.array(["A horse!"])) == translator.translate(["A horse!"])
    with pytest.raises(
        UserError, match="sentences must be a list of strings: found a single string"
    ):
        translator("A horse!")
    with pytest.raises(UserError, match="must be 1 translations, one for each sentence: found 0"):
        translator.score(["A horse!"], [])


def test_several_threads_may_use_one_translator(translator):
    expected = translator(SENTENCES)
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(translator, [SENTENCES] * 8)) == [expected] * 8


@pytest.mark.slow
def test_a_marian_model_of_several_languages(tmp_path):
    write_folder(tmp_path / "marian", encoder_layers=1, decoder_layers=1)
    model, tokenizer = kt.import_marian(tmp_path / "marian")
    ModelDir(tmp_path / "model").create_trained(model, tokenizer, "fr", "made by a test")
    lines = [
        ">>fra<< A man rides a horse.",
        "Two birds!",
        ">>xyz<< A horse.",
        ">>fra<<",
        "½ \0",
        "",
    ]
    ours = Translator(model, tokenizer, **LIMITED)
    found = CTranslate2Translator(tmp_path / "model", **LIMITED)
    assert_same(found.translate_n(lines), ours.translate_n(lines))
    scores = ours.score(lines, lines[::-1])
    np.testing.assert_allclose(found.score(lines, lines[::-1]), scores, rtol=1e-4, atol=1e-4)
    # Whatever it may say, unknown pieces and languages among it.
    ids = [id_ for id_ in range(tokenizer.vocab_size) if id_ not in (tokenizer.pad_id, 0)]
    [text] = found._subwords.join([[tokenizer.pieces[id_] for id_ in ids]])
    assert [text.strip().encode()] == tokenizer.detokenize([ids]).numpy().tolist()


def test_int8_is_near_float32(path, translator):
    int8 = CTranslate2Translator(ConvertedModel(path, precision="int8"), **LIMITED)
    targets = ["Ja.", "Nein.", "Ein Pferd!"]
    float32, rounded = (t.score(["A horse!"] * 3, targets) for t in (translator, int8))
    assert rounded != float32
    np.testing.assert_allclose(rounded, float32, rtol=0.2)


# What it has no equivalent for.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"length_penalty": "gnmt"},
            "CTranslate2 does not support length_penalty=gnmt, only power: leave it out, or use",
        ),
        ({"patience": None}, "CTranslate2 does not support patience=None: use a number, such as 1"),
        (
            {"no_repeat_ngram": 3},
            "CTranslate2 does not support no_repeat_ngram=3: leave it out, or use",
        ),
        ({"min_length": 2}, "CTranslate2 does not support min_length=2: leave it out, or use"),
        (
            {"sample": True, "min_length": 2},
            "CTranslate2 does not support min_length=2: leave it out, or use",
        ),
        ({"constraint": len}, "CTranslate2 does not support constraint="),
        (
            {"extra_length": 2000},
            "CTranslate2 does not support translations of more than 2,048 tok",
        ),
        ({"beam_size": 0}, "beam_size must be in"),
    ],
    ids=str,
)
def test_options_without_an_equivalent_are_refused_in_one_line(options, message, path, translator):
    with pytest.raises(UserError, match=f"^{message}") as error:
        CTranslate2Translator(path, **options)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=f"^{message}"):
        translator.with_options(SearchOptions(**options))


def test_a_source_that_is_longer_than_its_positions_is_refused(path):
    with pytest.raises(
        UserError, match=r"sentences of more than 2,048 tokens, as max_source_length=4096"
    ):
        CTranslate2Translator(path, **LIMITED, max_source_length=4096)


@pytest.mark.parametrize("precision", ["float16", "int4"])
def test_a_precision_that_the_processor_lacks_is_refused(precision, path):
    with pytest.raises(UserError, match=f"precision must be one of .*float32.*found '{precision}'"):
        ConvertedModel(path, precision=precision)


def test_prefixes_are_refused(translator):
    with pytest.raises(UserError, match="CTranslate2 does not support prefixes"):
        translator.translate(["A horse!"], ["Ein"])


# Sampling.


def sampler(path, seed=1, **options):
    options = {**LIMITED, "sample": True, "max_source_length": LONGEST, "seed": seed, **options}
    return CTranslate2Translator(path, **options)


def test_samples_follow_from_the_seed_and_differ_within_and_between_calls(path):
    first = sampler(path, beam_size=3, n_best=3)
    drawn = [first.translate_n(SENTENCES) for _ in range(2)]
    again = sampler(path, beam_size=3, n_best=3, workers=3)
    assert [again.translate_n(SENTENCES) for _ in range(2)] == drawn
    assert drawn[0] != drawn[1]
    assert sampler(path, seed=2, beam_size=3, n_best=3).translate_n(SENTENCES) != drawn[0]
    assert len({text for text, _ in drawn[0][0]}) > 1


def test_translators_of_one_seed_draw_the_same_in_turns(path):
    first, second = sampler(path), sampler(path)
    found = [(first(SENTENCES), second(SENTENCES)) for _ in range(2)]
    assert all(one == other for one, other in found)


def test_samples_are_scored_as_given_translations_are(path, translator):
    translations = sampler(path, temperature=2.0, top_k=50).translate(SENTENCES)
    found = [one.score for one in translations]
    # Subwords that were drawn may spell a text otherwise than the vocabulary does.
    expected = translator.score(SENTENCES, [one.text for one in translations])
    close = np.isclose(found, expected, atol=1e-4)
    assert close.sum() >= len(SENTENCES) // 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"top_k": 1},
        {"top_p": 1e-6},
        {"temperature": 1e-5, "max_length": 2},
        {"top_k": 1, "max_length": 3},
    ],
    ids=str,
)
def test_the_likeliest_symbol_alone_is_drawn_as_by_our_sampling(options, path, ours):
    options = {**LIMITED, "beam_size": 2, "n_best": 2, **options}
    short = SENTENCES[:-1]
    expected = ours.with_options(SearchOptions(sample=True, **options)).translate_n(short)
    assert_same(sampler(path, **options).translate_n(short), expected)


def test_the_first_symbols_are_those_of_top_k_and_top_p_at_the_temperature(path):
    # At this temperature, symbols are equally likely: of 10, 8 reach 0.75.
    near_uniform = {"temperature": 1e4, "max_length": 2, "beam_size": 200, "n_best": 200}
    for options, count in [({"top_k": 10}, 10), ({"top_k": 10, "top_p": 0.75}, 8)]:
        [found] = sampler(path, **near_uniform, **options).translate_n(["The girls sleep."])
        assert len({text for text, _ in found}) == count


def test_no_sample_is_longer_than_the_limit_of_its_own_sentence(path):
    drawn = sampler(path, beam_size=8, n_best=8, extra_length=0, temperature=100.0)
    long, short = "horse " * 3, "horse " * 2 + "hors"
    sources = drawn._subwords.split_source([long, short])
    assert len(sources[1]) == len(sources[0]) - 1
    for row, samples in drawn._samples(sources).items():
        limit = len(sources[row]) + 1
        assert max(len(pieces) for pieces, _ in samples) == limit


def test_a_top_k_beyond_the_vocabulary_is_all_of_it(path):
    assert sampler(path, top_k=10_000)(SENTENCES) == sampler(path)(SENTENCES)


# Converted once.


@pytest.fixture
def conversions(monkeypatch):
    """A list of the folders to which models are converted from now on."""
    folders = []

    convert = ConvertedModel._convert

    def noted(self, weights, folder):
        folders.append(folder)
        return convert(self, weights, folder)

    monkeypatch.setattr(ConvertedModel, "_convert", noted)
    return folders


def kept(path):
    return sorted(folder.name for folder in (path / "ctranslate2").glob("[!.]*"))


def test_a_model_is_converted_once(own_path, conversions):
    for _ in range(2):
        CTranslate2Translator(own_path)
    assert [folder.name for folder in conversions] == kept(own_path)


def test_a_converted_model_is_found_without_reading_weights(own_path, conversions):
    expected = CTranslate2Translator(own_path)(SENTENCES)
    for state in own_path.glob("checkpoints/*/state.npz"):
        state.unlink()
    assert CTranslate2Translator(own_path)(SENTENCES) == expected
    assert len(conversions) == 1


def test_new_weights_are_converted_and_the_old_ones_removed(own_path, model, conversions):
    before = CTranslate2Translator(own_path)(SENTENCES)
    other = kt.Transformer(model.config)
    other.build()
    ModelDir(own_path).checkpoints.save(other, step=7)  # the record says to average one
    assert CTranslate2Translator(own_path)(SENTENCES) != before
    assert kept(own_path) == [conversions[1].name]


def test_weights_averaging_and_precision_are_kept_side_by_side(own_path, model, conversions):
    ModelDir(own_path).checkpoints.save(model, step=7)
    choices = [{}, {"average": 2}, {"weights": "7"}, {"precision": "int8"}]
    for _ in range(2):
        for choice in choices:
            CTranslate2Translator(ConvertedModel(own_path, **choice))
    assert len(conversions) == len(kept(own_path)) == len(choices)


def test_the_weights_that_training_chose_are_converted_and_named(own_path, model):
    ModelDir(own_path).best.save_weights(model, step=3)
    ModelDir(own_path).save_choice("best", "BLEU", {})
    assert ConvertedModel(own_path).path == ConvertedModel(own_path, weights="best").path
    assert ConvertedModel(own_path).path.name.startswith("best-float32-")


@pytest.mark.parametrize("name", ["config.json", "vocabulary.model", "checkpoints/*/manifest.json"])
def test_what_determines_a_model_is_in_the_name_of_its_folder(name, own_path):
    def folder():
        return ConvertedModel(own_path).path

    before = folder()
    [file] = own_path.glob(name)
    if name == "config.json":
        file.write_text(json.dumps({**json.loads(file.read_text()), "layer_norm_epsilon": 0.1}))
        record = own_path / "training.json"
        record.write_text(json.dumps({**json.loads(record.read_text()), "config": None}))
    else:
        file.write_bytes(file.read_bytes() + b" ")
    assert folder() != before


def test_processes_that_ask_at_once_convert_once(own_path, conversions):
    """Threads here: each opens the lock for itself, as a process does."""
    both = threading.Barrier(2)

    def translate(_):
        both.wait()
        return CTranslate2Translator(own_path)(["A horse!"])

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(translate, range(2))
    assert first == second
    assert len(conversions) == len(kept(own_path)) == 1


def test_a_conversion_that_fails_leaves_nothing(own_path, monkeypatch):
    def fail(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", fail)
        with pytest.raises(KeyboardInterrupt):
            CTranslate2Translator(own_path)
    assert kept(own_path) == []
    (own_path / "ctranslate2/.mean-float32-0.99.partial").mkdir()  # as a killed process leaves it
    CTranslate2Translator(own_path)
    assert {path.name for path in (own_path / "ctranslate2").iterdir()} == {
        ".lock",
        *kept(own_path),
    }


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def replace_by_pipe(path):
    path.unlink()
    os.mkfifo(path)


def replace_by_endless_device(path):
    path.unlink()
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("model.bin", flip_a_bit, "model.bin is damaged"),
        ("model.bin", replace_by_pipe, "model.bin: is a pipe, not a regular file"),
        ("model.bin", replace_by_endless_device, "model.bin: is a device, not a regular file"),
        ("model.bin", lambda path: os.truncate(path, 1 << 40), "has 1,099,511,627,776 bytes, more"),
        (
            "shared_vocabulary.json",
            lambda path: path.write_text("[]"),
            "vocabulary.json is damaged",
        ),
        ("config.json", Path.unlink, "its files are not those of manifest.json"),
        ("manifest.json", Path.unlink, "it has no checksums"),
        ("manifest.json", lambda path: path.write_text("[" * 100_000), "nested too deeply"),
        (
            "source.spm",
            lambda path: path.write_text(""),
            "its files are not those of manifest.json",
        ),
    ],
)
def test_a_damaged_conversion_is_made_again_and_one_line_says_so(
    name, damage, said, own_path, translator, conversions, capfd
):
    CTranslate2Translator(own_path)
    [folder] = kept(own_path)
    damage(own_path / "ctranslate2" / folder / name)
    lines = SENTENCES[:3]
    assert CTranslate2Translator(own_path, **LIMITED)(lines) == translator(lines)
    [line] = capfd.readouterr().err.splitlines()
    assert f"{folder}: converting the model again: " in line and said in line
    CTranslate2Translator(own_path)
    assert len(conversions) == 2
    assert not capfd.readouterr().err


def test_a_read_only_model_dir_is_converted_to_a_temporary_folder(
    own_path, translator, conversions
):
    (own_path / "ctranslate2").write_text("no folder can be made here")
    before = sorted(own_path.rglob("*"))
    lines = SENTENCES[:4]
    assert CTranslate2Translator(own_path, **LIMITED)(lines) == translator(lines)
    assert sorted(own_path.rglob("*")) == before
    assert not conversions[0].exists()


def test_a_converted_model_needs_no_temporary_folder_though_it_is_read_only(
    own_path, translator, monkeypatch
):
    def no_folder(*args, **kwargs):
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    lines = SENTENCES[:1]
    ConvertedModel(own_path).convert()
    monkeypatch.setattr("keras_transformer.ctranslate2.converted.open_lock", no_folder)
    monkeypatch.setattr("tempfile.TemporaryDirectory", no_folder)
    assert CTranslate2Translator(own_path, **LIMITED)(lines) == translator(lines)


def test_a_file_system_without_locks_needs_none(own_path, translator, conversions, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    lines = SENTENCES[:1]
    with monkeypatch.context() as patch:
        patch.setattr("keras_transformer.ctranslate2.converted.fcntl.flock", flock)
        for _ in range(2):  # each to a folder of its own, since nobody waits for another
            assert CTranslate2Translator(own_path, **LIMITED)(lines) == translator(lines)
    assert len(conversions) == 2 and not conversions[0].exists()


def test_checkpoints_that_are_written_during_the_conversion_are_converted(
    own_path, model, monkeypatch, conversions
):
    load, steps = ModelDir.load_weights, [7]

    def load_and_train(self, *choice):
        loaded = load(self, *choice)
        for step in steps:
            self.checkpoints.save(lively_model(step, model.config.vocab_size), step)
        steps.clear()
        return loaded

    monkeypatch.setattr(ModelDir, "load_weights", load_and_train)
    found = CTranslate2Translator(own_path)
    assert len(conversions) == 1
    assert kept(own_path) == [ConvertedModel(own_path).path.name]
    trained = lively_model(7, model.config.vocab_size)
    expected = Translator(trained, found.tokenizer)
    assert found(["A horse!"]) == expected(["A horse!"])


def test_a_training_that_never_waits_is_reported(own_path, model, monkeypatch):
    load, numbers = ModelDir.load_weights, itertools.count(7)

    def load_and_train(self, *choice):
        step = next(numbers)
        self.checkpoints.save(lively_model(step, model.config.vocab_size), step)
        return load(self, *choice)

    monkeypatch.setattr(ModelDir, "load_weights", load_and_train)
    with pytest.raises(UserError, match=r"checkpoints changed while they were read, 3 times: try"):
        CTranslate2Translator(own_path)


# The commands.


ENGINE = {"engine": "ctranslate2"}
STDIN = b"The girls sleep.\n\nA horse!\nA\n"


@pytest.fixture
def translate(path, monkeypatch, capfd):
    """Runs `translate` in this process; returns the fields of its lines, the last one a score."""

    def translated(**options):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(STDIN)))
        run("translate", model_dir=path, **options)
        lines = [line.split(" ||| ") for line in capfd.readouterr().out.splitlines()]
        return [(*fields, pytest.approx(float(score), abs=1e-4)) for *fields, score in lines]

    return translated


@pytest.mark.slow
def test_translate_writes_what_our_search_finds(translate):
    options = {"n_best": 2, "max_length": 9, "lines_at_once": 3}
    assert translate(**ENGINE, **options) == translate(**options)


def test_translate_searches_by_its_flags(translate, path):
    options = {"beam_size": 3, "alpha": 0.6, "length_penalty": "power", "max_length": 9}
    options |= {"patience": 2.0, "n_best": 3}
    found = translate(**ENGINE, **options, workers=2, tokens_per_batch=9, precision="int8")
    expected = CTranslate2Translator(ConvertedModel(path, precision="int8"), **options)
    assert found == [
        (str(number), text, score)
        for number, best in enumerate(expected.translate_n(STDIN.splitlines()))
        for text, score in best
    ]


def test_translate_scores_given_translations(translate, tmp_path):
    (tmp_path / "given").write_text("Ja.\n\nNein.\nEin Pferd!\n")
    given = {"score": tmp_path / "given"}
    assert translate(**ENGINE, **given) == translate(**given)


@pytest.mark.slow
def test_evaluate_scores_what_ctranslate2_finds(path, tmp_path):
    for name, lines in (("test.en", ["A horse!", "The girls sleep."]), ("test.de", ["Ja.", "Ja."])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))

    def figures(**options):
        files = {"source": tmp_path / "test.en", "reference": tmp_path / "test.de"}
        run("evaluate", model_dir=path, max_length=9, json=tmp_path / "json", **files, **options)
        return json.loads((tmp_path / "json").read_text())

    found, expected = figures(**ENGINE), figures()
    assert found == {**expected, **ENGINE}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"length_penalty": "gnmt"},
            "CTranslate2 does not support length_penalty=gnmt, only power",
        ),
        (
            {"patience": "none"},
            "CTranslate2 does not support patience=None: use a number, such as 1",
        ),
        ({"jit_compile": True}, "CTranslate2 does not support --jit_compile: leave it out, or use"),
        ({"prefix": "file"}, "CTranslate2 does not support --prefix: leave it out, or use"),
        (
            {"sample": True, "min_length": 2},
            "CTranslate2 does not support min_length=2: leave it out, or use",
        ),
        (
            {"model_dir": "PATH,PATH"},
            "CTranslate2 does not support ensembles: found 2 folders: use one",
        ),
        (
            {"model_dir": "nowhere"},
            "nowhere/config.json: No such file or directory: choose the folder",
        ),
        ({"average": 2}, "average must be 1 to 1, the number of checkpoints in "),
    ],
    ids=str,
)
def test_flags_without_an_equivalent_are_refused_in_one_line(options, message, path, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(STDIN)))
    given = {"model_dir": "PATH", **ENGINE, **options}
    given["model_dir"] = given["model_dir"].replace("PATH", str(path))
    assert message in refused("translate", **given)


@pytest.mark.parametrize("command", ["translate", "evaluate", "serve"])
def test_every_command_refuses_a_flag_that_ctranslate2_lacks(command, path):
    needed = {"evaluate": {"source": "test.en"}}.get(command, {})
    message = refused(command, model_dir=path, jit_compile=True, **needed, **ENGINE)
    assert message.startswith("CTranslate2 does not support --jit_compile: ")


def test_a_parser_is_refused(tmp_path):
    tokenizer = kt.parsing.ParsingTokenizer.learn([("Dogs bark .", "(S X X .)")], vocab_size=100)
    model = lively_model(1, tokenizer.vocab_size)
    ModelDir(tmp_path / "parser").create_trained(model, tokenizer, None, "made by a test")
    with pytest.raises(UserError, match=r"^CTranslate2 does not support models for parsing: "):
        CTranslate2Translator(tmp_path / "parser")
    treebank = {"source": "trees.mrg", "task": "parsing"}
    message = refused("evaluate", model_dir=tmp_path / "parser", **treebank, **ENGINE)
    assert message == "--engine=ctranslate2 has no effect with --task=parsing: leave it out"


COMMAND = """
import sys
from keras_transformer.cli.main import main

try:
    main(sys.argv[1:])
finally:
    assert {"keras", "tensorflow", %s}.isdisjoint(sys.modules)
"""


def test_a_converted_model_translates_without_tensorflow(path, translator):
    lines = translator(["A horse!"])
    flags = [f"--model_dir={path}", "--engine=ctranslate2", "--extra_length=4"]
    # Old versions of CTranslate2 import NumPy themselves.
    needs_numpy = run_python("import ctranslate2, sys; print('numpy' in sys.modules)") == "True\n"
    others = "" if needs_numpy else "'numpy'"
    found = run_python(COMMAND % others, "translate", *flags, stdin="A horse!\n")
    assert found.splitlines() == lines


def test_a_model_is_converted_without_tensorflow(own_path, translator):
    lines = translator(["A horse!"])
    flags = [f"--model_dir={own_path}", "--engine=ctranslate2", "--extra_length=4"]
    found = run_python(COMMAND % "", "translate", *flags, stdin="A horse!\n")
    assert found.splitlines() == lines
    assert len(kept(own_path)) == 1


def replace_by_another_model(path):
    checkpoints = ModelDir(path.parent.parent).checkpoints
    checkpoints.save(lively_model(1, 99), step=0)


def make_not_finite(path):
    [file] = path.glob("state.npz")
    with np.load(file) as arrays:
        changed = {name: np.full_like(array, np.nan) for name, array in arrays.items()}
    np.savez(file, **changed)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["state.npz"] = checksum(file)
    (path / "manifest.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: flip_a_bit(path / "state.npz"), "state.npz: the checkpoint is damaged: "),
        (replace_by_another_model, "state.npz: state of another model: it has "),
        (make_not_finite, "source_embedding/embeddings is not finite (NaN or infinity): the trai"),
        (lambda path: (path / "state.npz").write_bytes(b"PK"), "is not an archive of arrays"),
        (lambda path: (path / "state.npz").unlink(), "state.npz: No such file or directory"),
    ],
    ids=["bit", "other model", "not finite", "other file", "missing"],
)
def test_a_damaged_checkpoint_is_refused_in_one_line_as_by_tensorflow(damage, message, own_path):
    [checkpoint] = own_path.glob("checkpoints/*")
    damage(checkpoint)
    refusals = []
    for load in (CTranslate2Translator, lambda path: ModelDir(path).load_model()):
        with pytest.raises(UserError) as error:
            load(own_path)
        refusals.append(str(error.value))
    assert refusals[0] == refusals[1]
    assert message in refusals[0] and "\n" not in refusals[0]


@pytest.mark.parametrize("choice", [{"average": 2}, {"weights": "ema"}, {"weights": "7"}], ids=str)
def test_weights_are_bit_for_bit_those_that_keras_loads(choice, tmp_path, tokenizer):
    model_dir = ModelDir(tmp_path / "run")
    models = [lively_model(seed, tokenizer.vocab_size) for seed in (1, 2)]
    options = {"ema_decay": 0.9} if "ema" in choice.values() else {}
    model_dir.create_trained(models[0], tokenizer, "de", "made by a test")
    record = model_dir.load_training()
    model_dir.save_training({**record, "options": {**record["options"], **options}})
    model_dir.checkpoints.save(models[1], step=7)
    if options:
        file = model_dir.checkpoints.path(7) / "state.npz"
        with np.load(file) as arrays:
            averages = {
                f"ema/{n.removeprefix('weights/')}": a + 1
                for n, a in arrays.items()
                if n.startswith("weights/")
            }
            np.savez(file, **arrays, **averages)
        manifest = file.with_name("manifest.json")
        sums = {**json.loads(manifest.read_text()), "state.npz": checksum(file)}
        manifest.write_text(json.dumps(sums))
    found = model_dir.load_weights(weight_shapes(models[0].config), **choice)
    expected = model_weights(model_dir.load_model(**choice))
    assert found.keys() == expected.keys()
    for name, array in found.items():
        assert array.dtype == "float32"
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
