"""Compares an imported model with OpenNMT-tf itself: token ids, logits and translations.

The two need different versions of TensorFlow, so they run one after the other:

    pip install opennmt-tf==2.32.0 tensorflow-cpu==2.13.1   # with Python 3.10, for `theirs`
    python compare_opennmt.py theirs RUN DATA.yml LINES.en LINES.de THEIRS.npz
    python compare_opennmt.py ours RUN DATA.yml LINES.en LINES.de THEIRS.npz

RUN is a folder of checkpoints with its model_description.py. Both start in the folder of DATA.yml.
"""

import sys

import numpy as np

BEAM_SIZES = (1, 4)


def theirs(run, config, source, target, output):
    """Writes what OpenNMT-tf computes: logits of each pair, and translations for `BEAM_SIZES`."""
    import opennmt
    import tensorflow as tf
    import yaml

    with open(config) as file:
        data = yaml.safe_load(file)["data"]
    model = opennmt.config.load_model(run)
    model.initialize(data, params={})
    model.create_variables()
    tf.train.Checkpoint(model=model).restore(tf.train.latest_checkpoint(run)).expect_partial()
    pairs = model.examples_inputter.make_evaluation_dataset(source, target, batch_size=1)
    found = {}
    for beam_size in BEAM_SIZES:
        model.params["beam_width"] = beam_size
        compiled = tf.function(
            lambda features, labels: model(features, labels=labels),
            input_signature=pairs.element_spec,
        )
        lines = []
        for number, (features, labels) in enumerate(pairs):
            outputs, predictions = compiled(features, labels)
            found[f"logits_{number}"] = outputs["logits"][0].numpy()
            prediction = {name: value[0].numpy() for name, value in predictions.items()}
            lines += model.format_prediction(prediction, {"n_best": 1})
        found[f"beam_{beam_size}"] = np.array(lines)
    np.savez(output, **found)


def ours(run, config, source, target, output):
    """Imports the model, and prints how far it is from what `theirs` has written."""
    import keras

    from keras_transformer.ctranslate2.converted import ModelInMemory
    from keras_transformer.ctranslate2.translator import CTranslate2Translator
    from keras_transformer.importers.opennmt import import_opennmt
    from keras_transformer.translator import Translator

    model, tokenizer = import_opennmt(run, config)
    end, start = tokenizer.end_id, tokenizer.start_id
    found = np.load(output)
    with open(source) as sources, open(target) as targets:
        pairs = list(zip(sources.read().splitlines(), targets.read().splitlines(), strict=True))
    largest = 0.0
    for number, (text, translation) in enumerate(pairs):
        source_ids = [*tokenizer.tokenize([text])[0].numpy(), end]
        target_ids = [start, *tokenizer.tokenize_target([translation])[0].numpy()]
        batch = {"source_ids": [source_ids], "target_ids": [target_ids]}
        logits = keras.ops.convert_to_numpy(
            model({name: keras.ops.array(ids, "int32") for name, ids in batch.items()})
        )
        expected = found[f"logits_{number}"]
        assert logits[0].shape == expected.shape, (number, logits.shape, expected.shape)
        largest = max(largest, np.abs(logits[0] - expected).max())
    print(f"{run}: logits of {len(pairs)} pairs differ by at most {largest:.1e}")
    texts = [text for text, _ in pairs]
    # The defaults of OpenNMT-tf, whose maximum of 250 tokens leaves the end symbol out.
    options = {"alpha": 0, "extra_length": 251, "max_length": 251}
    for beam_size in BEAM_SIZES:
        expected = found[f"beam_{beam_size}"].tolist()
        for engine, translator in (
            ("TensorFlow", Translator(model, tokenizer, beam_size=beam_size, **options)),
            (
                "CTranslate2",
                CTranslate2Translator(
                    ModelInMemory(model, tokenizer), beam_size=beam_size, **options
                ),
            ),
        ):
            same = sum(map(str.__eq__, translator(texts), expected))
            print(f"{run}: beam_size={beam_size}, {engine}: {same} of {len(pairs)} are the same")


if __name__ == "__main__":
    {"theirs": theirs, "ours": ours}[sys.argv[1]](*sys.argv[2:])
