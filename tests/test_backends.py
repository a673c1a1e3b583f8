"""The package on Keras's other backends, in processes that cannot import TensorFlow.

JAX is among the requirements of the tests. PyTorch is not: its tests run where it is installed.
"""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
from helpers import ROOT, run_python, small_model
from keras import ops

import keras_transformer as kt
from keras_transformer.search import Required, SearchOptions, search
from keras_transformer.search.term_tables import RequiredTerm, Spelling, term_tables
from keras_transformer.search.terms import Terms

PREAMBLES = {
    "jax": """
import sys
sys.modules["tensorflow"] = None
""",
    # NumPy takes no tensor with a gradient, calls methods of tensors with arguments that PyTorch's
    # lack, and has no bfloat16.
    "torch": """
import sys
sys.modules["tensorflow"] = None
import numpy as np, torch
numpy_of = torch.Tensor.numpy
torch.Tensor.numpy = lambda self: numpy_of(self.detach())
torch.Tensor.__array__ = lambda self, dtype=None, copy=None: np.asarray(self.numpy(), dtype)
torch.Tensor.any = lambda self, axis=None, out=None, **_: np.any(self.numpy(), axis)
torch.Tensor.all = lambda self, axis=None, out=None, **_: np.all(self.numpy(), axis)
""",
}


@pytest.fixture(params=PREAMBLES)
def backend(request):
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


TWO_DEVICES = """
import jax, keras, numpy as np
import keras_transformer as kt

rng = np.random.default_rng(0)
labels = rng.integers(3, 11, size=(160, 6)).astype("int32")
labels[np.arange(6) >= rng.integers(1, 7, size=(160, 1))] = 0
inputs = {"source_ids": labels[:, ::-1] + 1,
          "target_ids": np.pad(labels, ((0, 0), (1, 0)), constant_values=1)[:, :-1]}
config = kt.TransformerConfig(vocab_size=12, num_encoder_layers=1, num_decoder_layers=1, d_model=8,
                              d_ff=16, num_heads=2, dropout=0.0)

def trained():
    keras.utils.set_random_seed(1)
    model = kt.Transformer(config)
    model.build()
    model.compile(keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-9),
                  kt.LabelSmoothedCrossEntropy(0.1), metrics=[kt.TokenAccuracy()])
    history = model.fit(inputs, labels, batch_size=8, shuffle=False, verbose=0).history
    assert int(model.optimizer.iterations) == 20
    devices = len(model.weights[0].value.sharding.device_set)
    return model.get_weights(), history["token_accuracy"][0], devices

one, accuracy, devices = trained()
assert devices == 1
assert jax.device_count() == 2
keras.distribution.set_distribution(keras.distribution.DataParallel())
two, two_accuracy, devices = trained()
assert devices == 2
for a, b in zip(one, two, strict=True):
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-5)
assert abs(accuracy - two_accuracy) < 1e-6
print("equal")
"""


def run_on(backend, script, *arguments, devices=1):
    """Runs a script and returns what it prints."""
    process = subprocess.run(
        [
            sys.executable,
            "-c",
            PREAMBLES[backend] + script,
            *arguments,
        ],
        env={
            **os.environ,
            "KERAS_BACKEND": backend,
            "XLA_FLAGS": f"{os.environ['XLA_FLAGS']} "
            f"--xla_force_host_platform_device_count={devices}",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "tests", ROOT / "tests/support"))),
        },
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.mark.slow
def test_two_devices_take_the_steps_that_one_takes():
    assert run_on("jax", TWO_DEVICES, devices=2).strip().endswith("equal")


LAYER_TESTS = [
    *(
        f"layer_keeps_what_keras_promises[{name}]"
        for name in (
            "attention with biases",
            "feed-forward, swish",
            "embedding as it is",
            "decoder, pre-norm",
        )
    ),
    "attention_weights_of_a_row_sum_to_one_and_are_zero_where_masked",
    "attention_is_the_formula",
    "a_query_that_may_look_nowhere_gets_the_mean_of_all_values",
    "a_decoder_layer_does_not_look_ahead",
    "dropout_drops_in_training_only",
    "without_dropout_training_changes_nothing",
    "sinusoids_are_the_formula",
    "positions_may_start_anywhere",
    "embeddings_may_be_rows_as_they_are_and_logits_may_have_biases",
    "an_embedding_masks_zeros_where_asked_to_and_logits_carry_the_mask",
    "a_functional_model_trains_and_saves_the_matrix_that_its_logits_come_from",
    "feed_forward_is_the_formula",
]
MASK_TESTS = [
    *(f"changes_nothing_in_a_model[{name}]" for name in ("EncoderLayer", "Convolution")),
    *(f"changes_nothing_in_training[{functional}]" for functional in (True, False)),
    "changes_nothing_in_mixed_precision",
    "of_either_side_changes_nothing_in_a_model_of_two_inputs",
]
MASK_ARGUMENT_TESTS = [
    *(
        f"padding_changes_no_result_where_activations_are_computed_twice[{name}]"
        for name in (
            "SelfAttention, causal, rotary",
            "RestrictedSelfAttention",
            "Recurrence",
            "FeedForward",
            "PositionalEncoding",
            "LearnedPositions",
            "LayerNormalization",
            "EncoderLayer",
            "EncoderLayer, separable",
            "Encoder, pre-norm",
            "DecoderLayer",
            "Decoder, pre-norm",
        )
    ),  # by `keras.RematScope`
    *(
        f"padding_changes_no_result[EncoderLayer-{way}]"
        for way in ("given_as_an_argument", "in_documents_of_any_length")
    ),
    "padding_of_the_values_changes_no_result_of_attention",
    "an_embedding_makes_the_mask_of_ids_of_any_rank",
]

# Compared with Keras's attention on JAX alone.
RECIPE_TESTS = [
    "a_recipe_gives_what_it_gives_with_keras_attention",
    "a_call_with_masks_is_that_of_keras",
    "scores_are_those_of_keras_except_where_a_query_may_look_nowhere",
    "masks_of_embeddings_are_applied_and_travel_on_as_in_keras",
    "a_functional_model_may_return_the_scores",
]


@pytest.mark.slow
def test_layers_pass_their_own_tests(backend):
    recipes = "tests/layers/test_keras_recipes.py::test_"
    run_on(
        backend,
        "import pytest; sys.exit(pytest.main(sys.argv[1:]))",
        "-q",
        "-m",
        "",  # the slow ones too
        *(f"tests/layers/test_layers.py::test_{name}" for name in LAYER_TESTS),
        *(f"tests/layers/test_masks.py::test_padding_{name}" for name in MASK_TESTS),
        *(f"tests/layers/test_mask_arguments.py::test_{name}" for name in MASK_ARGUMENT_TESTS),
        "tests/layers/test_parts.py::test_training_needs_no_gradient_of_the_input",
        *(f"{recipes}{name}" for name in RECIPE_TESTS if backend == "jax"),
        f"--deselect={recipes}a_call_with_masks_is_that_of_keras[value",  # those of a key suffice
    )


GRADIENTS = """
import keras, numpy as np
import keras_transformer as kt
from keras import ops
from keras_transformer.layers import (
    Dropout, FeedForward, LayerNormalization, MultiHeadAttention, causal_mask)
from keras_transformer.fast.losses import (
    fused_smoothed_cross_entropy, symmetric_divergence, token_nll)
from keras_transformer.losses import smoothed_cross_entropy

def gradient(function, x):  # of the sum of its values
    if keras.backend.backend() == "jax":
        import jax
        return jax.grad(lambda x: ops.sum(function(x)))(ops.convert_to_tensor(x))
    x = ops.copy(ops.convert_to_tensor(x)).requires_grad_()
    ops.sum(function(x)).backward()
    return x.grad.numpy()

rng = np.random.default_rng(0)
x, y = rng.normal(size=(2, 2, 7, 8)).astype("float32")
some = causal_mask(7) & (np.arange(7) % 3 > 0)[:, None]
for layer, inputs, options in (
    (LayerNormalization(), (x,), {}),
    (FeedForward(8, 12), (x,), {}),
    (MultiHeadAttention(8, 2), (x, y), {"attention_mask": some}),
):
    layer(*inputs)
    in_training, plain = (
        gradient(lambda x: ops.sin(layer(x, *inputs[1:], training=training, **options)), x)
        for training in (True, False)
    )
    np.testing.assert_allclose(in_training, plain, atol=1e-5)

def dropped(x):
    return Dropout(0.5, seed=1)(x, training=True)

output, scale = dropped(x), gradient(dropped, x)
np.testing.assert_allclose(output, x * scale, rtol=1e-6)
assert set(np.unique(scale)) == {0, 2}

labels, logits = rng.integers(0, 50, size=(2, 7)), rng.normal(20, 3, size=(2, 7, 50))
logs = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
target = np.where(np.arange(50) == labels[..., None], 0.9, 0.1 / 49)
logits = ops.convert_to_tensor(logits, "float32")
for cross_entropy in (smoothed_cross_entropy, fused_smoothed_cross_entropy):
    losses = cross_entropy(labels, logits, 0.1)
    np.testing.assert_allclose(losses, -(target * logs).sum(-1), rtol=1e-5)
    slope = gradient(lambda z: cross_entropy(labels, z, 0.1), logits)
    np.testing.assert_allclose(slope, np.exp(logs) - target, atol=1e-6)
nll = -np.take_along_axis(logs, labels[..., None], -1)[..., 0]
np.testing.assert_allclose(token_nll(labels, logits), nll, rtol=1e-5)
p, q = np.exp(logs)
unknown = np.where(labels == labels[0, 0], -1, labels)
for use in (kt.LabelSmoothedCrossEntropy(0.1), kt.Perplexity(), kt.TokenAccuracy()):
    use = getattr(use, "update_state", use)
    try:
        use(unknown, logits)
    except ValueError as error:
        assert "labels must be ids in [0, 50)" in str(error)
    else:
        raise AssertionError("an unknown label is accepted")
if keras.backend.backend() == "jax":
    import jax
    assert np.isnan(jax.jit(kt.LabelSmoothedCrossEntropy(0.1))(unknown, logits))
    for metric in (kt.Perplexity(), kt.TokenAccuracy()):
        sums = [variable.value for variable in metric.variables]
        sums = jax.jit(metric.stateless_update_state)(sums, unknown, logits)
        assert np.isnan(metric.stateless_result(sums))
divergence = ((p - q) * (logs[0] - logs[1])).sum(-1)
np.testing.assert_allclose(symmetric_divergence(logits), divergence, rtol=1e-4)
"""


@pytest.mark.slow
def test_losses_and_gradients_are_those_of_the_formulas(backend):
    run_on(backend, GRADIENTS)


FORWARDS = """
import keras, jax, numpy as np
import jax.numpy as jnp
import keras_transformer as kt
from keras_transformer.layers import DecoderLayer, Dense, EncoderLayer, Rotation, SelfAttention

def values(variables):
    return [variable.value for variable in variables]

rng = np.random.default_rng(0)
x, memory = jnp.asarray(rng.normal(size=(2, 2, 7, 8)), "float32")
attention = SelfAttention(8, 2, dropout=0.3, causal=True, rotation=Rotation())
for layer, inputs in (
    (EncoderLayer(8, 2, 12, dropout=0.3), (x,)),
    (EncoderLayer(8, d_ff=12, dropout=0.3, pre_norm=True, self_attention=attention), (x,)),
    (DecoderLayer(8, 2, 12, dropout=0.3), (x, memory)),
):
    layer(*inputs)
    weights, state = values(layer.trainable_variables), values(layer.non_trainable_variables)

    def output(weights, *inputs, training=True):
        return jnp.sum(jnp.sin(layer.stateless_call(weights, state, *inputs, training=training)[0]))

    assert output(weights, *inputs) != output(weights, *inputs, training=False)
    point = (weights, *inputs)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape), "float32"), point)
    _, forwards = jax.jvp(output, point, direction)
    gradients = jax.grad(output, argnums=tuple(range(len(point))))(*point)
    products = jax.tree.map(lambda a, b: jnp.sum(a * b), gradients, direction)
    np.testing.assert_allclose(forwards, sum(jax.tree.leaves(products)), rtol=1e-4)

# A bias's gradient is summed in float32: in bfloat16, a thousand ones make 256.
for activation in (None, "relu"):
    layer = Dense(2, activation=activation, bias_initializer="ones", dtype="mixed_bfloat16")
    rows = jnp.zeros((1000, 3))
    layer(rows)

    def total(weights):
        outputs, _ = layer.stateless_call(weights, [], rows, training=True)
        return jnp.sum(outputs, dtype="float32")

    np.testing.assert_array_equal(jax.grad(total)(values(layer.trainable_variables))[1], 1000)

# Keras trains by `stateless_call` on JAX, so `training` must reach the dropouts of a model.
model = kt.Transformer(kt.TransformerConfig.from_preset(
    "tiny", vocab_size=12, num_encoder_layers=1, num_decoder_layers=1, dropout=0.5))
ids = np.full((2, 5), 4, "int32")
one, other = (
    model.stateless_call(
        values(model.trainable_variables), values(model.non_trainable_variables),
        {"source_ids": ids, "target_ids": ids}, training=training)
    for training in (True, False)
)
assert np.abs(one[0] - other[0]).max() > 0.1
assert not np.array_equal(one[1][0], other[1][0])  # the state of the random numbers moves
print("equal")
"""


@pytest.mark.slow
def test_layers_are_differentiated_forwards_in_training():
    assert run_on("jax", FORWARDS).strip().endswith("equal")


CHECKPOINTS = """
import jax, keras, numpy as np
import jax.numpy as jnp
import keras_transformer as kt
from keras_transformer.layers import EncoderLayer, SelfAttention

rng = np.random.default_rng(0)
start = jnp.asarray(rng.normal(size=(2, 5, 8)), "float32")
mask, labels = jnp.asarray([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], "bool"), jnp.ones((2, 5), "int32")
attention = SelfAttention(8, 2, dropout=0.3, causal=True)
layer = EncoderLayer(8, d_ff=12, dropout=0.3, self_attention=attention)
layer(start)
weights, state = (
    [variable.value for variable in variables]
    for variables in (layer.trainable_variables, layer.non_trainable_variables)
)
loss = kt.LabelSmoothedCrossEntropy(0.1)

def one_layer(weights, carry):
    x, state = carry
    return layer.stateless_call(weights, state, x, mask=mask, training=True)

def in_python(weights):
    x, _ = one_layer(weights, one_layer(weights, (start, state)))
    return loss(labels, x)

def in_a_loop(weights):
    step = lambda carry, _: (one_layer(weights, carry), None)
    (x, _), _ = jax.lax.scan(jax.checkpoint(step), (start, state), length=2)
    return jnp.sum(jax.lax.map(lambda row: loss(row[0], row[1]) * 0.5, (labels, x)))

expected, found = jax.grad(in_python)(weights), jax.grad(in_a_loop)(weights)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)
found = jax.jit(jax.grad(jax.checkpoint(in_python)))(weights)
jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), found, expected)
print("equal")
"""


@pytest.mark.slow
def test_layers_and_losses_train_in_loops_and_checkpoints_of_jax():
    assert run_on("jax", CHECKPOINTS).strip().endswith("equal")


SECOND_DERIVATIVES = """
import keras, torch
from keras import ops
from keras_transformer.fast.losses import symmetric_divergence
from keras_transformer.layers import DecoderLayer, EncoderLayer, Rotation, SelfAttention

def penalty_gradient(function, x):  # of the squared norm of a gradient
    x = x.detach().requires_grad_()
    slope, = torch.autograd.grad(torch.sin(function(x)).sum(), x, create_graph=True)
    return torch.autograd.grad(slope.square().sum(), x)[0]

keras.utils.set_random_seed(1)
x = torch.randn(2, 7, 8)
attention = SelfAttention(8, 2, rotation=Rotation())
for layer, inputs in (
    (EncoderLayer(8, 2, 12, dropout=0.0), 1),
    (EncoderLayer(8, d_ff=12, dropout=0.0, pre_norm=True, self_attention=attention), 1),
    (DecoderLayer(8, 2, 12, dropout=0.0), 2),
):
    layer(*inputs * [x])
    in_training, plain = (
        penalty_gradient(lambda x: layer(*inputs * [x], training=training), x)
        for training in (True, False)
    )
    torch.testing.assert_close(in_training, plain, rtol=1e-4, atol=1e-4)

def divergence(x):
    logs = ops.log_softmax(x)
    return ((ops.exp(logs[0]) - ops.exp(logs[1])) * (logs[0] - logs[1])).sum(-1)

found, expected = (penalty_gradient(each, x) for each in (symmetric_divergence, divergence))
torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)
dropout = EncoderLayer(8, 2, 12, dropout=0.5)
dropout(x)
assert torch.isfinite(penalty_gradient(lambda x: dropout(x, training=True), x)).all()
print("equal")
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_layers_in_training_have_second_derivatives_on_pytorch():
    assert run_on("torch", SECOND_DERIVATIVES).strip().endswith("equal")


NEEDS_TENSORFLOW = """
import keras_transformer as kt

tokenizer = kt.SubwordTokenizer.train_from_sentences(["Two dogs."], 280)
config = kt.TransformerConfig.from_preset("tiny", vocab_size=280)
model = kt.Transformer(config)
pairs = kt.data.BuiltinPairs("train", 100)
for use in (
    lambda: kt.Translator(model, tokenizer),
    lambda: kt.evaluation.ReferenceLoss(model, []),
    lambda: kt.training.TrainableTransformer(config),
    lambda: kt.training.train(
        kt.training.TrainingJob(model_dir="run", train=pairs, config=config)
    ),
):
    try:
        use()
    except kt.UserError as error:
        print(error)
"""


@pytest.mark.slow
def test_what_needs_tensorflow_says_so_on_another_backend():
    output = run_python(NEEDS_TENSORFLOW, env={**os.environ, "KERAS_BACKEND": "jax"})
    needs = "runs only on TensorFlow, not on jax: set KERAS_BACKEND=tensorflow"
    names = ("Translator", "ReferenceLoss", "TrainableTransformer", "train")
    assert output.splitlines() == [f"{name} {needs}" for name in names]


SOURCES = np.array([[5, 4, 3, 3, 6, 5, 2], [4, 2, 0, 0, 0, 0, 0], [3, 9, 11, 2, 0, 0, 0]], "int32")
TARGETS = np.array([[1, 6, 3, 7, 7], [1, 5, 0, 0, 0], [1, 9, 9, 4, 0]], "int32")
LABELS = np.array([[6, 3, 7, 7, 2], [5, 2, 0, 0, 0], [9, 9, 4, 2, 0]], "int32")


@pytest.mark.parametrize("options", [{"n_best": 4}, {"sample": True, "n_best": 4}], ids=str)
def test_search_does_not_need_a_top_k_that_keeps_the_order_of_equal_values(options, monkeypatch):
    """TensorFlow's and JAX's `top_k` take the first of equal values, PyTorch's takes any."""
    model = small_model(3)
    options = SearchOptions(beam_size=4, extra_length=5, **options)
    expected = search(model, SOURCES, options, num_slots=2, seed=1)

    top_k = ops.top_k

    def last_of_equals(x, k):
        values, indices = top_k(ops.flip(x, axis=-1), k)
        return values, ops.shape(x)[-1] - 1 - indices

    monkeypatch.setattr(ops, "top_k", last_of_equals)
    found = search(model, SOURCES, options, num_slots=2, seed=1)
    assert len(np.unique(expected.scores)) == np.size(expected.scores)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_array_equal(found.scores, expected.scores)


def results(model, with_terms):
    """Results of searches and of `fit`: arrays by name. Without terms, JAX compiles the search."""
    results = {}
    options = SearchOptions(beam_size=4, n_best=4, extra_length=5)

    def find(source_ids):
        return search(model, source_ids, options)

    if with_terms:
        spellings = (Spelling((7, 5)), Spelling((6, 6, 8)))
        sentences = [[RequiredTerm(spellings)], [], [RequiredTerm((Spelling((9,)),), times=2)]]
        flags = np.arange(13) == 5, np.arange(13) == 4
        required = Required(terms=Terms(term_tables(sentences, *flags, end_id=2), *flags))
        found = search(model, SOURCES, SearchOptions(n_best=2, extra_length=5), required)
        results |= {"ids_with_terms": found.ids, "scores_with_terms": found.scores}
        assert search(model, SOURCES[:0], SearchOptions(extra_length=2)).ids.shape == (0, 1, 9)
    elif keras.backend.backend() == "jax":
        import jax

        find = jax.jit(find)
    found = find(SOURCES)
    model.compile(
        # A large epsilon: otherwise rounding errors in tiny gradients would move weights.
        keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-3),
        kt.LabelSmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=keras.backend.backend() == "jax",
    )
    inputs = {"source_ids": SOURCES, "target_ids": TARGETS}
    history = model.fit(inputs, LABELS, epochs=3, shuffle=False, verbose=0).history
    weights = {f"weight_{i}": weight for i, weight in enumerate(model.get_weights())}
    return {**results, "ids": found.ids, "scores": found.scores, **history, **weights}


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [{}, {"num_decoder_layers": 2, "pre_norm": True, "num_heads": 4, "share_embeddings": False}],
)
def test_search_and_fit_end_as_on_tensorflow(backend, fields, tmp_path):
    with_terms = not fields
    fields = {"num_encoder_layers": 1, "num_decoder_layers": 1, **fields}
    model = small_model(3, **fields)
    model.save_weights(tmp_path / "model.weights.h5")
    script = f"""
import numpy as np, test_backends
model = test_backends.small_model(**{fields})
model.load_weights(sys.argv[1] + "/model.weights.h5")
np.savez(sys.argv[1] + "/results.npz", **test_backends.results(model, {with_terms}))
"""
    run_on(backend, script, str(tmp_path))
    expected, found = results(model, with_terms), np.load(tmp_path / "results.npz")
    assert len(np.unique(expected["ids"])) > 4
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, atol=1e-4, rtol=1e-4, err_msg=name)


TRAINING_WITHOUT_LEAKS = """
import gc, keras, numpy as np, torch
import keras_transformer as kt
from keras_transformer.search import search

config = kt.TransformerConfig(vocab_size=40, num_encoder_layers=3, num_decoder_layers=3, d_model=8,
                              d_ff=16, num_heads=2)
model = kt.Transformer(config)
model.compile(keras.optimizers.Adam(1e-3), kt.LabelSmoothedCrossEntropy(0.1), jit_compile=False)
ids = np.random.default_rng(0).integers(3, 40, (4, 9)).astype("int32")

def tensors_after(steps):
    for _ in range(steps):
        model.train_on_batch({"source_ids": ids, "target_ids": ids}, ids)
    gc.collect()  # frees cycles, but each layer of a step only after the next
    return sum(isinstance(one, torch.Tensor) for one in gc.get_objects())

few = tensors_after(3)
more = tensors_after(10) - few
assert more < 10, f"{more} tensors of earlier steps are not freed"
assert not search(model, ids).scores.requires_grad
double = keras.random.normal((4, 9, 40), dtype="float64")
kept = kt.layers.Dropout(0.5, dtype="float64")(double, training=True)
assert torch.equal(torch.where(kept == 0, 0, 2 * double), kept)
torch.export.export(model, ({"source_ids": torch.tensor(ids), "target_ids": torch.tensor(ids)},))
print("freed")
"""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_pytorch_frees_each_step_of_a_training_and_keeps_no_graph_of_a_search():
    script = TRAINING_WITHOUT_LEAKS
    assert run_python(script, env={**os.environ, "KERAS_BACKEND": "torch"}).strip() == "freed"
