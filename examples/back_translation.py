"""Learns from text of the target language alone, by back-translation (Edunov et al., 2018).

    python examples/back_translation.py [NUM_REAL [NUM_GERMAN [STEPS]]]

A model that translates backwards, German to English, is trained on few real pairs. By sampling, it
translates German sentences that have no English side. The synthetic pairs, drawn English and real
German, train the forward model together with the real pairs. The corpus is the built-in one.
"""

import sys
import tempfile
from pathlib import Path

import keras

import keras_transformer as kt
from keras_transformer.data.builtin.corpus import builtin_pairs

try:
    given = map(int, sys.argv[1:])
    num_real, num_german, steps = (*given, *(2000, 8000, 600)[len(sys.argv) - 1 :])
    if min(num_real, num_german, steps) < 1:
        raise ValueError("expected numbers of at least 1")
    pairs = list(builtin_pairs("train", num_real + num_german))
    english, german = zip(*pairs[:num_real], strict=True)
    german_alone = [german for _, german in pairs[num_real:]]  # their English is not used
    sentences = [*english, *german, *german_alone]
    tokenizer = kt.SubwordTokenizer.train_from_sentences(sentences, vocab_size=1000)
except ValueError as error:  # a kt.UserError is one
    sys.exit(f"{error}; usage: {__doc__.splitlines()[2].strip()}")


def trained(source, target):
    """A model that translates from source sentences to target sentences."""
    size = tokenizer.vocab_size
    config = kt.TransformerConfig.from_preset("demo", vocab_size=size, pre_norm=True)
    model = kt.Transformer(config)
    schedule = kt.InverseSquareRootSchedule.with_peak(0.005, config.d_model, warmup_steps=200)
    adam = keras.optimizers.Adam(schedule, beta_2=0.98, epsilon=1e-9)
    model.compile(adam, kt.LabelSmoothedCrossEntropy(0.1), jit_compile=False)
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "source"), Path(folder, "target")
        for file, lines in zip(files, (source, target), strict=True):
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        batches = kt.data.translation_dataset(*files, tokenizer, tokens_per_batch=2048)
        model.fit(batches.repeat(), steps_per_epoch=steps, verbose=2)
    return model


backward = trained(german, english)
# Drawn sentences vary as real ones do. The likeliest ones would be too simple, and all alike.
draw = kt.Translator(backward, tokenizer, sample=True, beam_size=1, seed=1)
drawn = draw(german_alone)
real_alone = trained(english, german)
forward = trained([*english, *drawn], [*german, *german_alone])

sources, references = zip(*builtin_pairs("test", 200), strict=True)
for name, model in {"real pairs": real_alone, "with synthetic pairs": forward}.items():
    translations = kt.Translator(model, tokenizer)(sources)
    scores = kt.evaluation.translation_scores(translations, references)
    print(f"{scores['bleu'].value:5.1f} BLEU  {name}")
