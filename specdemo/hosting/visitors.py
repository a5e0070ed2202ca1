"""Who asks, and how often: limits that a lecture hall does not notice and a script does.

A visitor is a page (Gradio's session) or a logged-in user. Two hundred students may share one
network address, so an address has a limit of its own, far above that of a visitor; it is what holds
back a script that invents a new session for every request.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from ..errors import InputError

KEPT = 10_000  # visitors remembered; beyond that the one not seen for longest is forgotten


class Buckets:
    """Token buckets by name: ``rate`` a minute, all of them at once if nothing came before."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self._clock = rate, clock
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, name: str) -> float:
        """0 when allowed, else the seconds until it would be."""
        with self._lock:
            now, level = self._clock(), self._level(name)
            self._levels.pop(name, None)
            self._levels[name] = (level - 1.0 if level >= 1.0 else level, now)
            while len(self._levels) > KEPT:
                self._levels.popitem(last=False)
            return self._seconds(level)

    def wait(self, name: str) -> float:
        """The same, without taking."""
        with self._lock:
            return self._seconds(self._level(name))

    def _level(self, name: str) -> float:
        level, then = self._levels.get(name, (self.rate, 0.0))
        return min(self.rate, level + (self._clock() - then) * self.rate / 60)

    def _seconds(self, level: float) -> float:
        return 0.0 if level >= 1.0 else (1.0 - level) * 60 / self.rate

    def __len__(self) -> int:
        return len(self._levels)


@dataclass(frozen=True, slots=True)
class Visitor:
    """``session``: of the page; ``address``: of the network; ``user``: who logged in, or empty."""

    session: str
    address: str
    user: str = ""

    @property
    def name(self) -> str:
        return f"user {self.user}" if self.user else f"page {self.session}"


def visitor_of(request: Any, proxy: bool) -> Visitor:
    """The visitor behind a ``gr.Request``. ``proxy``: a proxy in front wrote the last entry of
    X-Forwarded-For; without one, that header is what a visitor made up and is not looked at."""
    client = getattr(request, "client", None)
    address = address_of(getattr(client, "host", "") or "", getattr(request, "headers", {}), proxy)
    return Visitor(
        str(getattr(request, "session_hash", "") or ""),
        address,
        str(getattr(request, "username", "") or ""),
    )


def address_of(peer: str, headers: Mapping[str, str], proxy: bool) -> str:
    """The visitor's network address: what the proxy in front of us saw, else the peer's."""
    forwarded = headers.get("x-forwarded-for", "") if proxy else ""
    # Entries are appended: the last public one was written by the host's own proxies, those before
    # it came with the request and may be made up.
    entries = [entry.strip()[:64] for entry in forwarded.split(",") if entry.strip()]
    for entry in reversed(entries):
        with suppress(ValueError):
            if ip_address(entry).is_global:
                return entry
    return entries[-1] if entries else peer[:64]


class Limiter:
    """Refuses runs beyond the limits. ``rate`` and ``address_rate`` are runs a minute."""

    def __init__(
        self, rate: float, address_rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._visitors, self._addresses = Buckets(rate, clock), Buckets(address_rate, clock)

    def admit(self, visitor: Visitor) -> None:
        """Raises ``InputError("too_fast")``."""
        wait = self._visitors.take(visitor.name) or self._addresses.take(visitor.address)
        if wait:
            raise InputError("too_fast", seconds=max(1, round(wait + 0.5)))
