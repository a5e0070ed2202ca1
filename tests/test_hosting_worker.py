"""The thread that owns the device: order, places, expected waits, and that it outlives everything."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from specdemo.errors import InputError
from specdemo.ui.worker import Job, Worker


def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.005)


class Gate:
    """A job that waits in the middle until it is let go."""

    def __init__(self) -> None:
        self.open, self.entered, self.closed = threading.Event(), threading.Event(), threading.Event()

    def __call__(self) -> Iterator[int]:
        try:
            yield 1
            self.entered.set()
            while not self.open.wait(0.01):
                yield 2
        finally:
            self.closed.set()


def kill(thread: threading.Thread) -> None:
    """End a thread from outside, as a fault in a library would."""
    assert thread.ident is not None
    found = ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit)
    )
    assert found == 1


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker("test-worker", most=3)
    yield worker
    worker.close()
    until(lambda: not worker._thread.is_alive())


def test_jobs_run_in_order_and_know_their_place(worker: Worker) -> None:
    gate, seen = Gate(), []
    first = worker.submit(gate)
    assert gate.entered.wait(10)

    def job(name: str) -> Callable[[], Iterator[str]]:
        def make() -> Iterator[str]:
            seen.append(name)
            yield name

        return make

    second, third = worker.submit(job("second")), worker.submit(job("third"))
    assert [worker.ahead(j) for j in (first, second, third)] == [0, 1, 2]
    assert worker.expected_wait(first) == 0.0
    assert 0.0 < worker.expected_wait(second) < worker.expected_wait(third)
    second.skip()  # who leaves is no longer counted
    assert worker.ahead(third) == 1
    assert worker.waiting == 1
    gate.open.set()
    assert third.wait(10)
    assert seen == ["third"]
    assert second.wait(10)
    assert second.drain() == []


def test_no_more_than_the_limit_may_wait(worker: Worker) -> None:
    gate = Gate()
    worker.submit(gate)
    assert gate.entered.wait(10)
    waiting = [worker.submit(lambda: iter(())) for _ in range(3)]
    with pytest.raises(InputError) as caught:
        worker.submit(lambda: iter(()))
    assert caught.value.key == "queue_full"
    waiting[0].cancel()  # its place is free at once
    worker.submit(lambda: iter(()))
    gate.open.set()


def test_cancelling_closes_the_generator_before_the_next_item(worker: Worker) -> None:
    gate = Gate()
    job = worker.submit(gate)
    assert gate.entered.wait(10)
    job.cancel()
    assert gate.closed.wait(10)
    assert job.wait(10) and job.error is None
    until(lambda: not worker.busy)


def test_the_wait_learns_from_the_runs(worker: Worker) -> None:
    before = worker.usual
    assert worker.submit(lambda: iter(())).wait(10)  # no items: not a run
    until(lambda: not worker.busy)
    assert worker.usual == before
    assert worker.submit(lambda: iter([1])).wait(10)
    until(lambda: worker.usual < before)


@pytest.mark.parametrize(
    "error", [RuntimeError("broken"), MemoryError(), SystemExit(), KeyboardInterrupt()]
)
def test_an_error_is_kept_and_the_next_job_runs(worker: Worker, error: BaseException) -> None:
    def fails() -> Iterator[int]:
        yield 1
        raise error

    job = worker.submit(fails)
    assert job.wait(10)
    assert job.drain() == [1] and job.error is error
    assert finished(worker).drain() == [7]


def finished(worker: Worker) -> Job[int]:
    job = worker.submit(lambda: iter([7]))
    assert job.wait(10)
    return job


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_killed_while_it_waits_is_replaced(worker: Worker) -> None:
    assert finished(worker).drain() == [7]
    old = worker._thread
    kill(old)
    with worker._change:
        worker._change.notify_all()  # a waiting thread notices once it wakes
    until(lambda: not old.is_alive())
    assert worker._thread is not old
    assert finished(worker).drain() == [7]


def test_a_thread_killed_in_mid_run_tells_the_run_and_goes_on(worker: Worker) -> None:
    gate = Gate()
    job = worker.submit(gate)
    assert gate.entered.wait(10)
    kill(worker._thread)
    assert job.wait(10)
    assert isinstance(job.error, SystemExit)
    assert gate.closed.is_set()  # the cache of the run is freed
    assert finished(worker).drain() == [7]


def test_no_job_outlives_the_time_that_the_host_allows(worker: Worker) -> None:
    gate = Gate()
    worker.longest = 0.05
    job = worker.submit(gate)
    assert job.wait(10)
    assert isinstance(job.error, InputError) and job.error.key == "deadline"
    assert gate.closed.is_set()
