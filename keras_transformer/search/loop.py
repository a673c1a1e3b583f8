"""The loop of a search: decoder steps until all sentences are done, in batch slots."""

import abc
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keras import ops, tree

from keras_transformer.errors import expect_at_least
from keras_transformer.fast.rows import gather, gather_rows

Tensor = Any
Hypotheses = Any  # a NamedTuple of tensors (batch, ...), such as `beam.BeamState`

# Numbers of positions that the decoder state has room for: it grows from each size to the next, up
# to the longest hypothesis. Attention reads the whole room, so a small state is faster. But a
# compiler makes new code for each size, so there are few for it.
STATE_SIZES = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
SIZES_TO_COMPILE = (16, 32, 128, 512)


class DecoderSteps(abc.ABC):
    """A decoder as a search sees it: one position at a time, all beams at once.

    The state is a nested structure of tensors (batch, ...). It holds everything that depends on the
    sentence, because a sentence that is done leaves its batch slot to another one. The default
    methods serve decoders whose state consists of (batch, beam_size, ...) tensors.
    """

    def initial_state(self, batch: Tensor, beam_size: int) -> Any:
        """Returns the state before the first position."""
        return ()

    def grow(self, state: Any, size: Tensor) -> Any:
        """Returns the state with room for `size` positions."""
        return state

    def allow_in_place(self) -> None:
        """Allows steps to write in the memory of their state.

        The loop promises that each tensor of the state has memory of its own, and that it uses no
        state after the step that takes it. By default, steps make no use of this.
        """
        return

    def refill(self, state: Any, initial: Any, is_new: Tensor) -> Any:
        """Returns the state after new sentences have moved into some batch slots.

        Args:
            state: the state of the sentences that were in the slots.
            initial: the initial state of the sentences that are in the slots now, with as much
                room.
            is_new: boolean (slots,), True where a new sentence has moved in.
        """
        return tree.map_structure(lambda old, new: where_sentence(is_new, new, old), state, initial)

    @abc.abstractmethod
    def step(self, ids: Tensor, position: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Decodes one position: computes logits of the symbols that follow `ids`.

        Args:
            ids: int32 (batch, beam_size), the last symbol of each beam.
            position: int32 (batch,), position of these symbols, from 0 (the start symbol).
            state: state after the earlier positions.

        Returns:
            Logits (batch, beam_size, vocab_size) of any float dtype, and the new state, of the same
            structure, shapes and dtypes.
        """

    def reorder(self, state: Any, beams: Tensor) -> Any:
        """Returns the state where each beam continues one of `beams`, int32 (batch, beam_size)."""
        return tree.map_structure(lambda x: gather_rows(x, beams), state)


def step_by_step(
    steps: DecoderSteps,
    step: Callable,
    decoder_state: Any,
    hypotheses: Hypotheses,
    buffer_length: Tensor,
    num_slots: Tensor | None = None,
) -> Hypotheses:
    """Takes steps until all sentences are done.

    Only `num_slots` sentences are searched at a time, each in a batch slot. A sentence that is done
    leaves its slot to the next one. Once no sentence waits, slots are closed instead, so that
    steps for the few remaining sentences are cheap. The decoder state grows only as needed.

    Args:
        steps: the decoder, whose state grows.
        step: function that takes one step for the sentences in the slots, `(sentences, position,
            decoder_state, hypotheses) -> (decoder_state, hypotheses)`. `sentences` and `position`,
            int32 (slots,), are the index of each sentence and the position of its last symbol.
        decoder_state: the initial state of all sentences, tensors (batch, ...).
        hypotheses: hypotheses of all sentences before the first step: a `NamedTuple` of tensors
            (batch, ...), whose field `done`, boolean (batch, ...), says which ones are complete.
        buffer_length: the most steps that a sentence can take.
        num_slots: number of batch slots; None for one per sentence.

    Returns:
        `hypotheses` after the last step of each sentence.
    """
    if num_slots is not None and not ops.is_tensor(num_slots):
        expect_at_least(1, "num_slots", num_slots)
    batch_size = ops.shape(hypotheses.done)[0]
    if isinstance(batch_size, int) and batch_size == 0:
        return hypotheses
    has_shape = isinstance(batch_size, int) or isinstance(buffer_length, int)
    loop = _LoopOfFewShapes if has_shape else _LoopOfAnyShape
    return loop(steps, step, decoder_state, hypotheses, buffer_length, num_slots).run(hypotheses)


class _Slots(NamedTuple):
    """The sentences that are searched at the same time, each in a batch slot."""

    sentences: Tensor  # int32 (slots,), the index of each sentence in the whole batch
    position: Tensor  # int32 (slots,), position of the last symbol of each
    decoder_state: Any  # nested, (slots, ...)
    hypotheses: Hypotheses  # (slots, ...)

    @property
    def is_open(self):
        """Whether the sentence in a slot is not done yet: boolean (slots,)."""
        return _is_open(self.hypotheses.done)

    @property
    def num_open(self):
        return _count(self.is_open)

    def have_room(self, size):
        """Whether a state of this size has room for the next step of all open sentences."""
        return ops.all(ops.logical_not(self.is_open) | (self.position < size))

    def remaining(self, count):
        """Keeps `count` sentences: those not done, filled up with done ones if there are fewer."""
        return take_sentences(self, first_where(self.is_open, count))


class _Search(NamedTuple):
    """The progress of a search: sentences in slots, and their steps."""

    num_started: Tensor  # int32 (), number of sentences that have had a slot so far
    slots: _Slots
    results: Hypotheses  # (batch, ...), of all sentences, at the last refill of slots


class _Loop:
    """The base of both kinds of loops. Arguments are those of `step_by_step`."""

    def __init__(self, steps, step, decoder_state, hypotheses, buffer_length, num_slots):
        self.steps, self.step, self.decoder_state = steps, step, decoder_state
        self.buffer_length = buffer_length
        is_open = _is_open(hypotheses.done)  # (batch,)
        batch_size = ops.shape(is_open)[0]
        self.num_slots = batch_size if num_slots is None else _smaller(batch_size, num_slots)
        # Sentences start in this order. Those that are done from the start need no slot.
        self.num_sentences = _count(is_open)
        self.order = first_where(is_open, batch_size)  # (batch,)

    def first(self, hypotheses, size):
        """Returns the search before its first step: a sentence in each slot."""
        sentences = self.order[: self.num_slots]  # (slots,)
        decoder_state = self.steps.grow(take_sentences(self.decoder_state, sentences), size)
        num_started = ops.cast(self.num_slots, "int32")
        slots = _Slots(
            sentences=sentences,
            position=ops.zeros_like(sentences),
            decoder_state=decoder_state,
            hypotheses=take_sentences(hypotheses, sentences),
        )
        return _Search(num_started, slots, hypotheses)

    def all_started(self, search):
        return search.num_started >= self.num_sentences

    def one_step(self, slots):
        decoder_state, hypotheses = self.step(
            slots.sentences, slots.position, slots.decoder_state, slots.hypotheses
        )
        # A sentence that is done stays at its position, within the state's room.
        position = slots.position + ops.cast(_is_open(hypotheses.done), "int32")
        return _Slots(slots.sentences, position, decoder_state, hypotheses)

    def steps_until(self, num_open, size, search):
        """Takes steps until it is time to refill or close slots, or to grow the state.

        It stops once an eighth of the slots is free for waiting sentences, once only `num_open`
        sentences are open and none waits, or once the state's room is full.
        """
        refill_at = ops.cast(self.num_slots - _larger(self.num_slots // 8, 1), "int32")

        def goes_on(slots):
            wait = ops.where(self.all_started(search), num_open, refill_at)
            return (slots.num_open > wait) & slots.have_room(size)

        [slots] = ops.while_loop(goes_on, lambda slots: (self.one_step(slots),), (search.slots,))
        return search._replace(slots=slots)

    def refilled(self, size, search):
        """Stores the results so far, and moves waiting sentences into the slots of done ones.

        Example: 6 sentences, 3 slots, `order` = 0 1 2 3 4 5. Sentences 0 and 2 are done:

            slots.sentences                   0  1  2     num_started = 3
            is_free                           1  0  1
            turn = 3 + cumsum(is_free) - 1    3  3  4     index in `order`, if the slot is free
            is_new = is_free & (turn < 6)     1  0  1     free, and a sentence is waiting
            sentences                         3  1  4     num_started = 5
            position                          0  7  0     sentence 1 stays where it was
        """
        num_started, slots, results = search
        results = tree.map_structure(
            lambda whole, rows: ops.scatter_update(whole, slots.sentences[:, None], rows),
            results,
            slots.hypotheses,
        )
        is_free = ops.logical_not(slots.is_open)  # (slots,)
        turn = num_started + ops.cumsum(ops.cast(is_free, "int32")) - 1  # (slots,)
        is_new = is_free & (turn < self.num_sentences)  # (slots,)
        next_sentences = ops.take(self.order, ops.where(is_new, turn, 0), axis=0)  # (slots,)
        sentences = ops.where(is_new, next_sentences, slots.sentences)
        initial_state, initial_hypotheses = take_sentences((self.decoder_state, results), sentences)
        slots = _Slots(
            sentences=sentences,
            position=ops.where(is_new, 0, slots.position),
            decoder_state=self.steps.refill(
                slots.decoder_state, self.steps.grow(initial_state, size), is_new
            ),
            # A sentence that has not started has its initial hypotheses among the results.
            hypotheses=tree.map_structure(
                lambda new, old: where_sentence(is_new, new, old),
                initial_hypotheses,
                slots.hypotheses,
            ),
        )
        return _Search(num_started + _count(is_new), slots, results)

    def with_room(self, size, search):
        slots = search.slots
        slots = slots._replace(decoder_state=self.steps.grow(slots.decoder_state, size))
        return search._replace(slots=slots)


class _LoopOfAnyShape(_Loop):
    """The loop for shapes that may change: closes slots by halves, grows the state as needed.

    The state grows within a loop, so that each of its tensors is a variable of that loop. Outside
    of it, TensorFlow would make one tensor of several that begin as equal zeros.
    """

    def run(self, hypotheses):
        self.steps.allow_in_place()

        def some_steps(size, search):
            slots = search.slots
            farthest = ops.max(ops.where(slots.is_open, slots.position, 0), initial=0)
            needed = ops.min(ops.where(sizes > farthest, sizes, self.buffer_length))
            size = ops.maximum(size, needed)
            search = self.with_room(size, search)
            search = self.steps_until(search.slots.num_open // 2, size, search)
            search = self.refilled(size, search)
            slots = ops.cond(
                self.all_started(search),
                lambda: search.slots.remaining(search.slots.num_open),
                lambda: search.slots,
            )
            return size, search._replace(slots=slots)

        sizes = ops.array(sizes_up_to(self.buffer_length, STATE_SIZES))
        no_room = ops.cast(ops.minimum(0, self.buffer_length), "int32")
        _, search = ops.while_loop(
            lambda size, search: search.slots.num_open > 0,
            some_steps,
            (no_room, self.first(hypotheses, no_room)),
        )
        return search.results


class _LoopOfFewShapes(_Loop):
    """The loop for compilers, where each shape is new code: closes slots once, to a quarter."""

    def run(self, hypotheses):
        *sizes, last = sizes_up_to(self.buffer_length, SIZES_TO_COMPILE)
        few = self.num_slots // 4
        search = self.first(hypotheses, 0)
        for size in sizes:
            search = self._in_room(size, few, search)

        def of_few():
            slots = search.slots.remaining(few)
            return self._in_room(last, 0, search._replace(slots=slots)).results

        def of_all():
            return self._in_room(last, 0, search).results

        if isinstance(few, int) and few == 0:
            return of_all()
        return ops.cond(self.all_started(search) & (search.slots.num_open <= few), of_few, of_all)

    def _in_room(self, size, few, search):
        """Takes steps in a state of this size until a sentence fills it or only `few` are open."""

        def goes_on(search):
            is_over = self.all_started(search) & (search.slots.num_open <= few)
            return ops.logical_not(is_over) & search.slots.have_room(size)

        def some_steps(search):
            search = self.steps_until(few, size, search)
            return (self.refilled(size, search),)

        [search] = ops.while_loop(goes_on, some_steps, (self.with_room(size, search),))
        return search


def _is_open(done):
    """The sentences (batch,) of which `done`, (batch,) or (batch, beams), is not all true."""
    not_done = ops.logical_not(done)
    return not_done if len(done.shape) == 1 else ops.any(not_done, axis=1)


def _count(is_one):
    return ops.sum(ops.cast(is_one, "int32"))


def first_where(condition: Tensor, count: Tensor) -> Tensor:
    """Finds the first `count` entries at which a condition holds, then the first of the others.

    Not all backends' `top_k` returns equal values in their order, so no two are equal here.

    Args:
        condition: boolean (..., n).
        count: how many entries to find, at most n.

    Returns:
        int32 (..., count), indices into the last axis.

    Example:
        >>> ops.convert_to_numpy(first_where(ops.array([False, True, False, True]), 3)).tolist()
        [1, 3, 0]
    """
    n = ops.shape(condition)[-1]
    _, indices = ops.top_k(ops.cast(condition, "int32") * n - ops.arange(n, dtype="int32"), count)
    return indices


def _smaller(x, y):
    return min(x, y) if isinstance(x, int) else ops.minimum(x, y)


def _larger(x, y):
    return max(x, y) if isinstance(x, int) else ops.maximum(x, y)


def take_sentences(nest, sentences):
    """Takes the rows `sentences`, int32 (n,), of each tensor (batch, ...); None stays None."""
    return tree.map_structure(lambda x: None if x is None else gather(x, sentences), nest)


def where_sentence(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Chooses `x` or `y`, both (batch, ...), for each sentence; `condition` is boolean (batch,)."""
    condition = ops.reshape(condition, (-1,) + (1,) * (len(x.shape) - 1))
    return ops.where(condition, x, y)


def sizes_up_to(length: Tensor, sizes: Sequence[int]) -> list:
    """Lists the sizes of a state while hypotheses grow to `length`, which is the last size."""
    if isinstance(length, int):
        return [*(size for size in sizes if size < length), length]
    return [*(ops.minimum(size, length) for size in sizes), length]


def at_position(x: Tensor, position: Tensor) -> Tensor:
    """Takes along axis 2, per sentence: (batch, n, length), int32 (batch,) -> (batch, n)."""
    return gather_rows(ops.swapaxes(x, 1, 2), position[:, None])[:, 0]
