"""TensorFlow has a GPU kernel for each operation of our graphs, so that none waits for the CPU.

Its kernels are registered in every build of TensorFlow for Linux, so no GPU is needed.
"""

import pytest
import tensorflow as tf
from tensorflow.core.framework import types_pb2
from tensorflow.python.framework import kernels

import keras_transformer as kt
from keras_transformer.optimizers import new_optimizer
from keras_transformer.options import TrainingOptions
from keras_transformer.search import SearchOptions
from keras_transformer.search.compiled import CompiledSearches
from keras_transformer.training import TrainableTransformer

pytestmark = pytest.mark.slow

CONFIG = kt.TransformerConfig.from_preset(
    "base", vocab_size=100, num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=32,
    num_heads=2,
)  # fmt: skip
# What runs other functions, and what a function begins and ends with.
STRUCTURE = {"PartitionedCall", "StatefulPartitionedCall", "While", "StatelessWhile", "If"}
STRUCTURE |= {"StatelessIf", "Placeholder", "NoOp", "Const"}


def nodes_of(function):
    """All nodes of a concrete function, but those that XLA compiles."""
    graph = function.graph.as_graph_def()
    compiled = {f.signature.name for f in graph.library.function if "_XlaMustCompile" in f.attr}
    bodies = {f.signature.name: f.node_def for f in graph.library.function}
    nodes, seen = [*graph.node], set(compiled)
    for node in nodes:  # which grows
        for name in {value.func.name for value in node.attr.values()} - seen:
            seen.add(name)
            nodes += bodies.get(name, ())
    return nodes


def kernel_of(node):
    """The registered GPU kernel of a node, or None."""
    for kernel in kernels.get_registered_kernels_for_op(node.op).kernel:
        if kernel.device_type not in ("GPU", "DEFAULT") or kernel.label:
            continue
        if all(
            set(node.attr[one.name].list.type or [node.attr[one.name].type])
            <= set(one.allowed_values.list.type)
            for one in kernel.constraint
        ):
            return kernel
    return None


def without_kernel(function):
    """The operations and types for which there is no GPU kernel."""
    nodes = nodes_of(function)
    assert nodes
    return {
        (node.op, types_pb2.DataType.Name(node.attr["T"].type))
        for node in nodes
        if node.op not in STRUCTURE and kernel_of(node) is None
    }


class OneBatch:
    """An iterator over one symbolic batch, as `fit` gives one to a training step."""

    def __init__(self, batch):
        self.batch = batch
        self.element_spec = tf.nest.map_structure(tf.TensorSpec.from_tensor, batch)

    def __iter__(self):
        return self

    def __next__(self):
        return self.batch


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_training_step(optimizer, dtype):
    model = TrainableTransformer(CONFIG, dtype=dtype)
    model.compile(new_optimizer(TrainingOptions(optimizer=optimizer), CONFIG.d_model))
    model.make_train_function()

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)] * 3, autograph=False)
    def step(source_ids, target_ids, labels):
        inputs = {"source_ids": source_ids, "target_ids": target_ids}
        return model.train_function(OneBatch((inputs, labels)))

    assert without_kernel(step.get_concrete_function()) == set()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_search(dtype):
    model = kt.Transformer(CONFIG, dtype=dtype)
    searches = CompiledSearches([model], jit_compile=False, workers=1)
    function = searches.of(SearchOptions(beam_size=4)).function().get_concrete_function()
    # Which sentences are done, when batch slots are refilled; not in each step.
    assert without_kernel(function) == {("TensorScatterUpdate", "DT_BOOL")}
