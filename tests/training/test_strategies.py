"""The devices that train: names of strategies, and typical mistakes in TF_CONFIG."""

import json

import pytest

from keras_transformer.errors import UserError
from keras_transformer.training import make_strategy
from keras_transformer.training.strategies import sum_over_workers

HOSTS = {"worker": ["a:1", "b:1"]}


def config(cluster=HOSTS, **task):
    return json.dumps({"cluster": cluster, "task": {"type": "worker", "index": 0, **task}})


@pytest.mark.parametrize("name", ["auto", "one_device"])
def test_one_device_needs_no_strategy(name):
    assert make_strategy(name).num_replicas_in_sync == 1


def test_one_worker_is_no_cluster():
    assert make_strategy("auto", config({"worker": ["a:1"]})).num_replicas_in_sync == 1


def test_many_sums_do_not_warn_of_retracing(caplog):
    """Each training of a process ends with one."""
    for value in range(8):
        assert sum_over_workers(make_strategy("one_device"), value) == value
    assert not [one for one in caplog.records if "retracing" in one.getMessage()]


@pytest.mark.parametrize(
    ("name", "tf_config", "message"),
    [
        ("multi_worker", None, "needs the workers in TF_CONFIG: found none"),
        ("mirrored", config(), "strategy mirrored is for one machine: found several workers"),
        ("one_device", config(), "strategy one_device is for one machine: found several workers"),
        ("both", None, "strategy must be one of auto, .*: found both"),
        ("auto", "{", "TF_CONFIG:1: not JSON: "),
        ("auto", "[" * 100_000, "TF_CONFIG: this JSON is nested too deeply"),
        ("auto", "[]", 'fields "cluster" and "task": found'),
        ("auto", '{"cluster": {}}', 'fields "cluster" and "task": found'),
        ("auto", config({"worker": []}), 'list of hosts for "worker"'),
        ("auto", config({"ps": ["a:1"]}), 'list of hosts for "worker"'),
        ("auto", config({"worker": ["a", "b:1"]}), 'each host in "cluster" as "name:port"'),
        ("auto", config({"worker": [1, 2]}), 'each host in "cluster" as "name:port"'),
        ("auto", config(type="chief"), '"type" of a host of the cluster'),
        ("auto", config(index="0"), 'an "index"'),
        ("auto", config(index=2), 'an "index" below 2, the number of hosts of "worker"'),
        ("auto", json.dumps({"cluster": HOSTS, "task": 1}), '"type" of a host'),
    ],
)
def test_a_wrong_strategy_or_tf_config_is_refused_in_one_line(name, tf_config, message):
    with pytest.raises(UserError, match=message) as error:
        make_strategy(name, tf_config)
    assert "\n" not in str(error.value)
