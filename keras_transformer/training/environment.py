"""The machine and the software versions that train a run."""

import os
import platform

import keras
import tensorflow as tf

from keras_transformer import __version__
from keras_transformer.machine import processor


def environment() -> dict[str, str]:
    """Versions and devices, which a model_dir records each time that training starts.

    Example:
        >>> environment()["processor"]
        '...'
    """
    gpus = [
        tf.config.experimental.get_device_details(gpu).get("device_name", gpu.name)
        for gpu in tf.config.list_physical_devices("GPU")
    ]
    return {
        "keras_transformer": __version__,
        "python": platform.python_version(),
        "tensorflow": tf.__version__,
        "keras": keras.__version__,
        "processor": f"{processor.model_name()}, {os.cpu_count()} cores",
        "gpus": ", ".join(gpus),
    }
