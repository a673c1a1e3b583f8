"""The replicas of a TensorFlow strategy; on other backends a tensor is already global."""

import keras
from keras import ops


def sum_over_replicas(x):
    """The sum of `x` over all replicas, where this is called from within one; else `x`."""
    if keras.backend.backend() != "tensorflow":
        return x
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)


def replica_id():
    """The number of the replica that this is called from within, from 0 on; elsewhere 0."""
    if keras.backend.backend() != "tensorflow":
        return 0
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    return 0 if context is None else context.replica_id_in_sync_group


def mean_over_replicas(x):
    """The mean of `x` over all replicas, with the gradient of this replica's `x` alone."""
    total = sum_over_replicas(x)
    if total is x:
        return x
    return x + ops.stop_gradient(total / sum_over_replicas(ops.ones_like(x)) - x)
