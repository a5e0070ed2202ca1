"""A really served page over a tiny model, for the hosting and security tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from helpers import target_of

from specdemo.config import Config
from specdemo.engine import Engine
from specdemo.hosting.backend import HostedBackend
from specdemo.hosting.start import launch


@dataclass
class Hosted:
    """``url`` without a slash at the end; ``http``: a client of its own."""

    backend: HostedBackend
    demo: Any
    url: str
    http: httpx.Client

    def client(self) -> Any:
        from gradio_client import Client

        return Client(self.url, verbose=False)


@contextmanager
def hosted(pair: tuple[Any, Any], config: Config | None = None, load: bool = True) -> Iterator[Hosted]:
    backend = HostedBackend(lambda progress: Engine(target_of(pair)), (), config or Config(log="off"))
    demo = launch(backend, server_port=None)
    try:
        if load:
            backend.start()
            assert backend.ready.wait(60)
        url = demo.local_url.rstrip("/")
        with httpx.Client(base_url=url, timeout=30) as http:
            yield Hosted(backend, demo, url, http)
    finally:
        backend.worker.close()
        backend.network.close()
        demo.close(verbose=False)


@contextmanager
def slow(page: Hosted) -> Iterator[None]:
    """Runs that last: no end token, and each round takes some hundredths of a second."""
    target = page.backend.loaded().target
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "eos_ids", frozenset())
        patch.setattr(target, "synchronize", lambda: time.sleep(0.02))
        yield


def until(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen"
        time.sleep(0.01)
