"""Stops training on SIGINT (Ctrl-C) and SIGTERM."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Interrupted(BaseException):
    """A signal came while `StopSignals.may_interrupt`; no `except Exception` stops it."""


class StopSignals:
    """Notes SIGINT and SIGTERM, so that the step in hand is finished; a second one ends at once.

    The second has the system's own effect, which waits for nothing. Both are noted however the
    process was started: a shell lets its background jobs ignore SIGINT. In another thread than
    the main one, where Python allows no handlers, this does nothing.

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
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_):
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextlib.contextmanager
    def may_interrupt(self) -> Iterator[None]:
        """In this block a signal raises `Interrupted`: for work that may be left and done again."""
        self._may_interrupt = True
        try:
            if self.received:
                raise Interrupted
            yield
        finally:
            self._may_interrupt = False

    def leave(self) -> None:
        """Ends the process as the signal that came would have: with status 130 or 143."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(None if self.received is None else 128 + self.received)

    def _note(self, number, frame):
        self.received = number
        for other in self._before:
            signal.signal(other, signal.SIG_DFL)
        if self._may_interrupt:
            raise Interrupted
