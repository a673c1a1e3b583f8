"""Attention masks, in the shapes that Keras users pass them (paper, section 3.2.3)."""

from collections.abc import Sequence

from keras import ops


def padding_mask(ids, pad_id: int = 0):
    """Masks padding positions.

    Args:
        ids: integer tensor (batch, length).
        pad_id: the id that fills a row up to its length.

    Returns:
        Boolean tensor (batch, 1, 1, length), true at real tokens.
    """
    return ops.expand_dims(ops.not_equal(ids, pad_id), (1, 2))


def causal_mask(length: int, num_keys: int | None = None):
    """Masks the positions that follow each position (paper, section 3.2.3).

    Args:
        length: number of queries.
        num_keys: number of keys; default: `length`.

    Returns:
        Boolean tensor (1, 1, length, num_keys), true where key position <= query position.
    """
    queries = ops.arange(length, dtype="int32")
    keys = queries if num_keys is None else ops.arange(num_keys, dtype="int32")
    return ops.expand_dims(keys[None, :] <= queries[:, None], (0, 1))


def combined_mask(
    attention_mask, paddings: Sequence, query, key, num_heads: int, name: str = "attention_mask"
):
    """Joins an attention mask with the padding masks of the sequence attended to.

    Args:
        attention_mask: true where attention may look, distinguished by rank: a padding mask
            (batch, key), an attention mask (batch, query, key), or one for each head
            (batch, heads or 1, query, key). A size of 1 broadcasts. None: no mask.
        paddings: masks (batch, key), true at real tokens; each may be None.
        query: (batch, query, width), the sequence that attends.
        key: (batch, key, width), the sequence attended to.
        num_heads: number of heads.
        name: the caller's name of `attention_mask`, for errors.

    Returns:
        Boolean tensor of rank 4 that broadcasts to (batch, heads, query, key), or None.

    Raises:
        ValueError: a mask has another shape.
    """
    sizes = (query.shape[0], num_heads, query.shape[1], key.shape[1])
    mask = None if attention_mask is None else _of_rank_4(attention_mask, sizes, name)
    for padding in paddings:
        if padding is not None:
            mask = both(mask, ops.expand_dims(_of_padding(padding, key), (1, 2)))
    return mask


def combined_padding_mask(attention_mask, padding, x, num_heads: int = 1):
    """Joins the padding masks of a layer that takes no other masks.

    Args:
        attention_mask: a padding mask of `x`, (batch, length) or (batch, 1, 1, length); None: none.
        padding: another one, (batch, length); None: none.
        x: (batch, length, width).
        num_heads: number of heads, for errors.

    Returns:
        Boolean tensor (batch or 1, 1, 1, length or 1), true at real tokens, or None.

    Raises:
        ValueError: a mask has another shape, such as that of a mask for each query or head.
    """
    mask = combined_mask(attention_mask, [padding], x, x, num_heads)
    if mask is not None and tuple(mask.shape[1:3]) != (1, 1):
        raise ValueError(
            "attention_mask of this layer type must be a padding mask (batch, length): "
            f"found an attention mask of shape {tuple(mask.shape)}"
        )
    return mask


def first_given(*masks):
    """Returns the first of several masks that is not None; if all are, None."""
    return next((mask for mask in masks if mask is not None), None)


def both(one, other):
    """Joins two boolean masks, each of which may be None."""
    if one is None or other is None:
        return other if one is None else one
    return ops.logical_and(one, other)


def query_padding(mask, query):
    """Makes a padding mask (batch, query) a mask of the scores, (batch, 1, query, 1).

    It is None if `mask` is None.

    Raises:
        ValueError: the mask does not fit the sequence `query`, (batch, query, width).
    """
    return None if mask is None else ops.expand_dims(_of_padding(mask, query), (1, 3))


def _of_rank_4(mask, sizes, name):
    mask = ops.cast(mask, "bool")
    batch, heads, query, key = sizes
    given = {2: (0, 3), 3: (0, 2, 3), 4: (0, 1, 2, 3)}.get(len(mask.shape), ())
    if not given or not _fits(mask, [sizes[axis] for axis in given]):
        raise ValueError(
            f"{name} must be a padding mask ({batch}, {key}), an attention mask "
            f"({batch}, {query}, {key}), or one for each head ({batch}, {heads} or 1, {query}, "
            f"{key}), true where attention may look: found shape {tuple(mask.shape)}"
        )
    if len(given) == 2:
        return ops.expand_dims(mask, (1, 2))  # (batch, 1, 1, key)
    return ops.expand_dims(mask, 1) if len(given) == 3 else mask  # (batch, heads or 1, query, key)


def _of_padding(mask, x):
    mask = ops.cast(mask, "bool")
    batch, length = x.shape[:2]
    if len(mask.shape) != 2 or not _fits(mask, (batch, length)):
        raise ValueError(
            f"a padding mask must be ({batch}, {length}), true at real tokens: found shape "
            f"{tuple(mask.shape)}; masks of other shapes go to attention_mask or source_mask"
        )
    return mask


def _fits(mask, sizes):
    """Whether each axis of a mask has the given size, or 1, as far as they are known."""
    return all(
        not isinstance(found, int) or not isinstance(size, int) or found in (size, 1)
        for found, size in zip(mask.shape, sizes, strict=True)
    )
