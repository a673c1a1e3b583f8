"""Target sequences drawn at random, in core Keras operations only."""

from typing import Any

import keras
from keras import ops

from keras_transformer.decoding.beam_search import (
    NO_HYPOTHESIS,
    BeamSearchResult,
    length_penalty,
    write,
)
from keras_transformer.decoding.constraints import Constraints
from keras_transformer.decoding.options import SearchOptions
from keras_transformer.decoding.steps import (
    DecoderSteps,
    at_position,
    gather_beams,
    limits_within,
    step_by_step,
    take_sentences,
)

Tensor = Any


def sample(
    steps: DecoderSteps,
    start_ids: Tensor,
    options: SearchOptions,
    *,
    max_lengths: Tensor,
    buffer_length: int | None = None,
    prefix_ids: Tensor | None = None,
    end_id: int = 2,
    pad_id: int = 0,
    places: int | None = None,
    seed: int | keras.random.SeedGenerator | None = None,
) -> BeamSearchResult:
    """Draws `beam_size` target sequences of each sentence, and returns the `n_best` likeliest.

    Each symbol is drawn from the model's distribution with `logits / temperature`, of which only
    the `top_k` likeliest symbols, and of these only the likeliest of joint probability `top_p`,
    take part (Holtzman et al., 2020). Scores are what `beam_search` would give the same sequences.

    Args:
        steps: the decoder, with each sequence as a beam that is never reordered.
        start_ids: int32 (batch,), the symbol each sentence starts with.
        options: of these, what holds for sampling.
        max_lengths: int32 (batch,), the limit of each sentence in symbols, end symbol included.
        buffer_length: as in `beam_search`.
        prefix_ids: as in `beam_search`.
        end_id: the symbol that ends a sequence.
        pad_id: the symbol that fills the ids after the end, and is never drawn.
        places: as in `beam_search`.
        seed: of the random numbers; an integer gives the same ones at each call.

    Returns:
        A `BeamSearchResult`.

    Example:
        >>> options = SearchOptions(sample=True, top_p=0.9, seed=1)
        >>> result = sample(steps, ops.array([1]), options, max_lengths=[20], seed=options.seed)
    """
    start_ids = ops.cast(start_ids, "int32")
    limits, buffer_length = limits_within(max_lengths, buffer_length)
    batch = ops.shape(start_ids)[0]
    rows = (batch, options.beam_size)
    # All at once: a loop's body would draw the same numbers over and over.
    chances = keras.random.uniform((*rows, buffer_length), seed=seed)

    def draw(sentences, position, state, ids, log_probs, lengths, done):
        constants = (limits, prefix_ids, chances)
        longest, prefixes, their_chances = take_sentences(constants, sentences)
        constraints = Constraints(options, longest, prefixes, end_id, pad_id)
        logits, state = steps.step(at_position(ids, position), position, state)
        logits = ops.cast(logits, "float32")
        vocab_size = logits.shape[-1]
        symbols = ops.arange(vocab_size, dtype="int32")[None, None]
        allowed = ops.logical_not(constraints.is_excluded(symbols, position))
        if (more := constraints.allowed(ids, position, vocab_size)) is not None:
            allowed = allowed & more
        log_total = ops.logsumexp(logits, axis=-1)
        logits = ops.where(allowed, logits, NO_HYPOTHESIS)
        probabilities = ops.softmax(keep_likely(logits, options))
        tokens = choose(probabilities, at_position(their_chances, position))
        token_logits = ops.take_along_axis(logits, tokens[..., None], axis=-1)[..., 0]
        new_log_probs = log_probs + token_logits - log_total
        # What has no probability, or where none may follow, cannot be a hypothesis.
        new_log_probs = ops.where(ops.isnan(new_log_probs), NO_HYPOTHESIS, new_log_probs)

        length = position + 1
        new_ids = ops.where(done[..., None], ids, write(ids, length, tokens))
        lengths = ops.where(done, lengths, length[:, None])
        log_probs = ops.where(done, log_probs, new_log_probs)
        done = done | ops.equal(tokens, end_id) | (length >= longest)[:, None]
        return state, new_ids, log_probs, lengths, done

    ids = ops.full((*rows, buffer_length + 1), pad_id, dtype="int32")
    drawn = (
        write(ids, ops.zeros_like(limits), start_ids[:, None]),
        ops.zeros(rows, "float32"),
        ops.zeros(rows, "int32"),
        ops.broadcast_to((limits <= 0)[:, None], rows),
    )
    drawn = step_by_step(steps, draw, steps.initial_state(*rows), drawn, buffer_length, places)
    ids, log_probs, lengths, _ = drawn

    # Where nothing could be drawn, once is enough.
    first = ops.arange(options.beam_size) == 0
    log_probs = ops.where((lengths > 0) | first, log_probs, NO_HYPOTHESIS)
    scores, best = ops.top_k(log_probs / length_penalty(lengths, options), options.beam_size)
    ids = ops.where((scores > NO_HYPOTHESIS)[..., None], gather_beams(ids, best)[..., 1:], pad_id)
    # Those that ended come first: of equal precedence, the first is taken.
    ended = ops.any(ops.equal(ids, end_id), axis=-1)
    _, best = ops.top_k(ops.cast(ended, "int32"), options.n_best)
    return BeamSearchResult(gather_beams(ids, best), gather_beams(scores, best))


def keep_likely(logits: Tensor, options: SearchOptions) -> Tensor:
    """Logits over the temperature; minus infinity where `top_k` or `top_p` leave a symbol out."""
    logits = logits / options.temperature
    if 0 < options.top_k < logits.shape[-1]:
        kept, _ = ops.top_k(logits, options.top_k)
        logits = ops.where(logits >= kept[..., -1:], logits, NO_HYPOTHESIS)
    if options.top_p < 1:
        probabilities = ops.softmax(logits)
        falling = -ops.sort(-probabilities, axis=-1)
        # Kept is what has less than top_p before it: the likeliest always is.
        is_kept = ops.cumsum(falling, axis=-1) - falling < options.top_p
        least = ops.min(ops.where(is_kept, falling, 1.0), axis=-1, keepdims=True)
        logits = ops.where(probabilities >= least, logits, NO_HYPOTHESIS)
    return logits


def choose(probabilities: Tensor, chances: Tensor) -> Tensor:
    """The symbol at which the running sum of probabilities passes a number of [0, 1).

    Args:
        probabilities: float32 (..., vocab_size).
        chances: float32 (...).

    Returns:
        int32 (...), never a symbol of probability 0.
    """
    sums = ops.cumsum(probabilities, axis=-1)
    # Compilers sum in another order, by which running sums may fall, or rise by a probability of 0.
    passed = (sums > chances[..., None] * sums[..., -1:]) & (probabilities > 0)
    first = ops.argmax(ops.cast(passed, "int32"), axis=-1)
    return ops.where(ops.any(passed, axis=-1), first, ops.argmax(probabilities, axis=-1))
