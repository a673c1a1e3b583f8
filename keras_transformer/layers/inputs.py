"""Checks of the tensors that layers are called with."""

from typing import Any

Tensor = Any


def expect_sequence(name: str, x: Tensor, width: int, batch: int | None = None) -> None:
    """Refuses an argument that is not a tensor (batch, length, width), as far as is known.

    Args:
        name: the name of the argument, for the error.
        x: the argument.
        width: size of the last axis.
        batch: number of rows of the layer's other input; this one may have 1, for all of them.

    Raises:
        ValueError: it has another shape, or none.
    """
    shape = getattr(x, "shape", None)
    rows = batch if isinstance(batch, int) else "batch"
    if (
        shape is not None
        and len(shape) == 3
        and shape[-1] in (width, None)
        and (rows == "batch" or not isinstance(shape[0], int) or shape[0] in (rows, 1))
    ):
        return
    found = type(x).__name__ if shape is None else f"shape {tuple(shape)}"
    raise ValueError(f"{name} must be a tensor ({rows}, length, {width}): found {found}")
