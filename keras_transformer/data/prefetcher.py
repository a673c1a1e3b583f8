"""Values by their number, each made in the background before it is needed."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class Prefetcher:
    """Calls `make(n)` once for each requested n, and for n + 1 in the background.

    Example:
        >>> squares = Prefetcher(lambda n: n * n)
        >>> squares[3]  # 16 is computed meanwhile
        9
    """

    def __init__(self, make: Callable[[int], Any]):
        self._make = make
        self._executor = ThreadPoolExecutor(max_workers=1)
        self._made: dict[int, Future] = {}
        self._lock = threading.Lock()

    def __getitem__(self, number: int) -> Any:
        with self._lock:
            # A slower thread may still ask for the previous one.
            self._made = {n: made for n, made in self._made.items() if abs(n - number) <= 1}
            for n in (number, number + 1):
                if n not in self._made:
                    self._made[n] = self._executor.submit(self._make, n)
            made = self._made[number]
        return made.result()
