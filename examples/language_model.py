"""Trains a language model, a decoder alone, and generates sentences with samplers of keras-nlp.

    python examples/language_model.py [TEXT [EPOCHS]]

TEXT has one sentence a line; without it, the sentences are those of the built-in corpus.
"""

import sys

import keras
import keras_nlp

import keras_transformer as kt
from keras_transformer.data.builtin.corpus import builtin_pairs
from keras_transformer.text import END_ID, PAD_ID, START_ID

D_MODEL, LENGTH = 64, 32
try:
    if sys.argv[1:]:
        with open(sys.argv[1], encoding="utf-8") as lines:
            sentences = lines.read().splitlines()
    else:
        sentences = [english for english, _ in builtin_pairs("train", 2000)]
    epochs = int(sys.argv[2]) if sys.argv[2:] else 3
    tokenizer = kt.SubwordTokenizer.train_from_sentences(sentences, vocab_size=400)
except (OSError, ValueError) as error:  # a kt.UserError is a ValueError
    sys.exit(f"{error}; usage: {__doc__.splitlines()[2].strip()}")

packer = keras_nlp.layers.StartEndPacker(LENGTH + 1, START_ID, END_ID, PAD_ID)


def new_layer():
    attention = kt.layers.SelfAttention(D_MODEL, num_heads=4, causal=True)
    return kt.layers.EncoderLayer(
        D_MODEL, d_ff=4 * D_MODEL, pre_norm=True, self_attention=attention
    )


embedding = kt.layers.TokenEmbedding(tokenizer.vocab_size, D_MODEL, mask_zero=True)
ids = keras.Input((None,), dtype="int32")
x = kt.layers.PositionalEncoding(D_MODEL)(embedding(ids))
x = kt.layers.Encoder([new_layer() for _ in range(2)])(x)
model = keras.Model(ids, embedding(x, reverse=True))  # logits of the token that follows
loss = kt.LabelSmoothedCrossEntropy(0.0)
model.compile(keras.optimizers.Adam(0.003), loss, metrics=[kt.Perplexity()])

rows = packer(tokenizer(sentences))  # (sentences, LENGTH + 1): start, sentence, end, padding
history = model.fit(rows[:, :-1], rows[:, 1:], batch_size=32, epochs=epochs, verbose=2).history


def write(beginning, sampler):
    """Continues a sentence: the sampler fills a row up to its length, or to the end symbol."""
    prompt = packer(tokenizer([beginning]), add_end_value=False)[:, :LENGTH]
    real = prompt != PAD_ID

    def next_token(row, cache, index):
        return model(row)[:, index - 1], None, cache  # causal: the padding after it has no effect

    start = int(keras.ops.sum(real))
    row = sampler(next_token, prompt, index=start, mask=real, stop_token_ids=[END_ID], model=model)
    return tokenizer.detokenize(row)[0].numpy().decode()


for sampler in (keras_nlp.samplers.GreedySampler(), keras_nlp.samplers.TopPSampler(p=0.9, seed=1)):
    print(write("The girls", sampler))
