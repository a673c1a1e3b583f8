"""Simulates processes that die, and disks that fill up, at any file operation."""

import errno
import os
import sys
import threading


class Killed(BaseException):
    """Ends a block like a killed process: its later file operations have no effect."""


class Fault:
    """Makes all file operations from the n-th on fail; Python's audit events report them.

    Tests mark other moments by `sys.audit("point")`.

    Args:
        number: n, from 1.

    Attributes:
        left: number of operations until the first failure; 0 or less if some failed.
    """

    OPERATIONS = frozenset(
        ["open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "fsync", "point"]
    )
    current = None

    def __init__(self, number):
        self.left = number

    @property
    def happened(self):
        return self.left <= 0

    def __enter__(self):
        Fault.current = self
        return self

    def __exit__(self, kind, *_):
        Fault.current = None
        return kind is Killed

    def fail(self):
        raise Killed

    def applies(self, event, arguments):
        return event in self.OPERATIONS

    @staticmethod
    def hook(event, arguments):
        fault = Fault and Fault.current  # None at the interpreter's end, as all names are
        if not fault or threading.current_thread() is not threading.main_thread():
            return
        if fault.applies(event, arguments):
            fault.left -= 1
            if fault.happened:
                fault.fail()


class FullDisk(Fault):
    """Makes only operations that need disk space fail; reading and removing still work."""

    OPERATIONS = frozenset(["os.mkdir", "os.rename", "fsync"])

    def fail(self):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def applies(self, event, arguments):
        writes = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        return writes or super().applies(event, arguments)


def fsync(descriptor, original=os.fsync):
    sys.audit("fsync", descriptor)
    original(descriptor)


os.fsync = fsync
sys.addaudithook(Fault.hook)
