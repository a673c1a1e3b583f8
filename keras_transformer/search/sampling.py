"""Sampling of target sequences, in core Keras operations only."""

from typing import Any, NamedTuple

import keras
from keras import ops

from keras_transformer.errors import Unsupported
from keras_transformer.fast.dispatch import without_gradient
from keras_transformer.fast.integer_hash import hashed, high_bits
from keras_transformer.fast.rows import gather_rows
from keras_transformer.options.search import NO_HYPOTHESIS, OF_SAMPLING, SearchOptions
from keras_transformer.search.beam import (
    OF_BOTH_SEARCHES,
    BeamSearchResult,
    finite,
    is_at,
    length_penalty,
    write_tokens,
)
from keras_transformer.search.constraints import IMPOSSIBLE, Constraints
from keras_transformer.search.loop import (
    DecoderSteps,
    at_position,
    step_by_step,
    take_sentences,
)
from keras_transformer.search.targets import Targets

Tensor = Any

SAMPLING_OPTIONS = (*OF_BOTH_SEARCHES, "sample", *OF_SAMPLING)
"""The fields of `SearchOptions` that `sample` supports."""
_STRIDE = -1640531527  # added to each counter, since a hash of zeros would be zero


class SampleState(NamedTuple):
    """The sequences drawn so far for each sentence; ids begin with the start symbol."""

    ids: Tensor  # int32 (batch, beam_size, buffer_length + 1)
    log_probs: Tensor  # float32 (batch, beam_size), the model's, at temperature 1
    lengths: Tensor  # int32 (batch, beam_size), without the start symbol
    done: Tensor  # boolean (batch, beam_size), whether a sequence is complete


@without_gradient
def sample(
    steps: DecoderSteps,
    targets: Targets,
    options: SearchOptions,
    num_slots: int | None = None,
    seed: int | Tensor | keras.random.SeedGenerator | None = None,
    sentence_ids: Tensor | None = None,
) -> BeamSearchResult:
    """Draws `beam_size` target sequences of each sentence, and returns the `n_best` likeliest.

    Each symbol is drawn from the softmax of `logits / temperature`, limited to the `top_k`
    likeliest symbols and, among these, to the likeliest of joint probability `top_p` (Holtzman et
    al., 2020). The last symbol within the limit is not drawn: it is the end symbol. Scores are
    those that `beam_search` gives the same sequences, end symbol included.

    The random numbers of a sentence are a function of the seed and of its entry in `sentence_ids`.
    They do not depend on the other sentences in the batch.

    Args:
        steps: the decoder, with each sequence as a beam that is never reordered.
        targets: the start, the limits and the special symbols of the targets.
        options: options of sampling. Its seed is not read; `seed` takes its place.
        num_slots: as in `beam_search`.
        seed: an integer in [0, 2^31), or an int32 tensor of one seed or one per sentence, gives the
            same random numbers in each call; a generator or None gives others each time.
        sentence_ids: int32 (batch,), the index of each sentence; None counts from 0.

    Returns:
        A `BeamSearchResult`.

    Raises:
        UserError: an option is not among `SAMPLING_OPTIONS`, or `targets` has terms.

    Example:
        >>> steps = TransformerSteps(model, ops.array([[17, 5, 2]]))
        >>> options = SearchOptions(sample=True, top_p=0.9, seed=1)
        >>> targets = Targets(start_ids=ops.array([1]), max_lengths=[20])
        >>> result = sample(steps, targets, options, seed=options.seed)
        >>> result.ids.shape
        TensorShape([1, 1, 20])
    """
    options.expect_only(SAMPLING_OPTIONS, "sampling", "leave it out")
    if targets.terms is not None:
        raise Unsupported("sampling", "terms", "leave them out, or use beam search")
    targets = targets.within_buffer()
    start_ids, limits, buffer_length, prefix_ids, end_id, pad_id, first_id, _ = targets
    batch = ops.shape(start_ids)[0]
    if sentence_ids is None:
        sentence_ids = ops.arange(batch, dtype="int32")
    chances = _chances(seed, sentence_ids, options.beam_size, buffer_length)

    def draw(sentences, position, decoder_state, drawn):
        """Draws a symbol for each sentence in the batch slots; here, batch means slots."""
        constants = (limits, prefix_ids, chances)
        longest, prefixes, slot_chances = take_sentences(constants, sentences)
        has_first = first_id is not None
        constraints = Constraints(options, longest, prefixes, end_id, pad_id, has_first)
        last_ids = at_position(drawn.ids, position)  # (batch, beam_size)
        logits, decoder_state = steps.step(last_ids, position, decoder_state)
        logits = ops.cast(logits, "float32")  # (batch, beam_size, vocab_size)
        log_total = ops.logsumexp(logits, axis=-1)  # (batch, beam_size)
        logits = _allowed_only(logits, constraints, drawn.ids, position)
        probabilities = ops.softmax(keep_likely(logits, options))
        tokens = choose(probabilities, at_position(slot_chances, position))  # (batch, beam_size)
        token_logits = ops.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
        if first_id is not None:
            is_first = ops.equal(position, 0)[:, None]  # (slots, 1)
            tokens = ops.where(is_first, first_id, tokens)
            token_logits = ops.where(is_first, log_total, token_logits)  # has probability 1
        log_probs = drawn.log_probs + token_logits - log_total
        # NaN arises where no symbol may follow, and is no log-probability.
        log_probs = ops.where(ops.isnan(log_probs), IMPOSSIBLE, log_probs)

        length = position + 1  # (batch,)
        is_end = ops.equal(tokens, end_id)
        # Sequences that were complete before are unchanged.
        return decoder_state, SampleState(
            ids=ops.where(
                drawn.done[..., None],
                drawn.ids,
                write_tokens(drawn.ids, is_at(length, drawn.ids), tokens),
            ),
            log_probs=ops.where(drawn.done, drawn.log_probs, log_probs),
            lengths=ops.where(drawn.done, drawn.lengths, length[:, None]),
            done=drawn.done | is_end | (length >= longest)[:, None],
        )

    empty_ids = ops.full((batch, options.beam_size, buffer_length + 1), pad_id, dtype="int32")
    decoder_state = steps.initial_state(batch, options.beam_size)
    drawn = _nothing_drawn(empty_ids, start_ids, limits)
    drawn = step_by_step(steps, draw, decoder_state, drawn, buffer_length, num_slots)
    return _likeliest(drawn, options, pad_id)


def _nothing_drawn(empty_ids, start_ids, limits):
    """The state before the first step; `empty_ids` is (batch, beam_size, buffer_length + 1)."""
    rows = ops.shape(empty_ids)[:2]
    is_start = is_at(ops.zeros_like(limits), empty_ids)
    return SampleState(
        ids=write_tokens(empty_ids, is_start, start_ids[:, None]),
        log_probs=ops.zeros(rows, "float32"),
        lengths=ops.zeros(rows, "int32"),
        done=ops.broadcast_to((limits <= 0)[:, None], rows),
    )


def _chances(seed, sentence_ids, beam_size, buffer_length):
    """A random number for each symbol to draw: float32 (batch, beam_size, buffer_length)."""
    if seed is None or isinstance(seed, keras.random.SeedGenerator):
        seed = keras.random.randint((), 0, 2**31 - 1, dtype="int32", seed=seed)
    return uniform(
        ops.reshape(ops.cast(seed, "int32"), (-1, 1, 1)),
        ops.reshape(ops.cast(sentence_ids, "int32"), (-1, 1, 1)),
        ops.arange(beam_size, dtype="int32")[:, None],
        ops.arange(buffer_length, dtype="int32"),
    )


def _allowed_only(logits, constraints, ids, position):
    """The logits (batch, beam_size, vocab_size), minus infinity for forbidden symbols."""
    vocab_size = logits.shape[-1]
    symbols = ops.arange(vocab_size, dtype="int32")[None, None]
    allowed = ops.logical_not(constraints.is_excluded(symbols, position))
    if (more := constraints.allowed(ids, position, vocab_size)) is not None:
        allowed = allowed & more
    is_last = constraints.only_end_may_follow(position)[:, None, None]
    allowed = ops.where(is_last, ops.equal(symbols, constraints.end_id), allowed)
    return ops.where(allowed, logits, IMPOSSIBLE)


def _likeliest(drawn, options, pad_id):
    """Selects the `n_best` sequences of each sentence by score."""
    # If a sentence has no room for a symbol, keep one of its empty sequences.
    first = ops.arange(options.beam_size, dtype="int32") == 0
    log_probs = ops.where((drawn.lengths > 0) | first, drawn.log_probs, IMPOSSIBLE)
    scores = finite(log_probs / length_penalty(drawn.lengths, options))
    scores, best = ops.top_k(scores, options.n_best)  # (batch, n_best)
    ids = gather_rows(drawn.ids, best)[..., 1:]  # (batch, n_best, buffer_length)
    return BeamSearchResult(ops.where((scores > NO_HYPOTHESIS)[..., None], ids, pad_id), scores)


def keep_likely(logits: Tensor, options: SearchOptions) -> Tensor:
    """Divides logits by the temperature; symbols outside `top_k` or `top_p` get minus infinity."""
    logits = logits / options.temperature
    if 0 < options.top_k < logits.shape[-1]:
        kept, _ = ops.top_k(logits, options.top_k)
        logits = ops.where(logits >= kept[..., -1:], logits, IMPOSSIBLE)
    if options.top_p < 1:
        probabilities = ops.softmax(logits)
        falling = -ops.sort(-probabilities, axis=-1)
        # A symbol is kept if those before it sum to less than top_p, so the likeliest always is.
        is_kept = ops.cumsum(falling, axis=-1) - falling < options.top_p
        least = ops.min(ops.where(is_kept, falling, 1.0), axis=-1, keepdims=True)
        logits = ops.where(probabilities >= least, logits, IMPOSSIBLE)
    return logits


def choose(probabilities: Tensor, chances: Tensor) -> Tensor:
    """Chooses the symbol at which the running sum of probabilities passes a number in [0, 1).

    Args:
        probabilities: float32 (..., vocab_size).
        chances: float32 (...).

    Returns:
        int32 (...), never a symbol of probability 0.
    """
    sums = ops.cumsum(probabilities, axis=-1)
    # Compilers may reorder sums: running sums can then fall, or rise at a probability of 0.
    passed = (sums > chances[..., None] * sums[..., -1:]) & (probabilities > 0)
    first = ops.argmax(ops.cast(passed, "int32"), axis=-1)
    return ops.where(ops.any(passed, axis=-1), first, ops.argmax(probabilities, axis=-1))


def uniform(*counters: Tensor) -> Tensor:
    """Computes random numbers in [0, 1) as hashes of counters: equal counters, equal numbers.

    Args:
        counters: int32 tensors whose shapes broadcast together.

    Returns:
        float32, multiples of 2^-24.
    """
    bits = ops.zeros((), "int32")
    for counter in counters:
        bits = hashed(bits, (counter + _STRIDE, 0))
    return ops.cast(high_bits(bits, 24), "float32") / 2**24
