"""New versions replace old ones under load, broken ones are reported, no request is lost."""

import os
import shutil
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from serving_world import SOON, Doing, only_version, tiny_translator
from starlette.testclient import TestClient

from keras_transformer.errors import UserError
from keras_transformer.serving import model_sources as sources
from keras_transformer.serving.app import create_app
from keras_transformer.serving.servable import TranslatorServable
from keras_transformer.serving.server import Server
from keras_transformer.serving.versions import Model, Watcher, saved_model_versions
from keras_transformer.text.glossary import Glossary

NOT_LOADED = "this version cannot be loaded: the server's log says why"


class Shelf:
    """Versions made by a test, each with the result or the error of loading it."""

    def __init__(self, **versions):
        self.loads, self.loaded = {}, []
        self.model = Model("m", lambda: {n: str(load) for n, load in self.loads.items()}, self.load)

    def load(self, version):
        self.loaded.append(version)
        load = self.loads[version]
        if isinstance(load, Exception):
            raise load
        return load()

    def states(self):
        return {
            one.version: (one.State.Name(one.state), one.status.error_message)
            for one in self.model.status().model_version_status
        }


def test_the_highest_version_answers_and_is_loaded_once():
    shelf = Shelf()
    shelf.loads = {1: Doing, 3: Doing, 2: Doing}
    assert shelf.model.current is None
    shelf.model.refresh()
    shelf.model.refresh()
    assert shelf.loaded == [3] and shelf.model.current[0] == 3
    assert shelf.states() == {3: ("AVAILABLE", "")}


def test_metrics_tell_which_version_is_served_and_since_when():
    shelf = Shelf()
    server = Server([shelf.model])
    client = TestClient(create_app(server))

    def shown():
        lines = client.get("/metrics").text.splitlines()
        return [line for line in lines if line.startswith("keras_transformer_model_")]

    assert not shown()
    for version in (1, 2):
        shelf.loads[version] = Doing
        before = time.time()
        shelf.model.refresh()
        info, loaded = shown()
        assert info == f'keras_transformer_model_info{{model="m",version="{version}"}} 1.0'
        name, value = loaded.split()
        assert name == 'keras_transformer_model_loaded_timestamp_seconds{model="m"}'
        assert before <= float(value) <= time.time()
    server.batcher.close()


def test_a_model_with_a_glossary_is_warmed_up_with_a_term_too():
    class Recording(Doing):
        glossary, texts = Glossary({"Red light": "Ampel"}), []

        def predict(self, signature, rows):
            self.texts += [text for text, *_ in rows]
            return super().predict(signature, rows)

    only_version("m", Recording())
    of_signature = [bool(terms) for terms in Recording.glossary.terms(Recording.texts)]
    assert of_signature == [False, True] * len(Doing().signatures)


def test_an_old_version_is_let_go_when_its_last_request_is_answered():
    shelf = Shelf()
    shelf.loads = {1: Doing}
    shelf.model.refresh()
    _, old = shelf.model.current
    ended = weakref.ref(old)
    shelf.loads[2] = Doing
    shelf.model.refresh()
    assert shelf.states() == {2: ("AVAILABLE", ""), 1: ("UNLOADING", "")}
    assert ended() is old  # like a request that holds it
    del old
    shelf.model.refresh()
    assert ended() is None
    assert shelf.states() == {2: ("AVAILABLE", ""), 1: ("END", "")}


def test_a_broken_version_is_reported_and_the_old_one_stays(caplog):
    shelf = Shelf()
    shelf.loads = {1: Doing}
    shelf.model.refresh()
    shelf.loads[2] = UserError("/srv/export: no model\nhere")
    shelf.model.refresh()
    shelf.model.refresh()
    assert shelf.loaded == [1, 2]  # version 2 is not tried again
    assert shelf.model.current[0] == 1
    assert shelf.states() == {2: ("END", NOT_LOADED), 1: ("AVAILABLE", "")}
    details = "version 2 of model m: /srv/export: no model here"  # for no client
    assert [one.message for one in caplog.records] == [details]


def test_a_version_that_is_broken_from_the_start_is_logged_once_another_is_loaded(caplog):
    shelf = Shelf()
    shelf.loads = {2: OSError("half copied")}
    shelf.model.refresh()
    assert not caplog.records and shelf.model.errors() == ["OSError: half copied"]
    shelf.loads[1] = Doing
    shelf.model.refresh()
    assert [one.message for one in caplog.records] == ["version 2 of model m: OSError: half copied"]


def test_a_broken_version_is_tried_again_when_its_files_change():
    shelf = Shelf()
    shelf.loads = {1: OSError("half copied")}
    shelf.model.refresh()
    assert shelf.states() == {1: ("END", NOT_LOADED)}
    shelf.loads = {1: Doing}
    shelf.model.refresh()
    assert shelf.states() == {1: ("AVAILABLE", "")}


def test_a_version_that_cannot_answer_is_broken():
    class Failing(Doing):
        def predict(self, signature, rows):
            raise RuntimeError("no answer")

    shelf = Shelf()
    shelf.loads = {1: Doing, 2: Failing}
    shelf.model.refresh()
    assert shelf.model.current[0] == 1
    assert shelf.states()[2] == ("END", NOT_LOADED)


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -1e9])
@pytest.mark.parametrize("name", ["score", "scores"])
def test_a_version_whose_scores_are_no_log_probabilities_is_broken(name, score):
    class Diverged(Doing):
        def predict(self, signature, rows):
            found = super().predict(signature, rows)
            return [{**row, name: [score] if name == "scores" else score} for row in found]

    shelf = Shelf()
    shelf.loads = {1: Doing, 2: Diverged}
    shelf.model.refresh()
    assert shelf.model.current[0] == 1
    state, error = shelf.states()[2]
    assert state == "END" and error.startswith("the signature ")


@pytest.mark.slow
def test_a_model_whose_weights_are_not_numbers_is_not_served():
    """With the search and the scores of a real model."""
    translator = tiny_translator(n_best=2)
    kernel = translator.models[0].output_projection.kernel
    model = Model("m", lambda: {1: None}, lambda version: TranslatorServable(translator))
    model.refresh()
    assert model.current
    kernel.assign(np.nan * kernel.numpy())
    model = Model("m", lambda: {1: None}, lambda version: TranslatorServable(translator))
    model.refresh()
    assert not model.current and "the training has diverged" in model.errors()[0]


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.index"])
def test_a_version_with_a_pipe_in_it_is_broken_and_does_not_stop_the_watcher(tmp_path, name):
    pipe = tmp_path / "2" / name
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "saved_model.pb").symlink_to("/dev/zero")
    model = sources.saved_model("m", str(tmp_path))
    model.refresh()
    found = model.status().model_version_status
    assert [one.status.error_message for one in found] == [
        "saved_model.pb is not a regular file",
        f"{name} is not a regular file",
    ]


def test_the_version_before_comes_back_when_the_new_one_is_taken_away():
    shelf = Shelf()
    shelf.loads = {1: Doing, 2: Doing}
    shelf.model.refresh()
    del shelf.loads[2]
    shelf.model.refresh()
    assert shelf.model.current[0] == 1
    shelf.loads.clear()  # no better version was found
    shelf.model.refresh()
    assert shelf.model.current[0] == 1


def test_a_version_that_came_back_stays_available_when_earlier_requests_end():
    shelf = Shelf()
    shelf.loads = {1: Doing}
    shelf.model.refresh()
    _, old = shelf.model.current  # held, as by a request
    shelf.loads[2] = Doing
    shelf.model.refresh()
    del shelf.loads[2]
    shelf.model.refresh()
    assert shelf.model.current[0] == 1 and shelf.model.current[1] is not old
    del old
    shelf.model.refresh()
    assert shelf.states() == {2: ("END", ""), 1: ("AVAILABLE", "")}


def test_the_watcher_loads_new_versions_and_reports_a_model_without_one():
    good, bad = Shelf(), Shelf()
    good.loads, bad.loads = {1: Doing}, {1: UserError("nothing here")}
    failures, failed = [], threading.Event()
    Watcher([bad.model], 0.01, lambda error: (failures.append(error), failed.set())).start()
    assert failed.wait(SOON) and str(failures[0]) == "model m: nothing here"
    watcher = Watcher([good.model], 0.01, failures.append)
    watcher.start()
    loaded = threading.Event()

    class Second(Doing):
        def __init__(self):
            super().__init__()
            loaded.set()

    good.loads[2] = Second
    assert loaded.wait(SOON)
    watcher.stop()
    assert len(failures) == 1


def test_a_watcher_that_stops_says_whether_a_version_is_still_being_loaded():
    first, second, failures = Shelf(), Shelf(), []
    begun, may_go_on = threading.Event(), threading.Event()

    class Slow(Doing):
        def __init__(self):
            super().__init__()
            begun.set()
            assert may_go_on.wait(SOON)

    first.loads, second.loads = {1: Slow}, {1: Doing}
    watcher = Watcher([first.model, second.model], 0.01, failures.append)
    watcher.start()
    assert begun.wait(SOON) and watcher.stop()
    may_go_on.set()
    while watcher.stop():
        pass
    assert first.model.current and second.model.current is None and not failures


def test_a_folder_that_cannot_be_read_ends_the_server_at_first_and_is_logged_once_later(caplog):
    shelf = Shelf()
    failures, failed, looked = [], threading.Event(), threading.Semaphore(0)

    def find():
        looked.release()
        raise PermissionError(13, "Permission denied", "export")

    unreadable = Model("m", find, shelf.load)
    Watcher([unreadable], 0.01, lambda error: (failures.append(error), failed.set())).start()
    assert failed.wait(SOON) and str(failures[0]) == "model m: export: Permission denied"
    caplog.clear()
    shelf.loads = {1: Doing}
    shelf.model.refresh()
    shelf.model._find, looked = find, threading.Semaphore(0)
    watcher = Watcher([shelf.model], 0.01, failures.append)
    watcher.start()
    assert all(looked.acquire(timeout=SOON) for _ in range(3))
    watcher.stop()
    assert len(failures) == 1 and shelf.model.current[0] == 1
    assert [one.message for one in caplog.records] == ["model m: export: Permission denied"]


def test_versions_are_folders_with_numbers(tmp_path):
    largest = 2**63 - 1
    for name in ("1", "12", "007", ".partial-3", "two", "\u0663", f"{largest}", f"{largest + 1}"):
        (tmp_path / name).mkdir()
    (tmp_path / "9").write_text("a file")
    (tmp_path / "1" / "dangling").symlink_to("nothing")
    before = saved_model_versions(tmp_path)
    assert sorted(before) == [1, 7, 12, largest]
    (tmp_path / "12" / "saved_model.pb").write_bytes(b"x")
    after = saved_model_versions(tmp_path)
    assert after[12] != before[12] and after[1] == before[1]


def test_a_version_with_leading_zeros_is_loaded_from_its_folder(tmp_path, monkeypatch):
    loaded = []
    monkeypatch.setattr(sources, "SavedModelServable", lambda path: loaded.append(path) or Doing())
    (tmp_path / "007").mkdir()
    model = sources.saved_model("m", str(tmp_path))
    model.refresh()
    assert loaded == [tmp_path / "007"] and model.current[0] == 7


def test_the_content_of_a_folder_tells_an_export_from_a_model_dir(tmp_path):
    (tmp_path / "export" / "1").mkdir(parents=True)
    assert sources.has_saved_models(str(tmp_path / "export"))
    assert not sources.has_saved_models(str(tmp_path))
    (tmp_path / "run" / "1").mkdir(parents=True)  # exported into the model_dir itself
    (tmp_path / "run" / "config.json").write_text("{}")
    assert not sources.has_saved_models(str(tmp_path / "run"))
    (tmp_path / "export" / "1" / "saved_model.pb").write_bytes(b"")
    with pytest.raises(UserError, match="1 is one version of a SavedModel: give the folder"):
        sources.has_saved_models(str(tmp_path / "export" / "1"))


@pytest.mark.parametrize("flag", ["", "en-de", "=runs/a", "a=", "a=b,", "a/b=c", "a:b=c"])
def test_a_flag_that_names_no_model_is_refused(flag):
    with pytest.raises(UserError, match="NAME=PATH"):
        sources.parse_model_flag(flag)


def test_a_folder_that_exists_may_have_a_comma_in_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert sources.parse_model_flag("demo=a,b") == ("demo", ["a", "b"])
    (tmp_path / "a,b").mkdir()
    assert sources.parse_model_flag("demo=a,b") == ("demo", ["a,b"])


@pytest.fixture(scope="module")
def exports(tmp_path_factory):
    """A folder with two versions that translate differently; 3 is no SavedModel, 4 is cut off."""
    folder = tmp_path_factory.mktemp("exports")
    for seed in (1, 2):
        tiny_translator(seed, n_best=2).export(folder)
    (folder / "3").mkdir()
    shutil.copytree(folder / "2", folder / "4")
    weights = folder / "4" / "variables" / "variables.data-00000-of-00001"
    weights.write_bytes(weights.read_bytes()[:1000])
    return folder


@pytest.mark.slow
def test_saved_models_are_swapped_while_requests_go_on_and_none_is_lost(exports, tmp_path):
    folder = tmp_path / "en-de"
    folder.mkdir()
    shutil.copytree(exports / "1", folder / "1")
    model = sources.saved_model("en-de", str(folder))
    model.refresh()
    server = Server([model])
    client = TestClient(create_app(server))
    swapped = threading.Event()

    def ask():
        body = {"instances": ["A horse!"]}
        [row] = client.post("/v1/models/en-de:predict", json=body).json()["predictions"]
        return row["translation"]

    def ask_on():
        found = [ask()]
        while not swapped.wait(0.02):  # or they would keep the processor from loading
            found.append(ask())
        return [*found, ask()]

    before = ask()
    with ThreadPoolExecutor() as pool:
        asking = [pool.submit(ask_on) for _ in range(3)]
        for version in ("2", "3", "4"):
            shutil.copytree(exports / version, folder / version)
            model.refresh()
        swapped.set()
        after = ask()
        assert after != before
        for found in asking:
            answers = found.result(SOON)
            taken_over = answers.index(after)
            assert set(answers[:taken_over]) <= {before} and set(answers[taken_over:]) == {after}
    model.refresh()
    versions = client.get("/v1/models/en-de").json()["model_version_status"]
    assert [(one["version"], one["state"]) for one in versions] == [
        ("4", "END"),
        ("3", "END"),
        ("2", "AVAILABLE"),
        ("1", "END"),
    ]
    assert all(one["status"]["error_message"] for one in versions[:2])
    server.batcher.close()
