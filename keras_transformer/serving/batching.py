"""Batches requests of several clients: a bounded queue, a token budget, a short wait."""

import collections
import dataclasses
import itertools
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from keras_transformer.serving.servable import Servable


class Task(Hashable, Protocol):
    """Computes rows. Rows of equal tasks may be computed together."""

    @property
    def servable(self) -> Servable:
        """The model that computes the rows."""
        ...

    def __call__(self, rows: Sequence[Any]) -> list[Any]:
        """The result of each row."""
        ...

    def joins(self) -> bool:
        """Whether rows of several requests may be computed together."""
        ...


class QueueFull(Exception):
    """The queue holds the maximum number of requests."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Request:
    task: Task
    rows: Sequence[Any]
    tokens: int
    arrival: float
    future: Future


class Batcher:
    """Worker threads that batch the oldest waiting request with others of the same task.

    A batch holds whole requests, in order of arrival. It has at most `tokens_per_batch` tokens,
    unless a single request has more; such a one is computed in parts, if its task allows that.

    Args:
        tokens_per_batch: the token budget of a batch.
        max_wait: seconds that a request waits for others to join its batch.
        max_queued: maximum number of waiting requests, without those being computed.
        workers: number of batches computed in parallel, each in a thread.
        observe: called with the number of sentences and of tokens of each batch.
    """

    def __init__(
        self,
        tokens_per_batch: int,
        max_wait: float,
        max_queued: int,
        workers: int = 1,
        observe: Callable[[int, int], None] = lambda sentences, tokens: None,
    ):
        self._tokens_per_batch, self._max_wait = tokens_per_batch, max_wait
        self._max_queued = max_queued
        self._observe = observe
        self._waiting: collections.deque[_Request] = collections.deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name=f"batch worker {number}", daemon=True)
            for number in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def __len__(self) -> int:
        """The number of waiting requests."""
        return len(self._waiting)

    def submit(self, task: Task, rows: Sequence[Any], tokens: int) -> Future:
        """Queues a request; the future gives the result of each row.

        If the future is cancelled, the request leaves the queue, and is computed no further.

        Raises:
            QueueFull: `max_queued` requests are waiting.
        """
        request = _Request(task, rows, tokens, time.monotonic(), Future())
        with self._changed:
            if len(self._waiting) >= self._max_queued:
                raise QueueFull
            self._waiting.append(request)
            self._changed.notify_all()
        request.future.add_done_callback(lambda future: self._forget(request))
        return request.future

    def close(self) -> None:
        """Computes the waiting requests, and ends the workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _forget(self, request):
        if request.future.cancelled():
            with self._changed:
                if request in self._waiting:
                    self._waiting.remove(request)

    def _work(self):
        while self._compute_next():
            pass  # and keep no reference, for example to a model version that is to be freed

    def _compute_next(self):
        batch = self._next_batch()
        if batch:
            self._compute(batch)
        return bool(batch)

    def _compute(self, batch):
        task, tokens = batch[0].task, sum(request.tokens for request in batch)
        rows = [row for request in batch for row in request.rows]
        size, results = len(rows), []
        if task.joins() and tokens > self._tokens_per_batch:
            size = max(1, size * self._tokens_per_batch // tokens)
        try:
            for start in range(0, len(rows), size):
                if all(request.future.cancelled() for request in batch):
                    return
                results += task(rows[start : start + size])
            ends = list(itertools.accumulate(len(request.rows) for request in batch))
            parts = [results[start:end] for start, end in itertools.pairwise([0, *ends])]
        except Exception as error:
            if len(batch) == 1:
                if batch[0].future.set_running_or_notify_cancel():
                    batch[0].future.set_exception(error)
            else:  # each alone, so that none fails because of another
                for request in batch:
                    self._compute([request])
            return
        self._observe(len(rows), tokens)
        for request, part in zip(batch, parts, strict=True):
            if request.future.set_running_or_notify_cancel():  # else its client has gone
                request.future.set_result(part)

    def _next_batch(self):
        """The next requests to compute; empty once the batcher is closed and the queue is empty."""
        with self._changed:
            while True:
                if not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                batch, is_full = self._joined()
                remaining = batch[0].arrival + self._max_wait - time.monotonic()
                if is_full or remaining <= 0 or self._closed:
                    for request in batch:
                        self._waiting.remove(request)
                    return batch
                self._changed.wait(remaining)

    def _joined(self):
        """The oldest request with those that join it, and whether the batch is full."""
        first = self._waiting[0]
        batch, tokens = [first], first.tokens
        if not first.task.joins():
            return batch, True
        for request in list(self._waiting)[1:]:
            if request.task == first.task:
                tokens += request.tokens
                if tokens > self._tokens_per_batch:
                    return batch, True
                batch.append(request)
        return batch, tokens >= self._tokens_per_batch
