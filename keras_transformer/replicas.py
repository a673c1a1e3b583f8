"""Sums over the replicas of a TensorFlow strategy; on other backends a tensor is already global."""

import keras


def sum_over_replicas(x):
    """The sum of `x` over all replicas, where this is called from within one; else `x`."""
    if keras.backend.backend() != "tensorflow":
        return x
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return x
    return context.all_reduce(tf.distribute.ReduceOp.SUM, x)
