"""Learning: a small model learns to solve a whole task, through the public API alone."""

import keras
import numpy as np
import pytest
from keras import ops

import keras_transformer as kt
from keras_transformer.search import SearchOptions, search

START, END, FIRST = 1, 2, 3
VOCAB_SIZE = 13
MAX_LENGTH = 5


def random_rows(rng, count):
    """Sequences of random symbols and random length, no two the same."""
    rows = set()
    while len(rows) < count:
        length = rng.integers(2, MAX_LENGTH + 1)
        rows.add(tuple(rng.integers(FIRST, VOCAB_SIZE, size=length).tolist()))
    return sorted(rows, key=lambda row: rng.random())


def padded(rows):
    return np.array([[*row] + [0] * (MAX_LENGTH + 1 - len(row)) for row in rows], "int32")


@pytest.mark.slow
def test_a_small_model_learns_to_reverse_sequences():
    rows = random_rows(np.random.default_rng(0), 6200)
    targets = [row[::-1] for row in rows]
    source_ids = padded([[*row, END] for row in rows])
    target_ids = padded([[START, *row] for row in targets])
    labels = padded([[*row, END] for row in targets])
    held_out, seen = slice(0, 200), slice(200, None)

    config = kt.TransformerConfig(
        vocab_size=VOCAB_SIZE,
        num_encoder_layers=1,
        num_decoder_layers=1,
        d_model=64,
        d_ff=128,
        num_heads=4,
        dropout=0.0,
    )
    keras.utils.set_random_seed(2)
    model = kt.Transformer(config)
    schedule = kt.InverseSquareRootSchedule.with_peak(0.003, d_model=64, warmup_steps=100)
    model.compile(
        optimizer=keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9),
        loss=kt.LabelSmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity()],
        jit_compile=False,
    )
    model.fit(
        {"source_ids": source_ids[seen], "target_ids": target_ids[seen]},
        labels[seen],
        batch_size=100,
        epochs=5,
        verbose=0,
    )

    found = ops.convert_to_numpy(
        search(model, source_ids[held_out], SearchOptions(beam_size=1)).ids[:, 0]
    )
    np.testing.assert_array_equal(found[:, : MAX_LENGTH + 1], labels[held_out])
    assert np.all(found[:, MAX_LENGTH + 1 :] == 0)
