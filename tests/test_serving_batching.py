"""Waiting requests share batches within a budget, and each gets its own answer."""

import threading

import pytest

from keras_transformer.serving.batching import Batcher, QueueFull

SOON = 60.0  # maximum wait of a test, in seconds


class Doubling:
    """A task that doubles numbers once the test allows it, and records its batches."""

    servable = None

    def __init__(self, joins=True):
        self.batches, self.is_joining = [], joins
        self.begun, self.may_go_on = threading.Semaphore(0), threading.Event()

    def joins(self):
        return self.is_joining

    def __call__(self, rows):
        self.batches.append(list(rows))
        self.begun.release()
        assert self.may_go_on.wait(SOON)
        if "poison" in rows:
            raise ValueError("poisoned")
        return [2 * row for row in rows]

    def wait_until_begun(self):
        assert self.begun.acquire(timeout=SOON)


@pytest.fixture
def batcher():
    """One worker, which does not wait: in these tests requests queue up behind a held one."""
    made = Batcher(tokens_per_batch=10, max_wait=0.0, max_queued=4)
    yield made
    made.close()


def busy(batcher, task):
    """Makes the worker compute a first request, so that the next ones wait."""
    first = batcher.submit(task, [0], 1)
    task.wait_until_begun()
    return first


def test_requests_that_wait_are_computed_together_and_each_gets_its_own(batcher):
    task = Doubling()
    first = busy(batcher, task)
    others = [batcher.submit(task, rows, len(rows)) for rows in ([1, 2], [3], [4, 5, 6])]
    task.may_go_on.set()
    assert [future.result(SOON) for future in (first, *others)] == [[0], [2, 4], [6], [8, 10, 12]]
    assert task.batches == [[0], [1, 2, 3, 4, 5, 6]]


def test_a_batch_ends_where_the_budget_of_tokens_does(batcher):
    task = Doubling()
    busy(batcher, task)
    last = [batcher.submit(task, [row], tokens) for row, tokens in ((1, 6), (2, 4), (3, 1))][-1]
    task.may_go_on.set()
    last.result(SOON)
    assert task.batches == [[0], [1, 2], [3]]


def test_a_request_beyond_the_budget_is_computed_alone(batcher):
    task = Doubling()
    busy(batcher, task)
    futures = [batcher.submit(task, [row], tokens) for row, tokens in ((1, 3), (2, 99), (3, 3))]
    task.may_go_on.set()
    assert [future.result(SOON) for future in futures] == [[2], [4], [6]]
    assert task.batches == [[0], [1], [2], [3]]


def test_requests_of_other_tasks_are_computed_apart(batcher):
    task, other = Doubling(), Doubling()
    busy(batcher, task)
    futures = [batcher.submit(some, [row], 1) for row, some in enumerate((task, other, task))]
    task.may_go_on.set()
    other.may_go_on.set()
    assert [future.result(SOON) for future in futures] == [[0], [2], [4]]
    assert (task.batches, other.batches) == ([[0], [0, 2]], [[1]])


def test_a_task_that_joins_none_has_each_request_alone(batcher):
    task = Doubling(joins=False)
    busy(batcher, task)
    futures = [batcher.submit(task, [row], 1) for row in (1, 2)]
    task.may_go_on.set()
    assert [future.result(SOON) for future in futures] == [[2], [4]]
    assert task.batches == [[0], [1], [2]]


def test_a_request_fails_for_itself_alone(batcher):
    task = Doubling()
    busy(batcher, task)
    good, bad, better = (batcher.submit(task, [row], 1) for row in (1, "poison", 3))
    task.may_go_on.set()
    assert good.result(SOON) == [2] and better.result(SOON) == [6]
    with pytest.raises(ValueError, match="poisoned"):
        bad.result(SOON)
    assert batcher.submit(task, [4], 1).result(SOON) == [8]  # the worker is alive


def test_a_cancelled_request_leaves_the_queue_and_is_not_computed(batcher):
    task = Doubling()
    busy(batcher, task)
    cancelled, kept = (batcher.submit(task, [row], 1) for row in (1, 2))
    assert len(batcher) == 2
    assert cancelled.cancel() and len(batcher) == 1
    task.may_go_on.set()
    assert kept.result(SOON) == [4]
    assert task.batches == [[0], [2]]


def test_a_large_request_is_computed_in_parts_while_its_client_waits(batcher):
    task = Doubling()
    whole = batcher.submit(task, [0, 1, 2, 3, 4], 25)  # 10 tokens are two rows
    task.may_go_on.set()
    assert whole.result(SOON) == [0, 2, 4, 6, 8]
    assert task.batches == [[0, 1], [2, 3], [4]]

    task = Doubling()
    given_up = batcher.submit(task, [0, 1, 2, 3, 4], 25)
    task.wait_until_begun()
    assert given_up.cancel()
    task.may_go_on.set()
    assert batcher.submit(task, [5], 1).result(SOON) == [10]
    assert task.batches == [[0, 1], [5]]


def test_rows_that_must_be_together_are(batcher):
    task = Doubling(joins=False)
    task.may_go_on.set()
    assert batcher.submit(task, [1, 2, 3], 99).result(SOON) == [2, 4, 6]
    assert task.batches == [[1, 2, 3]]


def test_a_failure_that_nobody_waits_for_does_not_end_the_worker(batcher):
    task = Doubling()
    given_up = batcher.submit(task, ["poison"], 1)
    task.wait_until_begun()
    assert given_up.cancel()
    task.may_go_on.set()
    assert batcher.submit(task, [4], 1).result(SOON) == [8]


def test_no_more_requests_wait_than_may(batcher):
    task = Doubling()
    busy(batcher, task)
    waiting = [batcher.submit(task, [row], 1) for row in range(4)]
    with pytest.raises(QueueFull):
        batcher.submit(task, [5], 1)
    task.may_go_on.set()
    assert [future.result(SOON) for future in waiting] == [[0], [2], [4], [6]]


def test_what_waits_is_computed_before_the_end():
    batcher, task = Batcher(10, max_wait=SOON, max_queued=4), Doubling()
    task.may_go_on.set()
    future = batcher.submit(task, [1], 1)  # would wait for other requests
    batcher.close()
    assert future.result(0) == [2]


def test_a_full_batch_waits_for_no_company():
    batcher, task = Batcher(10, max_wait=10 * SOON, max_queued=4), Doubling()
    task.may_go_on.set()
    futures = [batcher.submit(task, [row], 5) for row in (1, 2)]
    assert [future.result(SOON) for future in futures] == [[2], [4]]
    assert task.batches == [[1, 2]]
    batcher.close()


def test_workers_compute_side_by_side():
    batcher, task = Batcher(1, max_wait=0.0, max_queued=4, workers=2), Doubling()
    futures = [batcher.submit(task, [row], 1) for row in (1, 2)]
    task.wait_until_begun()
    task.wait_until_begun()  # while the first is still computed
    task.may_go_on.set()
    assert [future.result(SOON) for future in futures] == [[2], [4]]
    batcher.close()


def test_what_is_computed_together_is_counted():
    counted = []
    batcher = Batcher(10, 0.0, 4, observe=lambda *sizes: counted.append(sizes))
    task = Doubling()
    busy(batcher, task)
    last = [batcher.submit(task, rows, tokens) for rows, tokens in (([1, 2], 5), ([3], 4))][-1]
    task.may_go_on.set()
    last.result(SOON)
    batcher.close()
    assert counted == [(1, 1), (3, 9)]
