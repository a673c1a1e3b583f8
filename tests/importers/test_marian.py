"""Import of Marian models: same logits, ids, translations; wrong folders fail in one line."""

import io
import json
import pickle
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from command_lines import refused, run
from marian_folder import (
    SOURCE_TEXT,
    TARGET_TEXT,
    NumpyMarian,
    sentencepiece_model,
    vocabulary_of,
    write_folder,
    write_pytorch,
    write_safetensors,
)

from keras_transformer import TransformerConfig
from keras_transformer.ctranslate2.subwords import Subwords
from keras_transformer.data import Batches, Corpus, TextPairs
from keras_transformer.documents.paragraphs import Paragraphs
from keras_transformer.documents.placeholders import PlaceholderTranslator
from keras_transformer.errors import UserError
from keras_transformer.importers.marian import import_marian
from keras_transformer.importers.safetensors import read_safetensors
from keras_transformer.search import SearchOptions, search
from keras_transformer.text.marian import MarianTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

SOURCE = [">>fra<< A man rides a horse.", "Two birds!", "Where is the river?", "a", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian") / "opus-mt-en-fr"
    write_folder(folder)
    return folder


@pytest.fixture(scope="module")
def imported(folder):
    return import_marian(folder)


@pytest.fixture(scope="module")
def tokenizer(imported):
    return imported[1]


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the folder, to be damaged."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def pairs_of_ids(config):
    """Sources and targets of different lengths."""
    rng = np.random.default_rng(1)
    pad, end = config["pad_token_id"], config["eos_token_id"]
    for source_length, target_length in ((1, 1), (7, 4), (3, 9)):
        source = rng.integers(1, pad, size=source_length)
        target = rng.integers(1, pad, size=target_length)
        yield np.append(source, end), np.append(pad, target)


def padded(rows, pad):
    length = max(map(len, rows))
    return np.array([[*row, *[pad] * (length - len(row))] for row in rows], "int32")


def logits_of(model, pairs):
    sources, targets = zip(*pairs, strict=True)
    pad = model.config.pad_id
    batch = {"source_ids": padded(sources, pad), "target_ids": padded(targets, pad)}
    return keras.ops.convert_to_numpy(model(batch))


# The model

VARIANTS = {
    "as OPUS-MT": {},
    "embeddings as they are, relu": {"scale_embedding": False, "activation_function": "relu"},
    "embeddings apart, gelu": {
        "share_encoder_decoder_embeddings": False,
        "activation_function": "gelu",
    },
    "projection apart, silu": {"tie_word_embeddings": False, "activation_function": "silu"},
    "all apart": {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
    "stacks apart": {"encoder_layers": 1, "decoder_layers": 3},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_marians_formulas(name, tmp_path):
    config, weights = write_folder(tmp_path, **VARIANTS[name])
    model, _ = import_marian(tmp_path)
    pairs = list(pairs_of_ids(config))
    reference = NumpyMarian(config, weights)
    pad = config["pad_token_id"]
    for row, (source, target) in zip(logits_of(model, pairs), pairs, strict=True):
        expected = np.delete(reference.logits(source, target), pad, axis=-1)
        found = np.delete(row[: len(target)], pad, axis=-1)
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_the_configuration_is_that_of_the_folder(imported, folder):
    theirs = json.loads((folder / "config.json").read_text())
    config = imported[0].config
    assert TransformerConfig.from_json(config.to_json()) == config
    assert (config.num_encoder_layers, config.d_model, config.d_ff, config.num_heads) == (
        2,
        32,
        48,
        4,
    )
    assert config.layer_norm_epsilon == 1e-5 and config.attention_bias and config.output_bias
    assert config.pad_id == config.start_id == theirs["pad_token_id"]
    assert config.end_id == 0


@pytest.mark.slow
@pytest.mark.parametrize("beam_size", [1, 4])
def test_padding_is_never_part_of_a_translation(tmp_path, beam_size):
    config, weights = write_folder(tmp_path)
    pad = config["pad_token_id"]
    weights["final_logits_bias"][:, pad] = 50.0  # by far the most likely, if it were allowed
    weights["final_logits_bias"][:, 0] = -50.0
    write_safetensors(tmp_path / "model.safetensors", weights)
    model, _ = import_marian(tmp_path)
    options = SearchOptions(beam_size=beam_size, extra_length=5, n_best=beam_size)
    assert pad not in np.array(search(model, [[5, 6, 7, 0]], options).ids)


@pytest.mark.parametrize(("dtype", "tolerance"), [("F16", 0.01), ("BF16", 0.1), ("F64", 1e-5)])
def test_weights_of_other_precisions_are_read(copy, imported, dtype, tolerance):
    arrays = read_safetensors(copy / "model.safetensors")
    write_safetensors(copy / "model.safetensors", arrays, dtype)
    model, _ = import_marian(copy)
    pairs = [([5, 6, 0], [model.config.pad_id, 7])]
    difference = np.abs(logits_of(model, pairs) - logits_of(imported[0], pairs)).max()
    assert difference < tolerance
    assert (difference > 0) == (dtype != "F64")


def test_bfloat16_is_the_upper_half_of_float32(tmp_path):
    array = np.array([1.0, -2.5, 0.0, 3e38, np.inf], "float32")
    write_safetensors(tmp_path / "x.safetensors", {"x": array}, "BF16")
    np.testing.assert_allclose(read_safetensors(tmp_path / "x.safetensors")["x"], array, rtol=2**-7)


@pytest.mark.parametrize(
    "name",
    ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"],
)
def test_a_shared_matrix_is_found_under_each_of_its_names(copy, imported, name):
    arrays = read_safetensors(copy / "model.safetensors")
    arrays[name] = arrays.pop("model.shared.weight")
    write_safetensors(copy / "model.safetensors", arrays)
    model, _ = import_marian(copy)
    for ours, other in zip(model.weights, imported[0].weights, strict=True):
        np.testing.assert_array_equal(ours, other)


@pytest.mark.parametrize("dropped", ["final_logits_bias", "positions"])
def test_what_can_be_computed_may_be_missing(copy, dropped):
    config = json.loads((copy / "config.json").read_text())
    arrays = read_safetensors(copy / "model.safetensors")
    arrays = {name: array for name, array in arrays.items() if dropped not in name}
    write_safetensors(copy / "model.safetensors", arrays)
    source, target = next(pairs_of_ids(config))
    found = logits_of(import_marian(copy)[0], [(source, target)])[0, :, :-1]
    np.testing.assert_allclose(
        found, NumpyMarian(config, arrays).logits(source, target)[:, :-1], atol=1e-4
    )


# The vocabulary


def ids_by_hand(folder, side, text):
    """Looks each piece up in `vocab.json`."""
    vocabulary = json.loads((folder / "vocab.json").read_text())
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
    return [vocabulary.get(piece, 1) for piece in model.encode(text, out_type=str)]


LINES = [*SOURCE_TEXT, *TARGET_TEXT, "", " two  birds ", "\N{FULLWIDTH LATIN CAPITAL LETTER A} ﬁsh"]
UNKNOWN = ["猫 horse", "A ж man", "<pad></s><unk> \u2581 birds", "a\tb\u00a0c", "😀"]


@pytest.mark.parametrize("text", LINES + UNKNOWN)
def test_ids_are_those_of_the_pieces(tokenizer, folder, text):
    assert tokenizer.tokenize([text])[0].numpy().tolist() == ids_by_hand(folder, "source", text)
    target = tokenizer.tokenize_target([text])[0].numpy().tolist()
    assert target == ids_by_hand(folder, "target", text)


def test_a_piece_that_only_the_other_side_has_keeps_its_id(tokenizer, folder):
    assert tokenizer.tokenize(["à"])[0, -1] == ids_by_hand(folder, "target", "à")[-1] != 1


def test_a_single_string_has_the_ids_of_its_row(tokenizer):
    for text in SOURCE[0], SOURCE[0].encode(), np.array(SOURCE[0]), tf.constant(SOURCE[0]):
        assert tokenizer(text).numpy().tolist() == tokenizer(SOURCE)[0].numpy().tolist()
    dataset = tf.data.Dataset.from_tensor_slices(SOURCE).map(tokenizer)
    assert [ids.numpy().tolist() for ids in dataset] == tokenizer(SOURCE).to_list()


def test_rows_are_ragged_int32(tokenizer):
    ids = tokenizer.tokenize(tf.constant(SOURCE))
    assert isinstance(ids, tf.RaggedTensor) and ids.dtype == tf.int32 and ids.shape == (5, None)
    assert ids[-1].shape == (0,)
    assert tokenizer.tokenize(tf.zeros([0], tf.string)).shape == (0, None)


@pytest.mark.parametrize("language", [">>fra<<", ">>ron<<"])
def test_a_language_at_the_start_is_one_symbol(tokenizer, folder, language):
    vocabulary = json.loads((folder / "vocab.json").read_text())
    expected = [vocabulary[language], *ids_by_hand(folder, "source", "A horse.")]
    for text in (f"{language} A horse.", f"{language}A horse.", f"\ufeff{language}\rA horse."):
        assert tokenizer.tokenize([text])[0].numpy().tolist() == expected


@pytest.mark.parametrize("text", [">>xyz<< A horse.", "A >>fra<< horse.", ">> fra <<", ">><<"])
def test_other_brackets_are_text(tokenizer, folder, text):
    assert tokenizer.tokenize([text])[0].numpy().tolist() == ids_by_hand(folder, "source", text)


def test_a_language_holds_for_all_sentences_of_a_paragraph(tokenizer):
    def count_tokens(texts):
        return tokenizer.tokenize(texts).row_lengths().numpy().tolist()

    for language, others in (">>fra<<", ">>fra<< "), (">>xyz<<", ""):
        paragraphs = Paragraphs([f"{language} A man. Birds."], None, count_tokens)
        assert paragraphs.sentences == [f"{language} A man.", f"{others}Birds."]


# White space of ASCII ends a symbol, other white space does not; `\v` becomes a space before.
SYMBOLS = [">>fra<<", ">>a\xa0b<<", ">>a\u3000b<<", ">>a\x1fb<<", ">>a b<<", ">>a\vb<<", ">>é<<"]


@pytest.mark.parametrize(
    "text", [*SYMBOLS, ">>>fra<<", ">>fra<<<", ">><<", b">>\xff<<", b">>fra<<\xff"]
)
def test_text_begins_with_the_same_symbol_with_and_without_tensorflow(folder, tmp_path, text):
    models = [(folder / f"{side}.spm").read_bytes() for side in ("source", "target")]
    pieces = [*dict.fromkeys([*vocabulary_of(*models), *SYMBOLS])]
    tokenizer = MarianTokenizer(*models, {piece: id_ for id_, piece in enumerate(pieces)})
    for name, model in tokenizer.sentencepiece_models.items():
        (tmp_path / name).write_bytes(model)
    special = {"bos_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "config.json").write_text(json.dumps(special))
    (tmp_path / "shared_vocabulary.json").write_text(json.dumps(pieces))

    [ids] = tokenizer.tokenize([text]).to_list()
    [split] = Subwords(tmp_path).split_source([text])
    known = {piece: id_ for id_, piece in enumerate(pieces)}
    assert [known.get(piece, tokenizer.unknown_id) for piece in split] == ids
    has_symbol = text in (
        ">>fra<<",
        ">>a\xa0b<<",
        ">>a\u3000b<<",
        ">>é<<",
        ">>fra<<<",
        b">>fra<<\xff",
    )
    assert (pieces[ids[0]] in SYMBOLS) == has_symbol


@pytest.mark.parametrize("text", TARGET_TEXT)
def test_target_text_survives(tokenizer, text):
    ids = tokenizer.tokenize_target([text])
    assert tokenizer.detokenize(ids)[0].numpy().decode() == text


def test_text_ends_at_the_first_end_symbol_and_special_symbols_are_left_out(tokenizer):
    words = tokenizer.tokenize_target(["deux oiseaux"])[0].numpy().tolist()
    pad, end, unknown = tokenizer.pad_id, tokenizer.end_id, tokenizer.unknown_id
    assert (end, unknown, pad) == (0, 1, tokenizer.vocab_size - 1)
    rows = [[pad, *words, end, *words], [*words[:2], unknown, *words[2:]], [end, *words], []]
    expected = [b"deux oiseaux", b"deux oiseaux", b"", b""]
    assert (
        tokenizer.detokenize(tf.ragged.constant(rows, dtype=tf.int32)).numpy().tolist() == expected
    )


def test_bytes_that_are_no_text_do_not_stop_it(tokenizer):
    assert tokenizer.tokenize([b">>fra<< \xff\xc3 horse", b"\xff"]).shape == (2, None)


def test_a_sentence_that_is_not_utf_8_keeps_its_language(tokenizer):
    whole, broken, plain = tokenizer.tokenize([b">>fra<< a horse", b">>fra<< a \xff", b"a \xff"])
    assert broken[0] == whole[0]
    assert broken[1:].numpy().tolist() == plain.numpy().tolist()


def test_a_model_of_other_ids_does_not_fit(tokenizer, imported):
    tokenizer.check_fits(imported[0].config)
    with pytest.raises(UserError, match=r"vocab_size=\d+, as its vocabulary has: found 37000"):
        tokenizer.check_fits(TransformerConfig())


def test_saved_and_loaded_it_is_the_same(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "vocabulary.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.zip"]
    loaded = MarianTokenizer.load(tmp_path / "vocabulary.zip")
    for same in (loaded, pickle.loads(pickle.dumps(tokenizer))):
        assert same.to_bytes() == tokenizer.to_bytes()
        assert same.tokenize(SOURCE).to_list() == tokenizer.tokenize(SOURCE).to_list()


def test_it_outlives_a_new_random_seed_and_a_cleared_session(tokenizer):
    dataset = tf.data.Dataset.from_tensors(SOURCE).map(tokenizer.tokenize)
    before = tokenizer.tokenize(SOURCE).to_list()
    keras.utils.set_random_seed(2)
    keras.utils.clear_session()
    assert tokenizer.tokenize(SOURCE).to_list() == next(iter(dataset)).to_list() == before


def test_missing_or_damaged_vocabulary_is_refused(tokenizer, tmp_path):
    path = tmp_path / "vocabulary.zip"
    with pytest.raises(UserError, match=r"vocabulary\.zip: .*No such file"):
        MarianTokenizer.load(path)
    content = tokenizer.to_bytes()
    method = content.index(b"PK\1\2") + 10  # how the first file was compressed
    other_methods = (
        content[:method] + bytes([number]) + content[method + 1 :] for number in (99, 8, 12, 14)
    )
    renamed = content.replace(b"vocab.json", b"vocab.yaml")
    for damaged in (b"", b"PK", content[:-100], renamed, *other_methods):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"vocabulary\.zip: not a zip file of source"):
            MarianTokenizer.load(path)


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ([], "must map pieces to ids: found list"),
        ({"</s>": 0, "<unk>": 1}, "must have the piece <pad>: found none"),
        ({"</s>": 0, "<unk>": 1, "<pad>": 3}, "each id from 0 to 2 once"),
        ({"</s>": 0, "<unk>": 1, "<pad>": 1}, "each id from 0 to 2 once"),
        ({"</s>": 0, "<unk>": "1", "<pad>": 2}, "each id from 0 to 2 once"),
        (
            {"</s>": 0, "<unk>": 1, "<pad>": 2, "\ud800": 3},
            "pieces of vocabulary must be strings without surrogates",
        ),
    ],
)
def test_impossible_vocabularies_are_refused(vocabulary, message):
    with pytest.raises(UserError, match=message):
        MarianTokenizer(b"", b"", vocabulary)


def test_batches_have_each_side_by_its_own_model_and_begin_with_padding(
    tokenizer, folder, tmp_path
):
    (tmp_path / "en").write_text(SOURCE_TEXT[0] + "\n")
    (tmp_path / "fr").write_text(TARGET_TEXT[0] + "\n")
    pairs = TextPairs(tmp_path / "en", tmp_path / "fr")
    [(inputs, labels)] = Batches(Corpus.build(pairs, tokenizer)).epoch()
    source, target = (
        ids_by_hand(folder, *side)
        for side in (("source", SOURCE_TEXT[0]), ("target", TARGET_TEXT[0]))
    )
    pad = tokenizer.pad_id
    for found, expected in (
        (inputs["source_ids"], [*source, 0]),
        (inputs["target_ids"], [pad, *target]),
        (labels, [*target, 0]),
    ):
        row = found[0].numpy().tolist()
        assert row == expected + [pad] * (len(row) - len(expected))


# From one folder to the other


@pytest.mark.slow
def test_an_imported_model_dir_translates_and_is_judged(
    folder, imported, tmp_path, monkeypatch, capfd
):
    model_dir = tmp_path / "runs" / "en-fr"
    run("import-marian", source=folder, model_dir=model_dir)
    assert sorted(path.name for path in model_dir.iterdir()) == [
        "checkpoints",
        "config.json",
        "training.json",
        "vocabulary.zip",
    ]
    assert [path.name for path in model_dir.parent.iterdir()] == ["en-fr"]

    loaded = ModelDir(model_dir)
    for ours, other in zip(loaded.load_model().weights, imported[0].weights, strict=True):
        np.testing.assert_array_equal(ours, other)
    expected = PlaceholderTranslator(Translator(*imported, beam_size=2))(SOURCE)

    text = "\n".join(SOURCE) + "\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    capfd.readouterr()
    run("translate", model_dir=model_dir, beam_size=2)
    assert capfd.readouterr().out.splitlines() == expected
    files = {"source": tmp_path / "en", "reference": tmp_path / "fr", "json": tmp_path / "json"}
    files["source"].write_text("\n".join(SOURCE_TEXT))
    files["reference"].write_text("\n".join(TARGET_TEXT))
    run("evaluate", model_dir=model_dir, beam_size=2, **files)

    figures = json.loads((tmp_path / "json").read_text())
    reference = NumpyMarian(
        json.loads((folder / "config.json").read_text()),
        read_safetensors(folder / "model.safetensors"),
    )
    assert figures["perplexity"] == pytest.approx(perplexity_by_hand(reference, folder), rel=1e-3)


def perplexity_by_hand(reference, folder):
    pad, losses = reference.config["pad_token_id"], []
    for source, target in zip(SOURCE_TEXT, TARGET_TEXT, strict=True):
        labels = [*ids_by_hand(folder, "target", target), 0]
        source = [*ids_by_hand(folder, "source", source), 0]
        logits = reference.logits(np.array(source), np.array([pad, *labels[:-1]]))
        logits[:, pad] = -np.inf
        log_probs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        losses += [-log_probs[i, label] for i, label in enumerate(labels)]
    return np.exp(np.mean(losses))


def test_a_model_dir_in_use_is_left_alone(folder, imported, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    message = refused("import-marian", source=folder, model_dir=tmp_path)
    assert "choose the folder of a model, or an empty or new one" in message
    model_dir = ModelDir(tmp_path / "new")
    model_dir.create_trained(*imported, target_lang="fr", command="import")
    with pytest.raises(UserError, match="has a model already: choose an empty or new folder"):
        model_dir.create_trained(*imported, target_lang="fr", command="import")
    assert model_dir.load_training()["target_lang"] == "fr"


def test_a_failed_import_leaves_nothing(imported, tmp_path, monkeypatch):
    model_dir = ModelDir(tmp_path / "new")

    def fail(*args, **kwargs):
        raise OSError("No space left on device")

    monkeypatch.setattr("numpy.savez", fail)
    with pytest.raises(UserError, match="No space left"):
        model_dir.create_trained(*imported, target_lang=None, command="import")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_vocabulary_and_search_are_exported_together(imported, tmp_path):
    model, tokenizer = imported

    class Translate(tf.Module):
        def __init__(self):
            super().__init__()
            self.model, self.tokenizer = model, tokenizer

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)], autograph=False)
        def __call__(self, text):
            ids = tokenizer.tokenize(text)
            end = tf.fill([ids.nrows(), 1], tokenizer.end_id)
            ids = tf.concat([ids, end], axis=1).to_tensor(tokenizer.pad_id)
            result = search(model, ids, SearchOptions(beam_size=2, extra_length=5))
            return tokenizer.detokenize(result.ids[:, 0])

    tf.saved_model.save(Translate(), str(tmp_path / "export"))
    exported = tf.saved_model.load(str(tmp_path / "export"))
    found = [text.decode() for text in exported(tf.constant(SOURCE[:4])).numpy()]
    assert found == Translator(*imported, beam_size=2, extra_length=5)(SOURCE[:4])


# Refusals


def one_line(folder):
    with pytest.raises(UserError) as error:
        import_marian(folder)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_all_missing_files_are_named(tmp_path, copy):
    for nowhere in (tmp_path / "nowhere", Path("Helsinki-NLP/opus-mt-en-de"), copy / "config.json"):
        assert one_line(nowhere).startswith(f"{nowhere}: there is no such folder: download the")
    (tmp_path / "empty").mkdir()
    assert one_line(tmp_path / "empty").endswith(
        "missing: config.json, source.spm, target.spm, vocab.json, model.safetensors or "
        "pytorch_model.bin"
    )
    for name in ("model.safetensors", "target.spm"):
        (copy / name).unlink()
    assert one_line(copy).endswith("missing: target.spm, model.safetensors or pytorch_model.bin")


def test_a_model_that_another_command_imports_is_said_to_be_one(copy):
    (copy / "source.spm").unlink()
    (copy / "config.json").write_text(json.dumps({"model_type": "m2m_100"}))
    assert one_line(copy) == f"{copy}: model_type is m2m_100: import it by import-m2m100"


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin", "target.spm"])
def test_a_file_that_git_lfs_has_not_fetched_is_named(copy, name):
    (copy / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
    message = f"{copy / name}: only a pointer of Git LFS: fetch the file with `git lfs pull`"
    assert one_line(copy).startswith(message)


@pytest.mark.parametrize(
    ("fields", "reasons"),
    [
        ({"model_type": "bart"}, ['model_type must be "marian": found "bart"']),
        ({"d_model": None}, ["d_model must be int: found None"]),
        ({"activation_function": "gelu_new"}, ["activation must be one of relu, gelu, swish"]),
        ({"activation_function": ["relu"]}, ["activation must be str: found ['relu']"]),
        ({"normalize_before": True}, ["normalize_before must be false: found true"]),
        (
            {"normalize_embedding": True, "decoder_ffn_dim": 9, "decoder_vocab_size": 7},
            [
                "normalize_embedding must be false: found true",
                "decoder_ffn_dim must be 48: found 9",
                "decoder_vocab_size must be",
            ],
        ),
        ({"static_position_embeddings": False}, ["static_position_embeddings must be true"]),
        ({"decoder_start_token_id": 0}, ["decoder_start_token_id must be"]),
        ({"vocab_size": 200}, ["as its vocabulary has: found 200"]),
        ({"eos_token_id": 1}, ["end_id=0, as its vocabulary has: found 1"]),
        ({"encoder_attention_heads": 5, "decoder_attention_heads": 5}, ["num_heads=5"]),
    ],
)
def test_an_unsupported_model_is_refused_with_all_reasons(copy, fields, reasons):
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps({**config, **fields}))
    message = one_line(copy)
    assert message.startswith(f"{copy}/config.json: cannot import this model: ")
    for reason in reasons:
        assert reason in message


def test_missing_settings_are_named(copy):
    (copy / "config.json").write_text('{"model_type": "marian"}')
    assert "vocab_size is missing; encoder_layers is missing; " in one_line(copy)


def test_wrong_weights_are_refused_with_all_reasons(copy):
    arrays = read_safetensors(copy / "model.safetensors")
    del arrays["model.decoder.layers.1.fc1.bias"]
    arrays["model.encoder.layers.0.fc2.weight"] = np.zeros((3, 4), "float32")
    arrays["model.encoder.layernorm_embedding.weight"] = np.ones(32, "float32")
    arrays["model.encoder.embed_positions.weight"] = np.ones((512, 32), "float32")
    write_safetensors(copy / "model.safetensors", arrays)
    message = one_line(copy)
    for reason in (
        "1 missing weights: model.decoder.layers.1.fc1.bias",
        "model.encoder.layers.0.fc2.weight must have (48, 32) values: found (4, 3)",
        "1 unknown weights: model.encoder.layernorm_embedding.weight",
        "positions that are no sinusoids: model.encoder.embed_positions.weight",
    ):
        assert reason in message


@pytest.mark.parametrize("shape", [(), (32,), (2, 16, 32)])
def test_positions_of_another_shape_are_refused(copy, shape):
    arrays = read_safetensors(copy / "model.safetensors")
    arrays["model.encoder.embed_positions.weight"] = np.ones(shape, "float32")
    write_safetensors(copy / "model.safetensors", arrays)
    assert "positions that are no sinusoids: model.encoder.embed_positions.weight" in one_line(copy)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("model.shared.weight", value) for value in (np.nan, np.inf, -np.inf, 1e39)),
        ("model.encoder.layers.1.fc1.bias", np.nan),
        ("final_logits_bias", np.inf),
    ],
)
def test_weights_that_are_no_numbers_are_refused(copy, name, value):
    arrays = read_safetensors(copy / "model.safetensors")
    arrays[name] = arrays[name].astype("float64")
    arrays[name].flat[3] = value
    write_safetensors(copy / "model.safetensors", arrays, "F64")
    assert f"{name} must be finite numbers of float32: found " in one_line(copy)


def test_the_bias_of_padding_may_be_anything(copy, imported):
    arrays = read_safetensors(copy / "model.safetensors")
    arrays["final_logits_bias"] = arrays["final_logits_bias"].copy()
    arrays["final_logits_bias"][:, -1] = -np.inf
    write_safetensors(copy / "model.safetensors", arrays)
    for ours, other in zip(import_marian(copy)[0].weights, imported[0].weights, strict=True):
        np.testing.assert_array_equal(ours, other)


@pytest.mark.parametrize(
    ("fields", "name", "message"),
    [
        ({}, "lm_head.weight", "lm_head.weight must be model.shared.weight, as config.json says"),
        (
            {},
            "model.decoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight must be model.shared.weight, as config.json says",
        ),
        (
            {"share_encoder_decoder_embeddings": False},
            "lm_head.weight",
            "lm_head.weight must be model.decoder.embed_tokens.weight, as config.json says",
        ),
        (
            {"share_encoder_decoder_embeddings": False},
            "model.shared.weight",
            "1 unknown weights: model.shared.weight",
        ),
    ],
)
def test_matrices_that_contradict_the_configuration_are_refused(tmp_path, fields, name, message):
    config, weights = write_folder(tmp_path, **fields)
    shape = config["vocab_size"], config["d_model"]
    weights[name] = np.random.default_rng(5).normal(size=shape).astype("float32")
    write_safetensors(tmp_path / "model.safetensors", weights)
    assert message in one_line(tmp_path)


def test_matrices_that_agree_with_the_configuration_may_be_there_twice(copy, imported):
    arrays = read_safetensors(copy / "model.safetensors")
    for name in ("lm_head.weight", "model.decoder.embed_tokens.weight"):
        arrays[name] = arrays["model.shared.weight"]
    write_safetensors(copy / "model.safetensors", arrays)
    for ours, other in zip(import_marian(copy)[0].weights, imported[0].weights, strict=True):
        np.testing.assert_array_equal(ours, other)


def test_ids_of_their_own_for_the_target_are_refused(copy):
    vocabulary = json.loads((copy / "vocab.json").read_text())
    pieces = list(vocabulary)
    pieces[4:-1] = pieces[-2:3:-1]  # the same pieces in another order
    other = {piece: id_ for id_, piece in enumerate(pieces)}
    (copy / "target_vocab.json").write_text(json.dumps(other))
    expected = f"{copy}/target_vocab.json must have the ids of vocab.json, as both sides share "
    assert one_line(copy) == f"{expected}them: found others"
    (copy / "target_vocab.json").write_text(json.dumps(vocabulary))
    (copy / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    import_marian(copy)
    (copy / "target_vocab.json").unlink()
    assert "tokenizer_config.json: separate_vocabs must be false" in one_line(copy)


@pytest.mark.parametrize("name", ["config.json", "vocab.json"])
def test_damaged_json_is_named(copy, name):
    (copy / name).write_bytes(b"{")
    assert f"{name}:1: not JSON: " in one_line(copy)
    (copy / name).write_bytes(b"\xff")
    assert f"{name}: not UTF-8 text: " in one_line(copy)
    (copy / name).write_bytes(b"[" * 100_000)
    assert f"{name}: this JSON is nested too deeply" in one_line(copy)


@pytest.mark.parametrize("name", ["config.json", "vocab.json"])
def test_json_of_another_kind_is_named(copy, name):
    (copy / name).write_text("[1]")
    assert name in one_line(copy)


def test_damaged_sentencepiece_model_is_named(copy):
    (copy / "target.spm").write_bytes(b"not a model")
    assert "target.spm" in one_line(copy) and "SentencePiece" in one_line(copy)


def header(text):
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 8,
        b"\xff" * 20,
        header(b"[]"),
        header(b"{"),
        header(b'{"a": 1}'),
        header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}') + b"123",
        header(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}') + b"1234",
        header(b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}') + b"1234",
        header(b'{"a": {"dtype": "Q7", "shape": [1], "data_offsets": [0, 4]}}') + b"1234",
        header(b'{"a": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]}}') + b"1234",
        header(b'{"a": {"dtype": "F32", "shape": [0, 1%s], "data_offsets": [0, 0]}}' % (b"0" * 30)),
        header(b'{"a": {"dtype": "F32", "shape": [0%s], "data_offsets": [0, 0]}}' % (b", 1" * 99)),
    ],
)
def test_damaged_safetensors_are_named(copy, content):
    (copy / "model.safetensors").write_bytes(content)
    assert "model.safetensors: the safetensors file is damaged" in one_line(copy)


def test_weights_cut_short_are_named(copy):
    path = copy / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert "the safetensors file is damaged" in one_line(copy)


@pytest.mark.parametrize("archive", [True, False])
def test_weights_in_a_file_of_pytorch_are_read_without_pytorch(copy, archive, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    expected = import_marian(copy)[0].get_weights()
    arrays = read_safetensors(copy / "model.safetensors")
    (copy / "model.safetensors").unlink()
    write_pytorch(copy / "pytorch_model.bin", arrays, archive)
    for found, array in zip(import_marian(copy)[0].get_weights(), expected, strict=True):
        np.testing.assert_array_equal(found, array)


# Against Transformers itself, where it is installed


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A model that Transformers made and saved, its folder and its tokenizer."""
    transformers = pytest.importorskip("transformers")
    return new_theirs(transformers, tmp_path_factory.mktemp("hf"))


def new_theirs(transformers, folder, vocab_size=None, **fields):
    torch = pytest.importorskip("torch")
    source, target = (sentencepiece_model(text, 60) for text in (SOURCE_TEXT, TARGET_TEXT))
    vocabulary = vocabulary_of(source, target)
    if vocab_size:
        pad = vocabulary.pop("<pad>")
        vocabulary |= {f"filler{i}": i for i in range(pad, vocab_size - 1)} | {
            "<pad>": vocab_size - 1
        }
    for name, content in (("source.spm", source), ("target.spm", target)):
        (folder / name).write_bytes(content)
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
    )
    pad = len(vocabulary) - 1
    sizes = dict(d_model=32, encoder_layers=2, decoder_layers=2)
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_ffn_dim": 48, f"{side}_attention_heads": 4}
    ids = dict(
        pad_token_id=pad, decoder_start_token_id=pad, eos_token_id=0, forced_eos_token_id=None
    )
    options = dict(activation_function="swish", scale_embedding=True, max_position_embeddings=512)
    torch.manual_seed(0)
    model = transformers.MarianMTModel(
        transformers.MarianConfig(**{"vocab_size": pad + 1, **sizes, **ids, **options, **fields})
    ).eval()
    with torch.no_grad():  # so that each weight matters
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.15 * torch.randn(weight.shape)
        model.model.get_input_embeddings().weight[pad] = 0
        model.final_logits_bias += 0.2 * torch.randn(model.final_logits_bias.shape)
        model.final_logits_bias[:, pad] = 0
        model.final_logits_bias[:, 0] = 3.0  # so that translations end
    model.save_pretrained(folder)
    return model, folder, tokenizer


def their_logits(model, source, target):
    import torch

    with torch.no_grad():
        return (
            model(
                input_ids=torch.tensor([source.tolist()]),
                decoder_input_ids=torch.tensor([target.tolist()]),
            )
            .logits[0]
            .numpy()
        )


def check_logits(theirs_model, ours):
    pairs = list(pairs_of_ids(theirs_model.config.to_dict()))
    pad = ours.config.pad_id
    for row, (source, target) in zip(logits_of(ours, pairs), pairs, strict=True):
        expected = np.delete(their_logits(theirs_model, source, target), pad, axis=-1)
        found = np.delete(row[: len(target)], pad, axis=-1)
        np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"activation_function": "relu"},
        {"activation_function": "gelu"},
        {"scale_embedding": False},
        {"share_encoder_decoder_embeddings": False},
        {"tie_word_embeddings": False},
    ],
    ids=str,
)
def test_logits_are_those_of_transformers(tmp_path, fields):
    transformers = pytest.importorskip("transformers")
    model, folder, _ = new_theirs(transformers, tmp_path, **fields)
    check_logits(model, import_marian(folder)[0])


def test_pytorch_weights_are_read(theirs, tmp_path):
    import torch

    model, folder, _ = theirs
    for name in ("config.json", "source.spm", "target.spm", "vocab.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    check_logits(model, import_marian(tmp_path)[0])
    (tmp_path / "pytorch_model.bin").write_bytes(b"damaged")
    assert "pytorch_model.bin: no weights of PyTorch, or damaged" in one_line(tmp_path)


@pytest.mark.parametrize("early_stopping", [False, "never"])
def test_beams_are_those_of_transformers(theirs, early_stopping):
    import torch

    model, folder, _ = theirs
    ours, _ = import_marian(folder)
    pad = ours.config.pad_id
    # Transformers removes padding after the softmax, so its probabilities do not sum to one.
    restored = model.final_logits_bias[:, pad].clone()
    model.final_logits_bias[:, pad] = -1000.0
    rng, ended = np.random.default_rng(3), []
    for length in range(1, 9):
        source = [*rng.integers(1, pad, size=length).tolist(), 0]
        expected = model.generate(
            torch.tensor([source]),
            num_beams=4,
            num_return_sequences=4,
            length_penalty=0.0,
            early_stopping=early_stopping,
            max_new_tokens=len(source) + 20,
            forced_eos_token_id=None,
            return_dict_in_generate=True,
            output_scores=True,
        )
        options = SearchOptions(beam_size=4, n_best=4, alpha=0.0, patience=None, extra_length=20)
        found = search(ours, [source], options)
        for row, theirs_row, score, their_score in zip(
            np.array(found.ids)[0],
            expected.sequences[:, 1:].tolist(),
            np.array(found.scores)[0],
            expected.sequences_scores.tolist(),
            strict=True,
        ):
            if 0 in theirs_row:  # at the limit, we rank finished hypotheses first
                ended.append(theirs_row.index(0))
                assert row.tolist()[: len(theirs_row)] == theirs_row
                assert score == pytest.approx(their_score, abs=1e-4)
    model.final_logits_bias[:, pad] = restored
    assert len(ended) > 16 and len(set(ended)) > 3


def test_their_length_penalty_counts_the_end_and_not_the_start(theirs):
    import torch

    model, folder, _ = theirs
    ours, _ = import_marian(folder)
    pad = ours.config.pad_id
    source = [5, 9, 12, 0]
    result = model.generate(
        torch.tensor([source]),
        num_beams=4,
        num_return_sequences=4,
        length_penalty=1.5,
        max_new_tokens=30,
        forced_eos_token_id=None,
        return_dict_in_generate=True,
        output_scores=True,
    )
    for row, score in zip(result.sequences.tolist(), result.sequences_scores.tolist(), strict=True):
        hypothesis = row[1 : row.index(0) + 1] if 0 in row else [i for i in row[1:] if i != pad]
        logits = their_logits(model, np.array(source), np.array([pad, *hypothesis[:-1]]))
        log_probs = logits - np.log(np.exp(logits.astype("float64")).sum(-1, keepdims=True))
        total = sum(log_probs[i, token] for i, token in enumerate(hypothesis))
        assert score == pytest.approx(total / len(hypothesis) ** 1.5, rel=1e-4)


def test_ids_and_text_are_those_of_their_tokenizer(theirs, multi30k):
    _, folder, their_tokenizer = theirs
    _, tokenizer = import_marian(folder)
    english = (multi30k / "val.en").read_text().splitlines()[:300]
    french = (multi30k / "val.fr").read_text().splitlines()[:300]
    lines = [*LINES, *[">>fra<< " + line for line in english], *english]
    ids = tokenizer.tokenize(lines).to_list()
    for line, row in zip(lines, ids, strict=True):
        assert [*row, 0] == their_tokenizer(line)["input_ids"]
    ids = tokenizer.tokenize_target(french).to_list()
    texts = tokenizer.detokenize(tf.ragged.constant(ids, dtype=tf.int32)).numpy()
    for line, row, text in zip(french, ids, texts, strict=True):
        assert [*row, 0] == their_tokenizer(text_target=line)["input_ids"]
        assert text.decode() == their_tokenizer.decode(row, skip_special_tokens=True)


@pytest.mark.slow
def test_a_model_of_the_published_shape_is_that_of_transformers(tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = dict(d_model=512, encoder_layers=6, decoder_layers=6)
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_ffn_dim": 2048, f"{side}_attention_heads": 8}
    model, folder, _ = new_theirs(transformers, tmp_path, vocab_size=58_101, **sizes)
    ours, tokenizer = import_marian(folder)
    assert tokenizer.vocab_size == 58_101 and ours.count_params() > 70e6
    check_logits(model, ours)
