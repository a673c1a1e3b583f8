"""An encoder of causal layers computes position by position what it computes at once."""

import numpy as np
import pytest
from helpers import randomise
from keras import ops

from keras_transformer.layers import (
    Convolution,
    Encoder,
    EncoderLayer,
    Recurrence,
    RestrictedSelfAttention,
    Rotation,
    SelfAttention,
)
from keras_transformer.layers.cache import Past

BATCH, LENGTH, WIDTH = 3, 6, 8
PARTS = {
    "SelfAttention": lambda: SelfAttention(WIDTH, 2, causal=True),
    "SelfAttention, rotated": lambda: SelfAttention(WIDTH, 2, causal=True, rotation=Rotation()),
    "RestrictedSelfAttention": lambda: RestrictedSelfAttention(WIDTH, 2, radius=2, causal=True),
    "RestrictedSelfAttention, rotated": lambda: RestrictedSelfAttention(
        WIDTH, 2, radius=2, causal=True, rotation=Rotation()
    ),
    "Convolution": lambda: Convolution(WIDTH, 3, causal=True),
    "Convolution, separable": lambda: Convolution(WIDTH, 3, separable=True, causal=True),
    "Recurrence": lambda: Recurrence(WIDTH, causal=True),
}
# The beam that each beam continues, at each position.
PARENTS = {1: [[0]] * LENGTH, 2: [[0, 1], [0, 1], [1, 1], [0, 1], [1, 0], [0, 0]]}


@pytest.mark.parametrize(
    ("pre_norm", "beam_size"), [(False, 2), (True, 1)], ids=["post-norm, beams", "pre-norm, greedy"]
)
@pytest.mark.parametrize("name", PARTS)
def test_steps_compute_what_a_call_computes(name, pre_norm, beam_size):
    encoder = Encoder(
        [
            EncoderLayer(WIDTH, d_ff=12, pre_norm=pre_norm, self_attention=PARTS[name]())
            for _ in range(2)
        ]
    )
    encoder.build((None, None, WIDTH))
    randomise(encoder)
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(BATCH, beam_size, LENGTH, WIDTH)).astype("float32")
    outputs, paths = _by_steps(encoder, inputs, PARENTS[beam_size])
    for path in paths:  # the beam that has written each position
        sequence = inputs[:, path, np.arange(LENGTH)]  # (batch, length, width)
        found = outputs[:, path, np.arange(LENGTH)]
        np.testing.assert_allclose(found, encoder(sequence), atol=2e-5)


def _by_steps(encoder, inputs, parents):
    """Outputs like `inputs`, and for each final beam the beams that hold its positions."""
    beam_size = inputs.shape[1]
    cache = encoder.new_cache(BATCH, beam_size)
    paths = np.full((beam_size, LENGTH), -1)
    outputs = []
    for i in range(LENGTH):
        if i in (0, 3):  # the cache grows on the way
            cache = encoder.grow_cache(cache, (i + 3) * beam_size)
        paths = paths[parents[i]]
        paths[:, i] = np.arange(beam_size)
        visible = paths[:, : (3 if i < 3 else 6), None] == np.arange(beam_size)
        visible = np.broadcast_to(
            visible.reshape(1, 1, beam_size, -1), (BATCH, 1, beam_size, visible[0].size)
        )
        position = np.full(BATCH, i, "int32")
        past = Past(position, ops.convert_to_tensor(visible))
        output, cache = encoder.step(ops.reshape(inputs[:, :, i], (-1, WIDTH)), past, cache)
        outputs.append(ops.reshape(output, (BATCH, beam_size, WIDTH)))
    return np.stack(outputs, axis=2), paths
