"""Stops training on SIGINT (Ctrl-C), SIGTERM and SIGHUP (the terminal was closed)."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Interrupted(BaseException):
    """A signal came during `StopSignals.may_interrupt`; `except Exception` does not catch it."""


class StopSignals:
    """Records SIGINT, SIGTERM and SIGHUP, so that the current step finishes.

    A second signal has the system's default effect, and ends the process at once; but not SIGHUP,
    which both the system and the shell send. SIGINT and SIGTERM are recorded however the process
    was started, although a shell lets its background jobs ignore SIGINT. SIGHUP stays ignored if it
    was, as by `nohup`. Outside the main thread, where Python allows no handlers, this does nothing.

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
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
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
        """Ends the process as the recorded signal would have: with status 130, 143 or 129."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(None if self.received is None else 128 + self.received)

    def _note(self, number, frame):
        self.received = number
        for other in self._before:
            signal.signal(other, signal.SIG_IGN if other == signal.SIGHUP else signal.SIG_DFL)
        if self._may_interrupt:
            raise Interrupted
