"""A decoding step stays a small graph: TensorFlow spends microseconds on each operation."""

import pytest

import keras_transformer as kt
from benchmarks import search_graph
from keras_transformer.search import SearchOptions


@pytest.mark.slow
def test_a_step_of_four_layers_has_few_operations():
    config = kt.TransformerConfig.from_preset("tiny", vocab_size=1000)
    function, step = search_graph.traced(config, SearchOptions())
    files = search_graph.by_file(step)
    assert files["layers/dense.py"] == 4 * 8 + 4 * (2 + 1)  # products; biases and ReLU
    assert files.total() <= 560
    left = search_graph.optimised(function)
    assert left["ReadVariableOp"] == left["TensorScatterUpdate"] == 0
    assert left.total() <= 490
