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
        self.limiter = Limiter(self.config.rate, self.config.address_rate)
        self.worker.most = self.network.most = self.config.queue
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
        order = replace(order, draft=order.draft or self.config.draft)
        began = time.monotonic()
        finished: Finished | None = None
        events = self.events(order, cancel)
        try:
            for event in events:
                self.metrics.event("server" if order.server else order.drafter, event)
                finished = event if isinstance(event, Finished) else None
                yield event
                if finished is None and time.monotonic() - began > self.config.deadline:
                    raise InputError("deadline", seconds=f"{self.config.deadline:g}")
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

    def health(self) -> str:
        """``loading``, ``ready`` or ``broken``: loading failed, or a run hangs past its deadline."""
        if self.state == "failed" or self.worker.running_for > self.config.deadline + STUCK:
            return "broken" if self.state != "loading" else "loading"
        return "ready" if self.state == "live" else "loading"
