"""Checkpoints: whole, verified and exact; and their mean (paper, section 6.1)."""

import contextlib
import functools
import hashlib
import io
import itertools
import json
import struct
import zipfile

import keras
import numpy as np
import pytest
from file_faults import Fault, FullDisk
from helpers import randomise, small_model

from keras_transformer.errors import UserError
from keras_transformer.losses import LabelSmoothedCrossEntropy
from keras_transformer.training import Checkpoints, TrainableTransformer, average_weights

LAYERS = {"num_encoder_layers": 1, "num_decoder_layers": 1}


def new_model(seed=0, **fields):
    return small_model(seed, **{**LAYERS, **fields})


@functools.cache
def fixed_model(seed=0, **fields):
    """A model that no test changes."""
    return new_model(seed, **fields)


def compiled_model(seed=0):
    model = new_model(seed)
    model.compile(
        optimizer=keras.optimizers.Adam(0.01, beta_2=0.98, epsilon=1e-9),
        loss=LabelSmoothedCrossEntropy(0.1),
        run_eagerly=True,  # tracing would take longer
    )
    return model


def train(model, steps):
    """Some updates; the batch of each follows from the number of updates already made."""
    for _ in range(steps):
        rng = np.random.default_rng(int(model.optimizer.iterations))
        ids = rng.integers(3, 13, size=(3, 4, 6))
        model.train_on_batch({"source_ids": ids[0], "target_ids": ids[1]}, ids[2])


def state(model):
    """Weights and, for a compiled model, the optimizer's state."""
    optimizer = getattr(model, "optimizer", None)
    variables = [*model.weights, *(optimizer.variables if optimizer else [])]
    return [variable.numpy() for variable in variables]


def assert_same(found, expected):
    for left, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.fixture
def checkpoints(tmp_path):
    return Checkpoints(tmp_path / "checkpoints")


def test_checkpoints_are_listed_by_step(checkpoints):
    assert checkpoints.steps() == []
    for step in (1000, 20, 123_456_789):
        checkpoints.save(fixed_model(), step)
    assert checkpoints.steps() == [20, 1000, 123_456_789]


def test_a_folder_that_cannot_be_read_is_not_taken_for_an_empty_one(checkpoints):
    assert checkpoints.steps() == []  # there is none yet
    checkpoints.folder.write_text("")
    with pytest.raises(NotADirectoryError):
        checkpoints.steps()


def test_weights_alone_are_restored(checkpoints):
    saved, restored = fixed_model(seed=1), new_model(seed=2)
    checkpoints.save(saved, 7)
    checkpoints.restore(restored, 7)
    assert_same(state(restored), state(saved))


def test_a_checkpoint_of_weights_holds_them_and_nothing_else(checkpoints):
    saved, restored = (new_model(seed, dropout=0.1) for seed in (1, 2))
    checkpoints.save_weights(saved, 7)
    with pytest.raises(UserError, match=r"random/0 is missing here"):
        checkpoints.restore(restored, 7)
    average_weights(restored, checkpoints, [7])
    assert_same(state(restored), state(saved))


def model_with_average(seed=0, **fields):
    """A model to train, whose moving average is its weights plus one."""
    model = TrainableTransformer(fixed_model(**fields).config, ema_decay=0.9)
    model.build()
    randomise(model, seed)
    for average, weight in zip(model.update_state.average, model.weights, strict=True):
        average.assign(weight + 1.0)
    return model


def test_the_moving_average_takes_the_place_of_the_weights(checkpoints):
    trained, restored = model_with_average(seed=1), new_model(seed=2)
    checkpoints.save(trained, 7)
    checkpoints.restore_average(restored, 7)
    assert_same(state(restored), [average.numpy() for average in trained.update_state.average])


@pytest.mark.parametrize("layers", [1, 3])
def test_a_moving_average_that_is_missing_or_of_another_model_is_refused(checkpoints, layers):
    model = fixed_model(num_encoder_layers=2)
    before = state(model)
    checkpoints.save(model, 1)
    checkpoints.save(model_with_average(num_encoder_layers=layers), 2)
    for step in (1, 2):
        with pytest.raises(UserError, match=r"state of another model.* ema/"):
            checkpoints.restore_average(model, step)
    assert_same(state(model), before)


@pytest.mark.slow
def test_going_on_from_a_checkpoint_equals_not_stopping(checkpoints):
    undisturbed, restarted = compiled_model(seed=1), compiled_model(seed=2)
    train(undisturbed, 2)
    checkpoints.save(undisturbed, 2)
    at_step_2 = state(undisturbed)
    checkpoints.restore(restarted, 2)
    assert int(restarted.optimizer.iterations) == 2
    assert_same(state(restarted), at_step_2)

    train(undisturbed, 2)
    train(restarted, 2)
    assert any(np.any(a != b) for a, b in zip(state(undisturbed), at_step_2, strict=True))
    assert_same(state(restarted), state(undisturbed))


@pytest.mark.slow
def test_a_trained_checkpoint_serves_a_model_without_an_optimizer(checkpoints):
    trained, served = compiled_model(seed=1), new_model(seed=2)
    train(trained, 1)
    checkpoints.save(trained, 1)
    checkpoints.restore(served, 1)
    assert_same(state(served), [weight.numpy() for weight in trained.weights])


def test_failure_while_saving_leaves_the_old_checkpoint_and_nothing_else(checkpoints, monkeypatch):
    model = fixed_model(seed=1)
    checkpoints.save(model, 1)

    def save_half(path, **arrays):
        path.write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr("numpy.savez", save_half)
    for step in (1, 2):
        with pytest.raises(UserError, match=rf"0{step}: the checkpoint cannot be .* No space left"):
            checkpoints.save(model, step)
    assert list(checkpoints.folder.iterdir()) == [checkpoints.path(1)]
    monkeypatch.undo()
    restored = new_model(seed=2)
    checkpoints.restore(restored, 1)
    assert_same(state(restored), state(model))


def test_the_same_step_is_saved_anew(checkpoints):
    model, restored = new_model(seed=1), new_model()
    checkpoints.save(model, 1)
    randomise(model, seed=5)
    checkpoints.save(model, 1)
    checkpoints.restore(restored, 1)
    assert_same(state(restored), state(model))


def test_only_the_last_ones_are_kept(checkpoints):
    for step in (9, 10, 100, 1000):
        checkpoints.save(fixed_model(), step)
    checkpoints.prune(keep=5)
    assert checkpoints.steps() == [9, 10, 100, 1000]
    checkpoints.prune(keep=2)
    assert checkpoints.steps() == [100, 1000]


def test_only_checkpoints_that_are_there_are_removed(checkpoints):
    for step in (9, 10):
        checkpoints.save(fixed_model(), step)
    checkpoints.remove(8, 9)
    assert checkpoints.steps() == [10]
    checkpoints.remove(8, 9)
    assert checkpoints.steps() == [10]


def test_the_average_is_the_plain_mean(checkpoints):
    saved = {step: fixed_model(seed=step) for step in (1, 2, 3, 4)}
    for step, model in saved.items():
        checkpoints.save(model, step)
    model = new_model()
    average_weights(model, checkpoints, [2, 3, 4])
    for index, weight in enumerate(model.weights):
        mean = np.mean([saved[step].weights[index].numpy() for step in (2, 3, 4)], axis=0)
        np.testing.assert_allclose(weight.numpy(), mean, rtol=1e-6, atol=1e-7)


def test_the_average_of_a_model_in_float64_is_as_exact(checkpoints):
    model = new_model(dtype="float64")
    checkpoints.save(model, 1)
    saved = [weight.numpy() for weight in model.weights]
    average_weights(model, checkpoints, [1])
    assert_same([weight.numpy() for weight in model.weights], saved)


def test_a_mean_of_no_checkpoints_is_refused(checkpoints):
    model = fixed_model(seed=1)
    before = state(model)
    with pytest.raises(UserError, match="steps must name a checkpoint to average: found none"):
        average_weights(model, checkpoints, checkpoints.steps()[-5:])
    assert_same(state(model), before)


def test_steps_that_no_folder_is_named_after_are_refused(checkpoints):
    with pytest.raises(UserError, match="step must be an integer of at least 0: found -1"):
        checkpoints.save(fixed_model(), -1)
    with pytest.raises(UserError, match="keep must be an integer of at least 1: found 0"):
        checkpoints.prune(keep=0)


def truncate(path):
    path.write_bytes(path.read_bytes()[:-2])


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [truncate, flip_a_bit])
@pytest.mark.parametrize("restore", [Checkpoints.restore, "average"])
def test_damaged_weights_are_refused(checkpoints, damage, restore):
    model = fixed_model(seed=1)
    checkpoints.save(model, 1)
    damage(checkpoints.path(1) / "state.npz")
    before = state(model)
    with pytest.raises(UserError, match=r"step-00000001/state\.npz: .*damaged"):
        if restore == "average":
            average_weights(model, checkpoints, [1])
        else:
            restore(checkpoints, model, 1)
    assert_same(state(model), before)


@pytest.mark.parametrize("missing", ["manifest.json", "state.npz", "progress.json"])
def test_the_file_that_a_checkpoint_lacks_is_named(checkpoints, missing):
    checkpoints.save(fixed_model(), 1)
    path = checkpoints.path(1) / missing
    path.unlink()
    with pytest.raises(UserError, match=rf"^{path}: No such file or directory$"):
        checkpoints.restore(fixed_model(), 1)


def no_numbers(weights):
    """Files in place of `state.npz` that hold something else than arrays of numbers."""
    text = {name: np.full(weight.shape, "a") for name, weight in weights.items()}
    objects = {name: np.full(weight.shape, None) for name, weight in weights.items()}
    for arrays in (text, objects):
        file = io.BytesIO()
        np.savez(file, **arrays)
        yield file.getvalue()
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    yield file.getvalue()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name in weights:
            archive.writestr(name, "no array")
    yield from (file.getvalue(), file.getvalue()[:-30], b"", b"no archive")
    file = io.BytesIO()
    np.savez_compressed(file, **weights)
    lengths_of_name_and_extra = struct.unpack("<HH", file.getvalue()[26:30])
    begin, end = 30 + sum(lengths_of_name_and_extra), file.getvalue().index(b"PK\1\2")
    yield file.getvalue()[:begin] + b"\xff" * 9 + file.getvalue()[begin + 9 :]
    yield file.getvalue()[: end + 8] + b"\1" + file.getvalue()[end + 9 :]  # "encrypted"


def test_a_checkpoint_of_something_else_is_refused_in_one_line(checkpoints):
    """Its checksum is right: somebody else made the file."""
    model = fixed_model()
    checkpoints.save(model, 1)
    folder = checkpoints.path(1)
    with np.load(folder / "state.npz") as file:
        weights = dict(file)
    before = state(model)
    for content in no_numbers(weights):
        (folder / "state.npz").write_bytes(content)
        manifest = json.loads((folder / "manifest.json").read_text())
        manifest["state.npz"] = hashlib.sha256(content).hexdigest()
        (folder / "manifest.json").write_text(json.dumps(manifest))
        with pytest.raises(UserError, match=r"state\.npz: .* numbers") as error:
            checkpoints.restore(model, 1)
        assert "\n" not in str(error.value)
        assert_same(state(model), before)


@pytest.mark.parametrize("manifest", ["", "{}", "[]", '{"model.weights', "[" * 100_000])
def test_damaged_manifest_is_refused(checkpoints, manifest):
    checkpoints.save(fixed_model(), 1)
    (checkpoints.path(1) / "manifest.json").write_text(manifest)
    with pytest.raises(
        UserError, match=r"step-00000001/manifest\.json:.* (not JSON|JSON is nested|damaged)"
    ):
        checkpoints.restore(fixed_model(), 1)


def test_checkpoint_that_is_not_there_is_named(checkpoints):
    model = fixed_model()
    restores = checkpoints.restore, checkpoints.restore_average
    reads = checkpoints.manifest, checkpoints.load_progress
    for read in (*(functools.partial(restore, model) for restore in restores), *reads):
        with pytest.raises(UserError, match=r"step-00000003: there is no such checkpoint"):
            read(3)


@pytest.mark.parametrize(
    "fields",
    [
        {"d_model": 32},
        {"num_encoder_layers": 2},
        {"tie_output": False},
    ],
)
def test_weights_of_another_model_are_refused(checkpoints, fields):
    small, other = fixed_model(), fixed_model(**fields)
    checkpoints.save(small, 1)
    checkpoints.save(other, 2)
    for model, step in ((other, 1), (small, 2)):
        message = rf"step-0000000{step}/state.npz: state of another model"
        with pytest.raises(UserError, match=message) as e:
            checkpoints.restore(model, step)
        assert "\n" not in str(e.value)


def test_other_files_beside_the_checkpoints_do_no_harm(checkpoints):
    checkpoints.save(fixed_model(), 1)
    (checkpoints.folder / "step-00000001.backup").mkdir()
    (checkpoints.folder / "notes.txt").write_text("mine")
    assert checkpoints.steps() == [1]
    checkpoints.prune(keep=1)
    assert len(list(checkpoints.folder.iterdir())) == 3


def test_progress_is_saved_with_the_weights(checkpoints):
    checkpoints.save(fixed_model(), 3, {"validated": 2, "best_value": 0.1})
    assert checkpoints.load_progress(3) == {"validated": 2, "best_value": 0.1}
    checkpoints.save(fixed_model(), 4)
    assert checkpoints.load_progress(4) == {}


def test_damaged_progress_is_refused(checkpoints):
    checkpoints.save(fixed_model(), 3, {"validated": 2})
    (checkpoints.path(3) / "progress.json").write_text('{"validated": 1}\n')
    with pytest.raises(UserError, match=r"progress\.json: .*damaged"):
        checkpoints.load_progress(3)


def faults_in_turn(fault):
    """Yields a fault at the first file operation, one at the second, until all succeed."""
    for number in itertools.count(1):
        yield (last := fault(number))
        if not last.happened:
            return


def test_killed_at_any_operation_the_last_whole_checkpoint_is_found(tmp_path):
    models = {step: fixed_model(seed=step) for step in (1, 2, 3)}
    restored = new_model()
    found = []
    for killed in faults_in_turn(Fault):
        checkpoints = Checkpoints(tmp_path / str(len(found)))
        for step in (1, 2):
            checkpoints.save(models[step], step)
        with killed:
            checkpoints.save(models[3], 3)
            checkpoints.prune(keep=2)
        assert Checkpoints(checkpoints.folder).recover() == []
        assert not list(checkpoints.folder.glob(".*"))
        for step in checkpoints.steps():
            checkpoints.restore(restored, step)
            assert_same(state(restored), state(models[step]))
        found.append(checkpoints.steps())
    assert found.count([1, 2]) >= 4  # killed before the new one was there
    assert found.count([1, 2, 3]) >= 1  # before an old one was removed
    assert found.count([2, 3]) >= 4
    assert found == sorted(found)


@pytest.mark.parametrize("fault", [Fault, FullDisk])
def test_a_checkpoint_written_again_is_the_old_or_the_new_one_whatever_fails(tmp_path, fault):
    old, new, restored = fixed_model(seed=1), fixed_model(seed=2), new_model()
    found = []
    for failing in faults_in_turn(fault):
        checkpoints = Checkpoints(tmp_path / str(len(found)))
        checkpoints.save(old, 7)
        with failing, contextlib.suppress(UserError):
            checkpoints.save(new, 7)
        assert Checkpoints(checkpoints.folder).recover() == []
        assert [path.name for path in checkpoints.folder.iterdir()] == ["step-00000007"]
        checkpoints.restore(restored, 7)
        is_new = np.array_equal(state(restored)[0], state(new)[0])
        assert_same(state(restored), state(new if is_new else old))
        found.append(is_new)
    assert found.count(False) >= 4
    assert found[-1]
    assert found == sorted(found)


def test_what_a_killed_process_left_is_removed(checkpoints):
    checkpoints.save(fixed_model(), 1)
    half = checkpoints.folder / ".step-00000002.1234.partial"
    half.mkdir()
    (half / "state.npz").write_text("half")
    assert checkpoints.recover() == []
    assert [path.name for path in checkpoints.folder.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("damage", [truncate, flip_a_bit])
@pytest.mark.parametrize("file", ["state.npz", "progress.json", "manifest.json"])
def test_damaged_checkpoints_after_the_last_whole_one_are_set_aside(checkpoints, file, damage):
    model = fixed_model(seed=1)
    for step in (1, 2, 3):
        checkpoints.save(model, step, {"validated": step})
    for step in (2, 3):
        damage(checkpoints.path(step) / file)
    problems = checkpoints.recover()
    assert len(problems) == 2
    for step, problem in zip((3, 2), problems, strict=True):
        assert str(checkpoints.path(step)) in problem
    assert checkpoints.steps() == [1]
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == [
        "step-00000001",
        "step-00000002.damaged",
        "step-00000003.damaged",
    ]
    checkpoints.save(model, 2)
    assert checkpoints.recover() == []
    damage(checkpoints.path(2) / file)
    assert len(checkpoints.recover()) == 1
    assert checkpoints.steps() == [1]


def test_nothing_but_damaged_checkpoints_is_refused_and_left_alone(checkpoints):
    for step in (1, 2):
        checkpoints.save(fixed_model(), step)
        truncate(checkpoints.path(step) / "state.npz")
    with pytest.raises(UserError, match=r"no checkpoint is whole, 2 damaged: .*0002"):
        checkpoints.recover()
    assert checkpoints.steps() == [1, 2]


def test_the_manifest_names_each_file(checkpoints):
    checkpoints.save(fixed_model(), 1)
    manifest = json.loads((checkpoints.path(1) / "manifest.json").read_text())
    others = {path.name for path in checkpoints.path(1).iterdir()} - {"manifest.json"}
    assert manifest.keys() == others
