"""Figures of this process in Prometheus' text format. Counts only: nothing that a visitor typed.

Every label has a small set of values, fixed by the program: no visitor can add a new one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from ..drafters import REGISTRY
from ..events import Event, Finished, Verified

SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300)
TYPE = CONTENT_TYPE_LATEST
STATES = ("loading", "ready", "broken")


class Metrics:
    """One registry a process; ``text`` is what ``/metrics`` answers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.runs = self._counter("runs", "runs by drafter and by how they ended", "drafter", "reason")
        self.tokens = self._counter("tokens", "committed tokens by origin", "origin")
        self.drafted = self._counter("draft_tokens", "drafted tokens by judgement", "judgement")
        self.errors = self._counter("errors", "refused or failed runs by kind", "kind")
        self.requests = self._counter("blocked_requests", "HTTP requests that were refused", "status")
        self.wait = self._histogram("wait_seconds", "time a run waited for the device")
        self.duration = self._histogram("run_seconds", "time a run took, waiting not counted")
        ProcessCollector(registry=self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"specdemo_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(f"specdemo_{name}", text, buckets=SECONDS, registry=self.registry)

    def watch(self, name: str, text: str, value: Callable[[], float]) -> None:
        """A gauge that asks ``value`` whenever the figures are read."""
        Gauge(f"specdemo_{name}", text, registry=self.registry).set_function(value)

    def watch_state(self, state: Callable[[], str]) -> None:
        """``specdemo_state{state=...}``: 1 for the present state, 0 for the others."""
        gauge = Gauge("specdemo_state", "state of the model", ["state"], registry=self.registry)

        def is_now(name: str) -> float:
            return float(state() == name)

        for name in STATES:
            gauge.labels(name).set_function(partial(is_now, name))

    def event(self, drafter: str, event: Event) -> None:
        """Take up one event of a run."""
        if isinstance(event, Verified):
            for token in event.tokens:
                self.tokens.labels(token.origin).inc()
            for verdict in event.verdicts:
                self.drafted.labels(verdict.judgement).inc()
        elif isinstance(event, Finished):
            known = drafter if drafter in REGISTRY else "server"
            self.runs.labels(known, event.reason).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
