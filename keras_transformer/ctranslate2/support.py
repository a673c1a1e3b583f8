"""The models that CTranslate2 supports, without importing it."""

from typing import TYPE_CHECKING

from keras_transformer.config import TransformerConfig
from keras_transformer.errors import Unsupported

if TYPE_CHECKING:
    from keras_transformer.text import Tokenizer
    from keras_transformer.training.model_dir import ModelDir

# The activations, and their names in CTranslate2.
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}
CTRANSLATE2_CONFIG = (
    "vocab_size",
    "target_vocab_size",
    "pad_id",
    "start_id",
    "end_id",
    "num_encoder_layers",
    "num_decoder_layers",
    "d_model",
    "d_ff",
    "num_heads",
    "d_k",
    "d_v",
    "attention_bias",
    "pre_norm",
    "layer_norm_epsilon",
    "max_positions",
    "share_embeddings",
    "scale_embeddings",
    "tie_output",
    "output_bias",
    "source_end",
    # These matter in training only.
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "label_smoothing",
)
"""The fields of `TransformerConfig` of which CTranslate2 supports every value."""
CTRANSLATE2_CHOICES = {
    "activation": tuple(ACTIVATIONS),
    "layer_type": ("attention",),
    # Positions that a layer adds to embeddings. CTranslate2 gets a table of what it adds.
    "positions": (
        "sinusoidal",
        "sinusoidal_split",
        "sinusoidal_opennmt",
        "sinusoidal_fairseq",
        "learned",
    ),
}
"""The values that CTranslate2 supports of other fields."""

# CTranslate2 fails beyond its table of positions. By default it reads 1,024 tokens and an end
# symbol; the length of its output is an option.
POSITIONS = 2048

# What to do about an option that CTranslate2 lacks, for commands and for Python.
USE_TENSORFLOW = 'use TensorFlow (--engine=tensorflow, or engine="tensorflow" in kt.load)'
_ADVICE = "use TensorFlow for this model (--engine=tensorflow, --format=saved_model)"
# The others are not for translation.
_VOCABULARIES = {
    "vocabulary.model",
    "vocabulary.zip",
    "vocabulary.opennmt.zip",
    "vocabulary.languages.zip",
}


def check_model(model_dir: "ModelDir") -> None:
    """Checks that CTranslate2 supports the model of a model_dir, without reading weights.

    Raises:
        Unsupported: it does not support the model's configuration or its task.
        UserError: the folder holds no model.
    """
    check_config(model_dir.load_config())
    names = {path.name for path in model_dir.path.glob("vocabulary.*")}
    if "vocabulary.json" in names:
        raise Unsupported("CTranslate2", "models for parsing", _ADVICE)
    if names and not names & _VOCABULARIES:
        raise Unsupported("CTranslate2", f"the vocabulary in {min(names)}", _ADVICE)


def check_tokenizer(tokenizer: "Tokenizer") -> None:
    """Raises `Unsupported` unless CTranslate2 supports models with a vocabulary of this kind."""
    if tokenizer.task != "translation":
        raise Unsupported("CTranslate2", f"models for {tokenizer.task}", _ADVICE)
    if tokenizer.file_name not in _VOCABULARIES:
        raise Unsupported("CTranslate2", f"the vocabulary in {tokenizer.file_name}", _ADVICE)


def check_config(config: TransformerConfig) -> None:
    """Raises `Unsupported` for a model of another configuration than CTranslate2 supports."""
    config.expect_only(
        CTRANSLATE2_CONFIG,
        "CTranslate2",
        _ADVICE,
        CTRANSLATE2_CHOICES,
    )
