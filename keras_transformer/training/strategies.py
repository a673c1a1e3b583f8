"""Strategies: the devices that train, and the rows of a batch that each device gets."""

import contextlib
import functools
import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_transformer.errors import UserError
from keras_transformer.json_files import parse_json
from keras_transformer.options import STRATEGIES


def make_strategy(name: str = "auto", tf_config: str | None = None) -> tf.distribute.Strategy:
    """Makes a strategy; with several workers, call this before TensorFlow computes anything.

    Args:
        name: "one_device"; "mirrored", all devices of this machine; "multi_worker", the devices of
            several machines; or "auto", the last of these that `tf_config` and the devices allow.
        tf_config: JSON that names the workers, and this one among them, as TensorFlow expects it
            in the environment variable TF_CONFIG.

    Raises:
        UserError: `tf_config` is invalid or missing, or the strategy has no use for it.

    Example:
        >>> make_strategy("one_device").num_replicas_in_sync
        1
    """
    if name not in STRATEGIES:
        raise UserError(f"strategy must be one of {', '.join(STRATEGIES)}: found {name}")
    resolver = _cluster_resolver(tf_config) if tf_config else None
    workers = resolver.cluster_spec().as_dict() if resolver else {}
    is_distributed = sum(map(len, workers.values())) > 1
    if name == "multi_worker" and not resolver:
        raise UserError("strategy multi_worker needs the workers in TF_CONFIG: found none")
    if name in ("one_device", "mirrored") and is_distributed:
        raise UserError(f"strategy {name} is for one machine: found several workers in TF_CONFIG")
    if name == "multi_worker" or is_distributed:
        try:
            return tf.distribute.MultiWorkerMirroredStrategy(resolver)
        except tf.errors.OpError as error:
            raise UserError(f"TF_CONFIG: no connection to all workers: {error}") from error
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if name == "mirrored" or (name == "auto" and len(devices) > 1):
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()


def is_chief(strategy: tf.distribute.Strategy) -> bool:
    """Whether this worker is the chief, which alone writes checkpoints and logs."""
    resolver = strategy.cluster_resolver
    if resolver is None:
        return True
    first = "chief" if "chief" in resolver.cluster_spec().as_dict() else "worker"
    return (resolver.task_type, resolver.task_id) == (first, 0)


def worker_of(strategy: tf.distribute.Strategy) -> tuple[int, int]:
    """The number of workers, and the index of this one, from 0."""
    resolver = strategy.cluster_resolver
    if resolver is None:
        return 1, 0
    workers = resolver.cluster_spec().as_dict()
    chiefs = 0 if resolver.task_type == "chief" else len(workers.get("chief", ()))
    return sum(map(len, workers.values())), chiefs + resolver.task_id


def sum_over_workers(strategy: tf.distribute.Strategy, value: int) -> int:
    """The sum over all replicas of their worker's number; waits for all workers.

    Raises:
        UserError: a worker was lost.
    """
    return int(_sum(strategy, value))


def gather(strategy: tf.distribute.Strategy, content: bytes) -> list[bytes]:
    """The content of each worker, in the order of workers; waits for all workers.

    Raises:
        UserError: a worker was lost.
    """
    count, worker = worker_of(strategy)
    if count == 1:
        return [content]
    # Each replica of a worker adds the worker's values.
    replicas = strategy.num_replicas_in_sync // count
    lengths = np.zeros(count)
    lengths[worker] = len(content)
    lengths = (_sum(strategy, lengths) / replicas).astype(int)
    contents = np.zeros((count, lengths.max()), "float32")
    contents[worker, : len(content)] = np.frombuffer(content, np.uint8)
    contents = (_sum(strategy, contents) / replicas).astype(np.uint8)
    return [row[:length].tobytes() for row, length in zip(contents, lengths, strict=True)]


@contextlib.contextmanager
def failing_together(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Raises the `UserError` of one worker's block on all of them; waits for all workers."""
    error = None
    try:
        yield
    except UserError as found:
        error = found
    try:
        messages = gather(strategy, str(error or "").encode())
    finally:
        if error:
            raise error
    for worker, message in enumerate(messages):
        if message:
            raise UserError(f"worker {worker}: {message.decode()}")


def expect_same(strategy: tf.distribute.Strategy, values: Mapping[str, Any]) -> None:
    """Raises the same `UserError` on all workers if their values differ; waits for all workers.

    Args:
        strategy: the strategy of the workers.
        values: values that JSON can hold, by the names for the error message.
    """
    first, *others = map(json.loads, gather(strategy, json.dumps(values).encode()))
    for worker, other in enumerate(others, start=1):
        different = [
            f"{name}={first.get(name)} on worker 0 and {other.get(name)} on worker {worker}"
            for name in {**first, **other}
            if first.get(name) != other.get(name)
        ]
        if different:
            raise UserError(f"all workers must train the same run: found {', '.join(different)}")


def _sum(strategy, values):
    """The sum over all replicas of their worker's arrays."""

    def total():
        each = strategy.run(lambda: tf.constant(values, None if np.ndim(values) else tf.float64))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, each, axis=None)

    try:
        # A new partial for each call: TensorFlow counts the traces of a function over all calls,
        # and would soon warn about retracing.
        return tf.function(functools.partial(total), autograph=False)().numpy()
    except tf.errors.OpError as error:
        if strategy.cluster_resolver is None:
            raise
        raise UserError(
            f"a worker was lost ({type(error).__name__}); start all of them again"
        ) from error


def replica_batches(batches: tf.data.Dataset, strategy: tf.distribute.Strategy, pad_id: int) -> Any:
    """Splits each batch into the rows of each replica, for `model.fit`.

    All replicas get the same number of rows; rows of padding, which do not count, fill them up.

    Args:
        batches: batches of this worker's rows, such as
            `Batches.dataset(0, *worker_of(strategy))`.
        strategy: the strategy whose replicas get the rows.
        pad_id: id of padding.
    """
    if strategy.num_replicas_in_sync == 1:
        return batches

    def of_worker(context):
        here = strategy.num_replicas_in_sync // context.num_input_pipelines
        parts = batches.map(lambda *batch: split_rows(batch, here, pad_id))
        return parts.unbatch().prefetch(2 * here)

    return strategy.distribute_datasets_from_function(of_worker)


def split_rows(batch: Any, parts: int, pad_id: int) -> Any:
    """Reshapes arrays (rows, ...) to (parts, rows of a part, ...), adding rows of padding."""

    def split(x):
        rows, others = tf.shape(x)[0], [[0, 0]] * (x.shape.rank - 1)
        padding = tf.cast(pad_id, x.dtype)
        x = tf.pad(x, [[0, -rows % parts], *others], constant_values=padding)
        shape = [[parts, (rows + parts - 1) // parts], tf.shape(x)[1:]]
        return tf.reshape(x, tf.concat(shape, axis=0))

    return keras.tree.map_structure(split, batch)


def _cluster_resolver(tf_config):
    """TensorFlow's cluster resolver for TF_CONFIG, after checks that TensorFlow omits."""

    def expect(holds, requirement):
        if not holds:
            raise UserError(f"TF_CONFIG must {requirement}: found {tf_config}")

    settings = parse_json(tf_config, "TF_CONFIG")
    expect(
        isinstance(settings, dict) and settings.keys() == {"cluster", "task"},
        'be an object with the fields "cluster" and "task"',
    )
    cluster, task = settings["cluster"], settings["task"]
    expect(
        isinstance(cluster, dict)
        and "worker" in cluster
        and cluster.keys() <= {"chief", "worker"}
        and all(isinstance(hosts, list) and hosts for hosts in cluster.values()),
        'have in "cluster" a list of hosts for "worker", and for "chief" if there is one',
    )
    for host in itertools.chain(*cluster.values()):
        name, _, port = host.rpartition(":") if isinstance(host, str) else ("", "", "")
        expect(name and port.isdigit(), 'have each host in "cluster" as "name:port"')
    kind, index = (
        (task.get(name) for name in ("type", "index")) if isinstance(task, dict) else (0, 0)
    )
    expect(
        isinstance(kind, str) and kind in cluster and type(index) is int,
        'have in "task" the "type" of a host of the cluster and an "index"',
    )
    num_hosts = len(cluster[kind])
    expect(
        0 <= index < num_hosts,
        f'have an "index" below {num_hosts}, the number of hosts of "{kind}"',
    )
    return tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec(cluster), task_type=kind, task_id=index, rpc_layer="grpc"
    )
