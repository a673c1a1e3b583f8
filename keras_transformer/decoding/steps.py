"""How a search asks a decoder, position after position, until all sentences are done."""

from typing import Any

from keras import ops, tree

Tensor = Any

# A state has room for so many positions, then for the next of these, up to the longest. Attention
# reads all the room there is, so less is faster; each size is new code to a compiler, so few are.
STATE_SIZES = (32, 128, 512)


class DecoderSteps:
    """How a search asks a decoder, position after position, for all beams at once.

    The state is a nested structure of tensors (batch, ...). It holds all that belongs to single
    sentences: those that are done leave it. This class does for decoders with a state of
    (batch, beam_size, ...) tensors.
    """

    def initial_state(self, batch: Tensor, beam_size: int) -> Any:
        """The state before the first position."""
        return ()

    def grow(self, state: Any, size: Tensor) -> Any:
        """The state with room for `size` positions."""
        return state

    def step(self, ids: Tensor, position: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What follows the symbols `ids` at a position.

        Args:
            ids: int32 (batch, beam_size), the last symbol of each beam.
            position: int32 scalar, from 0 (the start symbol).
            state: of the positions before.

        Returns:
            Logits (batch, beam_size, vocab_size) of any float dtype, and the state, of the same
            structure, shapes and dtypes.
        """
        raise NotImplementedError

    def reorder(self, state: Any, beams: Tensor) -> Any:
        """The state in which each beam goes on from one of `beams`, int32 (batch, beam_size)."""
        return tree.map_structure(lambda x: gather_beams(x, beams), state)


def limits_within(max_lengths: Tensor, buffer_length: int | None) -> tuple[Tensor, Tensor]:
    """The limit of each sentence, int32 (batch,), and the length that all of them fit in."""
    max_lengths = ops.cast(max_lengths, "int32")
    if buffer_length is None:
        buffer_length = ops.max(max_lengths, initial=0)
    return ops.clip(max_lengths, 0, buffer_length), buffer_length


def step_by_step(steps, step_of, state, found, buffer_length):
    """What is found once all sentences are done.

    Sentences that are done leave: so long as few remain, a step costs little. And the state has no
    more room than positions need.

    Args:
        steps: the decoder, whose state grows.
        step_of: from int32 (some,), indices of sentences, to a function that does one step of
            them: `(position, state, *found) -> (position, state, *found)`.
        state: the decoder's state before the first position.
        found: tensors (batch, ...), of which the last is boolean: what of a sentence is done.
        buffer_length: the most steps there can be.

    Returns:
        `found` after the last step.
    """
    batch_size = ops.shape(found[-1])[0]
    if isinstance(batch_size, int) or isinstance(buffer_length, int):
        return _in_few_shapes(steps, step_of, state, found, buffer_length, batch_size)
    return _in_any_shape(steps, step_of, state, found, buffer_length, batch_size)


def _in_any_shape(steps, step_of, state, found, buffer_length, batch_size):
    """Half of the sentences leave at a time; the shapes of the state change as they have to."""

    def until_half_are_done(position, sentences, state, *found):
        done = ops.take(found[-1], sentences, axis=0)
        sentences, state = _remaining((sentences, state), done, _num_open(done))
        sizes = ops.array(sizes_up_to(buffer_length))
        size = ops.min(ops.where(sizes > position, sizes, buffer_length))
        position, state, *some = _steps_until(
            _num_open(done) // 2,
            step_of(sentences),
            position,
            steps.grow(state, size),
            take_sentences(found, sentences),
            size,
        )
        return position, sentences, state, *_put_back(found, sentences, some)

    _, _, _, *found = ops.while_loop(
        lambda position, sentences, state, *found: _num_open(found[-1]) > 0,
        until_half_are_done,
        (
            ops.zeros((), "int32"),
            ops.arange(batch_size, dtype="int32"),
            steps.grow(state, ops.minimum(0, buffer_length)),
            *found,
        ),
    )
    return found


def _in_few_shapes(steps, step_of, state, found, buffer_length, batch_size):
    """Each shape of the state is new code to a compiler: once, all but a quarter leave."""
    first, *more = sizes_up_to(buffer_length)
    few = batch_size // 4
    all_ = ops.arange(batch_size, dtype="int32")
    position, state, *found = _steps_until(
        few, step_of(all_), ops.zeros((), "int32"), steps.grow(state, first), found, first
    )

    def to_the_end(sentences, state, found, sizes):
        at = position
        for size in sizes:
            at, state, *found = _steps_until(
                0, step_of(sentences), at, steps.grow(state, size), found, size
            )
        return found

    def of_few():
        sentences, few_states = _remaining((all_, state), found[-1], few)
        some = take_sentences(found, sentences)
        some = to_the_end(sentences, few_states, some, more or [first])
        return _put_back(found, sentences, some)

    def of_all():
        return to_the_end(all_, state, found, more)

    if isinstance(few, int) and few == 0:
        return of_all()
    return ops.cond(_num_open(found[-1]) <= few, of_few, of_all)


def _steps_until(num_open, step, position, state, found, size):
    """Steps until only so many sentences are not done, or the state, of a size, is full."""

    def goes_on(position, state, *found):
        return (_num_open(found[-1]) > num_open) & (position < size)

    return ops.while_loop(goes_on, step, (position, state, *found))


def _is_open(done):
    return ops.any(ops.logical_not(ops.reshape(done, (ops.shape(done)[0], -1))), axis=1)


def _num_open(done):
    return ops.sum(ops.cast(_is_open(done), "int32"))


def _remaining(nest, done, count):
    """Of all sentences the `count` that are open, and where there are fewer, some others."""
    _, left = ops.top_k(ops.cast(_is_open(done), "int32"), count)
    return take_sentences(nest, left)


def _put_back(found, sentences, some):
    """What was found, that of some sentences being new."""
    return [ops.scatter_update(x, sentences[:, None], y) for x, y in zip(found, some, strict=True)]


def take_sentences(nest, sentences):
    """Of each tensor (batch, ...), the rows int32 (some,); None stays None."""
    return tree.map_structure(lambda x: None if x is None else ops.take(x, sentences, axis=0), nest)


def sizes_up_to(length: Tensor) -> list:
    """The sizes of a state while hypotheses grow to `length`, the last of them."""
    if isinstance(length, int):
        return [*(size for size in STATE_SIZES if size < length), length]
    return [*(ops.minimum(size, length) for size in STATE_SIZES), length]


def gather_beams(x: Tensor, indices: Tensor) -> Tensor:
    """Picks along axis 1, by sentence: (batch, n, ...), int32 (batch, m) -> (batch, m, ...)."""
    batch_size, n, *rest = ops.shape(x)
    rows = ops.reshape(x, (batch_size * n, *rest))
    return ops.take(rows, indices + n * ops.arange(batch_size, dtype="int32")[:, None], axis=0)
