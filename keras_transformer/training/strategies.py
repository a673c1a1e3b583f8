"""Which devices train: TensorFlow's distribution strategies."""

import tensorflow as tf


def default_strategy() -> tf.distribute.Strategy:
    """`MirroredStrategy` where there are several devices of the best kind, else one device."""
    devices = tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU")
    if len(devices) > 1:
        return tf.distribute.MirroredStrategy([device.name for device in devices])
    return tf.distribute.get_strategy()
