"""Whether this machine has a GPU that TensorFlow can use, without importing TensorFlow."""

import contextlib
import ctypes
import glob
import importlib.util
import os

_GPU_FILES = "/dev/nvidia[0-9]*"  # which the driver of NVIDIA makes, one a GPU
_NO_GPU = ("", "-1")  # values of CUDA_VISIBLE_DEVICES
# TensorFlow uses a GPU only with cuDNN, which it takes from a package or from the system.
_CUDNN_PACKAGE, _CUDNN_LIBRARY = "nvidia.cudnn", "libcudnn.so.9"


def has_gpu() -> bool:
    """Whether there is an NVIDIA GPU that the environment does not hide."""
    return bool(glob.glob(_GPU_FILES)) and os.environ.get("CUDA_VISIBLE_DEVICES") not in _NO_GPU


def tensorflow_has_gpu() -> bool:
    """Whether there is such a GPU, and the library that TensorFlow needs to compute on it."""
    return has_gpu() and _has_cudnn()


def _has_cudnn():
    with contextlib.suppress(ModuleNotFoundError):  # there is no package `nvidia` at all
        if importlib.util.find_spec(_CUDNN_PACKAGE):
            return True
    try:
        ctypes.CDLL(_CUDNN_LIBRARY)
    except OSError:
        return False
    return True
