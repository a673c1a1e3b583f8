"""Keeps freed memory in the process, since training asks for it again."""

import ctypes
import sys

# glibc's mallopt(3): trim threshold, top pad, mmap threshold.
_OPTIONS = {-1: 2**31 - 1, -2: 2**28, -3: 2**30}


def keep_freed_memory() -> None:
    """Keeps freed memory in the process, for the whole of it, where the C library is glibc.

    By default glibc returns large blocks to the system when they are freed, and each step of
    training then waits for the same pages to be cleared once more.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        for option, value in _OPTIONS.items():
            mallopt(option, value)
