"""Lower precision of a trained model, for faster translation."""

import gc
import warnings
from typing import TYPE_CHECKING

from keras_transformer.errors import UserError

if TYPE_CHECKING:
    from keras_transformer.model import Transformer

PRECISIONS = ("float32", "bfloat16", "int8")


def in_precision(model: "Transformer", precision: str) -> "Transformer":
    """Returns the model with weights and matrix products in another precision.

    Args:
        model: a `Transformer` in float32. "int8" changes this model itself.
        precision: "float32" for the model as it is; "bfloat16" for all but normalisation and
            softmax; "int8" for products with weight matrices, with activations scaled row by row
            as they are computed.

    Returns:
        The model, which can no longer be trained in "int8".

    Raises:
        UserError: there is no such precision.

    Example:
        >>> model_dir = ModelDir("runs/demo")
        >>> model = in_precision(model_dir.load_model(), "int8")
        >>> translator = Translator(model, model_dir.load_tokenizer(), jit_compile=True)
    """
    if precision not in PRECISIONS:
        raise UserError(f"precision must be one of {', '.join(PRECISIONS)}: found {precision!r}")
    if precision == "int8":
        with warnings.catch_warnings():
            # Keras warns about each layer without a matrix.
            warnings.filterwarnings("ignore", "Layer .* does not have a `quantize` method")
            # Keras collects garbage after each matrix: exclude all existing objects from it.
            caller_froze = gc.get_freeze_count() > 0
            gc.freeze()
            try:
                model.quantize("int8")
            finally:
                if not caller_froze:
                    gc.unfreeze()
    elif precision == "bfloat16":
        from keras_transformer.model import Transformer  # here, since flags list PRECISIONS

        weights = model.get_weights()
        model = Transformer(model.config, dtype="bfloat16")
        model.set_weights(weights)
    return model
