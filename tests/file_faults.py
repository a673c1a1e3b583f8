"""Processes that die, and disks that fill, at any operation on files."""

import errno
import os
import sys
import threading


class Killed(BaseException):
    """Ends a block as a killed process would: what it does to files afterwards has no effect."""


class Fault:
    """From the n-th operation on files on, all fail; Python's own audit events tell of them.

    Other moments take part by `sys.audit("point")`.

    Args:
        number: n, from 1.

    Attributes:
        left: operations until the first that fails; 0 or less if some failed.
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
    """The same of the operations that need room; those that read or remove go on."""

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
