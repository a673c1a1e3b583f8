"""Keeps freed memory in the process, because training allocates it again."""

import ctypes
import sys

# glibc's mallopt(3): trim threshold, top pad, mmap threshold.
_OPTIONS = {-1: 2**31 - 1, -2: 2**28, -3: 2**30}


def keep_freed_memory() -> None:
    """Makes the process keep its freed memory, where the C library is glibc.

    By default, glibc returns large freed blocks to the system. Each training step then waits for
    the system to clear the same pages again.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt:
        for option, value in _OPTIONS.items():
            mallopt(option, value)
