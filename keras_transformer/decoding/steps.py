"""How a search asks a decoder, position after position, until all sentences are done."""

from typing import Any, NamedTuple

from keras import ops, tree

Tensor = Any

# A state has room for so many positions, then for the next of these, up to the longest. Attention
# reads all the room there is, so less is faster; each size is new code to a compiler, so few are.
STATE_SIZES = (16, 32, 128, 512)


class DecoderSteps:
    """How a search asks a decoder, position after position, for all beams at once.

    The state is a nested structure of tensors (batch, ...). It holds all that belongs to single
    sentences: those that are done leave it, and others take their place. This class does for
    decoders with a state of (batch, beam_size, ...) tensors.
    """

    def initial_state(self, batch: Tensor, beam_size: int) -> Any:
        """The state before the first position."""
        return ()

    def grow(self, state: Any, size: Tensor) -> Any:
        """The state with room for `size` positions."""
        return state

    def begin(self, state: Any, fresh: Any, is_new: Tensor) -> Any:
        """The state in which some sentences have taken the place of others.

        Args:
            state: of the sentences before.
            fresh: the initial state of these and of others, with as much room.
            is_new: boolean (batch,), which sentences begin.
        """
        return tree.map_structure(lambda old, new: where_sentence(is_new, new, old), state, fresh)

    def step(self, ids: Tensor, position: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What follows the symbols `ids` at a position.

        Args:
            ids: int32 (batch, beam_size), the last symbol of each beam.
            position: int32 (batch,), of these symbols, from 0 (the start symbol).
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


def step_by_step(steps, step, state, found, buffer_length, places=None):
    """What is found once all sentences are done.

    Only so many sentences are searched at a time. One that is done makes place for the next, and
    where none is left, leaves: so long as few remain, a step costs little. And the state has no
    more room than positions need.

    Args:
        steps: the decoder, whose state grows.
        step: one step of some sentences, `(sentences, position, state, *found) -> (state, *found)`,
            where `sentences`, int32 (some,), are their indices and `position` how far they are.
        state: the decoder's state of all sentences before the first position.
        found: tensors (batch, ...), of which the last is boolean: what of a sentence is done.
        buffer_length: the most steps there can be.
        places: number of sentences at a time; None for all.

    Returns:
        `found` after the last step.
    """
    batch_size = ops.shape(found[-1])[0]
    if isinstance(batch_size, int) or isinstance(buffer_length, int):
        loop = _LoopOfFewShapes
    else:
        loop = _LoopOfAnyShape
    return loop(steps, step, state, found, buffer_length, places).run(list(found))


class _Searched(NamedTuple):
    """Sentences that are searched at the same time, each in a place.

    Attributes:
        sentences: int32 (places,), which they are.
        position: int32 (places,), of the last symbol of each.
        state: of the decoder.
        found: as `step_by_step` has it, of these sentences.
    """

    sentences: Tensor
    position: Tensor
    state: Any
    found: list

    @property
    def is_open(self):
        return _is_open(self.found[-1])

    @property
    def num_open(self):
        return _count(self.is_open)

    def have_room(self, size):
        """Whether all that are not done can take a step in a state of a size."""
        return ops.all(ops.logical_not(self.is_open) | (self.position < size))

    def remaining(self, count):
        """Of these the `count` that are not done, and where there are fewer, some others."""
        _, left = ops.top_k(ops.cast(self.is_open, "int32"), count)
        return take_sentences(self, left)


class _Loop:
    """What both kinds of loops share. Arguments are those of `step_by_step`."""

    def __init__(self, steps, step, state, found, buffer_length, places):
        self.steps, self.step, self.state = steps, step, state
        self.buffer_length = buffer_length
        is_open = ops.cast(_is_open(found[-1]), "int32")
        batch_size = ops.shape(is_open)[0]
        self.places = batch_size if places is None else _smaller(batch_size, places)
        # Sentences begin in this order: those that are done before need no place.
        self.num_open = ops.sum(is_open)
        _, self.order = ops.top_k(is_open, batch_size)

    def first(self, found, size):
        """How many sentences have begun, and these."""
        sentences = self.order[: self.places]
        state = self.steps.grow(take_sentences(self.state, sentences), size)
        begun = ops.cast(self.places, "int32")
        found = take_sentences(found, sentences)
        return begun, _Searched(sentences, ops.zeros_like(sentences), state, found)

    def all_begun(self, begun):
        return begun >= self.num_open

    def one_step(self, now):
        state, *found = self.step(*now[:3], *now.found)
        # What is done stays where it is, within its room.
        position = now.position + ops.cast(_is_open(found[-1]), "int32")
        return _Searched(now.sentences, position, state, found)

    def steps_until(self, num_open, size, begun, now):
        """Steps until so few are not done, or there is place for others, or no more room."""
        refill = _larger(self.places // 8, 1)

        def goes_on(now):
            wait = ops.where(self.all_begun(begun), num_open, self.places - refill)
            return (now.num_open > wait) & now.have_room(size)

        [now] = ops.while_loop(goes_on, lambda now: (self.one_step(now),), (now,))
        return now

    def refilled(self, size, begun, now, found):
        """What is found so far is kept, and others begin in the places of those that are done."""
        found = [
            ops.scatter_update(x, now.sentences[:, None], y)
            for x, y in zip(found, now.found, strict=True)
        ]
        is_free = ops.logical_not(now.is_open)
        following = begun + ops.cumsum(ops.cast(is_free, "int32")) - 1
        is_new = is_free & (following < self.num_open)
        following = ops.take(self.order, ops.where(is_new, following, 0), axis=0)
        sentences = ops.where(is_new, following, now.sentences)
        state, fresh = take_sentences((self.state, found), sentences)
        now = _Searched(
            sentences,
            ops.where(is_new, 0, now.position),
            self.steps.begin(now.state, self.steps.grow(state, size), is_new),
            [where_sentence(is_new, *both) for both in zip(fresh, now.found, strict=True)],
        )
        return begun + _count(is_new), now, found


class _LoopOfAnyShape(_Loop):
    """The last sentences leave by halves; the shapes of the state change as they have to."""

    def run(self, found):
        def some_steps(size, begun, now, found):
            farthest = ops.max(ops.where(now.is_open, now.position, 0), initial=0)
            needed = ops.min(ops.where(sizes > farthest, sizes, self.buffer_length))
            size = ops.maximum(size, needed)
            now = now._replace(state=self.steps.grow(now.state, size))
            now = self.steps_until(now.num_open // 2, size, begun, now)
            begun, now, found = self.refilled(size, begun, now, found)
            now = ops.cond(
                self.all_begun(begun),
                lambda: now.remaining(now.num_open),
                lambda: now,
            )
            return size, begun, now, found

        sizes = ops.array(sizes_up_to(self.buffer_length))
        nothing = ops.minimum(0, self.buffer_length)
        begun, now = self.first(found, nothing)
        *_, found = ops.while_loop(
            lambda size, begun, now, found: now.num_open > 0,
            some_steps,
            (nothing, begun, now, found),
        )
        return found


class _LoopOfFewShapes(_Loop):
    """Each shape of the state is new code to a compiler: at the end, all but a quarter leave."""

    def run(self, found):
        *sizes, last = sizes_up_to(self.buffer_length)
        few = self.places // 4
        begun, now = self.first(found, 0)
        for size in sizes:
            begun, now, found = self._in_room(size, few, begun, now, found)

        def of_few():
            return self._in_room(last, 0, begun, now.remaining(few), found)[-1]

        def of_all():
            return self._in_room(last, 0, begun, now, found)[-1]

        if isinstance(few, int) and few == 0:
            return of_all()
        return ops.cond(self.all_begun(begun) & (now.num_open <= few), of_few, of_all)

    def _in_room(self, size, few, begun, now, found):
        """Steps until only so few are not done, or the state of one of them, of a size, is full."""

        def goes_on(begun, now, found):
            is_over = self.all_begun(begun) & (now.num_open <= few)
            return ops.logical_not(is_over) & now.have_room(size)

        def some_steps(begun, now, found):
            now = self.steps_until(few, size, begun, now)
            return self.refilled(size, begun, now, found)

        now = now._replace(state=self.steps.grow(now.state, size))
        return ops.while_loop(goes_on, some_steps, (begun, now, found))


def _is_open(done):
    return ops.any(ops.logical_not(ops.reshape(done, (ops.shape(done)[0], -1))), axis=1)


def _count(is_one):
    return ops.sum(ops.cast(is_one, "int32"))


def _smaller(x, y):
    return min(x, y) if isinstance(x, int) else ops.minimum(x, y)


def _larger(x, y):
    return max(x, y) if isinstance(x, int) else ops.maximum(x, y)


def take_sentences(nest, sentences):
    """Of each tensor (batch, ...), the rows int32 (some,); None stays None."""
    return tree.map_structure(lambda x: None if x is None else ops.take(x, sentences, axis=0), nest)


def where_sentence(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Chooses by sentence, `condition` being boolean (batch,)."""
    condition = ops.reshape(condition, (-1,) + (1,) * (len(x.shape) - 1))
    return ops.where(condition, x, y)


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


def at_position(x: Tensor, position: Tensor) -> Tensor:
    """What is there, by sentence: (batch, n, length), int32 (batch,) -> (batch, n)."""
    return ops.take_along_axis(x, position[:, None, None], axis=2)[..., 0]
