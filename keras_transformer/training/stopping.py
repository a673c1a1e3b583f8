"""Stops training on SIGINT (Ctrl-C), SIGTERM, SIGHUP and SIGPIPE (output that nobody reads)."""

import contextlib
import signal
import threading
from collections.abc import Iterator

# The terminal was closed; the reader of the output has gone. More such signals may follow.
_OUTPUT_LOST = (signal.SIGHUP, signal.SIGPIPE)


class Interrupted(BaseException):
    """A signal came during `StopSignals.may_interrupt`; `except Exception` does not catch it."""


class StopSignals:
    """Records SIGINT, SIGTERM, SIGHUP and SIGPIPE, so that the current step finishes.

    A second SIGINT or SIGTERM has the system's default effect, and ends the process at once. These
    two are recorded however the process was started, although a shell lets its background jobs
    ignore SIGINT. SIGHUP stays ignored if it was, as by `nohup`. Outside the main thread, where
    Python allows no handlers, this does nothing.

    Attributes:
        received: the number of the signal that came, or None.

    Example:
        >>> with StopSignals() as signals:
        ...     for batch in batches.dataset().take(2):
        ...         if signals.received:
        ...             break
        >>> print(signals.received)
        None
    """

    def __init__(self):
        self.received: int | None = None
        self._may_interrupt = False

    def __enter__(self):
        self._before = {}
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, *_OUTPUT_LOST):
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def may_interrupt(self) -> Iterator[None]:
        """Makes a signal in this block raise `Interrupted`: for work that can be repeated later."""
        self._may_interrupt = True
        try:
            if self.received:
                raise Interrupted
            yield
        finally:
            self._may_interrupt = False

    def leave(self) -> None:
        """Ends the process as the recorded signal would have: with status 128 and its number."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(None if self.received is None else 128 + self.received)

    def _note(self, number, frame):
        self.received = number
        for other in self._before:
            signal.signal(other, _do_nothing if other in _OUTPUT_LOST else signal.SIG_DFL)
        if self._may_interrupt:
            raise Interrupted


def stops_without_reader() -> bool:
    """Whether SIGPIPE stops training: Python ignores it otherwise."""
    return signal.getsignal(signal.SIGPIPE) is not signal.SIG_IGN


def _do_nothing(number, frame):
    pass
