"""The configuration: the paper's numbers, and mistakes that fail at once with one clear line."""

import dataclasses

import pytest

from keras_transformer import TransformerConfig
from keras_transformer.errors import UserError
from keras_transformer.presets import PRESETS

# Table 3: N, d_model, d_ff, h, d_k, d_v, P_drop, epsilon_ls.
TABLE_3 = {
    "base": (6, 512, 2048, 8, 64, 64, 0.1, 0.1),
    "A-h1": (6, 512, 2048, 1, 512, 512, 0.1, 0.1),
    "A-h4": (6, 512, 2048, 4, 128, 128, 0.1, 0.1),
    "A-h16": (6, 512, 2048, 16, 32, 32, 0.1, 0.1),
    "A-h32": (6, 512, 2048, 32, 16, 16, 0.1, 0.1),
    "B-dk16": (6, 512, 2048, 8, 16, 64, 0.1, 0.1),
    "B-dk32": (6, 512, 2048, 8, 32, 64, 0.1, 0.1),
    "C-N2": (2, 512, 2048, 8, 64, 64, 0.1, 0.1),
    "C-N4": (4, 512, 2048, 8, 64, 64, 0.1, 0.1),
    "C-N8": (8, 512, 2048, 8, 64, 64, 0.1, 0.1),
    "C-d256": (6, 256, 2048, 8, 32, 32, 0.1, 0.1),
    "C-d1024": (6, 1024, 2048, 8, 128, 128, 0.1, 0.1),
    "C-ff1024": (6, 512, 1024, 8, 64, 64, 0.1, 0.1),
    "C-ff4096": (6, 512, 4096, 8, 64, 64, 0.1, 0.1),
    "D-drop0.0": (6, 512, 2048, 8, 64, 64, 0.0, 0.1),
    "D-drop0.2": (6, 512, 2048, 8, 64, 64, 0.2, 0.1),
    "D-ls0.0": (6, 512, 2048, 8, 64, 64, 0.1, 0.0),
    "D-ls0.2": (6, 512, 2048, 8, 64, 64, 0.1, 0.2),
    "E-learned": (6, 512, 2048, 8, 64, 64, 0.1, 0.1),
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1),
}


@pytest.mark.parametrize("name", TABLE_3)
def test_a_preset_is_its_row_of_table_3(name):
    config = TransformerConfig.from_preset(name)
    row = (
        config.num_decoder_layers,
        config.d_model,
        config.d_ff,
        config.num_heads,
        config.d_k,
        config.d_v,
        config.dropout,
        config.label_smoothing,
    )
    assert row == TABLE_3[name]
    assert config.num_encoder_layers == config.num_decoder_layers
    assert (config.positions == "learned") == (name == "E-learned")
    assert config.share_embeddings and config.tie_output and not config.pre_norm


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_valid_configuration(name):
    assert TransformerConfig.from_preset(name, vocab_size=100).vocab_size == 100


def test_the_base_model_is_the_default():
    assert TransformerConfig.from_preset("base") == TransformerConfig()


def test_words_are_linked_by_the_last_layer_but_one_and_never_by_the_first_of_several():
    linking = {
        layers: TransformerConfig(num_decoder_layers=layers).alignment_layer
        for layers in (1, 2, 3, 4, 6)
    }
    assert linking == {1: 0, 2: 1, 3: 1, 4: 2, 6: 4}


def test_fields_given_override_a_preset():
    config = TransformerConfig.from_preset("tiny", d_model=64, dropout=0.25)
    assert (config.d_model, config.dropout) == (64, 0.25)
    assert config.d_ff == TransformerConfig.from_preset("tiny").d_ff


def test_d_k_and_d_v_follow_from_the_heads_unless_given():
    assert TransformerConfig(d_model=96, num_heads=4).d_k == 24
    config = TransformerConfig(d_model=96, num_heads=7, d_k=5, d_v=3)
    assert (config.d_k, config.d_v) == (5, 3)


def test_json_gives_back_the_same_configuration():
    config = TransformerConfig.from_preset("B-dk16", vocab_size=99, pre_norm=True, dropout=0.05)
    assert TransformerConfig.from_json(config.to_json()) == config


def test_a_dictionary_gives_back_the_same_configuration():
    config = TransformerConfig.from_preset("tiny", vocab_size=99)
    assert TransformerConfig.from_dict(config.to_dict()) == config


def test_a_whole_number_will_do_for_a_rate():
    dropout = TransformerConfig(dropout=0).dropout
    assert dropout == 0.0 and isinstance(dropout, float)


def test_a_configuration_does_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TransformerConfig().d_model = 3


def test_every_field_says_what_it_is():
    assert all(field.metadata["help"] for field in dataclasses.fields(TransformerConfig))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"vocab_size": 0}, "vocab_size must be at least 1: found 0"),
        ({"num_encoder_layers": 0}, "num_encoder_layers must be at least 1: found 0"),
        ({"num_decoder_layers": -1}, "num_decoder_layers must be at least 1: found -1"),
        ({"num_encoder_layers": 1001}, "num_encoder_layers must be at most 1000: found 1001"),
        ({"num_decoder_layers": 2**31}, "num_decoder_layers must be at most 1000: found 2147"),
        ({"vocab_size": 2**31 - 1}, "vocab_size must be at most 16777216: found 2147483647"),
        ({"d_model": 65_537}, "d_model must be at most 65536: found 65537"),
        ({"d_ff": 0}, "d_ff must be at least 1: found 0"),
        ({"d_model": 0}, "d_model must be at least 1: found 0"),
        ({"d_k": 0}, "d_k must be at least 1: found 0"),
        ({"d_v": 0}, "d_v must be at least 1: found 0"),
        ({"num_heads": 0}, "found d_model=512, num_heads=0"),
        ({"num_heads": 7}, "found d_model=512, num_heads=7"),
        ({"d_model": 9, "d_k": 3, "d_v": 3}, "d_model must be even"),
        ({"dropout": 1.0}, "dropout must be in [0, 1): found 1.0"),
        ({"dropout": float("nan")}, "dropout must be finite: found nan"),
        ({"attention_dropout": -0.1}, "attention_dropout must be in [0, 1): found -0.1"),
        ({"activation_dropout": 2}, "activation_dropout must be in [0, 1): found 2.0"),
        ({"activation_dropout": -(10**400)}, "activation_dropout must be at most 3.4e+38: found"),
        ({"label_smoothing": 1.0}, "label_smoothing must be in [0, 1): found 1.0"),
        ({"layer_norm_epsilon": 0}, "layer_norm_epsilon must be above 0: found 0.0"),
        ({"max_positions": 0}, "max_positions must be at least 1: found 0"),
        ({"end_id": 37_000}, "end_id must be an id below vocab_size=37000: found 37000"),
        ({"start_id": -1}, "start_id must be an id below vocab_size=37000: found -1"),
        ({"end_id": 0}, "end_id must be another id than pad_id=0: found 0"),
        ({"d_model": "512"}, "d_model must be int: found '512'"),
        ({"d_model": 512.0}, "d_model must be int: found 512.0"),
        ({"d_model": True}, "d_model must be int: found True"),
        ({"dropout": False}, "dropout must be float: found False"),
        ({"pre_norm": 1}, "pre_norm must be bool: found 1"),
        ({"d_k": "64"}, "d_k must be int | None: found '64'"),
        ({"activation": "tanh"}, "activation must be one of relu, gelu, swish: found tanh"),
        ({"activation": None}, "activation must be str: found None"),
        ({"layer_type": "dense"}, "layer_type must be one of attention, restricted, recurrent"),
        ({"layer_type": "restricted"}, "radius must be at least 1 where layer_type is restricted"),
        ({"layer_type": "restricted", "radius": 0}, "radius must be at least 1 where"),
        ({"radius": 3}, "radius must be left out where layer_type is attention: found 3"),
        (
            {"layer_type": "separable"},
            "kernel_size must be at least 1 where layer_type is separabl",
        ),
        ({"layer_type": "recurrent", "kernel_size": 3}, "kernel_size must be left out where layer"),
    ],
)
def test_an_impossible_field_is_named(fields, message):
    with pytest.raises(UserError) as error:
        TransformerConfig(**fields)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_learned_positions_allow_an_odd_width():
    config = TransformerConfig(d_model=9, num_heads=3, positions="learned")
    assert config.d_k == 3


def test_an_unknown_field_is_named_with_those_there_are():
    with pytest.raises(UserError, match=r"unknown configuration field 'd_mdoel': .*d_model"):
        TransformerConfig.from_dict({"d_mdoel": 512})


def test_an_unknown_preset_is_named_with_those_there_are():
    with pytest.raises(UserError, match=r"unknown preset 'huge': .*base, big"):
        TransformerConfig.from_preset("huge")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"d_model": 512,\n}', "run/config.json:2: not JSON"),
        ("[]", "run/config.json must be a JSON object: found list"),
        ("[" * 100_000, "run/config.json: this JSON is nested too deeply"),
        (
            '{"d_model": 1%s}' % ("0" * 5000),
            "run/config.json: this JSON has an integer of more than ",
        ),
        ('{"d_model": -1}', "run/config.json: d_model must be"),
        ('{"width": 1}', "run/config.json: unknown configuration field 'width'"),
    ],
)
def test_a_mistake_in_json_is_placed(text, message):
    with pytest.raises(UserError) as error:
        TransformerConfig.from_json(text, "run/config.json")
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)


def test_few_targets_need_a_matrix_of_their_own():
    config = TransformerConfig(vocab_size=50, target_vocab_size=20, share_embeddings=False)
    assert config.output_vocab_size == 20
    assert TransformerConfig(vocab_size=50).output_vocab_size == 50
    with pytest.raises(UserError, match="share_embeddings must be off with target_vocab_size"):
        TransformerConfig(vocab_size=50, target_vocab_size=20)
    with pytest.raises(UserError, match="end_id must be an id below target_vocab_size=2"):
        TransformerConfig(vocab_size=50, target_vocab_size=2, share_embeddings=False)


@pytest.mark.parametrize(("name", "vocab_size"), [("parsing", 16_000), ("parsing-semi", 32_000)])
def test_parsers_are_the_papers(name, vocab_size):
    config = TransformerConfig.from_preset(name)
    paper = dict(num_encoder_layers=4, num_decoder_layers=4, d_model=1024, vocab_size=vocab_size)
    assert config == TransformerConfig(**paper)
