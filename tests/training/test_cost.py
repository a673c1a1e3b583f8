"""The cost of training: counted like the traced graph, estimated like the paper."""

import dataclasses

import pytest
import tensorflow as tf
from command_lines import TINY_MODEL, refused, run
from helpers import small_model
from tensorflow.python.framework.function_def_to_graph import function_def_to_graph

from keras_transformer import PRESETS, Transformer, TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir
from keras_transformer.training.cost import (
    Hardware,
    Workload,
    cost_report,
    estimated_flops,
    forward_flops,
    parameter_count,
    sustained_flops,
    training_flops,
)
from keras_transformer.training.table2 import counted_flops, table2

BATCH, SOURCE_LENGTH, TARGET_LENGTH = 3, 7, 5


def products(function):
    """The operations of the matrix products that TensorFlow traces, from the shapes of each."""
    graph = tf.function(function).get_concrete_function().graph
    library = {f.signature.name: f for f in graph.as_graph_def(add_shapes=True).library.function}
    flops = 0
    with graph.as_default():
        operations = [*flat(graph, library)]
    for operation in operations:
        if operation.type in ("MatMul", "BatchMatMulV2"):
            left, [result] = operation.inputs[0].shape, operation.outputs
            is_transposed = operation.get_attr(
                "transpose_a" if operation.type == "MatMul" else "adj_x"
            )
            summed_over = left[-2] if is_transposed else left[-1]
            if result.shape[-1] == 1:  # the loss sums a row of logits by a product with ones
                continue
            flops += 2 * result.shape.num_elements() * summed_over
        else:
            assert "MatMul" not in operation.type and "Einsum" not in operation.type
    return flops


def flat(graph, library):
    """The operations of a graph and of the functions that it calls."""
    for operation in graph.get_operations():
        if operation.type in ("PartitionedCall", "StatefulPartitionedCall"):
            shapes = [x.shape for x in operation.inputs]
            function = library[operation.get_attr("f").name]
            yield from flat(function_def_to_graph(function, input_shapes=shapes), library)
        else:
            yield operation


def inputs():
    shapes = {"source_ids": (BATCH, SOURCE_LENGTH), "target_ids": (BATCH, TARGET_LENGTH)}
    return {name: tf.ones(shape, tf.int32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    ("preset", "fields"),
    [
        ("tiny", {"num_decoder_layers": 2}),
        ("B-dk16", {}),
        ("C-d256", {"num_encoder_layers": 2}),
        ("tiny", {"share_embeddings": False, "target_vocab_size": 200}),
        ("tiny", {"share_embeddings": False, "target_vocab_size": 2000}),  # all 1,000 of them
    ],
)
def test_the_forward_pass_is_counted_as_the_traced_graph_computes_it(preset, fields):
    fields = {"num_encoder_layers": 1, "num_decoder_layers": 1, **fields}
    config = TransformerConfig.from_preset(preset, vocab_size=1000, **fields)
    model = Transformer(config)
    model.build()
    counted = forward_flops(config, BATCH, SOURCE_LENGTH, TARGET_LENGTH)
    assert counted.total == products(lambda: model(inputs(), training=False))


@pytest.mark.parametrize(
    "fields",
    [
        {"d_k": 6, "d_v": 10},
        {
            **{"pre_norm": True, "tie_output": False, "share_embeddings": False},
            "num_decoder_layers": 1,
        },
    ],
)
def test_a_training_step_costs_three_times_the_forward_pass(fields):
    model = small_model(**{"num_encoder_layers": 1, **fields})

    def step():
        with tf.GradientTape() as tape:
            logits = model(inputs(), training=True)
            loss = LabelSmoothedCrossEntropy()(inputs()["target_ids"], logits)
        return tape.gradient(loss, [w.value for w in model.trainable_weights])

    expected = training_flops(model.config, BATCH, SOURCE_LENGTH, TARGET_LENGTH)
    assert expected == products(step)


@pytest.mark.slow
def test_parameters_of_many_layers_are_counted_without_building_them():
    for fields in ({}, {"pre_norm": True, "attention_bias": True}):
        model = small_model(num_encoder_layers=3, num_decoder_layers=5, **fields)
        assert parameter_count(model.config) == model.count_params()
        counts = [
            parameter_count(dataclasses.replace(model.config, num_decoder_layers=number))
            for number in (4, 5, 1000)
        ]
        assert counts[2] == counts[1] + 995 * (counts[1] - counts[0])


def test_the_estimate_gives_the_published_figures():
    assert f"{estimated_flops(12 * 3600, 8, 'P100'):.1e}" == "3.3e+18"  # base, 12 hours
    assert f"{estimated_flops(3.5 * 86_400, 8, 'P100'):.1e}" == "2.3e+19"  # big, 3.5 days
    assert estimated_flops(10.0, 2, "1e12") == 2e13


@pytest.mark.parametrize("hardware", ["TPU", "", "0", "-1e12", "nan", "inf"])
def test_unknown_hardware_is_refused(hardware):
    with pytest.raises(UserError, match="hardware must be one of K80, K40, M40, P100, or"):
        sustained_flops(hardware)


def test_table_2_has_our_figures_beside_the_published():
    lines = table2().splitlines()
    assert len(lines) == 12
    big = lines[-1].split()
    assert big[2:6] == ["28.40", "41.80", "2.3e+19", "2.3e+19"]
    assert float(big[6]) == pytest.approx(counted_flops("big"), rel=0.05)


def test_the_report_has_count_time_and_estimate():
    config = TransformerConfig()
    work = Workload(config, 100_000, 25_000, 25, 25)
    report = cost_report(work, Hardware(seconds_per_step=0.4))
    assert "63.0 million" in report
    assert f"{100_000 * training_flops(config, 1000, 25, 25):.2e} FLOPs by count" in report
    assert "11.1 hours at 0.4 s a step" in report
    assert "3.04e+18 FLOPs: time x 8 P100 x 9.5 TFLOPS" in report
    assert "31%" in report.splitlines()[-1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("steps", 0),
        ("tokens_per_batch", -100),
        ("devices", -1),
        ("seconds_per_step", 0.0),
        ("seconds_per_step", float("inf")),
        ("seconds_per_step", float("nan")),
        ("target_length", 0),
        ("steps", 10**310),
        ("tokens_per_batch", 10**310),
    ],
)
def test_numbers_that_make_no_report_are_refused(field, value):
    numbers = dict(steps=10, tokens_per_batch=100, source_length=5, target_length=5)
    of_hardware = field in ("devices", "seconds_per_step")
    with pytest.raises(
        UserError, match=f"^{field} must be positive and at most .*: found {value}$"
    ):
        if of_hardware:
            Hardware(**{field: value})
        else:
            Workload(TransformerConfig(), **{**numbers, field: value})


@pytest.mark.parametrize("tokens", [8, 1])
def test_a_batch_without_room_for_a_sentence_is_refused(tokens):
    with pytest.raises(UserError, match=f"room for a sentence of 9 tokens: found {tokens}"):
        Workload(TransformerConfig(), 10, tokens, 5, 9)


# The command line.


def test_any_field_and_number_can_be_given(capsys):
    run("cost", **TINY_MODEL, steps=7, tokens_per_batch=100, devices=1, hardware="1e12")
    printed = capsys.readouterr().out
    config = TransformerConfig.from_preset(**{"name": "tiny", **fields_of(TINY_MODEL)})
    assert f"{7 * training_flops(config, 4, 25, 25):.2e} FLOPs by count" in printed
    assert "1 device x 1 TFLOPS" in printed


def fields_of(flags):
    names = {field.name for field in dataclasses.fields(TransformerConfig)}
    return {name: value for name, value in flags.items() if name in names}


def test_a_preset_is_reported_as_the_paper_trains_it(capsys):
    run("cost", preset="C-N2")
    steps, tokens = (PRESETS["C-N2"].training[name] for name in ("steps", "tokens_per_batch"))
    printed = capsys.readouterr().out
    assert f"{steps:,} steps" in printed
    assert f"{tokens // 25:,} pairs of 25 + 25 tokens" in printed


def test_a_run_with_r_drop_counts_both_passes_of_each_batch(tmp_path, capsys):
    tokenizer = SubwordTokenizer.train_from_sentences(["A dog.", "Ein Hund."], 290)
    model = small_model(vocab_size=290, num_encoder_layers=1, num_decoder_layers=1)
    model_dir = ModelDir(tmp_path / "run")
    model_dir.create_trained(model, tokenizer, "de", "")
    training = model_dir.load_training()
    training["options"]["r_drop"] = 3.0
    model_dir.save_training(training)
    run("cost", model_dir=model_dir.path, steps=7, tokens_per_batch=100)
    printed = capsys.readouterr().out
    assert f"{7 * 2 * training_flops(model.config, 4, 25, 25):.2e} FLOPs by count" in printed
    assert "4 pairs of 25 + 25 tokens, twice (R-Drop)" in printed


def test_table_2_is_printed(capsys):
    run("cost", table2=True)
    assert capsys.readouterr().out == table2() + "\n"


def test_flags_that_would_be_ignored_are_refused(tmp_path):
    assert refused("cost", table2=True, d_ff=4) == (
        "--d_ff has no effect with --table2, which has its own: leave it out"
    )
    assert refused("cost", model_dir=tmp_path, d_ff=4) == (
        "--d_ff has no effect with --model_dir, which has its own: leave it out"
    )
    missing = tmp_path / "config.json"
    assert f"{missing}: No such file or directory: choose the folder of a trained model" in refused(
        "cost", model_dir=tmp_path
    )
