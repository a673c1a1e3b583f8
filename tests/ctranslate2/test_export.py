"""A model exported to CTranslate2 gives the same scores and translations as here."""

import dataclasses
import functools
from pathlib import Path

import ctranslate2
import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from command_lines import refused, run_process
from helpers import run_python, small_model
from keras import ops
from marian_folder import write_folder

from keras_transformer import PRESETS, Transformer, TransformerConfig
from keras_transformer.ctranslate2 import export_ctranslate2
from keras_transformer.ctranslate2.export import model_spec, sinusoids
from keras_transformer.ctranslate2.support import CTRANSLATE2_CHOICES, CTRANSLATE2_CONFIG
from keras_transformer.ctranslate2.weights import model_weights, weight_shapes
from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.importers.marian import import_marian
from keras_transformer.layers import PositionalEncoding
from keras_transformer.precision import in_precision
from keras_transformer.search import SearchOptions, search
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.translator import Translator

VOCAB_SIZE = 340
SENTENCES = ["The girls sleep.", "A horse!", "He will not buy a small lamp, because it is dear."]
TARGETS = ["Ja.", "Die Mädchen schlafen nicht, weil es kalt ist.", "Ein Pferd!"]

# Fields that do not meet in a model share a variant.
VARIANTS = {
    "post_norm": {},
    "pre_norm_large_epsilon": {"layer_norm_epsilon": 0.1, "pre_norm": True},
    "untied": {"tie_output": False},
    "unshared": {"share_embeddings": False},
    "unshared_untied_output_bias": {
        "share_embeddings": False,
        "tie_output": False,
        "output_bias": True,
        "attention_bias": True,
        "d_k": 12,
        "d_v": 20,
    },
    "unscaled_fewer_positions_than_tokens": {
        "scale_embeddings": False,
        "positions": "learned",
        "max_positions": 8,
    },
    "one_head_swish": {"num_heads": 1, "activation": "swish"},
    "narrow_keys": {"d_k": 3},
    "heads_narrower_than_the_model": {"num_heads": 3, "d_k": 4, "d_v": 2},
    "uneven_stacks": {"num_encoder_layers": 2, "num_decoder_layers": 3, "d_ff": 7},
    "odd_width": {"positions": "learned", "max_positions": 64, "d_model": 15, "d_k": 4, "d_v": 4},
    "attention_bias": {"attention_bias": True, "d_k": 3},
    "output_bias": {"output_bias": True},
    "sinusoids_in_halves_gelu": {"positions": "sinusoidal_split", "activation": "gelu"},
    "sinusoids_of_opennmt_sources_without_their_end": {
        "positions": "sinusoidal_opennmt",
        "source_end": False,
    },
    "positions_of_fairseq": {"positions": "sinusoidal_fairseq"},
}


def tiny_model(**fields):
    """One layer on each side is enough for most tests: `VARIANTS` has a model of more."""
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    return small_model(**{"vocab_size": VOCAB_SIZE, **layers, **fields})


@functools.cache
def variant(name):
    """A model that no test changes."""
    return tiny_model(**VARIANTS[name])


@pytest.fixture(scope="module")
def tokenizer():
    return SubwordTokenizer.train_from_sentences(BuiltinPairs("train", 300).sentences(), VOCAB_SIZE)


@pytest.fixture(scope="module")
def processor(tokenizer):
    return sentencepiece.SentencePieceProcessor(model_proto=tokenizer.model)


@pytest.fixture
def export(tokenizer, tmp_path):
    """Exports a model, and returns the loaded CTranslate2 model."""

    def export(model, name="export", **options):
        export_ctranslate2(model, tokenizer, tmp_path / name, **options)
        return loaded(tmp_path / name)

    return export


def loaded(folder):
    """The exported model, computed in float32, whatever the type of the stored weights.

    How well a processor multiplies 8-bit integers is CTranslate2's own: without AVX-512 the scores
    of these models differ by 0.65 in the mean.
    """
    return ctranslate2.Translator(str(folder), intra_threads=1, compute_type="float32")


def scores_of(model, processor, sources, targets):
    """For each pair the log-probability of each token of the target, the end symbol included."""
    source_rows, target_rows = (
        [[*processor.encode(text), 2] for text in texts] for texts in (sources, targets)
    )
    inputs = {"source_ids": source_rows, "target_ids": [[1, *row[:-1]] for row in target_rows]}
    logits = model({name: padded(rows) for name, rows in inputs.items()})
    log_probs = ops.convert_to_numpy(ops.log_softmax(logits))
    return [log_probs[index, np.arange(len(row)), row] for index, row in enumerate(target_rows)]


def padded(rows):
    longest = max(map(len, rows))
    return ops.array([[*row, *[0] * (longest - len(row))] for row in rows], "int32")


def score_differences(model, exported, processor, sources=SENTENCES, targets=TARGETS):
    """The absolute differences between exported model and model, for each target token."""
    results = exported.score_batch(
        processor.encode(sources, out_type=str),
        processor.encode(targets, out_type=str),
        max_input_length=0,
    )
    expected = scores_of(model, processor, sources, targets)
    found = [np.array(result.log_probs) for result in results]
    assert [*map(len, found)] == [*map(len, expected)]
    return np.abs(np.concatenate(found) - np.concatenate(expected))


def assert_same_scores(*arguments):
    assert score_differences(*arguments).max() < 1e-4


def mean_difference(*arguments):
    return score_differences(*arguments).mean()


# The same model.


@pytest.mark.parametrize("name", VARIANTS)
def test_scores_are_those_of_the_model(name, export, processor):
    model = variant(name)
    assert_same_scores(model, export(model), processor)


@pytest.mark.parametrize("name", VARIANTS)
def test_paths_and_shapes_of_weights_are_known_without_keras(name):
    model = variant(name)
    found = {weight.path.partition("/")[2]: tuple(weight.shape) for weight in model.weights}
    assert weight_shapes(model.config) == found


@pytest.mark.parametrize(
    "options", [{}, {"interleave": False}, {"inclusive": True, "first": 1}], ids=str
)
def test_positions_are_those_of_the_layer_to_float32_rounding(options):
    layer = PositionalEncoding(64, **options)
    expected = ops.convert_to_numpy(layer(ops.zeros((1, 2048, 64))))[0]
    found = sinusoids(2048, 64, **options)
    assert found.dtype == "float32"
    np.testing.assert_allclose(found, expected, rtol=0, atol=1.2e-7)


def test_every_supported_field_of_the_configuration_is_tried():
    tried = {name for fields in VARIANTS.values() for name in fields}
    of_the_vocabulary = {"vocab_size", "target_vocab_size", "pad_id", "start_id", "end_id"}
    of_training = {"dropout", "attention_dropout", "activation_dropout", "label_smoothing"}
    supported = {*CTRANSLATE2_CONFIG, *CTRANSLATE2_CHOICES}
    assert tried | of_the_vocabulary | of_training | {"layer_type"} == supported


@pytest.mark.parametrize(
    "fields",
    [
        {"layer_type": "restricted", "radius": 2},
        {"layer_type": "recurrent"},
        {"layer_type": "convolutional", "kernel_size": 3},
        {"layer_type": "separable", "kernel_size": 3},
    ],
    ids=lambda fields: fields["layer_type"],
)
def test_layers_that_ctranslate2_lacks_are_refused(fields, tokenizer, tmp_path):
    model = tiny_model(**fields)
    expected = (
        rf"^CTranslate2 does not support layer_type={fields['layer_type']}, only attention: use "
        r"TensorFlow for this model \(--engine=tensorflow, --format=saved_model\)$"
    )
    with pytest.raises(UserError, match=expected):
        export_ctranslate2(model, tokenizer, tmp_path / "export")
    assert not (tmp_path / "export").exists()


@pytest.mark.parametrize("positions", ["rotary", "sinusoidal_rotary"])
def test_positions_that_rotate_are_refused(positions, tokenizer, tmp_path):
    model = tiny_model(positions=positions)
    with pytest.raises(
        UserError, match=rf"^CTranslate2 does not support positions={positions}, only "
    ):
        export_ctranslate2(model, tokenizer, tmp_path / "export")
    assert not (tmp_path / "export").exists()


def one_layer(name):
    """A preset with one layer on each side and an eighth of its widths, with its heads."""
    small = dict(vocab_size=VOCAB_SIZE, num_encoder_layers=1, num_decoder_layers=1, d_ff=16)
    small.update(target_vocab_size=None, dropout=0.0, label_smoothing=0.0)
    config = TransformerConfig.from_preset(name, **small)
    widths = {name: getattr(config, name) for name in ("d_model", "d_k", "d_v")}
    eighths = {name: width and width // 8 for name, width in widths.items()}
    return dataclasses.replace(config, **eighths)


# Presets that differ only in the number of layers or in training are the same here. Rotated
# positions are refused.
PRESET_OF = {one_layer(name): name for name in reversed(PRESETS) if not one_layer(name).rotary}


@pytest.mark.parametrize("config", PRESET_OF, ids=PRESET_OF.values())
def test_presets_are_exported(config, export, processor):
    model = Transformer(config)
    model.build()
    assert_same_scores(model, export(model), processor)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["post_norm", "pre_norm_large_epsilon", "narrow_keys"])
def test_greedy_translations_are_those_of_the_model(name, export, processor):
    model = small_model(5, vocab_size=VOCAB_SIZE, **VARIANTS[name])
    exported = export(model)
    sources = [[*processor.encode(sentence), 2] for sentence in SENTENCES]
    longest = max(map(len, sources))
    rows = [source + [0] * (longest - len(source)) for source in sources]
    options = SearchOptions(beam_size=1, extra_length=12)
    graph = tf.function(lambda: search(model, rows, options), autograph=False)
    found = graph().ids.numpy()[:, 0].tolist()
    for source, ids in zip(sources, found, strict=True):
        limit = len(source) + options.extra_length - 1  # the last symbol is the end symbol
        [result] = exported.translate_batch(
            [processor.id_to_piece(source[:-1])],
            beam_size=1,
            min_decoding_length=0,
            max_decoding_length=limit,
        )
        assert processor.piece_to_id(result.hypotheses[0]) == ids[: ids.index(2)]


def test_positions_last_for_long_sentences(export, processor):
    model = variant("post_norm")
    long = " ".join(["horse"] * 400)
    assert 1500 < len(processor.encode(long)) < 2047
    assert_same_scores(model, export(model), processor, [long], [long])


def test_model_in_bfloat16_is_exported_as_float32(export, processor, tokenizer, tmp_path):
    model = tiny_model(dtype="bfloat16")
    same = tiny_model()
    same.set_weights([ops.convert_to_numpy(weight) for weight in model.weights])
    assert_same_scores(same, export(model), processor)
    export_ctranslate2(same, tokenizer, tmp_path / "same")
    sizes = {(tmp_path / name / "model.bin").stat().st_size for name in ("export", "same")}
    assert len(sizes) == 1


# Quantization.


@pytest.mark.parametrize("quantization", ["int8", "int16", "float16"])
@pytest.mark.parametrize("name", ["post_norm", "unshared_untied_output_bias"])
def test_quantized_models_score_about_the_same(quantization, name, export, processor):
    model = variant(name)
    before = model.get_weights()
    exported = export(model, quantization=quantization)
    assert 0 < mean_difference(model, exported, processor) < 0.1
    for weight, unchanged in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(weight, unchanged)


@pytest.mark.parametrize("name", ["attention_bias", "unshared_untied_output_bias"])
def test_a_model_in_int8_is_exported_with_its_scales(name, export, processor):
    model = variant(name)
    rounded = in_precision(tiny_model(**VARIANTS[name]), "int8")
    for quantization in (None, "int8"):
        exported = export(rounded, str(quantization), quantization=quantization)
        assert 0 < mean_difference(model, exported, processor) < 0.1


def test_weights_in_int8_are_exported_as_they_were_rounded(tokenizer):
    def weight(model):
        spec = model_spec(model.config, model_weights(model), tokenizer.pieces, 3)
        return spec.encoder.layer[0].ffn.linear_0.weight

    before = weight(variant("post_norm"))
    after = weight(in_precision(tiny_model(), "int8"))
    step = np.abs(before).max(axis=1, keepdims=True) / 127
    assert 0.2 < np.abs((after - before) / step).max() < 0.51


def test_weights_in_other_integers_are_not_exported_as_numbers(tokenizer, tmp_path):
    model = tiny_model()
    model.quantize("int4")
    with pytest.raises(UserError, match="supports weights as trained or in int8, not in int4"):
        export_ctranslate2(model, tokenizer, tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


def test_quantized_models_are_smaller(tokenizer, tmp_path):
    model = tiny_model(d_model=64, d_ff=512)
    export_ctranslate2(model, tokenizer, tmp_path / "float32")
    export_ctranslate2(model, tokenizer, tmp_path / "int8", quantization="int8")
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("int8", "float32")]
    assert sizes[0] < 0.7 * sizes[1]


# The folder.


USE = """
import sys
import ctranslate2
import sentencepiece

folder, *sentences = sys.argv[1:]
pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/sentencepiece.model")
translator = ctranslate2.Translator(folder, intra_threads=1)
for tokens in pieces.encode(sentences, out_type=str):
    limit = len(tokens) + 5
    [result] = translator.translate_batch(
        [tokens], beam_size=1, min_decoding_length=0, max_decoding_length=limit
    )
    print(pieces.decode(result.hypotheses[0]))
assert not {"keras", "keras_transformer", "tensorflow"} & set(sys.modules)
"""


@pytest.fixture(scope="module")
def lively(tokenizer):
    """An untrained model that translates every sentence differently, in whole characters."""
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    model = small_model(3, vocab_size=VOCAB_SIZE, tie_output=False, **layers)
    kernel = 3.0 * model.output_projection.kernel.numpy()
    kernel[:, : 4 + 256] = -1.0
    model.output_projection.kernel.assign(kernel)
    return model


@pytest.mark.slow
def test_folder_is_all_that_ctranslate2_and_sentencepiece_need(lively, tokenizer, tmp_path):
    export_ctranslate2(lively, tokenizer, tmp_path / "export")
    assert {path.name for path in (tmp_path / "export").iterdir()} == {
        "config.json",
        "model.bin",
        "sentencepiece.model",
        "sentencepiece.target.model",
        "shared_vocabulary.json",
    }
    translations = Translator(lively, tokenizer, beam_size=1, extra_length=5)(SENTENCES)
    assert len(set(translations)) == len(SENTENCES)
    assert run_python(USE, tmp_path / "export", *SENTENCES).splitlines() == translations


@pytest.mark.parametrize("quantization", ["int4", "bfloat16", "int8_bfloat16", ""])
def test_unknown_quantization_is_refused(quantization, tokenizer, tmp_path):
    model = variant("post_norm")
    with pytest.raises(UserError, match=f"one of int8, .*float32: found '{quantization}'"):
        export_ctranslate2(model, tokenizer, tmp_path / "export", quantization)
    assert not list(tmp_path.iterdir())


def test_vocabulary_of_another_model_is_refused(tokenizer, tmp_path):
    with pytest.raises(UserError, match="vocab_size=340, as its vocabulary has: found 50"):
        export_ctranslate2(small_model(vocab_size=50), tokenizer, tmp_path / "export")
    assert not list(tmp_path.iterdir())


def test_what_exists_is_not_written_over(tokenizer, tmp_path):
    (tmp_path / "export").mkdir()
    with pytest.raises(UserError, match="export exists already: choose a new folder"):
        export_ctranslate2(variant("post_norm"), tokenizer, tmp_path / "export")
    assert not list((tmp_path / "export").iterdir())


@pytest.mark.slow
def test_an_imported_marian_model_is_exported(tmp_path):
    write_folder(tmp_path / "marian")
    model, tokenizer = import_marian(tmp_path / "marian")
    export_ctranslate2(model, tokenizer, tmp_path / "export")
    assert {"source.spm", "target.spm"} < {path.name for path in (tmp_path / "export").iterdir()}

    [ids] = tokenizer.tokenize(tf.constant(["the house"])).to_list()
    exported = ctranslate2.Translator(str(tmp_path / "export"))
    pieces = [tokenizer.pieces[id_] for id_ in ids]
    # Our lengths count the end symbol; those of CTranslate2 do not.
    limits = {"min_decoding_length": 4, "max_decoding_length": 9}
    [result] = exported.translate_batch([pieces], beam_size=1, **limits)
    options = SearchOptions(beam_size=1, min_length=5, max_length=9)
    found = search(model, [[*ids, tokenizer.end_id]], options)
    found = ops.convert_to_numpy(found.ids)[0, 0].tolist()
    until = found.index(tokenizer.end_id) if tokenizer.end_id in found else 9
    assert result.hypotheses[0] == [tokenizer.pieces[id_] for id_ in found[:until]]


def test_failure_leaves_nothing(tokenizer, tmp_path, monkeypatch):
    def fail(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(KeyboardInterrupt):
        export_ctranslate2(variant("post_norm"), tokenizer, tmp_path / "export")
    assert not list(tmp_path.iterdir())


# The command line.


@pytest.fixture(scope="module")
def model_dir(lively, tokenizer, tmp_path_factory):
    model_dir = ModelDir(tmp_path_factory.mktemp("runs") / "lively")
    model_dir.create(lively.config, tokenizer, {})
    model_dir.checkpoints.save(lively, 1)
    return model_dir.path


@pytest.fixture
def options(model_dir, tmp_path):
    return {"model_dir": model_dir, "format": "ctranslate2", "output": tmp_path, "average": 1}


@pytest.mark.slow
def test_command_line_exports_a_model_dir(options, processor, lively, tmp_path):
    output = tmp_path / "runs" / "export"
    process = run_process("export", **{**options, "output": output, "quantization": "int8"})
    assert (process.returncode, process.stderr) == (0, b"")
    exported = loaded(output)
    assert 0 < mean_difference(lively, exported, processor) < 0.1


def test_command_line_refuses_in_one_line(options, tmp_path):
    message = refused("export", **options)
    assert message == f"{tmp_path} exists already: choose a new folder"
