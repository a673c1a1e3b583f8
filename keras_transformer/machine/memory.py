"""Keeps freed memory in the process, because training allocates it again."""

import ctypes
import os
import sys

# glibc's mallopt(3): trim threshold, top pad, mmap threshold, number of arenas. Only the first
# arena has room for blocks of 64 MiB and more: those of a second one would be returned at once.
_OPTIONS = {-1: 2**31 - 1, -2: 2**28, -3: 2**30, -8: 1}

# TensorFlow's pool for tensors, as on GPUs, but without the limit of 64 GiB that it has on a CPU.
_POOL = {"TF_CPU_ALLOCATOR_USE_BFC": "true", "TF_CPU_BFC_MEM_LIMIT_IN_MB": str(2**30)}


def keep_freed_memory() -> None:
    """Makes the process keep its freed memory: in TensorFlow's pool, and in glibc on Linux.

    By default, glibc returns large freed blocks to the system. Each training step then waits for
    the system to clear the same pages again. What the environment already sets for the pool stays.

    Call it before TensorFlow is imported: threads that have allocated memory already have an arena
    of their own, and keep it.
    """
    for variable, text in _POOL.items():
        os.environ.setdefault(variable, text)
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        for option, value in _OPTIONS.items():
            mallopt(option, value)
