"""A command and its shell: standard streams that may be closed, and Ctrl-C at any time."""

import contextlib
import os
import signal
import sys
from collections.abc import Iterator


def fill_closed_streams() -> None:
    """Opens the null device in place of the standard streams that are closed, as by `2>&-`.

    Otherwise the next file that is opened, a checkpoint say, would get the number of the stream,
    and what C++ prints would go into it. `sys.stdin` and `sys.stdout` stay None, which tells that
    they were closed; `sys.stderr` does not, for `print` would take standard output instead.
    """
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


@contextlib.contextmanager
def ending_when_interrupted(program: str) -> Iterator[None]:
    """In this block Ctrl-C ends the process with one line and status 130, cleaning up nothing.

    For imports, which take seconds: an exception in the middle of one may be lost, or crash.
    """
    # A shell makes its background jobs ignore SIGINT: they keep ignoring it.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    stderr = os.dup(2)  # which `quiet` replaces meanwhile

    def end(number, frame):
        os.write(stderr, f"{program}: interrupted\n".encode())
        os._exit(130)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(stderr)
