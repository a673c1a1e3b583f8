"""Fine-tunes a trained model on other text, with Keras's `fit`.

    python examples/fine_tune.py MODEL_DIR ours.en ours.de NEW_MODEL_DIR [EPOCHS]

All commands, such as `keras-transformer translate`, take NEW_MODEL_DIR. The command

    keras-transformer train --start_from=MODEL_DIR --model_dir=NEW_MODEL_DIR \\
        --train_source=ours.en --train_target=ours.de \\
        --learning_rate=0.0005 --warmup_steps=200 --steps=2000

fine-tunes too: it validates, keeps checkpoints to average, and resumes where it was interrupted.
"""

import shlex
import sys

import keras

import keras_transformer as kt

try:
    start, source, target, new, *rest = sys.argv[1:]
    [epochs] = map(int, rest or ["3"])
    model, tokenizer = kt.ModelDir(start).load_model(), kt.ModelDir(start).load_tokenizer()
    kt.ModelDir(new).check_new()  # before, not after, the training
    batches = kt.data.translation_dataset(source, target, tokenizer, tokens_per_batch=2048)
except ValueError as error:  # a kt.UserError is one
    sys.exit(f"{error}; usage: {__doc__.splitlines()[2].strip()}")

model.compile(
    # A small, constant rate: large steps would make the model forget what it knows.
    optimizer=keras.optimizers.Adam(1e-4, beta_2=0.98, epsilon=1e-9),
    loss=kt.LabelSmoothedCrossEntropy(model.config.label_smoothing, model.config.pad_id),
    metrics=[metric(pad_id=model.config.pad_id) for metric in (kt.TokenAccuracy, kt.Perplexity)],
    jit_compile=False,  # XLA would compile the step for each length of batches
)
history = model.fit(batches, epochs=epochs, verbose=2).history

recorded = kt.ModelDir(start).load_training()
kt.ModelDir(new).create_trained(
    model, tokenizer, recorded["target_lang"], shlex.join(sys.argv), recorded["source_lang"]
)
