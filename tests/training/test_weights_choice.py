"""The weights of a trained model are those that validate best, until there are later ones."""

import dataclasses
import functools
import itertools
import json
import math
import re
import shutil

import numpy as np
import pytest
from file_faults import Killed
from helpers import small_model
from quick_run import CONFIG, OPTIONS

from keras_transformer.data import Batches, BuiltinPairs, Corpus
from keras_transformer.errors import UserError
from keras_transformer.evaluation import ReferenceLoss
from keras_transformer.text import SubwordTokenizer
from keras_transformer.training import ModelDir, TrainingJob, TrainingOptions, judging, train
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.run_record import record_of_other
from keras_transformer.training.trainer import report_choice
from keras_transformer.training.weights_choice import choose_weights, described

RECORD = record_of_other(None, "", None) | {
    "options": dataclasses.asdict(TrainingOptions(average_checkpoints=2)),
    "config": None,
}


@functools.cache
def only_model():
    return small_model(vocab_size=300, num_encoder_layers=1, num_decoder_layers=1)


def model_of(value):
    """The one model of these tests; its weights are all this value, until the next call."""
    model = only_model()
    for weight in model.weights:
        weight.assign(np.full(weight.shape, value))
    return model


def value_of(model):
    return float(model.weights[0].numpy().flat[0])


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    sentences = ["A man rides a horse.", "Ein Mann reitet auf einem Pferd."]
    model_dir = ModelDir(tmp_path_factory.mktemp("whole") / "run")
    tokenizer = SubwordTokenizer.train_from_sentences(sentences, 300)
    model_dir.create(model_of(0).config, tokenizer, RECORD)
    for step, value in ((1, 9.0), (2, 4.0), (3, 6.0)):
        model_dir.checkpoints.save(model_of(value), step)
    model_dir.best.save_weights(model_of(4.0), 2)
    return model_dir.path


@pytest.fixture
def model_dir(whole_run, tmp_path):
    """A run of 3 checkpoints, of which the last 2 are averaged; the one of step 2 was best."""
    return ModelDir(shutil.copytree(whole_run, tmp_path / "run"))


def choose(model_dir, by="BLEU", known=None, figure=lambda value: value, loss=lambda value: 1.0):
    """The choice, and the weights that were validated; by default the figure is the weight."""
    validated, model = [], model_of(0)

    def validate():
        validated.append(value_of(model))
        return figure(validated[-1]), loss(validated[-1])

    return choose_weights(model, model_dir, by, validate, known or {}), validated


# The choice.


def test_the_best_figure_decides(model_dir):
    figures = {"mean": 5.0, "best": 4.0, "last": 6.0}
    assert choose(model_dir)[0] == ("last", "BLEU", figures)
    assert choose(model_dir, by="loss")[0] == ("best", "loss", figures)
    assert choose(model_dir, figure=lambda value: -abs(value - 5))[0].weights == "mean"


def test_of_equally_good_weights_the_mean_is_chosen(model_dir):
    assert choose(model_dir, figure=lambda value: 0.0)[0].weights == "mean"


def test_of_equal_scores_the_loss_decides(model_dir):
    """BLEU of short answers is 0 at all steps, while the loss falls."""
    found, _ = choose(model_dir, figure=lambda value: 0.0, loss=lambda value: -value)
    assert found == ("last", "BLEU", {"mean": 0.0, "best": 0.0, "last": 0.0})
    found, _ = choose(model_dir, loss=lambda value: value)
    assert found.weights == "last"


def test_what_was_validated_before_is_not_validated_again(model_dir):
    choice, validated = choose(model_dir, known={2: (40.0, 1.0), 3: (30.0, 1.0)})
    assert validated == [5.0]
    assert choice.figures == {"mean": 5.0, "best": 40.0, "last": 30.0}


def test_the_same_weights_are_validated_once(model_dir):
    options = {**RECORD["options"], "average_checkpoints": 1}
    model_dir.save_training({**RECORD, "options": options})
    model_dir.best.save_weights(model_of(6.0), 3)
    choice, validated = choose(model_dir)
    assert validated == [6.0]
    assert choice == ("mean", "BLEU", {"mean": 6.0, "best": 6.0, "last": 6.0})
    assert choose(model_dir, known={3: (30.0, 1.0)})[1] == []


def test_a_mean_of_one_checkpoint_is_reported_as_the_last_one_alone(model_dir, capsys):
    options = {**RECORD["options"], "average_checkpoints": 1}
    model_dir.save_training({**RECORD, "options": options})
    report_choice(choose(model_dir)[0], model_dir, TrainingLog(model_dir.path / "logs"))
    figures, _ = capsys.readouterr().out.splitlines()
    assert figures == (
        "Validation BLEU: last checkpoint (step 3) 6.00, best checkpoint (step 2) 4.00"
    )


def test_without_a_best_validation_mean_and_last_are_left(model_dir):
    model_dir.best.remove(2)
    assert choose(model_dir)[0].figures == {"mean": 5.0, "last": 6.0}


def test_a_figure_that_is_not_finite_is_never_best(model_dir):
    choice, _ = choose(model_dir, by="loss", known={2: (-math.inf, 1.0), 3: (math.nan, 1.0)})
    assert choice == ("mean", "loss", {"mean": 5.0})
    assert choose(model_dir, figure=lambda value: math.nan)[0] is None


def test_weights_are_described_by_their_steps(model_dir):
    words = {weights: described(model_dir, weights) for weights in ("mean", "best", "last")}
    assert words == {
        "mean": "mean of the last 2 checkpoints",
        "best": "best checkpoint (step 2)",
        "last": "last checkpoint (step 3)",
    }


# What "auto" stands for.


def test_commands_use_the_choice_unless_told_otherwise(model_dir):
    assert model_dir.resolved_weights() == "mean"
    model_dir.save_choice("best", "BLEU", {"mean": 5.0, "best": 40.0})
    assert json.loads((model_dir.path / "weights.json").read_text()) == {
        "weights": "best",
        "step": 2,
        "last_step": 3,
        "by": "BLEU",
        "figures": {"mean": 5.0, "best": 40.0},
    }
    assert model_dir.owns(model_dir.path / "weights.json")
    assert value_of(model_dir.load_model()) == 4.0
    assert model_dir.chosen_checkpoints() == (model_dir.best, [2])
    for average, weights, value in ((2, "auto", 5.0), (None, "mean", 5.0), (None, "last", 6.0)):
        assert value_of(model_dir.load_model(average, weights)) == value


@pytest.mark.parametrize("chosen", ["best", "last"])
def test_a_choice_is_void_once_there_is_a_later_checkpoint(model_dir, chosen):
    model_dir.save_choice(chosen, "BLEU", {})
    assert model_dir.resolved_weights() == chosen
    model_dir.checkpoints.save(model_of(8.0), 4)
    assert model_dir.resolved_weights() == "mean"
    assert value_of(model_dir.load_model()) == 7.0


def test_a_choice_of_the_best_is_void_once_there_is_a_better_one_or_none(model_dir):
    """A run that goes on saves a better one before its next checkpoint."""
    model_dir.save_choice("best", "BLEU", {})
    model_dir.best.save_weights(model_of(8.0), 4)
    assert model_dir.resolved_weights() == "mean"
    model_dir.best.remove(2, 4)
    assert model_dir.resolved_weights() == "mean"


def test_the_best_weights_are_enough_where_they_were_chosen(model_dir):
    model_dir.save_choice("best", "BLEU", {})
    model_dir.checkpoints.remove(*model_dir.checkpoints.steps())
    assert value_of(model_dir.load_model()) == 4.0
    for weights in ("mean", "last"):
        with pytest.raises(UserError, match="has no checkpoint yet"):
            model_dir.load_model(weights=weights)


STEPS = '"step": 3, "last_step": 3'


@pytest.mark.parametrize(
    ("content", "damage"),
    [
        (b"[]", ': "weights" must be one of mean, ema, best, last'),
        (b'{"weights": "first"}', ': "weights" must be one of mean, ema, best, last'),
        (b'{"weights": ["best"]}', ': "weights" must be one of mean, ema, best, last'),
        (b'{"weights": "best"}', ': "step" must be an integer'),
        (b'{"weights": "last", "step": 3}', ': "last_step" must be an integer'),
        (b'{"weights": "last", "step": true, "last_step": 3}', ': "step" must be an integer'),
        (f'{{"weights": "ema", {STEPS}}}'.encode(), ': "weights" is "ema", but the run had no ema'),
        (b"best", ":1: not JSON: "),
        (b"\xff", ": not UTF-8 text: "),
        (None, ": is a folder, not a regular file"),
    ],
    ids=str,
)
def test_a_damaged_choice_is_named_with_what_to_do(content, damage, model_dir):
    path = model_dir.path / "weights.json"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    begin, remedy = re.escape(f"{path}{damage}"), "remove weights.json, and run `train` again"
    with pytest.raises(UserError, match=f"^{begin}.*: {remedy}"):
        model_dir.load_model()
    assert value_of(model_dir.load_model(weights="last")) == 6.0


def test_a_void_choice_of_the_moving_average_is_no_damage(model_dir):
    choice = {"weights": "ema", "step": 2, "last_step": 2}
    (model_dir.path / "weights.json").write_text(json.dumps(choice))
    assert model_dir.resolved_weights() == "mean"


def test_a_step_may_be_an_integer(model_dir):
    assert value_of(model_dir.load_model(weights=2)) == 4.0
    with pytest.raises(UserError, match="one of the steps 1, 2, 3: found 7"):
        model_dir.load_model(weights=7)


# Real runs.

BY_LOSS = dataclasses.replace(OPTIONS, best_by="loss", ema_decay=0.5)  # BLEU would be 0
VALID = BuiltinPairs("validation", 60)


def run(path, options=BY_LOSS):
    job = TrainingJob(
        model_dir=path,
        train=BuiltinPairs("train", 300),
        valid=VALID,
        config=CONFIG,
        options=options,
    )
    return train(job)


@pytest.fixture
def judged(monkeypatch):
    """The loss of each validation; no search, which takes seconds to compile."""
    losses = []

    def judge_of(model, tokenizer, options, pairs, corpus, target_lang):
        loss = ReferenceLoss(model, Batches(corpus, shuffle=False).epoch())

        def judge():
            losses.append(loss()["loss"])
            return {"loss": losses[-1], "BLEU": 0.0}, [{"source": "a", "translation": "b"}]

        return judge

    monkeypatch.setattr(judging, "judge_of", judge_of)
    monkeypatch.setattr(judging, "report", lambda *_: None)
    return losses


@pytest.mark.slow
def test_a_run_ends_with_the_weights_of_the_lowest_loss(tmp_path, judged, capsys):
    model, model_dir = run(tmp_path / "run"), ModelDir(tmp_path / "run")
    choice = json.loads((model_dir.path / "weights.json").read_text())
    corpus = Corpus.build(VALID, model_dir.load_tokenizer(), OPTIONS.max_length)
    batches = Batches(corpus, shuffle=False).epoch()
    for weights, figure in choice["figures"].items():
        loss = ReferenceLoss(model_dir.load_model(weights=weights), batches)()["loss"]
        assert figure == pytest.approx(loss, rel=1e-5)
    assert choice["figures"].keys() == {"mean", "ema", "best", "last"}
    assert len(judged) == 4  # at steps 3 and 6, and then only the mean and the moving average
    lowest = min(choice["figures"], key=choice["figures"].get)
    assert model_dir.resolved_weights() == choice["weights"] == lowest != "mean"
    for loaded, returned in zip(model_dir.load_model().weights, model.weights, strict=True):
        np.testing.assert_array_equal(loaded, returned)
    said = capsys.readouterr().out
    assert "\nValidation loss: mean of the last 2 checkpoints " in said
    assert f"\nAll commands use the {described(model_dir, lowest)}, unless you give" in said
    assert f"\nThe {described(model_dir, lowest)} on {VALID.description}:" in said


@pytest.mark.slow
@pytest.mark.usefixtures("judged")
def test_a_run_that_goes_on_and_is_killed_has_no_choice_until_it_ends(tmp_path, monkeypatch):
    path, longer = tmp_path / "run", dataclasses.replace(BY_LOSS, steps=8)
    run(path)
    before = (path / "weights.json").read_bytes()
    assert ModelDir(path).resolved_weights() != "mean"

    def killed(*_):
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("keras_transformer.training.trainer.finish", killed)
        run(path, longer)
    assert (path / "weights.json").read_bytes() == before
    assert ModelDir(path).resolved_weights() == "mean"
    run(path, longer)
    assert json.loads((path / "weights.json").read_text())["last_step"] == 8
    assert ModelDir(path).resolved_weights() != "mean"


@pytest.mark.slow
def test_a_run_that_lost_patience_ends_with_its_best_weights(tmp_path, judged, monkeypatch):
    losses = itertools.chain([1.0, 2.0, 3.0], itertools.repeat(4.0))

    def judge():
        judged.append(next(losses))
        return {"loss": judged[-1], "BLEU": 0.0}, [{"source": "a", "translation": "b"}]

    monkeypatch.setattr(judging, "judge_of", lambda *_: judge)
    options = TrainingOptions(
        **{**dataclasses.asdict(OPTIONS), "best_by": "loss"}
        | {"steps": 100, "validation_steps": 1, "stop_patience": 2}
    )
    run(tmp_path, options)
    assert ModelDir(tmp_path).resolved_weights() == "best"
    assert ModelDir(tmp_path).best.steps() == [1]
    assert judged == [1.0, 2.0, 3.0, 4.0]  # only the mean is validated at the end
