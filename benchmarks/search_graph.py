"""Counts the operations of one decoding step in the graph of a search, as TensorFlow runs it.

  python benchmarks/search_graph.py --preset=tiny

Prints the operations by the file of ours that makes them, then what TensorFlow's optimiser leaves.
Constants do not count, since they are computed once.
"""

import collections
import os
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import tensorflow as tf
from absl import app, flags
from tensorflow.core.protobuf import config_pb2, meta_graph_pb2
from tensorflow.python.grappler import tf_optimizer
from tensorflow.python.training import saver

import keras_transformer as kt
from keras_transformer.search import SearchOptions
from keras_transformer.search.compiled import CompiledSearches
from keras_transformer.search.loop import _Loop

PACKAGE = os.path.dirname(os.path.abspath(kt.__file__)) + os.sep


def traced(config: kt.TransformerConfig, options: SearchOptions) -> tuple:
    """Traces a search.

    Returns:
        The function of the search, and the graph of its step.
    """
    steps = []
    one_step = _Loop.one_step

    def recorded(self, slots):
        steps.append(tf.compat.v1.get_default_graph())
        return one_step(self, slots)

    _Loop.one_step = recorded
    try:
        searches = CompiledSearches([kt.Transformer(config)], jit_compile=False, workers=1)
        function: Any = searches.of(options).function()
        return function.get_concrete_function(), steps[-1]
    finally:
        _Loop.one_step = one_step


def by_file(step: tf.Graph) -> collections.Counter:
    """Counts operations by the file of the package that makes them, the innermost one."""
    files = collections.Counter()
    for operation in step.get_operations():
        if operation.type not in ("Const", "Placeholder"):
            ours = [f.filename for f in operation.traceback if f.filename.startswith(PACKAGE)]
            files[ours[-1].removeprefix(PACKAGE)] += 1
    return files


def optimised(function) -> collections.Counter:
    """Counts operations by type, in the loop body that TensorFlow's optimiser makes of the step."""
    graph = function.graph
    meta = saver.export_meta_graph(graph_def=graph.as_graph_def(), graph=graph)
    fetched = meta_graph_pb2.CollectionDef()
    fetched.node_list.value.extend(tensor.name for tensor in function.outputs)
    meta.collection_def["train_op"].CopyFrom(fetched)
    config = config_pb2.ConfigProto()
    config.graph_options.rewrite_options.min_graph_nodes = -1
    nodes = tf_optimizer.OptimizeGraph(config, meta).node
    # The names of what is in the inner loop begin like those of its matrix products.
    products = [node.name for node in nodes if node.op == "MatMul" and node.name.count("while") > 1]
    inner = os.path.commonpath(products)
    return collections.Counter(
        node.op for node in nodes if node.name.startswith(inner) and node.op != "Const"
    )


def main(_):
    preset = flags.FLAGS.preset
    config = kt.TransformerConfig.from_preset(preset, vocab_size=10_000)
    function, step = traced(config, SearchOptions())
    files = by_file(step)
    print(f"{files.total():5,} operations of a step of {preset}, as we make them")
    for name, count in files.most_common():
        print(f"{count:5,}   {name}")
    left = optimised(function)
    print(f"{left.total():5,} operations after TensorFlow's optimiser")
    print("       " + ", ".join(f"{count} {name}" for name, count in left.most_common(12)))


if __name__ == "__main__":  # here, since a test imports this file
    flags.DEFINE_string("preset", "tiny", "preset of the model")
    app.run(main)
