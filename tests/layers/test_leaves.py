"""`leaves=` gives arguments to all leaves that a layer creates, also within its parts."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_transformer import layers

MAKERS = {
    "MultiHeadAttention": lambda **kwargs: layers.MultiHeadAttention(
        8, 2, dropout=0.5, use_bias=True, **kwargs
    ),
    "SelfAttention": lambda **kwargs: layers.SelfAttention(8, 2, dropout=0.5, **kwargs),
    "RestrictedSelfAttention": lambda **kwargs: layers.RestrictedSelfAttention(
        8, 2, radius=2, dropout=0.5, **kwargs
    ),
    "FeedForward": lambda **kwargs: layers.FeedForward(8, 12, dropout=0.5, **kwargs),
    "EncoderLayer": lambda **kwargs: layers.EncoderLayer(8, 2, 12, dropout=0.5, **kwargs),
    "DecoderLayer": lambda **kwargs: layers.DecoderLayer(8, 2, 12, dropout=0.5, **kwargs),
}
# The numbers of leaves: Dense, Dropout, LayerNormalization.
COUNTS = {
    "MultiHeadAttention": (4, 1, 0),
    "SelfAttention": (4, 1, 0),
    "RestrictedSelfAttention": (4, 1, 0),
    "FeedForward": (2, 1, 0),
    "EncoderLayer": (6, 3, 2),
    "DecoderLayer": (10, 4, 3),
}
CLASSES = (layers.Dense, layers.Dropout, layers.LayerNormalization)
OF_A_WEIGHT = {
    "initializer": keras.initializers.RandomUniform(0.5, 0.6),
    "regularizer": keras.regularizers.L1L2(0.25, 0.5),
    "constraint": keras.constraints.MaxNorm(0.75),
}
ARGUMENTS = {
    leaf: {f"{weight}_{kind}": x for weight in weights for kind, x in OF_A_WEIGHT.items()}
    for leaf, weights in {
        "Dense": ("kernel", "bias"),
        "LayerNormalization": ("gamma", "beta"),
    }.items()
}
all_layers = pytest.mark.parametrize("name", MAKERS)


def leaves_of(layer, leaf_class):
    return [leaf for leaf in layer._flatten_layers() if isinstance(leaf, leaf_class)]


def arguments_for(layer_name):
    """Each argument of the leaves that a layer has."""
    return {
        leaf: options
        for leaf, options in ARGUMENTS.items()
        if leaf in getattr(layers, layer_name).leaf_names
    }


def inputs_of(name):
    x = np.random.default_rng(0).normal(size=(2, 5, 8)).astype("float32")
    return (x, x) if name in ("MultiHeadAttention", "DecoderLayer") else (x,)


def check_leaves_have(layer, arguments):
    for leaf_name, options in arguments.items():
        for leaf in leaves_of(layer, getattr(layers, leaf_name)):
            for argument, value in options.items():
                found = getattr(leaf, argument)
                assert type(found) is type(value), (leaf.path, argument)
                assert found.get_config() == value.get_config(), (leaf.path, argument)


@all_layers
def test_each_argument_arrives_in_every_leaf(name):
    arguments = arguments_for(name)
    layer = MAKERS[name](leaves=arguments)
    assert tuple(len(leaves_of(layer, each)) for each in CLASSES) == COUNTS[name]
    check_leaves_have(layer, arguments)


@all_layers
def test_arguments_are_in_the_configuration(name):
    arguments = arguments_for(name) | {"Dropout": {"seed": 3}}
    layer = MAKERS[name](leaves=arguments)
    copy = type(layer).from_config(layer.get_config())
    check_leaves_have(copy, arguments_for(name))
    seeds = [[leaf.seed for leaf in leaves_of(each, layers.Dropout)] for each in (layer, copy)]
    assert seeds[0] == seeds[1]


@all_layers
def test_a_saved_model_keeps_arguments_and_losses(name, tmp_path):
    arguments = arguments_for(name)
    symbols = [keras.Input((None, 8)) for _ in inputs_of(name)]
    model = keras.Model(symbols, MAKERS[name](leaves=arguments)(*symbols))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    check_leaves_have(loaded.layers[-1], arguments)
    assert len(loaded.losses) == len(model.weights)  # each weight has a regularizer
    np.testing.assert_allclose(sum(loaded.losses), sum(model.losses), rtol=1e-5)


@all_layers
def test_one_initializer_gives_each_matrix_weights_of_its_own(name):
    initializer = keras.initializers.RandomNormal(stddev=1.0)
    layer = MAKERS[name](leaves={"Dense": {"kernel_initializer": initializer}})
    layer(*inputs_of(name))
    kernels = [np.ravel(leaf.kernel) for leaf in leaves_of(layer, layers.Dense)]
    assert len({kernel[0] for kernel in kernels}) == COUNTS[name][0]


@all_layers
def test_one_seed_makes_equal_layers_drop_equally(name):
    one, other = (MAKERS[name](leaves={"Dropout": {"seed": 3}}) for _ in range(2))
    inputs = inputs_of(name)
    one(*inputs)
    other(*inputs)
    other.set_weights(one.get_weights())
    first, *repeated = (layer(*inputs, training=True) for layer in (one, other, one))
    np.testing.assert_array_equal(repeated[0], first)
    assert not np.array_equal(repeated[1], first)  # each call draws new masks


@all_layers
def test_one_seed_gives_each_dropout_masks_of_its_own(name):
    layer = MAKERS[name](leaves={"Dropout": {"seed": 3}})
    seeds = [leaf.seed for leaf in leaves_of(layer, layers.Dropout)]
    assert len(set(seeds)) == len(seeds) == COUNTS[name][1]


@all_layers
def test_leaves_that_a_layer_does_not_have_are_refused(name):
    for wrong in ("Dens", "Embedding"):
        with pytest.raises(ValueError, match=f"{name} has no leaves of the class {wrong}: .*Dense"):
            MAKERS[name](leaves={wrong: {}})


def test_arguments_change_no_part_that_is_handed_in():
    attention = layers.SelfAttention(8, 2)
    layer = layers.EncoderLayer(
        8, d_ff=12, self_attention=attention, leaves={"Dense": {"kernel_initializer": "zeros"}}
    )
    layer(*inputs_of("EncoderLayer"))
    assert np.all(ops.convert_to_numpy(attention.query.kernel) != 0)
    assert not np.any(layer.feed_forward.hidden.kernel)
