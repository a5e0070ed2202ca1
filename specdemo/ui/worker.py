"""The one thread that uses the device. Runs wait in the order they came; each can be cancelled.

Gradio's handlers must not run a model: generators hop between threads there, and a closed page would
leave a run going. So a run is submitted here and its events are read from a queue.
"""

from __future__ import annotations

import contextvars
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from ..errors import InputError

T = TypeVar("T")
USUAL = 10.0  # seconds a run is taken to last before any was timed


class Job(Generic[T]):
    """One piece of work: an iterator that the worker thread walks, its items in ``drain``."""

    def __init__(self, make: Callable[[], Iterable[T]]) -> None:
        self._make = make
        # Whose request it is travels with the job: a GPU lent by request asks for it.
        self._context = contextvars.copy_context()
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._skipped = threading.Event()
        self._finished = threading.Event()
        self.error: BaseException | None = None
        self.submitted = time.monotonic()
        self.began: float | None = None
        self.count = 0  # items so far
        self._longest = math.inf

    def cancel(self) -> None:
        """Ask the run to end; it does so before its next item."""
        self._cancelled.set()

    def skip(self) -> None:
        """Do not begin, if it has not begun: a run under way is left to end by itself."""
        self._skipped.set()

    @property
    def cancelled(self) -> bool:
        return self._cancelled.is_set()

    @property
    def done(self) -> bool:
        """True once the thread is through with it; the last items may still wait in ``drain``."""
        return self._finished.is_set()

    @property
    def given_up(self) -> bool:
        """True for a run that will not begin any more: nobody waits for it."""
        return self.cancelled or self._skipped.is_set()

    @property
    def waited(self) -> float:
        """Seconds from the order to the beginning, or to now."""
        return (self.began or time.monotonic()) - self.submitted

    def wait(self, timeout: float | None = None) -> bool:
        return self._finished.wait(timeout)

    def drain(self) -> list[T]:
        """All items since the last call, at once; never blocks."""
        items: list[T] = []
        while True:
            try:
                items.append(self._items.get_nowait())
            except queue.Empty:
                return items

    def run(self, longest: float = math.inf) -> None:
        """Walk the iterator (worker thread only), for ``longest`` seconds at most. An error is kept in
        ``error``; ``InputError("deadline")`` when the time was over."""
        self.began, self._longest = time.monotonic(), longest
        self._context.run(self._walk)

    def _walk(self) -> None:
        items: Iterator[T] | None = None
        try:
            if not self.given_up:
                items = iter(self._make())
                for item in items:
                    self.count += 1
                    self._items.put(item)
                    if self.cancelled:
                        break
                    if time.monotonic() - (self.began or 0.0) > self._longest:
                        raise InputError("deadline", seconds=f"{self._longest:g}")
        except (
            BaseException
        ) as error:  # whatever it is, the thread must live and the page must hear of it
            self.error = error
        finally:
            try:
                close = getattr(items, "close", None)
                if close is not None:
                    close()
            except BaseException as error:
                self.error = self.error or error
            finally:
                self._finished.set()

    def abandon(self) -> None:
        """The thread died before it could run this job: whoever waits must hear of it."""
        if not self.done:
            self.error = RuntimeError("the worker thread died")
            self._finished.set()


class Worker:
    """Runs jobs one after the other in a thread of its own.

    ``most``: jobs that may wait. A thread that dies is replaced; the jobs that wait do not notice."""

    def __init__(self, name: str = "specdemo-device", most: int = 256) -> None:
        self.name, self.most = name, most
        self.longest = math.inf  # seconds that a job may take
        self.began: Callable[[Job], None] = lambda job: None  # called when a job's turn has come
        self.usual = USUAL  # seconds, a moving average of the runs so far
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._change = threading.Condition()
        self._closed = False
        self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._work, name=self.name, daemon=True)
        self._thread.start()

    def submit(self, make: Callable[[], Iterable[T]]) -> Job[T]:
        """Queue ``make``; it is called in the worker thread, so it may be heavy itself.

        Raises ``InputError("queue_full")``."""
        job: Job[T] = Job(make)
        with self._change:
            waiting = self._live()
            if len(waiting) >= self.most:
                raise InputError("queue_full", waiting=len(waiting))
            self._waiting.append(job)
            self._change.notify()
        return job

    def ahead(self, job: Job) -> int:
        """How many runs come before ``job``; 0 when it runs or is done."""
        with self._change:
            if job is self._current or job not in self._waiting:
                return 0
            waiting = self._live()
            place = waiting.index(job) if job in waiting else 0
            return place + (self._current is not None)

    def expected_wait(self, job: Job) -> float:
        """Seconds until ``job`` begins, by how long the runs so far took; 0 when it runs."""
        ahead, current = self.ahead(job), self._current
        if not ahead:
            return 0.0
        gone = time.monotonic() - current.began if current and current.began else 0.0
        return max(ahead * self.usual - min(gone, self.usual), 1.0)

    @property
    def waiting(self) -> int:
        """How many runs wait, those that were given up not counted."""
        with self._change:
            return len(self._live())

    @property
    def running_for(self) -> float:
        """Seconds since the run under way began, 0 when there is none."""
        current = self._current
        return time.monotonic() - current.began if current and current.began else 0.0

    @property
    def busy(self) -> bool:
        with self._change:
            return self._current is not None or bool(self._waiting)

    def close(self) -> None:
        """Cancel every job and let the thread end."""
        with self._change:
            self._closed = True
            for job in (*self._waiting, *([self._current] if self._current else ())):
                job.cancel()
            self._change.notify()

    def _live(self) -> list[Job]:
        return [job for job in self._waiting if not job.given_up]

    def _work(self) -> None:
        try:
            while True:
                with self._change:
                    self._current = None
                    self._change.wait_for(lambda: bool(self._waiting) or self._closed)
                    if not self._waiting:
                        return
                    self._current = job = self._waiting.popleft()
                if not job.given_up:
                    self.began(job)
                job.run(self.longest)
                if job.count and job.began is not None:  # loading has no items: it is no run
                    self.usual += 0.2 * (time.monotonic() - job.began - self.usual)
        finally:
            if self._current is not None:
                self._current.abandon()
            if not self._closed:
                self._start()
