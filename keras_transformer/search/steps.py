"""Search over a Transformer's cached keys and values (paper, section 6.1)."""

from collections.abc import Sequence

import keras
from keras import ops

from keras_transformer.errors import UserError
from keras_transformer.fast.dispatch import value_of, without_gradient
from keras_transformer.fast.rows import gather_rows
from keras_transformer.layers.cache import Past
from keras_transformer.model import Transformer
from keras_transformer.options.search import SearchOptions
from keras_transformer.search.beam import BeamSearchResult, beam_search
from keras_transformer.search.constraints import lengths_of
from keras_transformer.search.loop import DecoderSteps
from keras_transformer.search.sampling import sample
from keras_transformer.search.targets import Required, Targets


@without_gradient
def search(
    model: Transformer | Sequence[Transformer],
    source_ids,
    options: SearchOptions = SearchOptions(),
    required: Required = Required(),
    seed: int | keras.random.SeedGenerator | None = None,
    num_slots: int | None = None,
    sentence_ids=None,
) -> BeamSearchResult:
    """Finds the translations of highest score (paper, section 6.1), or samples translations.

    The encoder runs once, and so does the projection of its output to keys and values, which all
    beams share. Each step of the decoder computes one position.

    Args:
        model: a built `Transformer`, or several of one vocabulary, whose probabilities are
            averaged.
        source_ids: integer (batch, source_length), each row ending in the end symbol, padded. A
            row of padding alone has no translation, and takes no step.
        options: options of the search.
        required: what each translation must contain. The lengths of `options` count what follows a
            prefix.
        seed: seed of sampling, in any form that `sample` takes; default: `options.seed`.
        num_slots: number of batch slots, that is, of sentences decoded at a time. A sentence that
            is done leaves its slot to the next. Sentences of similar length waste the least. None
            for one slot per sentence.
        sentence_ids: int32 (batch,), the index of each sentence in the whole input. Sampling for
            a sentence depends on this index and the seed. None counts from 0.

    Returns:
        A `BeamSearchResult`: `ids` int32 (batch, n_best, prefix_length + longest) and `scores`
        float32 (batch, n_best). Here, `longest` is the maximum length of a translation.

    Raises:
        UserError: `required` is no `Required`, such as a prefix alone, or an option is invalid; or
            the model is no `Transformer`, or sources are no such ids.

    On JAX, call it within `jax.jit`: otherwise JAX compiles the loop again for each call.

    Example:
        >>> search(model, [[17, 5, 2]], SearchOptions(beam_size=4)).ids.shape
        TensorShape([1, 1, 53])
    """
    if not isinstance(required, Required):
        raise UserError(f"required must be a Required: found {type(required).__name__}")
    models = model if isinstance(model, Sequence) else [model]
    if others := [type(one).__name__ for one in models if not isinstance(one, Transformer)]:
        raise UserError(
            f"model must be a Transformer, or several: found {others[0]}; for another model, write "
            "its `DecoderSteps` for `beam_search`"
        )
    if not models:
        raise UserError("model must be a Transformer, or several: found none")
    source_ids = ops.convert_to_tensor(source_ids, "int32")
    if len(source_ids.shape) != 2:
        raise UserError(
            "source_ids must be ids of shape (batch, source_length): found shape "
            f"{tuple(source_ids.shape)}"
        )
    targets = _targets(models[0].config, source_ids, options, required)
    all_steps = [TransformerSteps(model, source_ids) for model in models]
    steps = all_steps[0] if len(all_steps) == 1 else EnsembleSteps(all_steps)
    if options.sample:
        seed = options.seed if seed is None else seed
        return sample(steps, targets, options, num_slots, seed, sentence_ids)
    return beam_search(steps, targets, options, num_slots)


def _targets(config, source_ids, options, required):
    """The `Targets` for sources (batch, source_length): what is required, and room for the rest."""
    batch, source_length = ops.shape(source_ids)
    lengths = lengths_of(source_ids, config.pad_id)
    max_lengths, buffer_length = options.longest(lengths), options.room(source_length)
    prefix_ids, first_id, terms = required
    if prefix_ids is not None:
        prefix_ids = ops.convert_to_tensor(prefix_ids, "int32")
        max_lengths = max_lengths + lengths_of(prefix_ids, config.pad_id)
        buffer_length = buffer_length + ops.shape(prefix_ids)[1]
    if first_id is not None:
        max_lengths, buffer_length = max_lengths + 1, buffer_length + 1
        if prefix_ids is not None:
            first_ids = ops.full((batch, 1), first_id, dtype="int32")
            prefix_ids = ops.concatenate([first_ids, prefix_ids], axis=1)
    return Targets(
        start_ids=ops.full((batch,), config.start_id, dtype="int32"),
        max_lengths=ops.where(lengths > 0, max_lengths, 0),  # a row of padding takes no step
        buffer_length=buffer_length,
        prefix_ids=prefix_ids,
        end_id=config.end_id,
        pad_id=config.pad_id,
        first_id=first_id,
        terms=terms,
    )


class TransformerSteps(DecoderSteps):
    """The decoder of a Transformer, step by step, for given sources.

    Its state has three parts:

    - the keys and values of cross-attention, and the source mask, which do not change;
    - the paths of the beams, int32 (batch, beam_size, size): for each position of a beam, the beam
      whose entry in the cache belongs to it;
    - a cache of the keys and values of self-attention, which stay where they were written.

    Reordering beams changes only their paths. Example: two beams, three positions. After the
    first position both beams continue beam 0; after the second each continues itself:

        path of beam 0    0 0 0    attends to the entries of beam 0
        path of beam 1    0 1 1    attends to the first entry of beam 0, then to its own

    Args:
        model: a built `Transformer`.
        source_ids: int32 (batch, source_length).
    """

    def __init__(self, model: Transformer, source_ids):
        self.model = model
        self.source_ids = source_ids
        self.in_place = False

    def allow_in_place(self):
        self.in_place = True

    def initial_state(self, batch, beam_size):
        memory, source_mask = self.model.encode(self.source_ids)
        # Once per search, and not in each step: a copy of a matrix, and reading the variables.
        self.logits_kernel = self.model.logits_kernel()
        self.weights = [(each, value_of(each)) for each in self.model.decoding_weights]
        paths = ops.zeros((batch, beam_size, 0), "int32")
        cache = self.model.decoder.new_cache(batch, beam_size)
        return (self.model.decoder.prepare(memory), source_mask), paths, cache

    def grow(self, state, size):
        memory, paths, cache = state
        beam_size = ops.shape(paths)[1]
        paths = ops.pad(paths, [(0, 0), (0, 0), (0, size - ops.shape(paths)[2])])
        return memory, paths, self.model.decoder.grow_cache(cache, size * beam_size)

    def refill(self, state, initial, is_new):
        # Cached keys and values of the previous sentence stay: no path leads to them.
        memory, paths, cache = state
        return super().refill(memory, initial[0], is_new), paths, cache

    def step(self, ids, position, state):
        memory, paths, cache = state
        batch, beam_size, size = ops.shape(paths)
        beams = ops.arange(beam_size, dtype="int32")
        positions = ops.arange(size, dtype="int32")
        position_of_each = position[:, None, None]
        paths = ops.where(ops.equal(positions, position_of_each), beams[:, None], paths)
        is_past = positions <= position_of_each  # (batch, 1, size)
        # (batch, beam_size, size, beam_size): query beam, key position, key beam
        visible = ops.equal(paths[..., None], beams) & is_past[..., None]
        visible = ops.reshape(visible, (batch, 1, beam_size, size * beam_size))
        past = Past(position, visible, self.in_place)
        with keras.StatelessScope(self.weights):
            logits, cache = self.model.decode_step(ids, past, cache, *memory, self.logits_kernel)
        return logits, (memory, paths, cache)

    def reorder(self, state, beams):
        memory, paths, cache = state
        return memory, gather_rows(paths, beams), cache


class EnsembleSteps(DecoderSteps):
    """An ensemble of decoders of one vocabulary, which averages their probabilities.

    Args:
        members: the decoders.
    """

    def __init__(self, members: Sequence[DecoderSteps]):
        self.members = members

    def allow_in_place(self):
        for member in self.members:
            member.allow_in_place()

    def initial_state(self, batch, beam_size):
        return tuple(member.initial_state(batch, beam_size) for member in self.members)

    def grow(self, state, size):
        return tuple(m.grow(s, size) for m, s in zip(self.members, state, strict=True))

    def refill(self, state, initial, is_new):
        both = zip(self.members, state, initial, strict=True)
        return tuple(m.refill(old, new, is_new) for m, old, new in both)

    def step(self, ids, position, state):
        results = [m.step(ids, position, s) for m, s in zip(self.members, state, strict=True)]
        log_probs = [ops.log_softmax(ops.cast(logits, "float32")) for logits, _ in results]
        # The mean's factor 1 / len(members) changes all logits alike, so it is left out.
        return ops.logsumexp(ops.stack(log_probs), axis=0), tuple(state for _, state in results)

    def reorder(self, state, beams):
        return tuple(m.reorder(s, beams) for m, s in zip(self.members, state, strict=True))
