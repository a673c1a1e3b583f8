"""Reductions over the replicas of a TensorFlow strategy; other backends' tensors are global."""

import keras
from keras import ops


def sum_over_replicas(x):
    """Sums `x` over all replicas if called within a replica; else returns `x`."""
    if keras.backend.backend() != "tensorflow":
        return x
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def replica_id():
    """The index of the calling replica, from 0; outside of replicas, 0."""
    if keras.backend.backend() != "tensorflow":
        return 0
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def mean_over_replicas(x):
    """Averages `x` over all replicas; the gradient is that of this replica's `x` alone."""
    total = sum_over_replicas(x)
    if total is x:
        return x
    return x + ops.stop_gradient(total / sum_over_replicas(ops.ones_like(x)) - x)
