"""The places named in docs/architecture.md under "How to add ..." are enough."""

import os
import shutil
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import ROOT, small_model
from keras import ops

from keras_transformer import ModelDir, Translator
from keras_transformer.layers import Dense, Encoder, EncoderLayer, TokenEmbedding
from keras_transformer.text import Tokenizer
from keras_transformer.training import model_dir as model_dir_module

RAMP = '''

@keras.saving.register_keras_serializable("keras_transformer")
class Ramp(keras.layers.Layer):
    """Adds the position, in hundreds, to each feature."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.built = True

    def call(self, x, start=0):
        return x + ops.cast(_positions(start, ops.shape(x)[1])[..., None] / 100, x.dtype)
'''
MEAN_ATTENTION = '''"""Attention with equal weights."""

import keras
from keras import ops

from keras_transformer.layers.self_attention import SelfAttention


@keras.saving.register_keras_serializable("keras_transformer")
class MeanAttention(SelfAttention):
    """Gives equal weights to all positions that a position may see."""

    def attend(self, queries, keys, values, mask=None):
        return super().attend(0 * queries, keys, values, mask)
'''
# Three more choices and a constraint; each edit is a place that "How to add ..." names. CTranslate2
# learns of the positions only.
EDITS = {
    "config.py": [
        ('"sinusoidal_rotary",\n        )', '"sinusoidal_rotary", "ramp")'),
        ('("relu", "gelu", "swish")', '("relu", "gelu", "swish", "tanh")'),
        ('"separable"),\n    )', '"separable", "mean_attention"),\n    )'),
    ],
    "layers/mean_attention.py": [("", MEAN_ATTENTION)],
    "layers/positions.py": [("", RAMP)],
    "model.py": [
        (
            '            case "rotary":\n',
            '            case "ramp":\n'
            "                from keras_transformer.layers.positions import Ramp\n\n"
            "                return Ramp(**options)\n"
            '            case "rotary":\n',
        ),
        (
            '            case "restricted":\n',
            '            case "mean_attention":\n'
            "                from keras_transformer.layers.mean_attention import MeanAttention\n\n"
            "                return MeanAttention(causal=causal, **options)\n"
            '            case "restricted":\n',
        ),
    ],
    "ctranslate2/support.py": [('"sinusoidal_fairseq",\n', '"ramp",\n')],
    "ctranslate2/export.py": [
        (
            '            case "learned":',
            '            case "ramp":\n'
            "                ramp = np.arange(length, dtype='float32')[:, None] / 100\n"
            "                table = np.repeat(ramp, config.d_model, axis=1)\n"
            '            case "learned":',
        )
    ],
    "options/search.py": [
        (
            "    sample: bool = field(",
            '    forbidden_id: int = field(-1, "id that no translation may contain")\n'
            "    sample: bool = field(",
        )
    ],
    "search/constraints.py": [
        ('"no_repeat_ngram", "constraint")', '"no_repeat_ngram", "constraint", "forbidden_id")'),
        (
            "            Exclusion(pad_id),\n",
            "            Exclusion(pad_id),\n            Exclusion(options.forbidden_id),\n",
        ),
    ],
}
SCRIPT = """
import dataclasses, subprocess, sys
import keras, numpy as np, tensorflow as tf
import keras_transformer as kt
from keras_transformer.search import SearchOptions, score, search
from keras_transformer.ctranslate2.translator import CTRANSLATE2_OPTIONS
from keras_transformer.ctranslate2.export import model_spec
from keras_transformer.ctranslate2.weights import model_weights
from keras_transformer.parameter_count import parameter_count

folder = sys.argv[1]
assert kt.__file__.startswith(folder), kt.__file__
sizes = dict(vocab_size=13, d_model=16, d_ff=24, num_heads=2, num_encoder_layers=1,
             num_decoder_layers=1, dropout=0.0)
sources = np.array([[5, 9, 7, 2, 0, 0], [12, 4, 4, 8, 6, 2], [3, 2, 0, 0, 0, 0]])
for choice in ({"positions": "ramp"}, {"activation": "tanh"}, {"layer_type": "mean_attention"}):
    config = kt.TransformerConfig(**sizes, **choice)
    assert kt.TransformerConfig.from_json(config.to_json()) == config
    keras.utils.set_random_seed(1)
    model, other = kt.Transformer(config), kt.Transformer(kt.TransformerConfig(**sizes))
    assert model.count_params() == parameter_count(config)
    other.set_weights(model.get_weights())
    inputs = {"source_ids": sources, "target_ids": sources}
    assert np.abs(model(inputs) - other(inputs)).max() > 1e-3
    # Cached decoding, step by step, has the scores that the whole model gives at once.
    found = search(model, sources, SearchOptions(beam_size=4, n_best=2, extra_length=4))
    for n in range(2):
        whole = score(model, sources, found.ids[:, n], SearchOptions())
        np.testing.assert_allclose(found.scores[:, n], whole, rtol=1e-4)
    model.compile("adam", kt.LabelSmoothedCrossEntropy(0.1), run_eagerly=True)
    model.fit(inputs, sources, verbose=0)
    model.save(folder + "/model.keras")
    np.testing.assert_array_equal(
        keras.saving.load_model(folder + "/model.keras")(inputs), model(inputs))
    try:
        spec = model_spec(config, model_weights(model), [str(i) for i in range(13)], 3)
        table = spec.encoder.position_encodings.encodings
        np.testing.assert_allclose(table[:, 0], np.arange(2049) / 100, rtol=1e-6)
        print("exported", choice)
    except kt.UserError as error:
        print(error)

usual = SearchOptions(beam_size=4, n_best=4, extra_length=4)
id_ = int(search(model, sources, usual).ids[0, 0, 0])
for options in ({}, {"sample": True, "seed": 1}):
    options = dataclasses.replace(usual, forbidden_id=id_, **options)
    assert id_ not in search(model, sources, options).ids.numpy()
    score(model, sources, sources, options)
try:
    options.expect_only(CTRANSLATE2_OPTIONS, "CTranslate2", "leave it out")
except kt.UserError as error:
    print(str(error).replace(f"={id_}", "=ID"))
"""


@pytest.mark.slow
def test_a_position_encoding_a_layer_type_and_a_constraint_take_the_places_named(tmp_path):
    shutil.copytree(ROOT / "keras_transformer", tmp_path / "keras_transformer")
    for name, edits in EDITS.items():
        path = tmp_path / "keras_transformer" / name
        text = path.read_text() if path.exists() else ""
        for old, new in edits:
            assert not old or text.count(old) == 1, (name, old)
            text = text.replace(old, new) if old else text + new
        path.write_text(text)

    def run(*command):
        process = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert process.returncode == 0, process.stderr
        return process.stdout

    assert run("-c", SCRIPT, str(tmp_path)).splitlines() == [
        "exported {'positions': 'ramp'}",
        "CTranslate2 does not support activation=tanh, only relu, gelu, swish: use TensorFlow for "
        "this model (--engine=tensorflow, --format=saved_model)",
        "CTranslate2 does not support layer_type=mean_attention, only attention: use TensorFlow "
        "for this model (--engine=tensorflow, --format=saved_model)",
        "CTranslate2 does not support forbidden_id=ID: leave it out",
    ]
    flags = run("-m", "keras_transformer", "train", "--helpfull")
    assert all(choice in flags for choice in ("ramp", "tanh", "mean_attention"))
    assert "--forbidden_id=N" in run("-m", "keras_transformer", "translate", "--help")


@keras.saving.register_keras_serializable("test_extending")
class MeanOfSentence(keras.layers.Layer):
    """Gives each position a projection of the mean of all real positions."""

    def __init__(self, d_model, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.projection = Dense(d_model)

    def build(self, x_shape):
        self.projection.build(x_shape)

    def call(self, x, attention_mask=None, mask=None):
        real = ops.cast(mask, x.dtype)[..., None]  # (batch, length, 1)
        mean = ops.sum(x * real, axis=1, keepdims=True) / ops.sum(real, axis=1, keepdims=True)
        return self.projection(ops.broadcast_to(mean, ops.shape(x)))


@pytest.mark.slow
def test_a_layer_of_ones_own_in_place_of_self_attention_trains_saves_and_loads(tmp_path):
    keras.utils.set_random_seed(1)
    layers = [
        EncoderLayer(16, d_ff=24, dropout=0.0, self_attention=MeanOfSentence(16)) for _ in range(2)
    ]
    ids = keras.Input((None,), dtype="int32")
    x = Encoder(layers)(TokenEmbedding(13, 16, mask_zero=True)(ids))
    model = keras.Model(ids, keras.layers.Dense(2)(x[:, 0]))
    rows, labels = np.array([[5, 9, 7, 2], [5, 4, 0, 0], [5, 9, 0, 0], [5, 4, 8, 2]]), [1, 0, 1, 0]
    model.compile(keras.optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(True))
    # The first token is the same in all rows: only the mean tells them apart.
    losses = model.fit(rows, np.array(labels), epochs=40, verbose=0).history["loss"]
    assert losses[-1] < 0.1 < 0.5 < losses[0]

    expected = model.predict(rows, verbose=0)
    longer = np.pad(rows, [(0, 0), (0, 3)])
    np.testing.assert_allclose(model.predict(longer, verbose=0), expected, rtol=1e-4, atol=1e-5)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded.predict(rows, verbose=0), expected)
    assert isinstance(loaded.layers[2].layers[0].self_attention, MeanOfSentence)


class Characters(Tokenizer):
    """A vocabulary of letters and the space, with ids from 4."""

    pad_id, start_id, end_id, unknown_id = 0, 1, 2, 3
    file_name = "vocabulary.txt"

    def __init__(self, letters):
        super().__init__()
        self.letters = letters
        self.pieces = ["<pad>", "<s>", "</s>", "<unk>", *letters]
        self.vocab_size = len(self.pieces)
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(list(letters), tf.range(4, self.vocab_size)), 3
        )

    def tokenize(self, text):
        return self.table[tf.strings.unicode_split(text, "UTF-8")]

    tokenize_target = tokenize

    def join(self, ids):
        return tf.strings.reduce_join(tf.gather(self.pieces, ids), axis=1)

    def normalize(self, text):
        return text

    def to_bytes(self):
        return self.letters.encode()

    @classmethod
    def from_bytes(cls, content):
        return cls(content.decode())


@pytest.mark.slow
def test_a_tokenizer_takes_the_places_named(tmp_path, monkeypatch):
    kinds = model_dir_module.tokenizer_kinds()
    monkeypatch.setitem(kinds, Characters.file_name, Characters)
    tokenizer = Characters("abcdefghij ")
    layers = dict(num_encoder_layers=1, num_decoder_layers=1)
    model = small_model(1, vocab_size=tokenizer.vocab_size, **layers)
    ModelDir(tmp_path / "model").create_trained(model, tokenizer, None, "a test")
    text = ["abc", "a bad cab", "", "zebra"]
    expected = Translator(model, tokenizer, extra_length=3)(text)
    assert len(set(expected)) > 1
    model_dir = ModelDir(tmp_path / "model")
    assert isinstance(model_dir.load_tokenizer(), Characters)
    loaded = Translator(model_dir.load_model(), model_dir.load_tokenizer(), extra_length=3)
    assert loaded(text) == expected
