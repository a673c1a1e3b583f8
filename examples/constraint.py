"""Translates under a constraint of your own: phrases that no translation may contain.

    python examples/constraint.py MODEL_DIR "a phrase" "another one" < sentences.txt

A constraint is a function of the symbols so far. It returns a mask of the symbols that may follow.
Written in `keras.ops`, it works in beam search and sampling, compiled with XLA, and in exports.
"""

import sys

from keras import ops

import keras_transformer as kt


def never(tokenizer, phrases):
    """A constraint: no translation contains one of the phrases, as the vocabulary splits them."""
    forbidden = [tokenizer.tokenize_target(phrase).numpy().tolist() for phrase in phrases]
    if not all(forbidden):
        raise kt.UserError("expected phrases of at least one word, found an empty one")
    longest = max(map(len, forbidden))
    vocabulary = ops.arange(tokenizer.vocab_size, dtype="int32")

    def may_follow(ids):  # int32 (batch, beam_size, length), of which the last column is the latest
        # Padding on the left: a phrase may be longer than the symbols so far.
        ids = ops.pad(ids, [(0, 0), (0, 0), (longest, 0)], constant_values=-1)
        allowed = ops.ones(tokenizer.vocab_size, "bool")
        for *beginning, last in forbidden:
            completes = ops.equal(vocabulary, last)  # (vocab_size,)
            for back, symbol in enumerate(reversed(beginning), start=1):
                completes = completes & ops.equal(ids[..., -back, None], symbol)
            allowed = allowed & ops.logical_not(completes)  # (batch, beam_size, vocab_size)
        return allowed

    return may_follow


try:
    path, phrase, *others = sys.argv[1:]
    model_dir = kt.ModelDir(path)
    model, tokenizer = model_dir.load_model(), model_dir.load_tokenizer()
    constraint = never(tokenizer, [phrase, *others])
except ValueError as error:  # a kt.UserError is one
    sys.exit(f"{error}; usage: {__doc__.splitlines()[2].strip()}")

translator = kt.Translator(model, tokenizer, constraint=constraint)
for translation in translator(line.rstrip("\n") for line in sys.stdin):
    print(translation)
