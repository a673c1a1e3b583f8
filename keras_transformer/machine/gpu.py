"""Whether this machine has a GPU, without importing TensorFlow."""

import glob
import os

_GPU_FILES = "/dev/nvidia[0-9]*"  # which the driver of NVIDIA makes, one a GPU
_NO_GPU = ("", "-1")  # values of CUDA_VISIBLE_DEVICES


def has_gpu() -> bool:
    """Whether there is an NVIDIA GPU that the environment does not hide."""
    return bool(glob.glob(_GPU_FILES)) and os.environ.get("CUDA_VISIBLE_DEVICES") not in _NO_GPU
