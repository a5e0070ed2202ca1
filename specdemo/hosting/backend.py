"""The backend of a hosted page: the same runs, with the host's limits, counted and logged."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..config import Config
from ..engine import Engine
from ..errors import InputError
from ..events import Event, Finished
from ..prompt import last_text
from ..remote import Server
from ..ui.backend import Backend, Order, Progress
from . import logs
from .metrics import Metrics
from .visitors import Limiter, visitor_of

RETRY = 30.0  # seconds after which a model that could not be loaded is tried again
STUCK = 60.0  # seconds beyond the deadline after which a run is taken to hang


class HostedBackend(Backend):
    """Adds to ``Backend``: limits on prompt, answer and time, on runs by a visitor, and on how many
    wait; metrics and logs of every run; ``health``."""

    def __init__(
        self,
        load: Callable[[Progress], Engine],
        servers: Iterable[Server] = (),
        config: Config | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        super().__init__(load, servers, config)
        self.metrics = metrics or Metrics()
        self.retry_at = 0.0
        self.limiter = Limiter(self.config.rate, self.config.address_rate)
        self.worker.most = self.network.most = self.config.queue
        # Runs are ended by ``generate``; this bounds what else the page does on the device.
        self.worker.longest = self.network.longest = self.config.deadline + 1
        self.worker.began = lambda job: self.metrics.wait.observe(job.waited)
        self.metrics.watch("waiting", "runs that wait for the device", lambda: self.worker.waiting)
        self.metrics.watch("running", "runs on the device", lambda: float(self.worker.running_for > 0))
        self.metrics.watch_state(self.health)

    def admit(self, request: Any) -> None:
        """Called before a run is taken up. Raises ``InputError("too_fast")``."""
        try:
            self.limiter.admit(visitor_of(request, self.config.proxy))
        except InputError as error:
            self._refused(error)
            raise

    def check(self, order: Order) -> None:
        """Raises ``InputError`` for what the host does not allow, or what ``Backend`` refuses."""
        self._retry()
        try:
            size = len(last_text(order.prompt))
            if size > self.config.max_prompt:
                raise InputError("prompt_too_large", size=size, limit=self.config.max_prompt)
            wanted = order.params.max_new_tokens
            if wanted > self.config.max_output:
                raise InputError(
                    "range", name="max_new_tokens", value=wanted, low=1, high=self.config.max_output
                )
            super().check(order)
        except InputError as error:
            self._refused(error)
            raise

    def generate(self, order: Order, cancel: threading.Event | None = None) -> Iterator[Event]:
        """Events of one run, ended at the deadline. Raises ``InputError`` (``deadline`` too)."""
        if order.drafter == "draft_model" and not order.draft:
            order = replace(order, draft=self.config.draft)
        began, cancel = time.monotonic(), cancel or threading.Event()
        # A server that hangs gives no event at which the time could be looked at.
        alarm = threading.Timer(self.config.deadline, cancel.set) if order.server else None
        if alarm is not None:
            alarm.daemon = True
            alarm.start()
        finished: Finished | None = None
        events = self.events(order, cancel)
        try:
            for event in events:
                late = time.monotonic() - began > self.config.deadline
                if late and (not isinstance(event, Finished) or event.reason == "cancelled"):
                    raise InputError("deadline", seconds=f"{self.config.deadline:g}")
                self.metrics.event("server" if order.server else order.drafter, event)
                finished = event if isinstance(event, Finished) else None
                yield event
        except InputError as error:
            self._refused(error)
            raise
        except Exception as error:
            self.metrics.errors.labels("internal").inc()
            logs.write("run failed", logging.ERROR, **logs.error_values(error))
            raise
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()
            if alarm is not None:
                alarm.cancel()
            self._done(order, finished, time.monotonic() - began)

    def events(self, order: Order, cancel: threading.Event | None) -> Iterator[Event]:
        """Where the events come from; a lent GPU replaces this."""
        return super().generate(order, cancel)

    def _done(self, order: Order, finished: Finished | None, seconds: float) -> None:
        self.metrics.duration.observe(seconds)
        values: dict[str, Any] = {
            "drafter": order.drafter,
            "server": order.server,
            "reason": finished.reason if finished else "not finished",
            "tokens": len(finished.token_ids) if finished else None,
            "seconds": round(seconds, 3),
        }
        if self.config.log_prompts:
            values["prompt"] = last_text(order.prompt)
        logs.write("run", **values)

    def _refused(self, error: InputError) -> None:
        self.metrics.errors.labels(error.key).inc()
        logs.write("refused", logging.WARNING, why=error.key)

    def _retry(self) -> None:
        """Load again, once a while and when somebody asks: the network may be back, a file mended."""
        if self.state == "failed" and time.monotonic() >= self.retry_at:
            self.retry_at = time.monotonic() + RETRY
            self.state = "loading"
            self.start()

    def health(self) -> str:
        """``loading``, ``ready`` or ``broken``: loading failed, or a run hangs past its deadline."""
        if self.state == "failed" or self.worker.running_for > self.config.deadline + STUCK:
            return "broken" if self.state != "loading" else "loading"
        return "ready" if self.state == "live" else "loading"
