"""A decoder whose log-probabilities plain Python can compute too."""

import numpy as np
from keras import ops

from keras_transformer.search import DecoderSteps

PAD, START, END = 0, 1, 2
ROWS = 211


class Toy(DecoderSteps):
    """Logits that depend on the source and, by a hash, on every symbol so far.

    The most likely symbol is often padding, which no hypothesis may contain.
    """

    def __init__(self, seed, sources, vocab_size=5, end_bias=0.0):
        rng = np.random.default_rng(seed)
        self.logits = rng.normal(scale=1.5, size=(ROWS, vocab_size)).astype("float32")
        self.logits[:, [PAD, END]] += 2.0, end_bias
        self.sources = np.array(sources, "int32")

    def initial_state(self, batch, beam_size):
        return ops.repeat(ops.convert_to_tensor(self.sources)[:, None], beam_size, axis=1)

    def step(self, ids, position, state):
        state = (31 * state + ids) % ROWS
        return ops.take(self.logits, state, axis=0), state

    def following(self, row):
        """A function from symbols to log-probabilities of the next one."""

        def log_probs(symbols):
            state = self.sources[row]
            for symbol in [START, *symbols]:
                state = (31 * state + symbol) % ROWS
            return log_softmax(self.logits[state].astype("float64"))

        return log_probs


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum())


def penalty(length, options):
    base = {"power": length, "gnmt": (5 + length) / 6}[options.length_penalty]
    return base**options.alpha
