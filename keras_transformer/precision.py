"""A trained model in fewer bits, to translate faster."""

import gc
import warnings

import keras_transformer as kt

PRECISIONS = ("float32", "bfloat16", "int8")


def in_precision(model: "kt.Transformer", precision: str) -> "kt.Transformer":
    """The model with weights and matrix products of another precision.

    Args:
        model: a built `Transformer` in float32. For "int8" it is the one that is changed.
        precision: "float32" for the model as it is; "bfloat16", in which all but normalisation and
            softmax is computed; or "int8", in which each product with a weight matrix is, of
            activations scaled row by row as they come.

    Returns:
        The model, which can no longer be trained in "int8".

    Raises:
        ValueError: there is no such precision.

    Example:
        >>> model_dir = ModelDir("runs/demo")
        >>> model = in_precision(model_dir.load_model(), "int8")
        >>> translator = Translator(model, model_dir.load_tokenizer(), jit_compile=True)
    """
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}: found {precision!r}")
    if precision == "int8":
        with warnings.catch_warnings():
            # Keras warns of each layer that has no matrix.
            warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
            # Keras collects garbage after each matrix: let it not look at all that there is.
            gc.freeze()
            try:
                model.quantize("int8")
            finally:
                gc.unfreeze()
    elif precision == "bfloat16":
        weights = model.get_weights()
        model = kt.Transformer(model.config, dtype="bfloat16")
        model.build()
        model.set_weights(weights)
    return model
