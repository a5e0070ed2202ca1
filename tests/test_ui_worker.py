"""The device's one thread: order, cancelling, errors, and that nothing goes on unseen."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from specdemo.ui.worker import Job, Worker


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker("test-worker")
    yield made
    made.close()


def counting(gate: threading.Event, closed: threading.Event) -> Iterator[int]:
    """Counts up for ever, waiting for the gate before each number."""
    try:
        number = 0
        while True:
            gate.wait(10)
            yield number
            number += 1
    finally:
        closed.set()


def test_jobs_run_in_order_one_at_a_time(worker: Worker) -> None:
    gate, running, most = threading.Event(), [0], [0]

    def make(name: str) -> Iterator[str]:
        gate.wait(10)
        running[0] += 1
        most[0] = max(most[0], running[0])
        yield name
        running[0] -= 1

    jobs: list[Job[str]] = [worker.submit(lambda n=n: make(n)) for n in "abc"]
    assert [worker.ahead(job) for job in jobs[1:]] == [1, 2]
    assert worker.busy
    gate.set()
    assert all(job.wait(10) for job in jobs)
    assert [job.drain() for job in jobs] == [["a"], ["b"], ["c"]]
    assert most == [1]


def test_cancel_closes_the_iterator_and_the_next_job_runs(worker: Worker) -> None:
    gate, closed = threading.Event(), threading.Event()
    gate.set()
    endless = worker.submit(lambda: counting(gate, closed))
    after = worker.submit(lambda: iter([1]))
    while not endless.drain():
        pass
    endless.cancel()
    assert endless.wait(10) and closed.is_set()
    assert after.wait(10) and after.drain() == [1]
    assert endless.error is None


def test_a_job_that_waits_can_be_skipped_and_never_begins(worker: Worker) -> None:
    gate, closed = threading.Event(), threading.Event()
    first = worker.submit(lambda: counting(gate, closed))
    begun: list[int] = []
    second = worker.submit(lambda: begun.append(1) or iter([1]))  # type: ignore[func-returns-value]
    second.skip()
    first.cancel()
    gate.set()
    assert second.wait(10)
    assert begun == [] and second.drain() == []


def test_an_error_is_kept_for_the_page_and_the_thread_lives(worker: Worker) -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise MemoryError("none left")

    job = worker.submit(broken)
    assert job.wait(10)
    assert job.drain() == [1] and isinstance(job.error, MemoryError)
    after = worker.submit(lambda: iter([2]))
    assert after.wait(10) and after.drain() == [2]
