"""Trains a text classifier, an encoder alone, as a functional Keras model made of our layers.

    python examples/classifier.py [TRAIN.tsv HELD_OUT.tsv]

A line is a label, 0 or 1, a tab and a text. Without files, the reviews are made up: "not good" is
bad, "not bad" is good, and other sentences of a review do not matter.
"""

import itertools
import random
import sys

import keras
import numpy as np

import keras_transformer as kt


def read(path):
    with open(path, encoding="utf-8") as lines:
        pairs = [line.rstrip("\n").split("\t", 1) for line in lines]
    if not all(text.strip() for _, text in pairs):  # the mean of no subwords is not a number
        raise ValueError(f"{path}: expected a text in each line, found an empty one")
    return [text for _, text in pairs], np.array([int(label) for label, _ in pairs])


def made_up():
    words = itertools.product(
        ["plot", "cast", "music", "end"], ["", "not "], ["good", "bad", "great", "dull"]
    )
    others = ["", "I was late.", "The seats were not good.", "We sat at the back, in the dark."]
    reviews = [
        (f"{before} The {noun} was {no}{word}. {after}", (word in ("good", "great")) == (no == ""))
        for (noun, no, word), before, after in itertools.product(words, others, others)
    ]
    random.Random(1).shuffle(reviews)
    texts, labels = zip(*reviews, strict=True)
    return (texts[:400], np.array(labels[:400])), (texts[400:], np.array(labels[400:]))


try:
    train, held_out = map(read, sys.argv[1:]) if sys.argv[1:] else made_up()
    tokenizer = kt.SubwordTokenizer.train_from_sentences(train[0], vocab_size=380)
except (OSError, ValueError) as error:  # a kt.UserError is a ValueError
    sys.exit(f"{error}; usage: {__doc__.splitlines()[2].strip()}")

ids = keras.Input((None,), dtype="int32")
x = kt.layers.TokenEmbedding(tokenizer.vocab_size, 32, mask_zero=True)(ids)  # 0 is padding
x = kt.layers.PositionalEncoding(32)(x)
layers = [kt.layers.EncoderLayer(32, num_heads=4, d_ff=64, pre_norm=True) for _ in range(2)]
x = kt.layers.Encoder(layers)(x)
x = keras.layers.GlobalAveragePooling1D()(x)  # the mean over what is not masked
model = keras.Model(ids, keras.layers.Dense(1, activation="sigmoid")(x))
model.compile(keras.optimizers.Adam(0.002), "binary_crossentropy", metrics=["accuracy"])

x, y = tokenizer.tokenize(train[0]).to_tensor(), train[1]
model.fit(x, y, batch_size=16, epochs=20, verbose=2)
_, accuracy = model.evaluate(tokenizer.tokenize(held_out[0]).to_tensor(), held_out[1], verbose=0)
print(f"held-out accuracy {accuracy:.3f}")
