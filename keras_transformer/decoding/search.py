"""Beam search over a Transformer's cached keys and values (paper, section 6.1)."""

from keras import ops

from keras_transformer.decoding.beam_search import BeamSearchResult, beam_search
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.model import Transformer


def search(
    model: Transformer,
    source_ids,
    options: SearchOptions = SearchOptions(),
) -> BeamSearchResult:
    """The translations of highest score (paper, section 6.1).

    The encoder runs once, and so do the projections of its output to keys and values, which all
    beams share. Each step of the decoder looks at one position.

    Args:
        model: a built `Transformer`.
        source_ids: integer (batch, source_length), each row ending in the end symbol, padded.
        options: what to search for.

    Returns:
        A `BeamSearchResult`: `ids` int32 (batch, n_best, source_length + options.extra_length) and
        `scores` float32 (batch, n_best).

    Example:
        >>> search(model, [[17, 5, 2]], SearchOptions(beam_size=4)).ids.shape
        TensorShape([1, 1, 53])
    """
    config = model.config
    source_ids = ops.convert_to_tensor(source_ids, "int32")
    batch, source_length = ops.shape(source_ids)
    memory, source_mask = model.encode(source_ids, training=False)
    memory = model.decoder.memory_keys_and_values(memory)

    def step(target_ids, position, cache):
        return model.decode_step(target_ids, position, cache, memory, source_mask)

    real = ops.cast(ops.not_equal(source_ids, config.pad_id), "int32")
    return beam_search(
        step,
        model.decoder.new_cache(batch, options.beam_size, source_length + options.extra_length),
        ops.full((batch,), config.start_id, dtype="int32"),
        beam_size=options.beam_size,
        alpha=options.alpha,
        max_lengths=ops.sum(real, axis=1) + options.extra_length,
        n_best=options.n_best,
        buffer_length=source_length + options.extra_length,
        end_id=config.end_id,
        pad_id=config.pad_id,
    )
