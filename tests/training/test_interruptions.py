"""A run that is killed, stopped or out of disk at any moment ends like an undisturbed one.

The model is a toy whose updates cost nothing; the loop around it is Keras's and ours.
"""

import contextlib
import functools
import itertools
import os
import random
import shutil
import signal
import sys
import types
from types import SimpleNamespace

import keras
import pytest
import tensorflow as tf
from file_faults import Fault, FullDisk, Killed
from model_dirs import contents_of, records

from keras_transformer.config import TransformerConfig
from keras_transformer.data import BatchCount
from keras_transformer.errors import UserError
from keras_transformer.training import ModelDir, TrainingOptions
from keras_transformer.training.log import TrainingLog
from keras_transformer.training.summary import report_summary
from keras_transformer.training.trainer import Run, fit, restored_state

CONFIG = TransformerConfig(vocab_size=13)
ROUNDS = int(os.environ.get("KILL_ROUNDS", "1")) * 48  # see `test_resume.py`
SKIPPED = (3, 5)  # updates whose gradient is not finite
SCORES = [0.0, 2.0, 1.0, 3.0, 3.0, 1.0, 5.0, 4.0, 4.5, 2.0, 6.0, 1.0]


class Toy(keras.Model):
    """A model that counts its steps, and draws a random number in each."""

    config = CONFIG

    def __init__(self):
        super().__init__(name="toy")
        self.steps = self.add_weight(shape=(), initializer="zeros", name="steps")
        self.noise = self.add_weight(shape=(3,), initializer="zeros", name="noise")
        self.seeds = keras.random.SeedGenerator(1)
        self.skipped = keras.Variable(0, dtype="int64", trainable=False, name="skipped")
        self.update_state = types.SimpleNamespace(variables={"update/skipped": self.skipped})
        self.built = True
        self.compile(keras.optimizers.SGD(0.1))
        self.optimizer.build(self.trainable_variables)
        self.start = [variable.numpy() for variable in self.variables]

    def forget(self):
        """Resets the variables, as in a new process."""
        for variable, value in zip(self.variables, self.start, strict=True):
            variable.assign(value)
        self.skipped.assign(0)
        self.stop_training = False
        self.reset_metrics()

    def reset_metrics(self):
        super().reset_metrics()
        self.metric_sums = [tf.zeros(v.shape) for v in self.metrics_variables]

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        pass

    def make_train_function(self, force=False):
        def train_function(iterator):
            step = int(next(iterator)) + 1
            sys.audit("point")
            if self.in_step and step == self.in_step[0]:
                self.in_step[1]()
            assert step == int(self.steps) + 1
            self.steps.assign(step)
            self.noise.assign_add(keras.random.normal((3,), seed=self.seeds))
            self.skipped.assign_add(step in SKIPPED)
            self.metrics[0].update_state(self.noise[0])
            loss = self.metrics[0].result()
            norm = float("nan") if step in SKIPPED else 1.0
            self.metric_sums = [tf.convert_to_tensor(v) for v in self.metrics_variables]
            return {
                "loss": loss,
                "perplexity": tf.exp(loss),
                "gradient_norm": tf.constant(norm),
                "skipped_updates": tf.identity(self.skipped.value),
            }

        self.train_function = train_function


class Steps:
    """Batches that hold the number of their step."""

    def dataset(self, start, *_):
        return tf.data.Dataset.range(start, 10**6)

    def count(self, step):
        return BatchCount(pairs=step, source_tokens=6, target_tokens=6, length=4, rows=3)

    batch = None


@pytest.fixture(scope="module")
def toy():
    return Toy()


@pytest.fixture(autouse=True)
def moments(monkeypatch):
    """Adds moments for faults between file operations; does not wait for the disk or for graphs."""
    monkeypatch.setattr("os.fsync", lambda descriptor: sys.audit("fsync", descriptor))

    def without_graph(path):
        return SimpleNamespace(as_numpy_iterator=functools.partial(records, path))

    monkeypatch.setattr("tensorflow.data.TFRecordDataset", without_graph)
    write = TrainingLog._write

    def audited(self, *arguments):
        sys.audit("point")
        write(self, *arguments)
        sys.audit("point")

    monkeypatch.setattr(TrainingLog, "_write", audited)


def options(**changed):
    defaults = dict(steps=8, report_steps=2, checkpoint_steps=3, validation_steps=2)
    defaults |= dict(keep_checkpoints=2, average_checkpoints=1, stop_patience=3)
    return TrainingOptions(**{**defaults, "checkpoint_minutes": 0.0, **changed})


def terminate():
    os.kill(os.getpid(), signal.SIGTERM)


def die():
    raise Killed


def start(toy, path, options, in_step=None, in_validation=None):
    """Does the part of `train` after the data are read.

    Args:
        in_step, in_validation: a step, and what happens in it, or in the validation after it.
    """
    model_dir = ModelDir(path)
    toy.forget()
    for problem in model_dir.recover():
        pytest.fail(problem)
    state = restored_state(toy, model_dir.checkpoints)
    validated = state.validated
    last = {"train": state.step, "validation": validated, "samples": validated}
    log = TrainingLog(model_dir.logs, last)

    def judge():
        sys.audit("point", "judge")
        if in_validation and state.step == in_validation[0]:
            in_validation[1]()
        assert int(toy.steps) == state.step
        score = SCORES[state.step]
        return {"loss": -score, "BLEU": score}, [{"source": "a", "translation": str(toy.noise[0])}]

    toy.in_step = in_step
    prepared = SimpleNamespace(
        job=SimpleNamespace(config=toy.config, options=options, valid=None),
        tokenizer=SimpleNamespace(task="translation", lowercase=False),
        batches=Steps(),
        model_dir=model_dir,
        strategy=tf.distribute.get_strategy(),
        writes=True,
    )
    with model_dir.locked():
        fit(Run(prepared, toy, state, log), judge)
    report_summary(state, CONFIG, options, 1, log)


class Stop(Fault):
    """A signal at the n-th operation."""

    def __enter__(self):
        self.before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return super().__enter__()

    def __exit__(self, kind, *_):
        super().__exit__(kind)
        signal.signal(signal.SIGTERM, self.before)
        return kind is SystemExit

    def fail(self):
        if self.left == 0:
            terminate()


class StopInValidation(Stop):
    """A signal in the n-th validation."""

    def applies(self, event, arguments):
        return arguments == ("judge",)


def ends(fault, toy, path, options):
    """Starts the run with a fault; returns whether the run ends."""
    # Command lines print each of these errors in one line.
    with fault, contextlib.suppress(*((UserError, OSError) if isinstance(fault, FullDisk) else ())):
        start(toy, path, options)
        return True
    return False


def undisturbed(toy, path, options):
    """The files of a run that is not interrupted, and its number of operations."""
    count = Fault(10**6)
    with count:
        start(toy, path, options)
    return contents_of(ModelDir(path)), 10**6 - count.left


@pytest.mark.parametrize("checkpoint_steps", [2, 3, 5])
def test_validations_that_were_interrupted_twice_each_are_done(toy, tmp_path, checkpoint_steps):
    some = options(steps=6, checkpoint_steps=checkpoint_steps)
    expected, _ = undisturbed(toy, tmp_path / "whole", some)
    assert [line["step"] for line in expected["log"] if line["split"] == "validation"] == [2, 4, 6]
    for step in (2, 2, 4, 4, 6, 6):
        with pytest.raises(SystemExit):
            start(toy, tmp_path / "run", some, in_validation=(step, terminate))
        assert ModelDir(tmp_path / "run").checkpoints.steps()[-1] == step
    start(toy, tmp_path / "run", some)
    assert contents_of(ModelDir(tmp_path / "run")) == expected


@pytest.mark.parametrize("moment", ["in_step", "in_validation"])
def test_a_folder_that_takes_the_place_of_the_runs_own_is_left_alone(toy, tmp_path, moment):
    def replace():
        shutil.rmtree(tmp_path / "run")
        another.enter_context(ModelDir(tmp_path / "run").locked())

    with contextlib.ExitStack() as another:
        with pytest.raises(UserError, match="was removed or moved away during"):
            start(toy, tmp_path / "run", options(), **{moment: (2, replace)})
        assert os.listdir(tmp_path / "run") == [".lock"]


def test_patience_that_ends_a_run_is_lost_in_the_same_validation(toy, tmp_path):
    some = options(steps=12, validation_steps=1, stop_patience=2, checkpoint_steps=4)
    expected, _ = undisturbed(toy, tmp_path / "whole", some)
    assert list(expected["checkpoints"]) == [4, 5]
    assert list(expected["best"]) == [3]
    summary = expected["log"][-1]
    assert (summary["split"], summary["step"], summary["skipped_updates"]) == ("summary", 5, 2)
    for _ in range(2):
        with pytest.raises(SystemExit):
            start(toy, tmp_path / "run", some, in_validation=(5, terminate))
    for _ in range(2):
        start(toy, tmp_path / "run", some)
        assert contents_of(ModelDir(tmp_path / "run")) == expected


def test_a_checkpoint_of_a_stop_gives_way_to_the_next(toy, tmp_path):
    some = options(validation_steps=8, stop_patience=0)
    for step in (1, 2, 4, 5, 7):
        with pytest.raises(SystemExit):
            start(toy, tmp_path, some, in_step=(step, terminate))
        kept = {1: [1], 2: [2], 4: [3, 4], 5: [3, 5], 7: [6, 7]}[step]
        assert ModelDir(tmp_path).checkpoints.steps() == kept
    start(toy, tmp_path, some)
    assert ModelDir(tmp_path).checkpoints.steps() == [6, 8]


def test_best_weights_that_no_checkpoint_knows_of_are_removed(toy, tmp_path):
    """The same weights are saved again, but not with another `validation_steps`."""
    some = options(steps=8, checkpoint_steps=4, validation_steps=3)
    model_dir = ModelDir(tmp_path)
    with pytest.raises(Killed):
        start(toy, tmp_path, some, in_step=(7, die))
    assert (model_dir.checkpoints.steps(), model_dir.best.steps()) == ([4], [3, 6])
    with pytest.raises(SystemExit):
        start(toy, tmp_path, options(steps=8, validation_steps=8), in_step=(5, terminate))
    assert (model_dir.checkpoints.steps(), model_dir.best.steps()) == ([4, 5], [3])


def random_case(chance):
    """Options of a run, the kinds of its faults, and their moments as shares of the run."""
    some = options(
        steps=chance.randint(5, 9),
        report_steps=chance.randint(1, 4),
        checkpoint_steps=chance.randint(1, 5),
        validation_steps=chance.randint(1, 4),
        keep_checkpoints=chance.randint(1, 3),
        stop_patience=chance.choice([0, 1, 2, 3]),
        best_by=chance.choice(["loss", "score"]),
    )
    kinds = [Fault, FullDisk, Stop, StopInValidation]
    return some, [(chance.choice(kinds), chance.random()) for _ in range(chance.randint(1, 5))]


def check_case(toy, path, some, faults):
    expected, operations = undisturbed(toy, path / "whole", some)
    for kind, share in faults:
        number = 1 if kind is StopInValidation else 1 + round(share * operations)
        ends(kind(number), toy, path / "run", some)
    start(toy, path / "run", some)
    assert contents_of(ModelDir(path / "run")) == expected


@pytest.mark.parametrize("seed", range(16))
def test_disturbed_a_few_times_at_random(toy, tmp_path, seed):
    check_case(toy, tmp_path, *random_case(random.Random(seed)))


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("seed", range(16, 16 + ROUNDS))
def test_disturbed_many_times_at_random(toy, tmp_path, seed):
    check_case(toy, tmp_path, *random_case(random.Random(seed)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Fault, FullDisk, Stop])
def test_disturbed_at_each_operation(toy, tmp_path, kind):
    """A fault, and another at the same operation of the next start."""
    some = options(steps=4, checkpoint_steps=2, keep_checkpoints=1)
    expected, _ = undisturbed(toy, tmp_path / "whole", some)
    for number in itertools.count(1):
        path = tmp_path / str(number)
        if ends(fault := kind(number), toy, path, some) and not fault.happened:
            break
        ends(kind(number), toy, path, some)
        start(toy, path, some)
        assert contents_of(ModelDir(path)) == expected, number
        shutil.rmtree(path)
    assert number > 50
