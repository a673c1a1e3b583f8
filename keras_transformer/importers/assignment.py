"""Assigns the weights of another toolkit, or says what is against them."""

from collections.abc import Mapping, Sequence

import numpy as np

from keras_transformer.model import Transformer


def against_names(missing: Sequence[str], surplus: Sequence[str]) -> list[str]:
    """The reasons against weights whose names are not those of the model; empty for none.

    Args:
        missing: names that the weights should have.
        surplus: names that they should not have.

    Example:
        >>> against_names(["a", "b"], [])
        ['2 missing weights: a, b']
    """
    reasons = []
    for names, what in ((missing, "missing"), (surplus, "unknown")):
        if names:
            shown = ", ".join(names[:5]) + (", ..." if names[5:] else "")
            reasons.append(f"{len(names)} {what} weights: {shown}")
    return reasons


def path_of(weight) -> str:
    """The path of a weight within its model, such as `encoder/norm/gamma`."""
    return weight.path.partition("/")[2]


def assign(model: Transformer, values: Mapping[str, np.ndarray]) -> None:
    """Assigns every weight of a built model its value, by `path_of`."""
    for weight in model.weights:
        weight.assign(values[path_of(weight)])
