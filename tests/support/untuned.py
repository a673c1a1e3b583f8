"""Turns off TensorFlow's tuning of data sets, which changes no result.

The thread that tunes an iterator may miss its end, which then waits for as long as the iterator has
lived, up to a minute on each device. A script on several devices imports this module.
"""

import tensorflow as tf


def without_tuning(dataset):
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


tf.data.Dataset._apply_debug_options = without_tuning  # called for each iterator
