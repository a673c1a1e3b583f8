"""Training on several workers: same steps as one, only the chief writes, a lost worker ends all,
and all must agree on vocabulary, data, options and weights."""

import time

import numpy as np
import pytest
from helpers import run_python, small_model
from workers import outputs, start_workers

from keras_transformer import TransformerConfig
from keras_transformer.data import BuiltinPairs
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir

pytestmark = [pytest.mark.slow, pytest.mark.long]

TRAIN = """
import os, sys
import tensorflow as tf

if "TF_CONFIG" not in os.environ:  # as many replicas, whose batches have as many rows
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
import tests.support.untuned
from keras_transformer.training import TrainingJob, TrainingOptions, make_strategy, train
strategy = make_strategy("auto", os.environ.get("TF_CONFIG"))
from keras_transformer import TransformerConfig
from keras_transformer.data import BuiltinPairs
from keras_transformer.text import SubwordTokenizer

config = TransformerConfig(vocab_size=340, num_encoder_layers=1, num_decoder_layers=1, d_model=16,
                           d_ff=16, num_heads=2, dropout=0.0)
options = TrainingOptions(steps=20, tokens_per_batch=512, max_length=60, learning_rate=0.001,
                          warmup_steps=4, jit_compile=False, report_steps=1,
                          validation_steps=20, checkpoint_steps=5, checkpoint_minutes=0.0,
                          average_checkpoints=2, bidirectional_steps=8)
job = TrainingJob(model_dir=sys.argv[1], train=BuiltinPairs("train", 300),
                  valid=BuiltinPairs("validation", 20), config=config, options=options)
train(job, strategy)
"""


def test_workers_of_which_one_was_killed_go_on_as_if_it_had_not_been(tmp_path):
    run_python(TRAIN, tmp_path / "alone")
    killed = start_workers(2, TRAIN, tmp_path / "run")
    checkpoints = ModelDir(tmp_path / "run").checkpoints
    while not checkpoints.steps():
        assert all(worker.poll() is None for worker in killed), outputs(killed)
        time.sleep(0.1)
    killed[1].kill()
    chief, _ = outputs(killed)  # the chief does not wait for ever
    assert "a worker was lost" in chief
    assert 20 not in checkpoints.steps()

    restarted = start_workers(2, TRAIN, tmp_path / "run")
    texts = outputs(restarted)
    assert [worker.returncode for worker in restarted] == [0, 0], texts
    assert all("Resuming from step" in text for text in texts)
    assert checkpoints.steps() == [5, 10, 15, 20]
    logs = list((tmp_path / "run" / "logs").glob("events.*"))
    assert len(logs) == 2  # one for each run of the chief
    for found, expected in zip(
        *(ModelDir(tmp_path / name).load_model(1).weights for name in ("run", "alone")), strict=True
    ):
        np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=0, atol=1e-5)


ENDS = """
import dataclasses, hashlib, os, sys
from pathlib import Path
import tests.support.untuned
from keras_transformer.training import (
    TrainingJob, TrainingOptions, make_strategy, train, worker_of
)
from keras_transformer.training import judging, vocabulary_choice as vocabulary
strategy = make_strategy("auto", os.environ.get("TF_CONFIG"))
from keras_transformer import ModelDir, TransformerConfig, UserError
from keras_transformer.data import BuiltinPairs, TextPairs

_, worker = worker_of(strategy)
if worker:
    del vocabulary.learn_vocabulary  # the chief learns it
folder = Path(sys.argv[1])
config = ModelDir(folder / "start-0").load_config()
options = TrainingOptions(steps=2, tokens_per_batch=256, max_length=60)
pairs = BuiltinPairs("train", 200)

def end(name, pairs=pairs, options=options, **fields):
    try:
        job = TrainingJob(
            model_dir=folder / name, train=pairs, config=config, options=options, **fields
        )
        train(job, strategy)
        print("end: trained")
    except UserError as error:
        print("end:", error)

end("other-corpus", BuiltinPairs("train", 200 + worker))
end("other-options", options=dataclasses.replace(options, beta_1=0.5 + worker / 4))
end("no-corpus", TextPairs("no.en", "no.de") if worker else pairs)
lowercase = dataclasses.replace(options, lowercase=True)
end("lowercase", options=lowercase, start_from=folder / "start-0")
end("other-start", start_from=folder / f"start-{worker}")
end("same")

def judge_of(model, *_):
    # The second worker finds no improvement where the chief does.
    losses = iter([3.0, 3.0, 3.0] if worker else [3.0, 2.0, 1.0])

    def judge():
        content = b"".join(weights.tobytes() for weights in model.get_weights())
        print("weights:", hashlib.sha256(content).hexdigest())
        return {"loss": next(losses), "BLEU": 0.0}, [{"source": "a"}]

    return judge

judging.judge_of = judge_of
patient = dataclasses.replace(
    options, steps=3, validation_steps=1, best_by="loss", stop_patience=1, average_checkpoints=1
)
end("other-figures", options=patient, valid=BuiltinPairs("validation", 4))
if worker:
    sys.exit()
end("lost")
"""


def test_workers_train_the_same_or_end_alike(tmp_path):
    config = TransformerConfig(
        vocab_size=340, num_encoder_layers=1, num_decoder_layers=1, d_model=16, d_ff=16, num_heads=2
    )
    sentences = BuiltinPairs("train", 200).sentences()
    tokenizer = SubwordTokenizer.train_from_sentences(sentences, config.vocab_size)
    for seed in (0, 1):
        model = small_model(seed, **config.to_dict())
        ModelDir(tmp_path / f"start-{seed}").create_trained(model, tokenizer, None, "")

    workers = start_workers(2, ENDS, tmp_path)
    texts = outputs(workers)
    assert [worker.returncode for worker in workers] == [0, 0], texts

    def after(prefix):
        """The lines of each worker that begin with a prefix, without it."""
        lines = [text.splitlines() for text in texts]
        return [
            [line.removeprefix(prefix) for line in said if line.startswith(prefix)]
            for said in lines
        ]

    mine, others = after("weights: ")  # after each step
    assert mine == others and len(set(mine)) == 3
    ends = after("end: ")
    *both, lost = ends[0]
    corpus, options, no_corpus, lowercase, weights, same, other_figures = both
    differ = "all workers must train the same run: found "
    assert corpus.startswith(f"{differ}kept=") and ", fingerprint=" in corpus
    assert options == f"{differ}beta_1=0.5 on worker 0 and 0.75 on worker 1"
    assert no_corpus == "worker 1: no.en: cannot read the file: No such file or directory"
    assert lowercase.endswith(
        "start-0 was made with lowercase=False: set lowercase to that (now True)"
    )
    assert weights.startswith(f"{differ}weights=")
    assert same == other_figures == "trained"
    assert ModelDir(tmp_path / "other-figures").checkpoints.steps()[-1] == 3
    assert lost.startswith("a worker was lost")
    # The second worker reports the same, and names the worker at fault.
    assert ends[1] == [
        corpus,
        options,
        no_corpus.removeprefix("worker 1: "),
        f"worker 0: {lowercase}",
        weights,
        same,
        other_figures,
    ]
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["other-figures", "same", "start-0", "start-1"]
