"""The one thread that uses the device. Runs wait in the order they came; each can be cancelled.

Gradio's handlers must not run a model: generators hop between threads there, and a closed page would
leave a run going. So a run is submitted here and its events are read from a queue.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Job(Generic[T]):
    """One piece of work: an iterator that the worker thread walks, its items in ``drain``."""

    def __init__(self, make: Callable[[], Iterable[T]]) -> None:
        self._make = make
        self._items: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._cancelled = threading.Event()
        self._skipped = threading.Event()
        self._finished = threading.Event()
        self.error: BaseException | None = None

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

    def run(self) -> None:
        """Walk the iterator (worker thread only). An error is kept in ``error``."""
        items: Iterator[T] | None = None
        try:
            if not self.cancelled and not self._skipped.is_set():
                items = iter(self._make())
                for item in items:
                    self._items.put(item)
                    if self.cancelled:
                        break
        except (
            BaseException
        ) as error:  # whatever it is, the thread must live and the page must hear of it
            self.error = error
        finally:
            close = getattr(items, "close", None)
            if close is not None:
                close()
            self._finished.set()


class Worker:
    """Runs jobs one after the other in a thread of its own."""

    def __init__(self, name: str = "specdemo-device") -> None:
        self._waiting: deque[Job] = deque()
        self._current: Job | None = None
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, make: Callable[[], Iterable[T]]) -> Job[T]:
        """Queue ``make``; it is called in the worker thread, so it may be heavy itself."""
        job: Job[T] = Job(make)
        with self._change:
            self._waiting.append(job)
            self._change.notify()
        return job

    def ahead(self, job: Job) -> int:
        """How many runs come before ``job``; 0 when it runs or is done."""
        with self._change:
            if job is self._current or job not in self._waiting:
                return 0
            return self._waiting.index(job) + (self._current is not None)

    @property
    def busy(self) -> bool:
        with self._change:
            return self._current is not None or bool(self._waiting)

    def _work(self) -> None:
        while True:
            with self._change:
                self._current = None
                self._change.wait_for(lambda: bool(self._waiting))
                self._current = job = self._waiting.popleft()
            job.run()
