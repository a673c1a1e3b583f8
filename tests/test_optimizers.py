"""The optimizers of `train`: how Muon updates each weight, and what a run keeps of it."""

import dataclasses
import re

import keras
import numpy as np
import pytest
import quick_run
import tensorflow as tf
from model_dirs import contents_of

from keras_transformer import LabelSmoothedCrossEntropy, Transformer
from keras_transformer.data import BuiltinPairs
from keras_transformer.errors import UserError
from keras_transformer.optimizers import Muon, new_optimizer
from keras_transformer.training import ModelDir, TrainableTransformer, TrainingJob, train

# Weights of every kind: two embeddings, a table of positions, biases, and a matrix to logits.
CONFIG = dataclasses.replace(
    quick_run.CONFIG,
    vocab_size=20,
    positions="learned",
    max_positions=16,
    share_embeddings=False,
    tie_output=False,
    attention_bias=True,
)
OPTIONS = dataclasses.replace(quick_run.OPTIONS, optimizer="muon", learning_rate=0.01)
JOB = TrainingJob(
    model_dir="unused",
    train=BuiltinPairs("train", 150),
    config=quick_run.CONFIG,
    options=OPTIONS,
    command="train",
)


def batch():
    ids = np.random.default_rng(1).integers(3, 20, size=(3, 4, 9)).astype("int32")
    return {"source_ids": ids[0], "target_ids": ids[1]}, ids[2]


def nearly_orthogonal(x):
    """The iteration of Jordan et al. (2024), on matrices with no more rows than columns."""
    if x.shape[0] > x.shape[1]:
        return nearly_orthogonal(x.T).T
    x = x / np.linalg.norm(x)
    for _ in range(5):
        products = x @ x.T
        x = 3.4445 * x + (2.0315 * products @ products - 4.7750 * products) @ x
    return x


@pytest.mark.parametrize(
    ("dtype_policy", "tolerance"), [("float32", 2e-3), ("mixed_bfloat16", 0.2)]
)
def test_muon_turns_the_matrices_of_layers_and_adam_updates_the_rest(dtype_policy, tolerance):
    keras.utils.set_random_seed(1)
    options = dataclasses.replace(OPTIONS, dtype_policy=dtype_policy)
    model, plain = TrainableTransformer(CONFIG, dtype=dtype_policy), Transformer(CONFIG)
    plain.set_weights(model.get_weights())
    model.compile(new_optimizer(options, CONFIG.d_model), run_eagerly=True)
    inputs, labels = batch()
    with tf.GradientTape() as tape:
        loss = LabelSmoothedCrossEntropy(CONFIG.label_smoothing)(labels, plain(inputs))
    variables = [each.value for each in plain.trainable_variables]
    gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
    model.fit(inputs, labels, batch_size=len(labels), verbose=0)

    rate, turned = OPTIONS.learning_rate / OPTIONS.warmup_steps, []
    for old, new, gradient in zip(
        plain.trainable_variables, model.trainable_variables, gradients, strict=True
    ):
        moved = (old.numpy() - new.numpy()) / rate
        gradient = tf.convert_to_tensor(gradient).numpy()
        if moved.ndim == 2 and not re.search("embedding|position|output_projection", old.path):
            turned.append(old.path)
            # Nesterov's momentum of a first gradient is a multiple of it.
            expected = 0.2 * max(moved.shape) ** 0.5 * nearly_orthogonal(gradient)
            is_clear = ...
        else:
            expected, is_clear = np.sign(gradient), np.abs(gradient) > 1e-3
        np.testing.assert_allclose(
            moved[is_clear], expected[is_clear], atol=tolerance, err_msg=old.path
        )
    assert len(turned) == 3 * 4 + 2 * 2  # of three attentions and two feed-forward networks


@pytest.mark.slow
def test_a_run_of_muon_goes_on_as_if_it_had_not_stopped(tmp_path):
    train(dataclasses.replace(JOB, model_dir=tmp_path / "whole"))
    first = dataclasses.replace(OPTIONS, steps=4)
    train(dataclasses.replace(JOB, model_dir=tmp_path / "parts", options=first))
    train(dataclasses.replace(JOB, model_dir=tmp_path / "parts"))
    whole, parts = (contents_of(ModelDir(tmp_path / name)) for name in ("whole", "parts"))
    assert parts["checkpoints"] == whole["checkpoints"]


def test_a_model_that_muon_trains_is_loaded_with_it(tmp_path):
    model = TrainableTransformer(quick_run.CONFIG)
    model.compile(new_optimizer(OPTIONS, quick_run.CONFIG.d_model))
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.optimizer.get_config() == model.optimizer.get_config()


def test_the_first_argument_of_muon_is_the_learning_rate_as_in_keras():
    optimizer = Muon(0.5, product_dtype="bfloat16")
    assert (float(optimizer.learning_rate), optimizer.product_dtype) == (0.5, "bfloat16")


def test_workers_are_refused_whose_matrices_could_drift_apart(monkeypatch):
    monkeypatch.setattr("keras_transformer.training.trainer.worker_of", lambda _: (2, 0))
    with pytest.raises(UserError, match=r"^optimizer=muon is for one machine.*optimizer=adam$"):
        train(JOB)
