"""Attention masks, in the shapes that Keras users pass them (paper, section 3.2.3)."""

import keras
from keras import ops
from keras.src.backend import get_keras_mask  # has no public name


def padding_mask(ids, pad_id: int = 0):
    """Masks padding positions.

    Args:
        ids: integer tensor (batch, length).
        pad_id: the id that fills a row up to its length.

    Returns:
        Boolean tensor (batch, 1, 1, length), true at real tokens.
    """
    return ops.expand_dims(ops.not_equal(ids, pad_id), (1, 2))


def causal_mask(length: int):
    """Masks the positions that follow each position (paper, section 3.2.3).

    Args:
        length: number of positions.

    Returns:
        Boolean tensor (1, 1, length, length), true where key position <= query position.
    """
    positions = ops.arange(length, dtype="int32")
    return ops.expand_dims(positions[None, :] <= positions[:, None], (0, 1))


def combined_mask(attention_mask, query, value, num_heads: int):
    """Joins the mask that the caller passes with the one that Keras has attached to the values.

    Args:
        attention_mask: boolean or integer, true where attention may look, distinguished by rank:
            a padding mask (batch, key), an attention mask (batch, query, key), or one for each
            head (batch, heads or 1, query, key). A size of 1 broadcasts. None: no
            mask.
        query: (batch, query, width), the sequence that attends.
        value: (batch, key, width), the sequence attended to. Layers such as
            `keras.layers.Embedding(mask_zero=True)` and `keras.layers.Masking` attach a padding
            mask to their output.
        num_heads: number of heads.

    Returns:
        Boolean tensor of rank 4 that broadcasts to (batch, heads, query, key), or None.

    Raises:
        ValueError: the mask has another shape, or holds floats.
    """
    attached = get_keras_mask(value)
    sizes = (query.shape[0], num_heads, query.shape[1], value.shape[1])
    masks = [_of_rank_4(mask, sizes) for mask in (attention_mask, attached) if mask is not None]
    if len(masks) == 2:
        return ops.logical_and(*masks)
    return masks[0] if masks else None


def expect_padding_mask(mask):
    """Refuses a mask of `combined_mask` that differs between queries or heads.

    Raises:
        ValueError: the mask is not (batch, 1, 1, length).
    """
    if mask is not None and tuple(mask.shape[1:3]) != (1, 1):
        raise ValueError(
            "this layer type expects a padding mask (batch, length): "
            f"found an attention mask of shape {tuple(mask.shape)}"
        )


def _of_rank_4(mask, sizes):
    if not hasattr(mask, "shape"):
        mask = ops.convert_to_tensor(mask)
    shape, dtype = tuple(mask.shape), keras.backend.standardize_dtype(mask.dtype)
    given = {2: (0, 3), 3: (0, 2, 3), 4: (0, 1, 2, 3)}.get(len(shape), ())
    fits = bool(given) and all(
        size in (None, 1) or not isinstance(sizes[axis], int) or size == sizes[axis]
        for axis, size in zip(given, shape, strict=True)
    )
    if not fits or "float" in dtype:
        batch, heads, query, key = sizes
        raise ValueError(
            "expected a boolean or integer mask, true where attention may look: a padding mask "
            f"({batch}, {key}), an attention mask ({batch}, {query}, {key}), or one for each head "
            f"({batch}, {heads} or 1, {query}, {key}); found {dtype} of shape {shape}"
        )
    mask = ops.cast(mask, "bool")
    if len(shape) == 2:
        return ops.expand_dims(mask, (1, 2))  # (batch, 1, 1, key)
    return ops.expand_dims(mask, 1) if len(shape) == 3 else mask  # (batch, heads or 1, query, key)
