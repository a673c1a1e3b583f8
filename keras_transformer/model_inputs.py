"""Checks of what a Transformer is given, with errors that name it."""

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np


def with_plain_errors(method: Callable) -> Callable:
    """Makes a Keras method name ids and labels that TensorFlow finds outside of the vocabulary."""

    def checked(*args, **kwargs):
        try:
            return method(*args, **kwargs)
        except Exception as error:
            label = re.search(r"failed: \[(labels must .*found)\] \[(-?\d+)\]", str(error))
            if label:
                raise ValueError(f"{label[1]} {label[2]}") from None
            found = re.search(r"= (-?\d+) is not in \[0, (\d+)\)", str(error))
            if found is None or "_embedding" not in str(error):
                raise
            raise ValueError(
                f"source_ids and target_ids must be below the size of the vocabulary, {found[2]}: "
                f"found {found[1]}"
            ) from None

    return functools.wraps(method)(checked)


def without_class_weight(method: Callable) -> Callable:
    """Makes a Keras method refuse `class_weight`, for which it takes labels for one-hot classes."""
    signature = inspect.signature(method)

    def checked(*args, **kwargs):
        if signature.bind(*args, **kwargs).arguments.get("class_weight") is not None:
            raise ValueError(
                "class_weight must be None, as Keras takes labels (batch, length) for one-hot "
                "classes: give weights (batch, length) as sample_weight instead"
            )
        return method(*args, **kwargs)

    return functools.wraps(method)(checked)


def expect_ids(inputs: Any) -> None:
    """Refuses inputs of a Transformer that are not the two matrices of ids."""
    names = ("source_ids", "target_ids")
    found: Any = type(inputs).__name__
    if isinstance(inputs, dict):
        found = {name: tuple(ids.shape) for name, ids in inputs.items()}
        ragged = [name for name in names if getattr(inputs.get(name), "ragged_rank", None)]
        if not ragged and all(len(found.get(name, ())) == 2 for name in names):
            # JAX has sizes that are symbols, and cannot be compared.
            rows = {found[name][0] for name in names if isinstance(found[name][0], int)}
            if len(rows) == 2:
                raise ValueError(
                    "source_ids and target_ids must have equal numbers of rows: found shapes "
                    f"{found['source_ids']} and {found['target_ids']}"
                )
            return
        found.update({name: f"ragged {found[name]}" for name in ragged})
    raise ValueError(
        "inputs must be a dictionary of source_ids (batch, source_length) and target_ids "
        f"(batch, target_length): found {found}"
    )


def expect_in_vocabulary(name: str, ids: Any, vocab_size: int) -> None:
    """Refuses ids outside the vocabulary, unless they are symbols of a graph without values yet."""
    try:
        ids = np.asarray(ids)
    except (TypeError, ValueError, NotImplementedError, RuntimeError):  # the last by PyTorch
        return
    wrong = ids[(ids < 0) | (ids >= vocab_size)]
    if wrong.size:
        raise ValueError(
            f"{name} must be at least 0 and below the size of the vocabulary, {vocab_size}: "
            f"found {wrong[0]}"
        )
