"""Trains a translation model on all GPUs of a machine, with `fit` under a strategy.

    python examples/fit_mirrored.py train.en train.de model.keras [VOCAB_SIZE [EPOCHS]]

Line n of the second file translates line n of the first.
"""

import sys

import keras
import tensorflow as tf

import keras_transformer as kt

strategy = tf.distribute.MirroredStrategy()
print(f"{strategy.num_replicas_in_sync} devices")
try:
    source, target, model_file, *sizes = sys.argv[1:]
    vocab_size, epochs = (*map(int, sizes), *(10_000, 10)[len(sizes) :])
    if not model_file.endswith(".keras"):
        raise ValueError(f"expected a file to save that ends in .keras, found {model_file}")
    tokenizer = kt.SubwordTokenizer.train([source, target], vocab_size)
    batches = kt.data.translation_dataset(
        source, target, tokenizer, tokens_per_batch=4096 * strategy.num_replicas_in_sync
    )
except ValueError as error:  # a kt.UserError is one
    sys.exit(f"{error}; usage: {__doc__.splitlines()[2].strip()}")

config = kt.TransformerConfig.from_preset("tiny", vocab_size=tokenizer.vocab_size)
with strategy.scope():  # everything that has variables
    model = kt.Transformer(config)
    schedule = kt.InverseSquareRootSchedule.with_peak(0.005, config.d_model, warmup_steps=1000)
    model.compile(
        optimizer=keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9),
        loss=kt.LabelSmoothedCrossEntropy(0.1),
        metrics=[kt.TokenAccuracy(), kt.Perplexity(), kt.TokenCount()],
    )
model.fit(batches, epochs=epochs)
model.save(model_file)

translator = kt.Translator(model, tokenizer)
with open(source, encoding="utf-8") as lines:
    print(*translator([next(lines)]))
