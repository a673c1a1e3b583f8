"""Alignment: the source subword that each target subword comes from, by the model's attention."""

from collections.abc import Sequence

import numpy as np
from keras import ops

from keras_transformer.attention_maps import attention_maps
from keras_transformer.model import Transformer
from keras_transformer.text.ragged import padded
from keras_transformer.text.tokenizer import Tokenizer
from keras_transformer.translation import Alignment, by_length

# Maximum size of the attention maps of sentences that are aligned together, for one head. All
# layers' maps are in memory at once.
_WEIGHTS_AT_ONCE = 1 << 18


def align(
    model: Transformer,
    tokenizer: Tokenizer,
    source: Sequence[np.ndarray],
    target: Sequence[np.ndarray],
) -> list[Alignment]:
    """Aligns each target subword with the source subword that it attends to most.

    It uses the mean attention over heads in the model's `config.alignment_layer`.

    Args:
        model: a built model.
        tokenizer: its vocabulary.
        source: ids of each source sentence, without an end symbol. Those that the vocabulary adds,
            such as a language, are aligned with nothing.
        target: ids of each translation, without an end symbol.
    """
    pieces, added = tokenizer.pieces, tokenizer.num_source_symbols
    first = [] if tokenizer.first_id is None else [tokenizer.first_id]
    links: list[list[tuple[int, int]]] = [[] for _ in source]
    sizes = [(len(ids), len(others)) for ids, others in zip(source, target, strict=True)]
    lengths = {row: max(both) + 1 for row, both in enumerate(sizes) if min(both)}
    for rows in by_length(lengths, lambda longest: _WEIGHTS_AT_ONCE // longest**2):
        targets = [[*first, *target[row]] for row in rows]
        weights = _attention(model, [source[row] for row in rows], targets)
        for row, row_weights in zip(rows, weights, strict=True):
            source_length, target_length = sizes[row]
            # Each position predicts the next subword; the end symbol is aligned with nothing.
            of_targets = row_weights[len(first) : len(first) + target_length]
            best = of_targets[:, added:source_length].argmax(axis=1)
            links[row] = [(index, number) for number, index in enumerate(best.tolist())]
    return [
        Alignment(
            [pieces[id_] for id_ in of_source[added:]],
            [pieces[id_] for id_ in of_target],
            both,
            tokenizer.are_words,
        )
        for of_source, of_target, both in zip(source, target, links, strict=True)
    ]


def _attention(model, source, target):
    """The mean attention of heads to the source, as (sentences, target, source)."""
    pad_id, start_id, end_id = model.config.pad_id, model.config.start_id, model.config.end_id
    source_ids = padded([[*ids, end_id] for ids in source], pad_id)
    target_ids = padded([[start_id, *ids] for ids in target], pad_id)
    weights = attention_maps(model, source_ids, target_ids).memory
    weights = weights[model.config.alignment_layer]  # (sentences, heads, target, source)
    return ops.convert_to_numpy(ops.mean(ops.cast(weights, "float32"), axis=1))
