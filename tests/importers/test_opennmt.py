"""Import of OpenNMT-tf models: same ids, logits, translations; others are refused in one line."""

import json
import pickle

import keras
import numpy as np
import pytest
from command_lines import refused, run
from marian_folder import SOURCE_TEXT, TARGET_TEXT
from opennmt_run import SOURCE_EMBEDDING, write_checkpoint, write_config, write_run
from sentencepiece import SentencePieceProcessor

from keras_transformer import engines
from keras_transformer.ctranslate2.converted import ModelInMemory
from keras_transformer.ctranslate2.translator import CTranslate2Translator
from keras_transformer.documents.linked_texts import word_numbers
from keras_transformer.errors import UserError
from keras_transformer.importers.opennmt import import_opennmt
from keras_transformer.report.word_attention import pair_attention
from keras_transformer.term_spelling import TermSpelling
from keras_transformer.text.opennmt import OpenNMTTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

# With pieces that only the other side has, and characters that neither has.
LINES = [*SOURCE_TEXT, *TARGET_TEXT, "à a 猫 b ж", "horse", "<unk> <s> ▁ birds", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("opennmt") / "run"
    write_run(folder)
    return folder


@pytest.fixture(scope="module")
def imported(folder):
    return import_opennmt(folder, folder / "data.yml")


@pytest.fixture
def copy(folder, tmp_path):
    """A copy of the run, to be changed."""
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def ids_by_hand(folder, side, text):
    """OpenNMT-tf's ids: the line of each piece in the vocabulary file; unknown ones come last."""
    tokens = (folder / f"{side}.vocab").read_text("utf-8").splitlines()
    model = SentencePieceProcessor(model_file=str(folder / f"{side}.model"))
    ids = {token: id_ for id_, token in enumerate(tokens)}
    return [ids.get(piece, len(tokens)) for piece in model.encode(text, out_type=str)]


def logits_of(model, source, target):
    batch = {"source_ids": source, "target_ids": target}
    ids = {name: keras.ops.array([row], "int32") for name, row in batch.items()}
    return keras.ops.convert_to_numpy(model(ids))[0]


# The model

# Fields that do not meet in a model share a variant.
VARIANTS = {
    "by default": {},
    "post-norm, no biases": {"pre_norm": False, "mha_bias": False, "output_layer_bias": False},
    "all shared, gelu": {"share": "ALL", "ffn_activation": "tf.nn.gelu"},
    "inputs shared, swish": {"share": "SOURCE_TARGET_INPUT", "ffn_activation": "tf.nn.swish"},
    "target shared, two heads": {"share": "TARGET", "num_heads": 2},
    "learned positions, end of the source": {"maximum_position": 6, "source_end": True},
    "stacks apart": {"num_layers": (1, 3)},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_are_those_of_opennmts_formulas(name, tmp_path):
    reference = write_run(tmp_path, **{"num_layers": (1, 1), **VARIANTS[name]})
    model, tokenizer = import_opennmt(tmp_path, tmp_path / "data.yml")
    for text, translation in [*zip(SOURCE_TEXT, TARGET_TEXT, strict=True), (LINES[6], LINES[6])]:
        source = tokenizer.tokenize([text])[0].numpy().tolist()
        target = tokenizer.tokenize_target([translation])[0].numpy().tolist()
        end = [2] * reference.options["source_end"]
        expected = reference.logits(
            [*ids_by_hand(tmp_path, "source", text), *end],
            [1, *ids_by_hand(tmp_path, "target", translation)],
        )
        found = logits_of(model, [*source, tokenizer.end_id], [tokenizer.start_id, *target])
        np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.slow
def test_the_last_checkpoint_of_a_folder_is_read_or_the_one_given(copy, imported):
    weights = write_run(copy, seed=1).weights
    write_checkpoint(copy, weights, number=9)
    first = imported[0].get_weights()[0]
    last = import_opennmt(copy, copy / "data.yml")[0].get_weights()[0]
    assert np.abs(last - first).max() > 0.1
    for name in ("ckpt-9", "ckpt-9.index", "ckpt-9.data-00000-of-00001"):
        model, _ = import_opennmt(copy / name, copy / "data.yml")
        np.testing.assert_array_equal(model.get_weights()[0], last)


def test_the_catalog_gives_the_number_of_heads(copy, imported):
    (copy / "model_description.py").write_text(
        "from opennmt import models\n"
        'model = lambda: models.get_model_from_catalog("TransformerTiny")\n'
    )
    assert import_opennmt(copy, copy / "data.yml")[0].config.num_heads == 2


def test_an_averaged_checkpoint_has_the_description_of_its_run(copy):
    (copy / "avg").mkdir()
    for file in (copy / "checkpoint", *copy.glob("ckpt-*")):
        file.rename(copy / "avg" / file.name)
    (copy / "model_description.py").write_text('get_model_from_catalog("ScalingNmtEnDe")')
    write_config(copy, source_sequence_controls=None)
    config = import_opennmt(copy / "avg", copy / "data.yml")[0].config
    assert (config.num_heads, config.source_end) == (16, True)
    (copy / "model_description.py").write_text("Transformer(num_heads=4, ffn_activation=mine)")
    with pytest.raises(UserError, match=f"{copy}/model_description.py: ffn_activation is"):
        import_opennmt(copy / "avg", copy / "data.yml")


def test_what_the_description_does_not_say_can_be_given(copy):
    (copy / "model_description.py").unlink()
    model, _ = import_opennmt(copy, copy / "data.yml", num_heads=8, activation="swish")
    assert (model.config.num_heads, model.config.activation) == (8, "swish")


@pytest.mark.parametrize(
    ("name", "controls", "expected"),
    [
        ("TransformerBase", None, False),
        ("TransformerBase", {"end": True}, True),
        ("ScalingNmtEnDe", None, True),
        ("ScalingNmtEnDe", {"end": False}, False),
    ],
)
def test_sources_have_the_end_that_the_data_or_else_auto_config_give(
    copy, name, controls, expected
):
    write_config(copy, source_sequence_controls=controls)
    (copy / "model_description.py").write_text(f'get_model_from_catalog("{name}")')
    assert import_opennmt(copy, copy / "data.yml")[0].config.source_end == expected


# The vocabulary


@pytest.mark.parametrize("text", LINES)
def test_ids_are_those_of_the_vocabulary_files(imported, folder, text):
    _, tokenizer = imported
    size = len((folder / "target.vocab").read_text("utf-8").splitlines())
    target = tokenizer.tokenize_target([text])[0].numpy().tolist()
    assert target == ids_by_hand(folder, "target", text)
    assert (tokenizer.unknown_id, tokenizer.target_vocab_size) == (size, size + 1)

    tokens = [*(folder / "source.vocab").read_text("utf-8").splitlines(), "<unk>"]
    source = tokenizer.tokenize([text])[0].numpy().tolist()
    found = [tokenizer.pieces[id_] for id_ in source]
    expected = [tokens[id_] for id_ in ids_by_hand(folder, "source", text)]
    assert [piece if piece in tokens else "<unk>" for piece in found] == expected


def test_target_text_survives_and_unknown_pieces_look_as_sentencepiece_shows_them(imported):
    _, tokenizer = imported
    unknown, end = tokenizer.unknown_id, tokenizer.end_id
    ids = tokenizer.tokenize_target(["deux oiseaux"])[0].numpy().tolist()
    rows = [[*ids, end, *ids], [*ids, unknown, *ids], [end]]
    found = [text.decode() for text in tokenizer.detokenize(rows).numpy()]
    assert found == ["deux oiseaux", "deux oiseaux ⁇  deux oiseaux", ""]


def test_saved_and_loaded_it_is_the_same(imported, tmp_path):
    _, tokenizer = imported
    path = tmp_path / "vocabulary.opennmt.zip"
    tokenizer.save(path)
    for same in (OpenNMTTokenizer.load(path), pickle.loads(pickle.dumps(tokenizer))):
        assert same.tokenize(LINES).to_list() == tokenizer.tokenize(LINES).to_list()
        assert same.target_vocab_size == tokenizer.target_vocab_size
    for damaged in (b"", path.read_bytes()[:-100]):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"opennmt\.zip: not a zip file of source"):
            OpenNMTTokenizer.load(path)


@pytest.mark.parametrize(
    ("pieces", "message"),
    [
        (["<s>", "<blank>", "</s>", "<unk>"], "first pieces must be <blank>, <s>, </s>"),
        (["<blank>", "<s>", "</s>"], "must have the piece <unk>"),
    ],
)
def test_impossible_vocabularies_are_refused(pieces, message):
    with pytest.raises(UserError, match=message):
        OpenNMTTokenizer(b"", b"", pieces)


@pytest.fixture
def words(tmp_path):
    """A run whose text another program has split: both vocabularies are of words."""
    reference = write_run(tmp_path)
    for side in ("source", "target"):
        path = tmp_path / f"{side}.vocab"
        tokens = path.read_text("utf-8").replace("▁", "_").splitlines()
        path.write_text("\n".join([*tokens[:3], "<unk>", "A￭", *tokens[5:]]) + "\n", "utf-8")
    write_config(tmp_path, source_tokenization=None, target_tokenization=None)
    return tmp_path, reference


def test_without_tokenization_text_is_split_at_spaces(words):
    folder, reference = words
    model, tokenizer = import_opennmt(folder, folder / "data.yml")
    tokens = (folder / "target.vocab").read_text("utf-8").splitlines()
    text = f"  A￭ {tokens[9]}  unheard of {tokens[7]} "
    ids = tokenizer.tokenize_target([text])[0].numpy().tolist()
    assert ids == [4, 9, len(tokens), len(tokens), 7]
    assert tokenizer.detokenize([ids])[0].numpy().decode() == (
        f"A￭ {tokens[9]} <unk> <unk> {tokens[7]}"
    )
    sources = (folder / "source.vocab").read_text("utf-8").splitlines()
    row = [sources.index(token) if token in sources else len(sources) for token in text.split()]
    found = logits_of(model, [*tokenizer.tokenize([text])[0].numpy(), 2], [1, *ids])
    np.testing.assert_allclose(found, reference.logits(row, [1, *ids]), atol=1e-4)


def test_each_piece_of_text_split_at_spaces_is_a_word(words):
    model, tokenizer = import_opennmt(words[0], words[0] / "data.yml")
    text = " ".join(tokenizer.pieces[5:9])
    for translator in (
        Translator(model, tokenizer),
        CTranslate2Translator(ModelInMemory(model, tokenizer)),
    ):
        [alignment] = translator.align([text], [text])
        assert alignment.of_words().source == alignment.of_words().target == text.split()
    maps = pair_attention(model, tokenizer, text, text)
    assert word_numbers(maps["memory"].key_pieces[:-1], text) == [0, 1, 2, 3]
    assert not TermSpelling(tokenizer).continues.any()


def test_text_that_spells_a_special_symbol_is_unknown(words):
    _, tokenizer = import_opennmt(words[0], words[0] / "data.yml")
    texts, unknown = ["<blank> </s> A￭ <s>"], tokenizer.unknown_id
    for ids in tokenizer.tokenize(texts), tokenizer.tokenize_target(texts):
        assert ids[0].numpy().tolist() == [unknown, unknown, 4, unknown]


# Translation


@pytest.mark.slow
@pytest.mark.parametrize("is_split", [True, False])
def test_both_engines_translate_alike(imported, words, is_split):
    model, tokenizer = imported
    texts = LINES
    if is_split:
        model, tokenizer = import_opennmt(words[0], words[0] / "data.yml")
        texts = [" ".join(tokenizer.pieces[5 + i : 12 + i]) for i in range(5)] + ["not known", ""]
        texts += ["<blank> A￭ </s> <s>", b"not UTF-8: \xff"]
    options = {"beam_size": 3, "alpha": 0.6, "n_best": 2}
    ours = Translator(model, tokenizer, **options)
    other = CTranslate2Translator(ModelInMemory(model, tokenizer), **options)
    expected = ours.translate_n(texts)
    for found, both in zip(other.translate_n(texts), expected, strict=True):
        assert [each.text for each in found] == [each.text for each in both]
        assert [each.score for each in found] == pytest.approx(
            [each.score for each in both], abs=1e-4
        )
    targets = [both[0].text for both in expected[:-2]]
    targets += [f"{tokenizer.pieces[-1]} {tokenizer.pieces[5]} </s>", b"\xff"]
    assert other.score(texts, targets) == pytest.approx(ours.score(texts, targets), abs=1e-4)
    for found, both in zip(other.align(texts, targets), ours.align(texts, targets), strict=True):
        assert (found.source, found.target) == (both.source, both.target)


@pytest.mark.slow
def test_an_imported_model_dir_translates(folder, imported, tmp_path):
    model_dir = tmp_path / "en-fr"
    languages = {"source_lang": "en", "target_lang": "fr"}
    run(
        "import-opennmt",
        source=folder,
        config=folder / "data.yml",
        model_dir=model_dir,
        **languages,
    )
    assert sorted(path.name for path in model_dir.iterdir()) == [
        "checkpoints",
        "config.json",
        "training.json",
        "vocabulary.opennmt.zip",
    ]
    expected = Translator(*imported, beam_size=2)(LINES)
    for engine in ("ctranslate2", "tensorflow"):
        translator = engines.load(model_dir, engine=engine, beam_size=2)
        assert translator(LINES) == expected
    assert ModelDir(model_dir).load_vocabulary().pieces == imported[1].pieces


# What is refused


def refuse(folder, message, **options):
    with pytest.raises(UserError, match=message) as error:
        import_opennmt(folder, folder / "data.yml", **options)
    assert "\n" not in str(error.value)


def test_options_that_the_model_lacks_are_refused_by_name(tmp_path):
    weights = write_run(tmp_path).weights
    relative = {"encoder/layers/0/self_attention/layer/relative_position_keys": np.zeros(3)}
    second = {"decoder/layers/0/attention/1/layer/linear_keys/kernel": np.zeros(3)}
    cases = (
        ({**weights, **relative}, True, r"relative positions \(maximum_relative_position\)"),
        ({**weights, **second}, True, r"several sources \(ParallelInputter\)"),
        (weights, False, "position_encoder_class=None is not supported"),
        ({"encoder/rnn/kernel": np.zeros(3)}, True, "its encoder is not a SelfAttentionEncoder"),
        ({"decoder/kernel": np.zeros(3)}, False, "its encoder is not a SelfAttentionEncoder"),
        (
            {name: array for name, array in weights.items() if name != SOURCE_EMBEDDING},
            True,
            "source_inputter is not a WordEmbedder",
        ),
    )
    # It does not tell the number of heads, which an import would ask for next.
    (tmp_path / "model_description.py").write_text('get_model_from_catalog("TransformerRelative")')
    for number, (changed, positions, message) in enumerate(cases, 6):
        write_checkpoint(tmp_path, changed, number, positions=positions)
        refuse(tmp_path, message)


def test_weights_that_are_unknown_or_not_finite_are_refused(tmp_path):
    weights = write_run(tmp_path).weights
    write_checkpoint(tmp_path, {**weights, "decoder/coverage": np.zeros(3)}, 6)
    refuse(tmp_path, "1 unknown weights: decoder/coverage")
    weights[SOURCE_EMBEDDING] = np.full_like(weights[SOURCE_EMBEDDING], np.nan)
    write_checkpoint(tmp_path, weights, 7)
    refuse(tmp_path, "embedding must be finite numbers")


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ("model = lambda: Transformer(num_heads=HEADS)", "does not give the number of attention"),
        ("model = lambda: Transformer()", "does not give the number of attention heads: give"),
        (
            "model = lambda: Transformer(num_heads=4, ffn_activation=opennmt.layers.gelu)",
            "ffn_activation is not one of TensorFlow's",
        ),
        (
            "model = lambda: Transformer(num_heads=4, position_encoder_class=Mine)",
            "position_encoder_class=Mine is not supported",
        ),
        ("model = lambda: Transformer(num_heads=3)", "d_model must be a multiple of num_heads"),
        ("model = (", "not a Python file"),
    ],
)
def test_descriptions_that_do_not_say_enough_are_refused(copy, description, message):
    (copy / "model_description.py").write_text(description)
    refuse(copy, message)


AGGRESSIVE = {"type": "OpenNMTTokenizer", "params": {"mode": "aggressive", "bpe_model_path": "b"}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"source_vocabulary": None}, "data: source_vocabulary must name a vocabulary file"),
        ({"source_vocabulary": "none.vocab"}, r"none\.vocab.*No such file"),
        ({"source_vocabulary": "target.vocab"}, "it is not the vocabulary of this model"),
        ({"source_tokenization": AGGRESSIVE}, "OpenNMTTokenizer with .*aggressive.* not supported"),
        ({"source_tokenization": AGGRESSIVE["params"]}, "OpenNMTTokenizer with .*aggressive"),
        ({"source_tokenization": "none.yml"}, "there is no such file: none.yml"),
        ({"source_tokenization": None}, "must both be given, or neither"),
        (
            {"source_tokenization": None, "target_tokenization": None},
            "the vocabularies have pieces of SentencePiece: add source_tokenization",
        ),
        (
            {"source_sequence_controls": True},
            "source_sequence_controls must be such as {end: true}",
        ),
        (
            {"source_sequence_controls": {"start": True}},
            "source_sequence_controls: start must be false: found true",
        ),
        (
            {"target_sequence_controls": {"end": False}},
            "target_sequence_controls: end must be true: found false",
        ),
    ],
)
def test_data_that_is_not_supported_is_refused(copy, data, message):
    write_config(copy, **data)
    refuse(copy, message)


def test_tokenizations_of_the_same_pieces_are_the_same(copy, imported):
    plain = {"mode": "none", "sp_model_path": "source.model"}
    (copy / "source.yml").write_text(json.dumps(plain))
    for tokenization in ("source.yml", plain, {"type": "OpenNMTTokenizer", "params": plain}):
        write_config(copy, source_tokenization=tokenization)
        _, tokenizer = import_opennmt(copy, copy / "data.yml")
        assert tokenizer.to_bytes() == imported[1].to_bytes()


def test_files_that_are_not_what_they_should_be_are_refused(copy):
    for name, content, message in (
        ("data.yml", "data: [", r"data\.yml:1: not YAML"),
        ("data.yml", "[" * 3000, r"data\.yml: not YAML: it is nested too deeply"),
        ("data.yml", "date: 2020-13-01", r"data\.yml: not YAML: month must be in 1\.\.12"),
        ("data.yml", "train: {}", "there is no data, which names the vocabularies"),
    ):
        usual = (copy / name).read_bytes()
        (copy / name).write_text(content)
        refuse(copy, message)
        (copy / name).write_bytes(usual)
    lines = (copy / "source.vocab").read_text("utf-8").splitlines()
    for tokens, message in (
        (["<unk>", "<s>", "</s>"], "the first lines .* must be <blank>, <s>, </s>: found <unk>"),
        ([*lines[:-1], lines[5]], r"source\.vocab:\d+: the token .* is also in line 6"),
    ):
        (copy / "source.vocab").write_text("\n".join(tokens) + "\n", "utf-8")
        refuse(copy, message)


def test_a_shared_matrix_needs_one_vocabulary(tmp_path):
    write_run(tmp_path, share="ALL")
    tokens = (tmp_path / "source.vocab").read_text("utf-8").splitlines()
    (tmp_path / "source.vocab").write_text("\n".join([*tokens[:-1], "other"]), "utf-8")
    refuse(tmp_path, "it shares embeddings, so source_vocabulary and target_vocabulary must agree")


def test_checkpoints_that_are_missing_damaged_or_of_others_are_refused(copy, tmp_path_factory):
    refuse(copy / "nothing", "there is no such checkpoint of OpenNMT-tf")
    other = tmp_path_factory.mktemp("other")
    with pytest.raises(UserError, match="there is no checkpoint of OpenNMT-tf"):
        import_opennmt(other, copy / "data.yml")
    write_checkpoint(other, {"encoder/kernel": np.zeros(3)}, root="transformer")
    with pytest.raises(UserError, match="not a checkpoint of OpenNMT-tf 2"):
        import_opennmt(other, copy / "data.yml")
    data = copy / "ckpt-5.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-400])
    refuse(copy, "cannot read the checkpoint")


@pytest.mark.parametrize("content", [None, "", 'model_checkpoint_path: "/moved/ckpt-5"\n'])
def test_without_the_name_of_the_last_checkpoint_one_must_be_given(copy, content):
    (copy / "checkpoint").unlink()
    if content is not None:
        (copy / "checkpoint").write_text(content)
    message = f"{copy}: its file `checkpoint` names no checkpoint of this folder: give one, such as"
    with pytest.raises(UserError, match=f"^{message} {copy}/ckpt-5$"):
        import_opennmt(copy, copy / "data.yml")
    import_opennmt(copy / "ckpt-5", copy / "data.yml")


def test_the_command_refuses_in_one_line(copy, tmp_path_factory):
    model_dir = tmp_path_factory.mktemp("runs") / "new"
    write_config(copy, source_tokenization=AGGRESSIVE)
    message = refused("import-opennmt", source=copy, config=copy / "data.yml", model_dir=model_dir)
    assert "source_tokenization" in message and not model_dir.exists()
