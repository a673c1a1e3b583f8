"""A process keeps no graph that it no longer uses: of other options, exports and trainings."""

import dataclasses
import gc
import itertools
import os
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import run_python, small_model
from serving_world import SENTENCES, tiny_translator

import keras_transformer as kt
from keras_transformer.export import export_saved_model
from keras_transformer.search import compiled as compiled_search
from keras_transformer.search import search
from keras_transformer.serving.servable import TranslatorServable

TEXTS = SENTENCES[:4]


def number_of_graphs() -> int:
    gc.collect()
    return sum(isinstance(thing, tf.Graph) for thing in gc.get_objects())


@pytest.fixture
def traces(monkeypatch):
    """The beam size of each search that is traced during a test."""
    found = []

    def traced(models, source_ids, options, *arguments):
        found.append(options.beam_size)
        return search(models, source_ids, options, *arguments)

    monkeypatch.setattr(compiled_search, "search", traced)
    return found


NUMBERS = {
    "alpha": (0.0, 1e-320, 0.6, 2.0),
    "patience": (None, 0.3, 1.0),
    "lengths": ((5, None, 1), (0, None, 1), (9, 30, 4), (3, 2, 2)),
}


def every(options):
    for alpha, patience, (extra, longest, least) in itertools.product(*NUMBERS.values()):
        lengths = {"extra_length": extra, "max_length": longest, "min_length": least}
        yield dataclasses.replace(options, alpha=alpha, patience=patience, **lengths)


def test_one_graph_searches_with_any_numbers(traces):
    translator = tiny_translator(n_best=2)
    found = {
        options: translator.with_options(options).translate_n(TEXTS[:2])
        for options in every(translator.options)
    }
    assert len(found) == 48 and len(traces) == 1
    assert len({str(translations) for translations in found.values()}) >= 12


@pytest.fixture(scope="module")
def searched_eagerly():
    """Texts and scores that searches without a graph find, for some of these numbers."""
    translator = tiny_translator(n_best=2)
    tokens = translator.tokenizer.tokenize(TEXTS[:1])[:, :7]
    source_ids = tf.concat([tokens.to_tensor(), [[2]]], axis=1)
    found = {}
    for options in itertools.islice(every(translator.options), 3, None, 11):
        ids, scores = search(translator.models, source_ids, options)
        texts = translator.tokenizer.detokenize(ids[0]).numpy()
        found[options] = [text.decode() for text in texts], scores[0].numpy()
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("jit_compile", "most_graphs"), [(False, 1), (True, 4)])
def test_few_graphs_of_any_numbers_find_what_searches_of_these_numbers_find(
    traces, searched_eagerly, jit_compile, most_graphs
):
    translator = tiny_translator(n_best=2, max_source_length=8, jit_compile=jit_compile)
    found = {
        options: translator.with_options(options).translate_n(TEXTS[:1])[0]
        for options in every(translator.options)
    }
    for options, (texts, scores) in searched_eagerly.items():
        assert [text for text, _ in found[options]] == texts
        np.testing.assert_allclose([score for _, score in found[options]], scores, rtol=1e-4)
    # For XLA, the limits of 30 or fewer positions are rounded up to 8, 16, 24 or 32.
    assert len(traces) <= most_graphs


@pytest.mark.slow
def test_the_graphs_of_the_last_few_structures_are_kept_and_of_those_in_use(traces, monkeypatch):
    monkeypatch.setattr(compiled_search.CompiledSearches, "_NUM_KEPT", 2)
    translator = tiny_translator()

    def translate(**options):
        options = dataclasses.replace(translator.options, **options)
        translator.with_options(options).translate(TEXTS[:1])
        return number_of_graphs()

    counts = [translate(), *(translate(beam_size=size) for size in (1, 2, 3))]
    assert counts[0] < counts[1] < counts[2] == counts[3]
    assert traces == [4, 1, 2, 3]
    translate(alpha=0.1)  # in use, by `translator`
    translate(beam_size=3, alpha=0.1)
    assert traces == [4, 1, 2, 3]
    translate(beam_size=1)
    assert traces == [4, 1, 2, 3, 1]


@pytest.mark.slow
def test_other_options_of_a_server_leave_no_graph_behind():
    servable = TranslatorServable(tiny_translator(n_best=2))
    servable.predict("nbest", [("Yes",)])
    before = number_of_graphs()
    for options in itertools.islice(every(servable.options), 20):
        servable.translate_n(TEXTS, options)
    assert number_of_graphs() == before


@pytest.mark.slow
def test_versions_of_an_export_leave_no_graph_behind(tmp_path):
    path = str(export_saved_model(tiny_translator(), tmp_path))
    counts = []
    for _ in range(3):
        tf.saved_model.load(path)
        counts.append(number_of_graphs())
    assert len({*counts}) == 1


def trained_model(jit_compile: bool = False):
    """A model after two steps of training by a loop of one's own."""
    model = small_model(num_encoder_layers=1, num_decoder_layers=1, dropout=0.1)
    optimizer, loss = keras.optimizers.SGD(), kt.LabelSmoothedCrossEntropy(0.1)
    ids = np.random.default_rng(0).integers(3, 13, (4, 6))

    @tf.function(jit_compile=jit_compile, autograph=False)
    def step():
        with tf.GradientTape() as tape:
            value = loss(ids, model({"source_ids": ids, "target_ids": ids}, training=True))
        gradients = tape.gradient(value, model.trainable_variables)
        for gradient, variable in zip(gradients, model.trainable_variables, strict=True):
            # Not `optimizer.apply`, by which TensorFlow keeps the graph of any Keras model.
            optimizer.update_step(gradient, variable, 1e-3)

    optimizer.build(model.trainable_variables)
    step()
    step()
    return model


@pytest.mark.slow
@pytest.mark.parametrize("jit_compile", [False, True])
def test_trained_models_leave_no_graph_behind(jit_compile):
    counts = []
    for _ in range(2):
        trained_model(jit_compile)
        counts.append(number_of_graphs())
    assert len({*counts}) == 1


MEMORY = """
import dataclasses, gc, sys
from pathlib import Path
sys.path.insert(0, "tests/support")
import tensorflow as tf
from serving_world import tiny_translator
from keras_transformer.serving.servable import SavedModelServable, TranslatorServable

def memory():  # in MB
    gc.collect()
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024

path, num_options, num_versions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
servable = TranslatorServable(tiny_translator())
for i in range(num_options):
    options = dataclasses.replace(servable.options, alpha=0.001 * i, extra_length=i % 20)
    servable.translate_n(["Two dogs."], options)
    if i == num_options // 4:
        before = memory()
print(before, memory())
used = []
for i in range(num_versions):
    version = SavedModelServable(path)
    version.predict("serving_default", [("Two dogs.",)])
    del version
    used.append(memory())
# What the allocator keeps varies by a tenth from one version to the next.
third = num_versions // 3
print(max(used[2:third]), min(used[-third:]))
"""


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_stays_as_it_is_over_many_options_and_versions(tmp_path):
    """The variable MEMORY_ROUNDS makes it longer."""
    rounds = int(os.environ.get("MEMORY_ROUNDS", "1"))
    path = export_saved_model(tiny_translator(), tmp_path)
    for line in run_python(MEMORY, path, 120 * rounds, 12 * rounds).splitlines():
        before, after = map(float, line.split())
        assert after < 1.05 * before, line
