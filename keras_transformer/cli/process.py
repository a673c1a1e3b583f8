"""Protects a command from its shell: closed, full or ASCII-only streams, and Ctrl-C at any time."""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Iterator


def fill_closed_streams() -> None:
    """Opens the null device in place of closed standard streams, as after `2>&-`.

    Otherwise the next file to be opened, such as a checkpoint, would get the number of the stream,
    and C++ would print into it. `sys.stdin` and `sys.stdout` stay None, which marks them as closed.
    `sys.stderr` does not, since `print` would write to standard output instead.
    """
    for number, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
        if stream is None:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def print_any_text() -> None:
    """Lets `print` escape what standard output cannot encode, such as the name of a file.

    Such names may have bytes that are not UTF-8. Standard error does so already.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def finish_output() -> None:
    """Writes what is left of standard output, and drops what cannot be written.

    Otherwise Python would try again at its exit, and report a second error.
    """
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Terminated(BaseException):
    """SIGTERM came; `except Exception` does not catch it."""


@contextlib.contextmanager
def raising_when_terminated() -> Iterator[None]:
    """Makes SIGTERM in this block raise `Terminated`, so that partly written files are removed.

    A second SIGTERM ends the process at once.
    """

    def end(number, frame):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise Terminated

    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:  # else it is ignored
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextlib.contextmanager
def ending_when_interrupted(program: str) -> Iterator[None]:
    """Makes Ctrl-C in this block end the process with one line and status 130, without clean-up.

    Meant for imports, which take seconds: an exception during an import may be lost, or crash.
    """
    # A shell lets its background jobs ignore SIGINT: they keep ignoring it.
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    stderr = os.dup(2)  # `quiet` replaces the original meanwhile

    def end(number, frame):
        os.write(stderr, f"{program}: interrupted\n".encode())
        os._exit(130)

    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(stderr)
