"""Batches requests of several clients: a bounded queue, a token budget, a short wait, turns."""

import bisect
import dataclasses
import itertools
import math
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from keras_transformer.serving.servable import Servable

# Seconds that a part of a large request may take, since others wait for its end.
_PART_SECONDS = 0.5
# If a small request arrives during a part, parts are this many times smaller for some seconds.
_SMALLER, _SMALLER_SECONDS = 5, 5.0


class Task(Hashable, Protocol):
    """Computes rows. Rows of equal tasks may be computed together."""

    @property
    def servable(self) -> Servable:
        """The model that computes the rows."""

    def __call__(self, rows: Sequence[Any]) -> list[Any]:
        """The result of each row."""

    def joins(self) -> bool:
        """Whether rows of several requests may be computed together."""


class QueueFull(Exception):
    """The queue holds the maximum number of requests."""


@dataclasses.dataclass(eq=False)
class _Request:
    task: Task
    rows: Sequence[Any]
    tokens: int
    client: str
    arrival: float = dataclasses.field(default_factory=time.monotonic)
    future: Future = dataclasses.field(default_factory=Future)
    results: list = dataclasses.field(default_factory=list)  # of the rows computed so far

    def tokens_left(self) -> int:
        """The tokens of the other rows, if all rows have equally many."""
        return self.tokens - self.tokens * len(self.results) // len(self.rows)


class Batcher:
    """Worker threads that compute waiting requests in batches, in turns.

    A batch begins with one request, and holds others of the same task, the smallest first, while it
    has at most `tokens_per_batch` tokens. A request of more tokens than the model computes in half
    a second is computed in parts, if its task allows that: after each part, others have their turn.
    While small requests come, parts take a tenth of a second, at some cost in speed.

    Every second batch begins with the smallest request, so that it waits for few others, however
    many large ones there are. The batches in between begin with the oldest request of a client: of
    each client in turn, so that no request waits for ever, however many others a client sends.

    Args:
        tokens_per_batch: the token budget of a batch.
        max_wait: seconds that a request waits for others to join its batch.
        max_queued: maximum number of waiting requests, without those being computed.
        workers: number of batches computed in parallel, each in a thread.
        observe: called with the number of sentences and of tokens of each batch.
        clock: returns the time in seconds, by which parts are measured.
    """

    def __init__(
        self,
        tokens_per_batch: int,
        max_wait: float,
        max_queued: int,
        workers: int = 1,
        observe: Callable[[int, int], None] = lambda sentences, tokens: None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._tokens_per_batch, self._max_wait = tokens_per_batch, max_wait
        self._max_queued = max_queued
        self._observe, self._clock = observe, clock
        self._waiting: list[_Request] = []  # in order of arrival
        self._clients: list[str] = []  # those with waiting requests, in order of their turns
        self._is_turn_of_smallest = False
        self._parts_in_work, self._smaller_until = 0, -math.inf
        self._part_tokens: weakref.WeakKeyDictionary[Servable, int] = weakref.WeakKeyDictionary()
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

    def submit(self, task: Task, rows: Sequence[Any], tokens: int, client: str = "") -> Future:
        """Queues a request; the future gives the result of each row.

        If the future is cancelled, the request leaves the queue, and is computed no further.

        Args:
            task: computes the rows.
            rows: the rows, at least one.
            tokens: the number of tokens of all rows.
            client: who sends the request; clients take turns.

        Raises:
            QueueFull: `max_queued` requests are waiting.
        """
        request = _Request(task, rows, tokens, client)
        with self._changed:
            if len(self._waiting) >= self._max_queued:
                raise QueueFull
            if self._parts_in_work and tokens <= self._largest_part(task):
                self._smaller_until = self._clock() + _SMALLER_SECONDS
            self._queue(request)
        request.future.add_done_callback(lambda future: self._forget(request))
        return request.future

    def close(self) -> None:
        """Computes the waiting requests, and ends the workers."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _queue(self, request):
        bisect.insort(self._waiting, request, key=lambda one: one.arrival)
        if request.client not in self._clients:
            self._clients.append(request.client)
        self._changed.notify_all()

    def _forget(self, request):
        if request.future.cancelled():
            with self._changed:
                if request in self._waiting:
                    self._waiting.remove(request)

    def _work(self):
        while self._compute_next():
            pass  # a call each, so that no variable keeps a model version that is to be freed

    def _compute_next(self):
        batch = self._next_batch()
        if batch:
            self._compute(batch)
        return bool(batch)

    def _compute(self, batch):
        task, start = batch[0].task, self._clock()
        parts = [self._next_rows(request) for request in batch]
        is_part = len(parts[0]) < len(batch[0].rows)
        with self._changed:
            self._parts_in_work += is_part
        try:
            results = iter(task([row for rows in parts for row in rows]))
        except Exception as error:
            if len(batch) == 1:
                if batch[0].future.set_running_or_notify_cancel():
                    batch[0].future.set_exception(error)
            else:  # computes each alone, so that none fails because of another
                for request in batch:
                    self._compute([request])
            return
        finally:
            with self._changed:
                self._parts_in_work -= is_part
        tokens = 0
        for request, rows in zip(batch, parts, strict=True):
            tokens += request.tokens_left()
            request.results += itertools.islice(results, len(rows))
            tokens -= request.tokens_left()
            self._answer_or_queue(request)
        self._measure(task.servable, tokens, self._clock() - start)
        self._observe(sum(map(len, parts)), tokens)

    def _next_rows(self, request):
        """The rows that are computed at the request's turn."""
        rows, tokens = request.rows[len(request.results) :], request.tokens_left()
        if tokens > self._most(request.task):
            return rows[: max(1, len(rows) * self._most(request.task) // tokens)]
        return rows

    def _most(self, task):
        """The maximum number of a request's tokens that are computed at once."""
        if not task.joins():
            return math.inf
        most = self._largest_part(task)
        return max(1, most // _SMALLER) if self._clock() < self._smaller_until else most

    def _largest_part(self, task):
        return self._part_tokens.get(task.servable, self._tokens_per_batch)

    def _measure(self, servable, tokens, seconds):
        """Sets the size of a part to what a batch as large as a part has shown."""
        if 2 * tokens >= self._part_tokens.get(servable, self._tokens_per_batch):
            most = int(tokens * _PART_SECONDS / seconds) if seconds else self._tokens_per_batch
            self._part_tokens[servable] = min(max(1, most), self._tokens_per_batch)

    def _answer_or_queue(self, request):
        if len(request.results) < len(request.rows):
            with self._changed:
                if not request.future.cancelled():
                    self._queue(request)
        elif request.future.set_running_or_notify_cancel():  # its client still waits
            request.future.set_result(request.results)

    def _next_batch(self):
        """The next requests to compute; empty once the batcher is closed and the queue is empty."""
        with self._changed:
            while True:
                if not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                batch, is_full = self._joined(self._first())
                arrival = min(request.arrival for request in batch)
                remaining = arrival + self._max_wait - time.monotonic()
                if is_full or remaining <= 0 or self._closed:
                    for request in batch:
                        self._waiting.remove(request)
                    self._end_turn(batch[0].client)
                    return batch
                self._changed.wait(remaining)

    def _first(self):
        """The request whose turn it is."""
        if self._is_turn_of_smallest:
            return min(self._waiting, key=_Request.tokens_left)
        return min(self._waiting, key=lambda request: self._clients.index(request.client))

    def _end_turn(self, client):
        self._is_turn_of_smallest = not self._is_turn_of_smallest
        waiting = {request.client for request in self._waiting}
        others = [other for other in self._clients if other in waiting and other != client]
        self._clients = [*others, client] if client in waiting else others

    def _joined(self, first):
        """A request with those that join it, and whether the batch is full."""
        batch, tokens = [first], first.tokens_left()
        if not first.task.joins() or tokens > self._most(first.task):
            return batch, True
        for request in sorted(self._waiting, key=_Request.tokens_left):
            if request.task == first.task and request is not first:
                size = request.tokens_left()
                tokens += size
                if tokens > self._tokens_per_batch or size > self._most(request.task):
                    return batch, True
                batch.append(request)
        return batch, tokens >= self._tokens_per_batch
