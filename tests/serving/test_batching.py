"""Waiting requests share batches within a budget, and each gets its own answer."""

import contextlib
import itertools
import threading

import pytest

from keras_transformer.serving.batching import Batcher, QueueFull

SOON = 60.0  # maximum wait of a test, in seconds


class Model:
    """Stands for a version of a model."""


class Doubling:
    """A task that doubles numbers once the test allows it, and records its batches."""

    def __init__(self, joins=True):
        self.servable = Model()
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
    assert task.batches == [[0], [3, 1, 2, 4, 5, 6]]  # the smallest first


def test_a_batch_ends_where_the_budget_of_tokens_does(batcher):
    task = Doubling()
    busy(batcher, task)
    futures = [batcher.submit(task, [row], tokens) for row, tokens in ((1, 6), (2, 4), (3, 5))]
    task.may_go_on.set()
    assert [future.result(SOON) for future in futures] == [[2], [4], [6]]
    assert task.batches == [[0], [2, 3], [1]]


def test_a_request_beyond_the_budget_is_computed_alone(batcher):
    task = Doubling()
    busy(batcher, task)
    futures = [batcher.submit(task, [row], tokens) for row, tokens in ((1, 3), (2, 99), (3, 3))]
    task.may_go_on.set()
    assert [future.result(SOON) for future in futures] == [[2], [4], [6]]
    assert task.batches == [[0], [1, 3], [2]]


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


# Turns. Each row of a large request is five tokens here, and a part is ten.


def batches_with(task, small):
    """The number of batches from each row of small requests to the next one."""
    indices = [index for index, rows in enumerate(task.batches) if set(small) & set(rows)]
    return [later - earlier for earlier, later in itertools.pairwise(indices)]


@pytest.mark.parametrize("client", ["another", "same"])  # as behind a proxy
def test_a_small_request_waits_for_one_part_whatever_large_ones_wait(client):
    batcher, task = Batcher(10, 0.0, max_queued=20), Doubling()
    large = [batcher.submit(task, list(range(20)), 100, "same") for _ in range(6)]
    task.wait_until_begun()
    answers = [batcher.submit(task, [100], 1, client)]

    def ask_again(_):  # in the worker's thread, before the next batch
        if len(answers) < 30:
            answers.append(batcher.submit(task, [99 + len(answers)], 1, client))
            answers[-1].add_done_callback(ask_again)

    answers[0].add_done_callback(ask_again)
    task.may_go_on.set()
    assert all(future.result(SOON) == [2 * row for row in range(20)] for future in large)
    assert len(answers) == 30
    assert task.batches[1] == [100]
    assert batches_with(task, range(100, 130)) == [2] * 29  # itself, and a part
    smaller = 6 * 20 - 2  # after the first part, of two rows
    assert len(task.batches) == 1 + smaller + 30
    batcher.close()


@pytest.mark.parametrize("tokens", [1, 10])
def test_a_client_waits_for_two_batches_of_another_that_fills_the_queue(tokens):
    batcher, task = Batcher(10, 0.0, max_queued=300), Doubling()
    busy(batcher, task)
    many = [batcher.submit(task, [row], 10, "many") for row in range(250)]
    one = batcher.submit(task, [1000], tokens, "one")
    task.may_go_on.set()
    assert one.result(SOON) == [2000] and many[-1].result(SOON) == [498]
    assert [1000] in task.batches[: 1 + 3]
    batcher.close()


def test_large_requests_of_two_clients_are_computed_side_by_side():
    batcher, task = Batcher(10, 0.0, max_queued=20), Doubling()
    busy(batcher, task)
    first = [batcher.submit(task, list(range(10)), 50, "first") for _ in range(5)]
    second = batcher.submit(task, list(range(100, 110)), 50, "second")
    task.may_go_on.set()
    assert second.result(SOON) == [2 * row for row in range(100, 110)]
    assert all(future.result(SOON) for future in first)
    last = max(index for index, rows in enumerate(task.batches) if rows[0] >= 100)
    assert last <= 1 + 5 + 10  # its own parts, and two requests of the other
    batcher.close()


def test_large_requests_of_one_client_are_answered_one_after_another():
    batcher, task = Batcher(10, 0.0, max_queued=20), Doubling()
    busy(batcher, task)
    futures = [batcher.submit(task, list(range(n, n + 10)), 50) for n in (100, 200, 300)]
    task.may_go_on.set()
    assert all(future.result(SOON) for future in futures)
    assert [row for rows in task.batches[1:] for row in rows] == [
        row for n in (100, 200, 300) for row in range(n, n + 10)
    ]
    batcher.close()


def test_a_large_request_has_every_second_batch_whatever_small_ones_come():
    batcher, task = Batcher(10, 0.0, max_queued=20), Doubling()
    busy(batcher, task)
    large = batcher.submit(task, list(range(100, 110)), 50, "large")

    def ask(_):
        with contextlib.suppress(QueueFull):
            for _ in range(0 if large.done() else 3):
                batcher.submit(task, [1], 4, "small").add_done_callback(ask)

    ask(None)
    task.may_go_on.set()
    large.result(SOON)
    assert batches_with(task, range(100, 110)) == [2] * 4
    batcher.close()


def test_parts_take_half_a_second():
    """By a clock of the test, with a model that computes 20 tokens a second."""
    now, sizes = 0.0, []

    class Timed(Doubling):
        def __call__(self, rows):
            nonlocal now
            now += len(rows) * 5 / 20
            return super().__call__(rows)

    batcher = Batcher(100, 0.0, 4, observe=lambda *size: sizes.append(size), clock=lambda: now)
    task = Timed()
    task.may_go_on.set()
    whole = batcher.submit(task, list(range(50)), 250)
    assert whole.result(SOON) == [2 * row for row in range(50)]
    batcher.close()
    assert sizes == [(20, 100), *[(2, 10)] * 15]  # the first as large as the budget


def test_parts_take_a_tenth_of_a_second_while_small_requests_come():
    """By a clock of the test, with a model that computes 100 tokens a second."""
    now, sizes = 0.0, []

    class Timed(Doubling):
        def __call__(self, rows):
            nonlocal now
            if len(sizes) == 1:
                batcher.submit(self, [1000], 1, "another")
            now += len(rows) * 5 / 100
            return super().__call__(rows)

    batcher = Batcher(100, 0.0, 4, observe=lambda *size: sizes.append(size), clock=lambda: now)
    task = Timed()
    task.may_go_on.set()
    whole = batcher.submit(task, list(range(200)), 1000)
    assert whole.result(SOON) == [2 * row for row in range(200)]
    batcher.close()
    assert sizes[:5] == [(20, 100), (10, 50), (1, 1), (2, 10), (2, 10)]
    assert sizes[-2] == (10, 50)  # five seconds later


def test_a_part_that_took_long_by_chance_makes_the_next_ones_smaller_for_a_while():
    now, sizes = 0.0, []
    seconds = iter([0.0625, 10.0] + [0.0625] * 100)

    class Timed(Doubling):
        def __call__(self, rows):
            nonlocal now
            now += next(seconds)
            return super().__call__(rows)

    batcher = Batcher(100, 0.0, 4, observe=lambda *size: sizes.append(size), clock=lambda: now)
    task = Timed()
    task.may_go_on.set()
    batcher.submit(task, list(range(100)), 500).result(SOON)
    batcher.close()
    assert [tokens for _, tokens in sizes] == [100, 100, 5, 40, 100, 100, 55]
