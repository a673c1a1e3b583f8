"""Reductions over the replicas of a TensorFlow strategy; other backends' tensors are global.

A sum over replicas waits for all of them. `MirroredStrategy` runs Python on one replica up to such
a sum, then on the next one, although replicas share their layers: the list `model.losses` is then
that of the last replica. So no layer, and no loss before `model.losses` has been read, may call
`sum_over_replicas`.
"""

import keras
from keras import ops


def sum_over_replicas(x):
    """Sums `x` over all replicas if called within a replica; else returns `x`."""
    context = _replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce("SUM", x)


def num_replicas() -> int:
    """The number of replicas that run the calling code; outside of replicas, 1."""
    context = _replica_context()
    return 1 if context is None else context.num_replicas_in_sync


def replica_id():
    """The index of the calling replica, from 0; outside of replicas, 0."""
    context = _replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def _replica_context():
    if keras.backend.backend() != "tensorflow":
        return None
    import tensorflow as tf

    return tf.distribute.get_replica_context()


def part_of_mean(total, count):
    """Computes this replica's part of `sum(totals) / sum(counts)` over all replicas.

    The value needs no other replica, since it is computed before `model.losses` is read. It is
    `total / count` divided by the number of replicas: the parts add up to a mean over replicas.
    The gradient divides by the counts of all replicas, so that the gradients of all parts add up
    to the gradient of the mean over all.

    Args:
        total: scalar, the sum over this replica's values.
        count: scalar, their number or the sum of their weights. If it is 0, the result is 0.

    Returns:
        Scalar like `total`.
    """
    replicas = num_replicas()
    if replicas == 1:
        return ops.divide_no_nan(total, count)

    import tensorflow as tf

    # Not `fast.dispatch`'s decorator: its graph is separate, and no replica can wait in it.
    @tf.custom_gradient
    def part(total):
        def gradient(upstream):
            return ops.divide_no_nan(upstream, sum_over_replicas(count))

        return ops.divide_no_nan(total, count) / replicas, gradient

    return part(total)


def mean_of_parts(part, count):
    """Replaces the value of a `part_of_mean` by the mean itself, divided by the number of replicas.

    All replicas get the same value. The gradient stays that of `part`.
    """
    if num_replicas() == 1:
        return part
    total, count = sum_over_replicas([part * count, count])
    return part + ops.stop_gradient(ops.divide_no_nan(total, count) - part)
